package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestReusedKey: another request under a used key is refused, does nothing, and is told nothing.
func TestReusedKey(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	r := x.once(t, x.payout("invoice-1"))
	colleague := x.colleague(t)
	other := s.newTenant(t, 100, anything())
	both := s.newTenant(t, 100, anything())
	s.operator(t, http.MethodPatch, "/v1/agents/"+both.agent, object{"wallets": []string{both.wallet, x.wallet}}, http.StatusOK)

	changed := func(change func(*call)) call {
		c := r.call
		change(&c)
		return c
	}
	second := x.issue(t, terms{grant: anything()})
	for name, c := range map[string]struct {
		x    tenant
		call call
	}{
		"tool":           {x, changed(func(c *call) { c.tool = "refund" })},
		"unknown tool":   {x, changed(func(c *call) { c.tool = "nothing" })},
		"argument":       {x, changed(func(c *call) { c.args = strings.Replace(c.args, "1200", "1201", 1) })},
		"more arguments": {x, changed(func(c *call) { c.args = strings.Replace(c.args, "1200", `1200,"invoice_id":"1"`, 1) })},
		"permit":         {x, changed(func(c *call) { c.permit = second })},
		"unknown permit": {x, changed(func(c *call) { c.permit = "prm_nothing" })},
		"agent":          {colleague, changed(func(c *call) { c.permit = colleague.permit })},
		"agent and all":  {colleague, r.call},
		"agent of two":   {both, changed(func(c *call) { c.permit = both.permit })},
	} {
		a := c.x.do(t, c.call)
		if a.status != http.StatusOK || a.refusal == nil || a.refusal.Code != -31422 || a.reason() != "idempotency_key_reused" || a.refusal.Data.Retry != "never" || a.result != nil {
			t.Errorf("%s: %s", name, a)
		}
		for _, secret := range []string{r.first.meta.Operation, r.first.meta.ReceiptID, x.permit, x.agent, x.wallet, x.marker(), "succeeded", "effect", "op_", "rcp_"} {
			if strings.Contains(string(a.body), secret) {
				t.Errorf("%s: the refusal tells %q: %s", name, secret, a)
			}
		}
		unchanged(t, name, r.then, x.state(t))
	}
	// The key is the wallet's: in another wallet it is another key.
	if a := other.do(t, other.payout("invoice-1")); a.meta.Outcome != "succeeded" || a.replayed() {
		t.Errorf("the same key in another wallet: %s", a)
	}
	r.same(t, x.do(t, r.call))
}

// TestStranger: an agent of another wallet is answered the same, byte for byte, whatever is in a wallet.
func TestStranger(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	r := x.once(t, x.payout("invoice-1"))
	stranger := s.newTenant(t, 100, anything())
	before := stranger.state(t)
	used, unused, nowhere := r.call, r.call, r.call
	unused.key = "invoice-2"
	nowhere.wallet = "wal_nothing"
	var first answer
	for i, c := range []call{used, unused, nowhere} {
		for _, permit := range []string{x.permit, stranger.permit, "prm_nothing", ""} {
			for _, tool := range []string{"payout", "nothing"} {
				c.permit, c.tool = permit, tool
				a := stranger.do(t, c)
				if a.refusal == nil || a.refusal.Code != -31403 || a.reason() != "wallet_forbidden" {
					t.Fatalf("%+v: %s", c, a)
				}
				if first.body == nil {
					first = a
				}
				if string(a.body) != string(first.body) || !slices.Equal(headerNames(a.header), headerNames(first.header)) {
					t.Errorf("case %d tells more than others:\n%s %v\n%s %v", i, a, headerNames(a.header), first, headerNames(first.header))
				}
			}
		}
	}
	unchanged(t, "the wallet", r.then, x.state(t))
	unchanged(t, "the stranger's wallet", before, stranger.state(t))

	// Its records are not there for the stranger either.
	for _, path := range []string{
		"/v1/operations/" + r.first.meta.Operation, "/v1/receipts/" + r.first.meta.ReceiptID, "/v1/receipts/" + r.first.meta.ReceiptID + "/bundle",
	} {
		if status, body := s.ask(t, s.url, stranger.key, http.MethodGet, path, nil); status != http.StatusNotFound {
			t.Errorf("GET %s: %d %s", path, status, body)
		}
		if status, body := s.ask(t, s.url, x.key, http.MethodGet, path, nil); status != http.StatusOK {
			t.Errorf("the wallet's agent: GET %s: %d %s", path, status, body)
		}
	}
	status, body := s.ask(t, s.url, stranger.key, http.MethodGet, "/v1/operations", nil)
	if status != http.StatusOK || strings.Contains(string(body), "op_") {
		t.Errorf("the stranger's list: %d %s", status, body)
	}
}

func headerNames(h http.Header) []string {
	var names []string
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
