package permits_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"counterfoil/permits"
)

func TestIssueReturnsWhatParseReads(t *testing.T) {
	t.Parallel()
	c := admitted()
	s := signer(t, 1)
	issued, err := c.permit.Issue(s, expect())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&c.permit, issued, cmpopts.IgnoreFields(permits.Permit{}, "Token", "SHA256")); diff != "" {
		t.Error(diff)
	}
	again, err := permits.Parse(issued.Token, keySet(t, permitKey(s)), expect())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(issued, again); diff != "" {
		t.Error(diff)
	}
	if c.permit.Token != "" {
		t.Error("Issue changed its receiver")
	}
}

// The member order of RFC 8785 is that of UTF-16, not that of UTF-8.
func TestPayloadOrdersToolsByUTF16(t *testing.T) {
	t.Parallel()
	g := permits.Grant{Limits: permits.Limits{Calls: map[string]int64{"\uffee": 2, "\U0001F600": 1}}}
	const want = "{\"limits\":{\"calls\":{\"\U0001F600\":1,\"\uffee\":2},\"credits\":0}}"
	if got := string(g.JSON(false)); got != want {
		t.Errorf("got %s", got)
	}
}

func TestIssueRefusesWhatParseWouldRefuse(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*permits.Permit){
		"issuer":     func(p *permits.Permit) { p.Issuer = "https://other.example" },
		"audience":   func(p *permits.Permit) { p.Audience = "" },
		"wallet":     func(p *permits.Permit) { p.Wallet = "ops" },
		"agent":      func(p *permits.Permit) { p.Agent = "agt_é" },
		"id":         func(p *permits.Permit) { p.ID = "" },
		"lifetime":   func(p *permits.Permit) { p.Expires = p.IssuedAt + 3601 },
		"window":     func(p *permits.Permit) { p.NotBefore = p.Expires },
		"negative":   func(p *permits.Permit) { p.Grant.Limits.Credits = -1 },
		"too large":  func(p *permits.Permit) { p.Grant.Limits.CallsTotal = ptr(permits.MaxInteger + 1) },
		"scope":      func(p *permits.Permit) { p.Scopes = []string{"a b"} },
		"no scope":   func(p *permits.Permit) { p.Scopes = []string{""} },
		"no tools":   func(p *permits.Permit) { p.Grant.Tools = nil },
		"bad UTF-8":  func(p *permits.Permit) { p.Grant.Tools = []string{"payout", "\xff"} },
		"over 8 KiB": func(p *permits.Permit) { p.Grant.DenyArgs = []string{"/" + strings.Repeat("x", 8000)} },
	} {
		c := admitted()
		change(&c.permit)
		if p, err := c.permit.Issue(signer(t, 1), expect()); !errors.Is(err, permits.ErrInvalid) || p != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseGrant(t *testing.T) {
	t.Parallel()
	withType, err := permits.ParseGrant([]byte(baseGrant))
	if err != nil {
		t.Fatal(err)
	}
	without, err := permits.ParseGrant([]byte(strings.Replace(baseGrant, `"type":"counterfoil.tool-permit.v1",`, "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(withType, without); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{
		``, `null`, `[]`, `{}`, `{"tools":["a"]}`, `{"tools":["a"],"limits":{}}`, `{"tools":["a"],"limits":{"credits":null}}`,
		`{"tools":["a"],"limits":{"credits":5.0}}`, `{"tools":["a"],"limits":{"credits":5e3}}`,
		`{"tools":["a"],"limits":{"credits":-1}}`, `{"tools":["a"],"limits":{"credits":-0}}`, `{"tools":["a"],"limits":{"credits":"5"}}`,
		`{"tools":["a"],"limits":{"credits":9007199254740992}}`, `{"tools":["a"],"limits":{"credits":9223372036854775808}}`,
		`{"tools":["a"],"limits":{"credits":18446744073709551621}}`, `{"tools":["a"],"limits":{"credits":5,"calls":{"a":-1}}}`,
		`{"tools":["a"],"limits":{"credits":5,"calls":{"a":1,"a":2}}}`, `{"tools":["a"],"limits":{"credits":5,"extra":1}}`, `{"type":"x","tools":["a"],"limits":{"credits":5}}`,
		`{"type":null,"tools":["a"],"limits":{"credits":5}}`, `{"tools":["a"],"limits":{"credits":5}}x`,
		`{"tools":["a"],"limits":{"credits":5},"deny_args":null}`, `{"tools":["a"],"limits":{"credits":5},"Deny_args":[]}`,
	} {
		if g, err := permits.ParseGrant([]byte(bad)); !errors.Is(err, permits.ErrInvalid) {
			t.Errorf("%s: %+v, %v", bad, g, err)
		}
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	t.Parallel()
	err := permits.Grant{
		Tools:     []string{"payout", "tab\t"},
		Limits:    permits.Limits{Credits: -1, Calls: map[string]int64{"other": 1}, Value: &permits.ValueLimit{}},
		DenyArgs:  []string{"a/b", "/x*"},
		Recipient: &permits.Recipient{Domains: []string{"vendor.example.", "192.0.2.1"}},
		Approval:  &permits.Approval{ValueOver: ptr(-1)},
	}.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, part := range []string{
		"tools[1]", "limits.credits", "limits.calls names", "currency", "deny_args[0]", "deny_args[1]", "domains[0]", "domains[1]", "value_over",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
}

func TestCheckTools(t *testing.T) {
	t.Parallel()
	catalogue := map[string]permits.Tool{
		"payout": {Name: "payout", Value: &permits.ValuePointer{Pointer: "/amount", Currency: "USD"}},
		"refund": {Name: "refund", Value: &permits.ValuePointer{Pointer: "/amount", Currency: "EUR"}},
		"search": {Name: "search"},
	}
	usd := &permits.ValueLimit{Currency: "USD"}
	for _, tc := range []struct {
		name  string
		grant permits.Grant
		want  string // part of the sentence; "" for none
	}{
		{"value limit that fits", permits.Grant{Tools: []string{"payout"}, Limits: permits.Limits{Value: usd}}, ""},
		{"no value limit", permits.Grant{Tools: []string{"payout", "refund", "search"}}, ""},
		{"unknown tool", permits.Grant{Tools: []string{"later"}}, ""},
		{"unknown tool and a value limit", permits.Grant{Tools: []string{"payout", "later"}, Limits: permits.Limits{Value: usd}}, `"later" is not in the catalogue`},
		{"no value pointer", permits.Grant{Tools: []string{"payout", "search"}, Limits: permits.Limits{Value: usd}}, `"search" has no value pointer`},
		{"another currency", permits.Grant{Tools: []string{"refund"}, Limits: permits.Limits{Value: usd}}, `in EUR, the limit is in USD`},
		{"approval always", permits.Grant{Tools: []string{"payout"}, Approval: &permits.Approval{Always: true}}, "approval"},
		{"approval over a value", permits.Grant{Tools: []string{"payout"}, Approval: &permits.Approval{ValueOver: ptr(1)}}, "approval"},
		{"approval that asks for none", permits.Grant{Tools: []string{"payout"}, Approval: &permits.Approval{}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := permits.Permit{Grant: tc.grant}
			err := p.CheckTools(func(name string) (permits.Tool, bool) { tool, ok := catalogue[name]; return tool, ok })
			if tc.want == "" && err != nil {
				t.Error(err)
			}
			if tc.want != "" && (!errors.Is(err, permits.ErrInvalid) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func ExamplePermit_Decide() {
	p := permits.Permit{Expires: 2000, Grant: permits.Grant{Tools: []string{"payout"}, Limits: permits.Limits{Credits: 12}}}
	tool := permits.Tool{Name: "payout", Price: 5}
	fit := p.Fit(tool, []byte(`{"amount":1200}`))
	state := permits.State{NowMS: 1_000_000, WalletAvailable: 100}
	for p.Decide(fit, tool.Price, state) == nil {
		state.CreditsCommitted += tool.Price
		state.WalletAvailable -= tool.Price
	}
	d := p.Decide(fit, tool.Price, state)
	fmt.Println(state.CreditsCommitted, d.Reason, *d.Detail)
	// Output: 10 permit_credits_exceeded {12 5 2}
}

func ExampleParseGrant() {
	g, err := permits.ParseGrant([]byte(`{"tools": ["payout"], "limits": {"credits": 500}, "deny_args": ["bcc"]}`))
	fmt.Println(string(g.JSON(true)), err)
	_, err = permits.ParseGrant([]byte(`{"tools": ["payout"], "limits": {"calls_total": 5}}`))
	fmt.Println(err)
	// Output:
	// {"deny_args":["bcc"],"limits":{"credits":500},"tools":["payout"],"type":"counterfoil.tool-permit.v1"} <nil>
	// invalid permit: limits.credits is required
}
