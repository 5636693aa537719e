package mcp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

func limit(n int64) *int64 { return &n }

// TestEveryDenialHasItsReceipt goes through the verdicts of contract 4 end to end.
func TestEveryDenialHasItsReceipt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	grant := func(change func(*permits.Grant)) func(*permits.Permit) {
		return func(p *permits.Permit) { change(&p.Grant) }
	}
	usd := func(total, perCall *int64) func(*permits.Permit) {
		return grant(func(g *permits.Grant) {
			g.Limits.Value = &permits.ValueLimit{Currency: "USD", Total: total, PerCall: perCall}
			g.Tools = []string{"pay"}
		})
	}
	now := time.Now().Unix()
	for reason, c := range map[string]struct {
		change func(*permits.Permit)
		args   string
		detail *permits.Detail
		retry  string
	}{
		"permit_revoked":               {nil, payArgs, nil, "never"},
		"permit_not_yet_valid":         {func(p *permits.Permit) { p.NotBefore = now + 600 }, payArgs, nil, "new_key"},
		"permit_expired":               {func(p *permits.Permit) { p.Expires = now - 1 }, payArgs, nil, "never"},
		"permit_tool_not_allowed":      {grant(func(g *permits.Grant) { g.Tools = []string{"fail"} }), payArgs, nil, "never"},
		"permit_scope_missing":         {func(p *permits.Permit) { p.Scopes = []string{"other"} }, payArgs, nil, "never"},
		"permit_argument_forbidden":    {grant(func(g *permits.Grant) { g.DenyArgs = []string{"bcc"} }), `{"to":"a@vendor.example","n":[{"bcc":1}]}`, nil, "new_key"},
		"permit_recipient_not_allowed": {grant(func(g *permits.Grant) { g.Recipient = &permits.Recipient{Domains: []string{"vendor.example"}} }), `{"to":"a@vendor.example.evil.test"}`, nil, "new_key"},
		"permit_calls_exceeded":        {grant(func(g *permits.Grant) { g.Limits.CallsTotal = limit(0) }), payArgs, &permits.Detail{Limit: 0, Needed: 1, Remaining: 0}, "never"},
		"permit_value_missing":         {usd(limit(100), nil), `{"amount":"1"}`, nil, "new_key"},
		"permit_value_exceeded":        {usd(limit(1100), nil), payArgs, &permits.Detail{Limit: 1100, Needed: 1200, Remaining: 1100}, "new_key"},
		"permit_credits_exceeded":      {grant(func(g *permits.Grant) { g.Limits.Credits = 4 }), payArgs, &permits.Detail{Limit: 4, Needed: 5, Remaining: 4}, "never"},
		"wallet_credits_insufficient":  {func(p *permits.Permit) { p.Wallet = "wal_poor" }, payArgs, nil, "new_key"},
	} {
		id := "prm_" + reason
		p := h.permit(id, c.change)
		if reason == "permit_revoked" {
			h.admin(func(ctx context.Context, a *ledger.Admin) error {
				_, err := a.RevokePermit(ctx, id, "")
				return err
			})
		}
		before := h.state(p.Wallet)
		body := callBody("pay", c.args, keyed("k-"+reason)+`,"permit_id":"`+id+`","wallet_id":"`+p.Wallet+`"`)
		a := h.post(body)
		if a.status != 200 || !a.isError || a.text("counterfoil/outcome") != "denied" || a.text("counterfoil/reason") != reason ||
			a.text("counterfoil/retry") != c.retry || a.meta["counterfoil/credits_charged"] != 0.0 || len(a.texts) != 1 {
			t.Errorf("%s: got %d %s", reason, a.status, a.body)
			continue
		}
		claims := h.claims(a)
		if claims.Outcome != receipts.Denied || string(claims.Reason) != reason || claims.Charged != 0 || claims.LedgerEntry != "" || claims.PermitSHA256 != p.SHA256 {
			t.Errorf("%s: receipt says %+v", reason, claims)
		}
		if c.detail != nil && (claims.Detail == nil || *claims.Detail != *c.detail) {
			t.Errorf("%s: detail %+v, want %+v", reason, claims.Detail, c.detail)
		}
		want := before
		want.Receipts++
		if got := h.state(p.Wallet); got != want {
			t.Errorf("%s: state %+v, want %+v", reason, got, want)
		}
		if again := h.post(body); string(again.result) != string(a.result) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: the replay differs: %s", reason, again.body)
		}
	}
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.SetFrozen(ctx, "wal_1", true, "")
		return err
	})
	if a := h.pay("frozen"); a.text("counterfoil/reason") != "wallet_frozen" || h.claims(a).Reason != "wallet_frozen" {
		t.Errorf("frozen: %s", a.body)
	}
}

func TestOutcomesOfTheTool(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	balance := int64(1_000_000)
	for _, c := range []struct {
		tool, outcome, reason, retry string
		charged                      int64
		texts                        int
	}{
		{"pay", "succeeded", "", "", 5, 1},
		{"metered", "succeeded", "", "", 2, 1},
		{"fail", "failed", "tool_error", "check", 0, 2},
		{"fail_charged", "failed", "tool_error", "check", 5, 2},
		{"gone", "failed", "upstream_rejected", "new_key", 0, 1},
	} {
		a := h.post(callBody(c.tool, payArgs, keyed("k-"+c.tool)))
		if a.text("counterfoil/outcome") != c.outcome || a.text("counterfoil/reason") != c.reason || a.text("counterfoil/retry") != c.retry ||
			a.meta["counterfoil/credits_charged"] != float64(c.charged) || a.isError != (c.outcome != "succeeded") || len(a.texts) != c.texts {
			t.Errorf("%s: got %d %s", c.tool, a.status, a.body)
			continue
		}
		balance -= c.charged
		if got := h.state("wal_1"); got.Available != balance || got.Held != 0 {
			t.Errorf("%s: state %+v, want available %d", c.tool, got, balance)
		}
		claims := h.claims(a)
		if claims.Charged != c.charged || claims.Authorized != price || (claims.LedgerEntry != "") != (c.charged > 0) {
			t.Errorf("%s: receipt says %+v", c.tool, claims)
		}
		if c.tool == "fail" && a.texts[0] != "no funds" {
			t.Errorf("the tool's own words are gone: %q", a.texts)
		}
	}
}

func TestUpstreamAway(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.pay("warm")
	before := h.state("wal_1")
	h.tool.refuse.Store(true) // it acts, and its answer is lost
	a := h.pay("lost")
	if a.text("counterfoil/outcome") != "delivery_uncertain" || a.text("counterfoil/retry") != "check" || a.meta["counterfoil/credits_charged"] != float64(price) || !a.isError {
		t.Errorf("lost answer: %d %s", a.status, a.body)
	}
	h.claims(a)
	if got := h.state("wal_1"); got.Effects != before.Effects+1 || got.Available != before.Available-price || got.Held != 0 {
		t.Errorf("state %+v, was %+v", got, before)
	}
	if again := h.pay("lost"); string(again.result) != string(a.result) || h.tool.count() != before.Effects+1 {
		t.Errorf("the replay of an uncertain call: %s", again.body)
	}
	h.tool.server.CloseClientConnections()
	h.tool.server.Listener.Close()
	b := h.pay("away")
	if b.text("counterfoil/reason") != "upstream_unreachable" || b.text("counterfoil/retry") != "new_key" || b.meta["counterfoil/credits_charged"] != 0.0 {
		t.Errorf("unreachable: %d %s", b.status, b.body)
	}
}

func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	a := h.post(callBody("echo", "{}", keyed("k")))
	op := a.text("counterfoil/operation_id")
	sent := h.tool.headers[0].Get("Idempotency-Key")
	if sent == "" || sent == "k" || strings.Contains(a.body, sent) || strings.Contains(h.log.String(), sent) {
		t.Errorf("the private key %q is in %s", sent, a.body)
	}
	if len(a.texts) != 1 || a.texts[0] != "key "+op || !h.claims(a).Result.Scrubbed {
		t.Errorf("the handle does not stand in for the key: %s", a.body)
	}
	if strings.Contains(a.body, "forged") || a.meta["theirs"] != 1.0 {
		t.Errorf("_meta is not merged as it should be: %v", a.meta)
	}
	if got := h.tool.headers[0]; got.Get("X-API-Key") != "" || got.Get("Authorization") != "" || got.Get("X-Secret") != "upstream-secret-1" {
		t.Errorf("headers upstream: %v", got)
	}
}

func TestPermitNeedsNoDefault(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.permit("prm_agent2", func(p *permits.Permit) { p.Agent = "agt_2" })
	a := h.post(callBody("pay", payArgs, keyed("k")+`,"permit_id":"prm_agent2"`), "X-API-Key", keyTwo)
	if a.text("counterfoil/outcome") != "succeeded" || h.claims(a).Agent != "agt_2" {
		t.Fatalf("got %s", a.body)
	}
	// The retry that names no permit is compared under the stored one, although
	// this agent has no default at all.
	again := h.pay("k", "X-API-Key", keyTwo)
	if string(again.result) != string(a.result) {
		t.Errorf("the retry without a permit: %s", again.body)
	}
}
