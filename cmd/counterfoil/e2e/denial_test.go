package e2e_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// denial is a call that must be denied, and what was done before it.
type denial struct {
	reason string
	detail *detailClaim
	terms  terms
	before func(*testing.T, tenant) // the permit is issued by then
	change func(x tenant, c *call)
	funds  int64 // 0: plenty
}

func limits(credits int64, more object) terms {
	l := object{"credits": credits}
	for member, value := range more {
		l[member] = value
	}
	return terms{grant: object{"tools": []string{"payout"}, "limits": l}}
}

func with(member string, value any) terms {
	p := limits(1000, nil)
	p.grant[member] = value
	return p
}

func args(text string) func(tenant, *call) {
	return func(x tenant, c *call) { c.args = strings.ReplaceAll(text, "MARK", x.marker()) }
}

func firstPayout(t *testing.T, x tenant) { x.succeed(t, x.payout("first")) }

func denials() map[string]denial {
	narrow := "mail.send"
	none := ""
	usd := func(more object) terms {
		value := object{"currency": "USD"}
		for member, v := range more {
			value[member] = v
		}
		return limits(1000, object{"value": value})
	}
	vendor := with("recipient", object{"domains": []string{"vendor.example"}})
	to := func(address string) denial {
		return denial{reason: "permit_recipient_not_allowed", terms: vendor, change: args(`{"to":` + address + `,"amount":1}`)}
	}
	return map[string]denial{
		"revoked":       {reason: "permit_revoked", terms: limits(1000, nil), before: func(t *testing.T, x tenant) { x.s.revoke(t, x.permit) }},
		"not yet valid": {reason: "permit_not_yet_valid", terms: terms{notBefore: time.Now().Add(30 * time.Minute), grant: anything()}},
		"expired": {
			reason: "permit_expired", terms: terms{lives: 2 * time.Second, grant: anything()},
			before: func(t *testing.T, x tenant) { x.s.expired(t, x.permit) },
		},
		"tool":     {reason: "permit_tool_not_allowed", terms: terms{grant: object{"tools": []string{"refund"}, "limits": object{"credits": 100}}}},
		"scope":    {reason: "permit_scope_missing", terms: terms{scope: &narrow, grant: anything()}},
		"no scope": {reason: "permit_scope_missing", terms: terms{scope: &none, grant: anything()}},

		"argument by pointer": {
			reason: "permit_argument_forbidden", terms: with("deny_args", []string{"/bcc"}),
			change: args(`{"to":"MARKvendor.example","amount":1,"bcc":null}`),
		},
		"argument by wildcard": {
			reason: "permit_argument_forbidden", terms: with("deny_args", []string{"/headers/*"}),
			change: args(`{"to":"MARKvendor.example","amount":1,"headers":{"x":1}}`),
		},
		"argument by name, deep": {
			reason: "permit_argument_forbidden", terms: with("deny_args", []string{"bcc"}),
			change: args(`{"to":"MARKvendor.example","amount":1,"a":[{"b":{"\u0062cc":"x"}}]}`),
		},

		"recipient elsewhere":      to(`"MARKevil.example"`),
		"recipient below":          to(`"MARKpay.vendor.example"`),
		"recipient that ends so":   to(`"MARKevilvendor.example"`),
		"recipient that begins so": to(`"MARKvendor.example.evil.example"`),
		"recipient with userinfo":  to(`"https://MARKvendor.example@evil.example/"`),
		"two recipients in one":    to(`"MARKvendor.example, MARKevil.example"`),
		"one of two recipients":    to(`["MARKvendor.example","MARKevil.example"]`),
		"recipient with a name":    to(`"Vendor <MARKvendor.example>"`),
		"recipient with a dot":     to(`"MARKvendor.example."`),
		"recipient look-alike":     to(`"MARKvend\u043er.example"`),
		"recipient number":         to(`7`),
		"no recipients":            to(`[]`),
		"recipient missing":        {reason: "permit_recipient_not_allowed", terms: vendor, change: args(`{"amount":1,"invoice_id":"MARK"}`)},

		"calls in all": {
			reason: "permit_calls_exceeded", detail: &detailClaim{Limit: 1, Needed: 1}, terms: limits(1000, object{"calls_total": 1}), before: firstPayout,
		},
		"calls of the tool": {
			reason: "permit_calls_exceeded", detail: &detailClaim{Limit: 1, Needed: 1}, terms: limits(1000, object{"calls": object{"payout": 1}}), before: firstPayout,
		},
		"value of a call": {
			reason: "permit_value_exceeded", detail: &detailClaim{Limit: 1199, Needed: 1200, Remaining: 1199}, terms: usd(object{"per_call": 1199}),
		},
		"value in all": {
			reason: "permit_value_exceeded", detail: &detailClaim{Limit: 2399, Needed: 1200, Remaining: 1199}, terms: usd(object{"total": 2399}), before: firstPayout,
		},
		"value missing":  {reason: "permit_value_missing", terms: usd(object{"total": 9}), change: args(`{"to":"MARKvendor.example"}`)},
		"value text":     {reason: "permit_value_missing", terms: usd(object{"total": 9}), change: args(`{"to":"MARKvendor.example","amount":"1"}`)},
		"value fraction": {reason: "permit_value_missing", terms: usd(object{"total": 9}), change: args(`{"to":"MARKvendor.example","amount":1.5}`)},
		"value negative": {reason: "permit_value_missing", terms: usd(object{"total": 9}), change: args(`{"to":"MARKvendor.example","amount":-1}`)},
		"value null":     {reason: "permit_value_missing", terms: usd(object{"total": 9}), change: args(`{"to":"MARKvendor.example","amount":null}`)},

		"credits of the permit": {
			reason: "permit_credits_exceeded", detail: &detailClaim{Limit: 9, Needed: payoutPrice, Remaining: 4}, terms: limits(9, nil), before: firstPayout,
		},
		"credits of a call": {
			reason: "permit_credits_exceeded", detail: &detailClaim{Limit: 4, Needed: payoutPrice, Remaining: 4}, terms: limits(1000, object{"credits_per_call": 4}),
		},
		"wallet frozen": {reason: "wallet_frozen", terms: limits(1000, nil), before: func(t *testing.T, x tenant) {
			x.s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/freeze", object{}, http.StatusOK)
		}},
		"credits of the wallet": {reason: "wallet_credits_insufficient", terms: limits(1000, nil), funds: 2*payoutPrice - 1, before: firstPayout},
	}
}

// TestDenials: each verdict of a permit is a denied operation with a signed receipt, and nothing else.
func TestDenials(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for name, d := range denials() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := s.newWallet(t, cmp.Or(d.funds, 1000))
			x.permit = x.issue(t, d.terms)
			if d.before != nil {
				d.before(t, x)
			}
			c := x.payout("invoice-1")
			if d.change != nil {
				d.change(x, &c)
			}
			s.denied(t, x, c, d)
		})
	}
}

func (s *system) denied(t *testing.T, x tenant, c call, d denial) {
	t.Helper()
	want := x.state(t)
	a := x.do(t, c)
	if a.status != http.StatusOK || a.meta.Outcome != "denied" || a.meta.Reason != d.reason || !a.isError || a.replayed() || a.meta.Retry == "" {
		t.Fatalf("want %s: %s", d.reason, a)
	}
	if a.meta.Charged == nil || *a.meta.Charged != 0 || len(a.text) != 1 || !strings.Contains(a.text[0], "not called") {
		t.Errorf("a denial must say in words that nothing ran or was charged: %s", a)
	}
	r := s.receipt(t, a)
	if r.Ledger != nil || r.Credits.Charged != 0 || r.Call.Tool != c.tool || r.Permit.Jti != x.permit || r.Sub != x.wallet || r.Act.Sub != x.agent {
		t.Errorf("the receipt says %+v", r)
	}
	if d.detail != nil && (r.Detail == nil || *r.Detail != *d.detail) {
		t.Errorf("detail %+v, want %+v", r.Detail, d.detail)
	}
	want.Receipts++
	want.Operations++
	unchanged(t, "after the denial", want, x.state(t))
	again := x.do(t, c)
	if !again.replayed() || !bytes.Equal(again.result, a.result) {
		t.Errorf("a denial is an answer like any other: %s", again)
	}
	unchanged(t, "after the repeat", want, x.state(t))
}

// TestOrderOfVerdicts: where everything is wrong, the first verdict of the contract is given; with each fault
// mended it is the next one.
func TestOrderOfVerdicts(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newWallet(t, payoutPrice-1)
	s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/freeze", object{}, http.StatusOK)
	worst := func() object {
		return object{
			"tools": []string{"refund"}, "deny_args": []string{"/amount"}, "recipient": object{"domains": []string{"elsewhere.example"}},
			"limits": object{"credits": 4, "calls_total": 0},
		}
	}
	scope := "mail.send"
	p := terms{scope: &scope, notBefore: time.Now().Add(30 * time.Minute), grant: worst()}
	for i, step := range []struct {
		reason string
		mend   func()
	}{
		{"permit_not_yet_valid", func() { p.notBefore = time.Time{} }},
		{"permit_tool_not_allowed", func() { p.grant["tools"] = []string{"payout"} }},
		{"permit_scope_missing", func() { p.scope = nil }},
		{"permit_argument_forbidden", func() { delete(p.grant, "deny_args") }},
		{"permit_recipient_not_allowed", func() { delete(p.grant, "recipient") }},
		{"permit_calls_exceeded", func() {
			p.grant["limits"] = object{"credits": 4, "value": object{"currency": "USD", "total": 1}}
		}},
		{"permit_value_exceeded", func() { p.grant["limits"] = object{"credits": 4} }},
		{"permit_credits_exceeded", func() { p.grant["limits"] = object{"credits": 400} }},
		{"wallet_frozen", func() { s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/unfreeze", object{}, http.StatusOK) }},
		{"wallet_credits_insufficient", func() {
			s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/deposits", object{"credits": 1, "reference": "one"}, http.StatusCreated)
		}},
	} {
		x.permit = x.issue(t, p)
		c := x.payout(step.reason)
		if a := x.do(t, c); a.meta.Reason != step.reason {
			t.Errorf("step %d, want %s: %s", i, step.reason, a)
		}
		revoked := x
		revoked.permit = x.issue(t, p)
		s.revoke(t, revoked.permit)
		if a := revoked.do(t, revoked.payout(step.reason+" revoked")); a.meta.Reason != "permit_revoked" {
			t.Errorf("step %d, want permit_revoked: %s", i, a)
		}
		step.mend()
	}
	x.permit = x.issue(t, p)
	x.succeed(t, x.payout("at last"))
}

// TestPermitsNotIssued: a permit that could not be held to what it says is refused when it is asked for.
func TestPermitsNotIssued(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newWallet(t, 100)
	for name, grant := range map[string]string{
		"a value limit without a value pointer":  `{"tools":["refund"],"limits":{"credits":1,"value":{"currency":"USD","total":1}}}`,
		"a value limit in another currency":      `{"tools":["payout"],"limits":{"credits":1,"value":{"currency":"EUR","total":1}}}`,
		"approval, which is not in this version": `{"tools":["payout"],"limits":{"credits":1},"approval":{"always":true}}`,
		"approval over a value":                  `{"tools":["payout"],"limits":{"credits":1},"approval":{"always":false,"value_over":5}}`,
		"no credits":                             `{"tools":["payout"],"limits":{}}`,
		"an unknown member":                      `{"tools":["payout"],"limits":{"credits":1},"free":true}`,
		"an unknown limit":                       `{"tools":["payout"],"limits":{"credits":1,"per_day":1}}`,
		"no tools":                               `{"tools":[],"limits":{"credits":1}}`,
		"credits with a fraction":                `{"tools":["payout"],"limits":{"credits":5.0}}`,
		"credits with an exponent":               `{"tools":["payout"],"limits":{"credits":5e3}}`,
		"credits as text":                        `{"tools":["payout"],"limits":{"credits":"5"}}`,
		"credits below 0":                        `{"tools":["payout"],"limits":{"credits":-5}}`,
		"minus 0":                                `{"tools":["payout"],"limits":{"credits":-0}}`,
		"credits above 2^53-1":                   `{"tools":["payout"],"limits":{"credits":9007199254740992}}`,
		"a member twice":                         `{"tools":["payout"],"limits":{"credits":1,"credits":2}}`,
		"a member in another case":               `{"tools":["payout"],"Limits":{"credits":1},"limits":{"credits":1}}`,
		"a pointer that is none":                 `{"tools":["payout"],"limits":{"credits":1},"deny_args":["/a~2"]}`,
		"a domain that is none":                  `{"tools":["payout"],"limits":{"credits":1},"recipient":{"domains":["vendor example"]}}`,
		"a type of another kind":                 `{"type":"counterfoil.tool-permit.v2","tools":["payout"],"limits":{"credits":1}}`,
	} {
		body := fmt.Sprintf(`{"id":"prm_none","wallet_id":%q,"agent_id":%q,"scope":"payments.write","expires_at":"2099-01-01T00:00:00Z","grant":%s}`, x.wallet, x.agent, grant)
		body = strings.Replace(body, "2099-01-01T00:00:00Z", time.Now().Add(time.Hour).UTC().Format(time.RFC3339), 1)
		if p := s.operator(t, http.MethodPost, "/v1/permits", body, http.StatusBadRequest); p["reason"] != "invalid_request" {
			t.Errorf("%s: %v", name, p)
		}
	}
	s.operator(t, http.MethodGet, "/v1/permits/prm_none", nil, http.StatusNotFound)
}
