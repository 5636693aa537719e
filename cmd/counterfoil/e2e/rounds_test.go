package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// asks is a tool that asks so many times for input before it acts. Its states name the call and the round.
func asks(rounds int) act {
	return func(w http.ResponseWriter, r *http.Request, id string) {
		var m struct {
			Params struct {
				Arguments    struct{ Which string }
				RequestState string
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		done := 0
		_, _ = fmt.Sscanf(m.Params.RequestState, "round %d", &done)
		if done == rounds {
			answerWith(w, id, `{"resultType":"complete","content":[{"type":"text","text":"done as you said"}]}`)
			return
		}
		answerWith(w, id, fmt.Sprintf(`{"resultType":"input_required","inputRequests":{"sure":{"method":"elicitation/create","params":{"message":"sure?"}}},"requestState":"%s","_meta":{"theirs":1.10}}`,
			roundState(done+1, m.Params.Arguments.Which)))
	}
}

// roundState is what a tool gives out with its n-th question.
func roundState(n int, which string) string {
	return fmt.Sprintf(`round %d of \u003c%s\u003e \"é\"`, n, which)
}

// saysYes answers the n-th question about a call.
func saysYes(n int, which string) dialect {
	return dialect{modern: true, capabilities: `{"elicitation":{}}`, params: `,"inputResponses":{"sure":{"action":"accept"}},"requestState":"` + roundState(n, which) + `"`}
}

// asking is the dialect of somebody who can be asked.
func asking() dialect { return dialect{modern: true, capabilities: `{"elicitation":{}}`} }

// pending wants an answer to be the n-th question, and nothing to be settled.
func (x tenant) pending(t *testing.T, a answer, n int, which string) {
	t.Helper()
	if a.status != http.StatusOK || a.meta.Outcome != "pending" || a.isError || a.meta.Operation == "" || a.meta.Receipt != "" || a.meta.ReceiptID != "" || a.meta.Charged == nil || *a.meta.Charged != 0 ||
		a.replayed() || !strings.Contains(string(a.result), `"resultType":"input_required"`) || !strings.Contains(string(a.result), `"requestState":"`+roundState(n, which)+`"`) ||
		!strings.Contains(string(a.result), `"theirs":1.10`) || !strings.Contains(string(a.result), `"message":"sure?"`) {
		t.Fatalf("want question %d about %s: %s", n, which, a)
	}
}

// begin makes a call whose tool asks, and gives what it asked.
func (x tenant) begin(t *testing.T, p *peer, key string, rounds int) answer {
	t.Helper()
	p.on(`"`+key+`"`, asks(rounds))
	a := x.saying(t, asking(), x.doing(key))
	x.pending(t, a, 1, key)
	return a
}

// sent counts the continuations of a round.
func (p *peer) sent(n int, which string) int {
	return len(p.requests("tools/call", `"requestState":"`+roundState(n, which)+`"`))
}

// parked is the state of a wallet of 100 credits whose only call waits for input.
func parked() state {
	return state{Balance: 100, Held: peerPrice, Available: 100 - peerPrice, PermitHeld: peerPrice, Calls: 1, Operations: 1, Open: 1}
}

// paid is the same after the call.
func paidOnce() state {
	return state{Balance: 100 - peerPrice, Available: 100 - peerPrice, Spent: peerPrice, Calls: 1, Charges: 1, Receipts: 1, Operations: 1}
}

// TestEachRoundIsGoneOnWithOnce: 50 callers at two gateways answer each question of a tool at once. One answer of each
// goes up; the tool acts once, and is paid once.
func TestEachRoundIsGoneOnWithOnce(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	_, second := s.second(t)
	x := s.newTenant(t, 100, anythingOf("do"))
	c := x.doing("raced")
	first := x.begin(t, p, c.key, 2)
	unchanged(t, "while it waits", parked(), x.state(t))
	if op := s.operator(t, http.MethodGet, "/v1/operations/"+first.meta.Operation, nil, http.StatusOK); op["state"] != "awaiting_input" {
		t.Errorf("while it waits: %v", op)
	}
	for range 3 { // who asks without an answer is asked the same again
		if again := x.saying(t, asking(), c); string(again.result) != string(first.result) {
			t.Errorf("asked again:\n%s\n%s", first.result, again)
		}
	}
	for round := 1; round <= 2; round++ {
		went := 0
		for _, a := range s.together(t, 50, func(i int) (answer, error) {
			return x.trySaying([]string{s.url, second}[i%2], saysYes(round, c.key), c)
		}) {
			switch {
			case a.meta.Outcome == "pending" && round == 1, a.meta.Outcome == "succeeded" && !a.replayed():
				went++
			case a.meta.Outcome == "succeeded" && round == 2, a.reason() == "idempotency_in_progress", a.refusal != nil && a.refusal.Code == -32602:
			default:
				t.Errorf("round %d: %s", round, a)
			}
		}
		if went != 1 || p.sent(round, c.key) != 1 {
			t.Errorf("round %d: %d went on, %d were sent", round, went, p.sent(round, c.key))
		}
		if round == 1 {
			unchanged(t, "between the rounds", parked(), x.state(t))
		}
	}
	unchanged(t, "after all", paidOnce(), x.state(t))
	done := x.saying(t, asking(), c)
	if !done.replayed() || len(done.text) != 1 || done.text[0] != "done as you said" || done.meta.Operation != first.meta.Operation {
		t.Errorf("the outcome: %s", done)
	}
	s.receipt(t, done)
	// Whatever is answered now, the outcome stands; in the other era too.
	for _, d := range []dialect{saysYes(1, c.key), saysYes(2, c.key), saysYes(9, "nothing"), {}} {
		if again := x.saying(t, d, c); !again.replayed() || again.meta.Receipt != done.meta.Receipt {
			t.Errorf("after the outcome: %s", again)
		}
	}
	if n := p.did(`"raced"`); n != 3 {
		t.Errorf("%d calls went up", n)
	}
}

// TestAStateBelongsToItsCall: a state that was changed, or comes from another agent, about another tool or with other
// arguments, or comes back in a form that is none, sends nothing and takes nothing of the round, which its caller can
// still go on with, by the state alone.
func TestAStateBelongsToItsCall(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemBeside(t, p.line("peer", ""), toolLines+doLine+"\n  - {name: twin, upstream: peer, upstream_tool: do, credits: 5}")
	x := s.newTenant(t, 100, anythingOf("do", "twin"))
	colleague, other := x.colleague(t), s.newTenant(t, 100, anythingOf("do"))
	colleague.permit = colleague.issue(t, terms{grant: anythingOf("do")})
	c := x.doing("bound")
	x.begin(t, p, c.key, 1)
	before := x.state(t)
	right := saysYes(1, c.key)
	with := func(params string) dialect {
		d := asking()
		d.params = params
		return d
	}
	same := `"requestState":"` + roundState(1, c.key) + `"`
	changed := func(change func(*call)) call {
		c := c
		change(&c)
		return c
	}
	nameless := changed(func(c *call) { c.key = "" })
	for what, w := range map[string]struct {
		who tenant
		say dialect
		c   call
	}{
		"a changed state":                {x, with(`,"inputResponses":{},"requestState":"` + roundState(1, c.key) + ` "`), c},
		"a changed state, no key":        {x, with(`,"inputResponses":{},"requestState":"` + roundState(1, c.key) + ` "`), nameless},
		"another round's state":          {x, saysYes(2, c.key), c},
		"an empty state":                 {x, with(`,"inputResponses":{},"requestState":""`), c},
		"no state":                       {x, with(`,"inputResponses":{"sure":{}}`), c},
		"a state that is no text":        {x, with(`,"inputResponses":{},"requestState":1`), c},
		"a state that is null":           {x, with(`,"inputResponses":{},"requestState":null`), c},
		"answers that are a list":        {x, with(`,"inputResponses":[],` + same), c},
		"answers that are no objects":    {x, with(`,"inputResponses":{"sure":true},` + same), c},
		"answers that are null":          {x, with(`,"inputResponses":null,` + same), c},
		"another agent by the state":     {colleague, right, colleague.as(nameless)},
		"another agent by the key":       {colleague, right, colleague.as(c)},
		"another wallet by the state":    {other, right, other.as(nameless)},
		"another wallet by the key":      {other, right, other.as(c)},
		"another tool by the state":      {x, right, changed(func(c *call) { c.tool, c.key = "twin", "" })},
		"another tool by the key":        {x, right, changed(func(c *call) { c.tool = "twin" })},
		"other arguments by the state":   {x, right, changed(func(c *call) { c.args, c.key = `{"which":"bound","n":1}`, "" })},
		"other arguments by the key":     {x, right, changed(func(c *call) { c.args = `{"which":"bound","n":1}` })},
		"a handshake caller, no answers": {x, dialect{}, c},
		"a handshake caller":             {x, dialect{params: right.params}, c},
	} {
		a := w.who.saying(t, w.say, w.c)
		known := a.refusal != nil && (a.refusal.Code == -32602 || a.reason() == "idempotency_key_reused" || a.reason() == "idempotency_in_progress" && !w.say.modern)
		if !known || a.result != nil || strings.Contains(string(a.body), "op_") || strings.Contains(string(a.body), "round 1") {
			t.Errorf("%s: %s", what, a)
		}
		if a.refusal != nil && a.refusal.Code == -32602 && w.say.modern && a.status != http.StatusBadRequest {
			t.Errorf("%s: HTTP %d", what, a.status)
		}
		if n := p.did(`"bound"`); n != 1 {
			t.Fatalf("%s: %d calls went up", what, n)
		}
	}
	unchanged(t, "after all that is wrong", before, x.state(t))
	unchanged(t, "the other wallet", state{Balance: 100, Available: 100}, other.state(t))
	// A state is enough to find the call, whoever wrote its JSON.
	right.params = strings.ReplaceAll(right.params, `\u003c`, "<")
	if a := x.saying(t, right, nameless); a.meta.Outcome != "succeeded" || a.replayed() {
		t.Errorf("by the state alone: %s", a)
	}
	if again := x.saying(t, right, c); !again.replayed() || p.did(`"bound"`) != 2 {
		t.Errorf("again: %s", again)
	}
	unchanged(t, "after all", paidOnce(), x.state(t))

	// And where each POST has a key of its own, it is still one call; the other key has been used for nothing.
	first := other.begin(t, p, "many-keys", 1)
	c = other.doing("many-keys")
	c.key = "many-keys-2"
	if a := other.saying(t, saysYes(1, "many-keys"), c); a.meta.Outcome != "succeeded" || a.meta.Operation != first.meta.Operation {
		t.Errorf("the state under another key: %s", a)
	}
	unchanged(t, "after two keys", paidOnce(), other.state(t))
}

// as is another's call made by the tenant.
func (x tenant) as(c call) call {
	c.wallet, c.permit = x.wallet, x.permit
	return c
}

// TestRoundsThatCannotBeGoneOnWith: while a call waits its permit is revoked, or runs out, or its wallet is frozen: nothing
// is sent then, and the round stays open. Nobody answers it in time, and everything comes back, with a receipt that
// says so; whoever comes later with the right answer gets that.
func TestRoundsThatCannotBeGoneOnWith(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := (&system{place: "database: " + freshDatabase(t), limits: "limits: {input_ttl: 12s}", beside: p.line("peer", ""), tools: toolLines + doLine}).build(t)
	type one struct {
		x      tenant
		reason string
		undo   func()
	}
	freeze := func(x tenant, how string) {
		s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/"+how, object{}, http.StatusOK)
	}
	calls := map[string]*one{}
	for what, do := range map[string]func(o *one){
		"revoked": func(o *one) { s.revoke(t, o.x.permit); o.reason = "permit_revoked" },
		"frozen": func(o *one) {
			freeze(o.x, "freeze")
			o.reason, o.undo = "wallet_frozen", func() { freeze(o.x, "unfreeze") }
		},
		"left": func(*one) {},
	} {
		o := &one{x: s.newTenant(t, 100, anythingOf("do"))}
		o.x.begin(t, p, what, 1)
		do(o)
		calls[what] = o
	}
	for what, o := range calls {
		if o.reason == "" {
			continue
		}
		for range 2 {
			if a := o.x.saying(t, saysYes(1, what), o.x.doing(what)); a.reason() != o.reason || a.meta.Receipt != "" || p.sent(1, what) != 0 {
				t.Errorf("%s: %s", what, a)
			}
		}
		o.x.pending(t, o.x.saying(t, asking(), o.x.doing(what)), 1, what)
		unchanged(t, what, parked(), o.x.state(t))
		if o.undo != nil {
			o.undo()
			if a := o.x.saying(t, saysYes(1, what), o.x.doing(what)); a.meta.Outcome != "succeeded" {
				t.Errorf("%s no more: %s", what, a)
			}
			unchanged(t, what+" no more", paidOnce(), o.x.state(t))
			delete(calls, what)
		}
	}
	for what, o := range calls {
		c := o.x.doing(what)
		var a answer
		eventually(t, "the end of "+what, func() bool {
			a = o.x.saying(t, asking(), c)
			return a.meta.Outcome != "pending"
		})
		if a.meta.Outcome != "failed" || a.meta.Reason != "input_abandoned" || *a.meta.Charged != 0 || !a.isError || !a.replayed() || len(a.text) != 1 {
			t.Fatalf("%s: %s", what, a)
		}
		r := s.receipt(t, a)
		if r.Ledger != nil || r.Credits.Authorized != peerPrice || r.Credits.Charged != 0 {
			t.Errorf("%s: the receipt says %+v", what, r)
		}
		unchanged(t, what, state{Balance: 100, Available: 100, Receipts: 1, Operations: 1}, o.x.state(t))
		late := o.x.saying(t, saysYes(1, what), c)
		if !late.replayed() || string(late.result) != string(a.result) || p.sent(1, what) != 0 {
			t.Errorf("%s, answered too late: %s", what, late)
		}
		nameless := c
		nameless.key = ""
		if late := o.x.saying(t, saysYes(1, what), nameless); late.refusal == nil || late.refusal.Code != -32602 {
			t.Errorf("%s, too late by the state alone: %s", what, late)
		}
	}
	if n := s.metric(t, `counterfoil_calls_total{outcome="failed",reason="input_abandoned",tool="do"}`); n != float64(len(calls)) {
		t.Errorf("%v calls are counted as abandoned", n)
	}
}

// TestARoundThatEndsBadly: what may befall a call may befall each of its rounds.
func TestARoundThatEndsBadly(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	const lacks = `{"requiredCapabilities":{"sampling":{}}}`
	for key, c := range map[string]struct {
		then           act
		outcome        string
		reason         string
		charged, calls int64
	}{
		"lost":       {breakOff, "delivery_uncertain", "no_response", peerPrice, 1},
		"tool-error": {result(`{"resultType":"complete","content":[],"isError":true}`), "failed", "tool_error", 0, 1},
		"rejected":   {plain(http.StatusNotFound, "text/html", "<html>"), "failed", "upstream_rejected", 0, 0},
		"lacking": {func(w http.ResponseWriter, _ *http.Request, id string) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(rpcError(id, -32021, "no sampling", lacks)))
		}, "failed", "upstream_rejected", 0, 0},
	} {
		x := s.newTenant(t, 100, anythingOf("do"))
		x.begin(t, p, key, 1)
		p.on(`"`+key+`"`, c.then)
		a := x.saying(t, saysYes(1, key), x.doing(key))
		again, old := x.saying(t, saysYes(1, key), x.doing(key)), x.do(t, x.doing(key))
		if key == "lacking" {
			// A modern caller is told what it lacks as the protocol does, each time; the other era gets the outcome.
			for _, a := range []answer{a, again} {
				if a.status != http.StatusBadRequest || a.refusal == nil || a.refusal.Code != -32021 || a.refusal.Message != "no sampling" || !strings.Contains(string(a.body), lacks) {
					t.Errorf("%s: %s", key, a)
				}
			}
		} else if a.meta.Outcome != c.outcome || a.meta.Reason != c.reason || a.replayed() || string(again.result) != string(a.result) || !again.replayed() {
			t.Errorf("%s: %s\nand again: %s", key, a, again)
		}
		if old.meta.Outcome != c.outcome || old.meta.Reason != c.reason || *old.meta.Charged != c.charged || !old.replayed() {
			t.Errorf("%s in the other era: %s", key, old)
		}
		s.receipt(t, old)
		want := state{Balance: 100 - c.charged, Available: 100 - c.charged, Spent: c.charged, Calls: c.calls, Receipts: 1, Operations: 1, Charges: int(c.charged / peerPrice)}
		unchanged(t, key, want, x.state(t))
		if p.sent(1, key) != 1 || p.did(`"`+key+`"`) != 2 {
			t.Errorf("%s was sent %d times", key, p.sent(1, key))
		}
	}
}
