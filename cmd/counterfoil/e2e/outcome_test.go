package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestOutcomes: what a tool that misbehaves leaves behind, in money and in effects. The connection to it is in
// use before, and the operation key is forwarded in a header that net/http takes as leave to send again.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool, mode       string
		outcome, reason  string
		retry            string
		charged, effects int64
	}{
		{"flaky", "ok", "succeeded", "", "", flakyPrice, 1},
		{"flaky", "drop", "delivery_uncertain", "no_response", "check", flakyPrice, 1},
		{"flaky", "500", "delivery_uncertain", "upstream_error", "check", flakyPrice, 1},
		{"flaky", "error", "failed", "tool_error", "check", 0, 0},
		{"flaky", "?", "failed", "upstream_rejected", "new_key", 0, 0},
		{"flaky_charged", "error", "failed", "tool_error", "check", flakyPrice, 0},
		{"flaky_charged", "ok", "succeeded", "", "", flakyPrice, 1},
	} {
		t.Run(c.tool+" "+c.mode, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			x := s.newTenant(t, 100, anything())
			x.succeed(t, x.payout("warm"))
			before := x.state(t)
			call := call{tool: c.tool, args: fmt.Sprintf(`{"mode":%q}`, c.mode), wallet: x.wallet, permit: x.permit, key: "k"}
			a := x.do(t, call)
			if a.status != http.StatusOK || a.meta.Outcome != c.outcome || a.meta.Reason != c.reason || a.meta.Retry != c.retry || a.isError != (c.outcome != "succeeded") || a.replayed() {
				t.Fatalf("want %s %s %s: %s", c.outcome, c.reason, c.retry, a)
			}
			if len(a.text) == 0 || c.reason != "" && !strings.Contains(a.text[len(a.text)-1], "credits") {
				t.Errorf("it does not say in words whether money moved: %s", a)
			}
			r := s.receipt(t, a)
			if r.Credits.Authorized != flakyPrice || r.Credits.Charged != c.charged || r.Res == nil || r.Chain.Seq != 2 || len(r.Chain.Prev) != 64 {
				t.Errorf("the receipt says %+v", r)
			}
			again := x.do(t, call)
			if !again.replayed() || string(again.result) != string(a.result) {
				t.Errorf("again: %s", again)
			}
			if n := int64(len(s.tool.effects(t, "mode"))); n != c.effects {
				t.Errorf("%d effects, want %d", n, c.effects)
			}
			want := before
			want.Balance -= c.charged
			want.Available -= c.charged
			want.Spent += c.charged
			want.Receipts++
			want.Operations++
			if c.charged > 0 {
				want.Charges++
			}
			if c.reason != "upstream_rejected" {
				want.Calls++ // it was delivered
			}
			unchanged(t, "after the call", want, x.state(t))
			op := s.all(t, "/v1/operations", url.Values{"wallet": {x.wallet}})
			if last := op[len(op)-1]; last["state"] != "finished" || last["outcome"] != c.outcome || last.number(t, "credits_charged") != c.charged || last.number(t, "credits_held") != 0 {
				t.Errorf("the operation: %v", last)
			}
		})
	}
}

// TestActualCost: a tool that says what a call cost is paid that, and never more than its price.
func TestActualCost(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 1000, anything())
	total := int64(0)
	for i := range int64(12) { // the tool's cost is the number of its effect
		c := x.payout(fmt.Sprint("k", i))
		c.tool = "metered"
		a := x.succeed(t, c)
		want := min(i+1, 9)
		total += want
		if *a.meta.Charged != want {
			t.Errorf("effect %d cost %d, want %d", i+1, *a.meta.Charged, want)
		}
		if r := s.receipt(t, a); r.Credits.Authorized != 9 || r.Credits.Charged != want {
			t.Errorf("the receipt says %+v", r.Credits)
		}
	}
	want := state{Balance: 1000 - total, Available: 1000 - total, Spent: total, Calls: 12, Charges: 12, Receipts: 12, Operations: 12, Effects: 12}
	unchanged(t, "after all", want, x.state(t))
}

// TestCallerHangsUp: a caller that goes away while its call runs changes nothing about the call.
func TestCallerHangsUp(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	release := s.tool.keep(x.marker())
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	gone := make(chan error, 1)
	go func() {
		_, err := s.send(ctx, s.raw, s.url+"/mcp", x.key, x.payout("invoice-1").body())
		gone <- err
	}()
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, x.marker())) == 1 })
	hangUp()
	if err := receive(t, gone, "the end of the call"); err == nil {
		t.Fatal("the caller did not hang up")
	}
	release()
	a := x.do(t, x.payout("invoice-1"), "Prefer", "wait=60")
	if a.meta.Outcome != "succeeded" || !a.replayed() {
		t.Errorf("the call that was left alone: %s", a)
	}
	want := state{Balance: 95, Available: 95, Spent: 5, Calls: 1, Charges: 1, Receipts: 1, Operations: 1, Effects: 1}
	unchanged(t, "after all", want, x.state(t))
}
