package permits_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/permits"
)

func TestDenyArgs(t *testing.T) {
	t.Parallel()
	const args = `{"a":{"b":[{"bcc":1,"c":null},[7]],"":0},"a/b":1,"m~n":2,"list":["x","y"],"none":null,"~1":3,"été":4}`
	for _, tc := range []struct {
		pattern string
		want    bool
	}{
		{"/a", true},
		{"/A", false},
		{"/b", false},
		{"/none", true},
		{"/a/b", true},
		{"/a/b/0", true},
		{"/a/b/0/bcc", true},
		{"/a/b/1/bcc", false},
		{"/a/b/1/0", true},
		{"/a/b/2", false},
		{"/a/b/00", false},
		{"/a/b/-", false},
		{"/a/b/-1", false},
		{"/a/b/+1", false},
		{"/a/b/1e0", false},
		{"/a/b/99999999999999999999", false},
		{"/a/b/0/c", true},
		{"/a/b/0/c/d", false},
		{"/a/", true},
		{"/", false},
		{"/a//", false},
		{"/a~1b", true},
		{"/m~0n", true},
		{"/~01", true},
		{"/m~01n", false},
		{"/été", true},
		{"/*", true},
		{"/*/b", true},
		{"/a/*", true},
		{"/a/*/*/bcc", true},
		{"/*/*/*/bcc", true},
		{"/a/b/*/bcc", true},
		{"/list/*", true},
		{"/list/*/*", false},
		{"/none/*", false},
		{"/*/*/*/*/*", false},
		{"bcc", true},
		{"c", true},
		{"b", true},
		{"a", true},
		{"BCC", false},
		{"0", false},
		{"x", false},
		{"été", true},
	} {
		t.Run(tc.pattern, func(t *testing.T) {
			t.Parallel()
			c := admitted()
			c.permit.Grant.DenyArgs = []string{"/never", tc.pattern}
			c.permit.Grant.Recipient = nil
			f := c.permit.Fit(c.tool, []byte(args))
			if got := f.Denial != nil && f.Denial.Reason == permits.ReasonArgumentForbidden; got != tc.want {
				t.Errorf("forbidden = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestWildcardMatchesNothingInEmptyContainers(t *testing.T) {
	t.Parallel()
	c := admitted()
	c.permit.Grant = permits.Grant{Tools: []string{"payout"}, DenyArgs: []string{"/headers/*"}}
	for args, want := range map[string]bool{
		`{}`: false, `{"headers":{}}`: false, `{"headers":[]}`: false, `{"headers":"x"}`: false,
		`{"headers":{"x":1}}`: true, `{"headers":[null]}`: true,
	} {
		if got := c.permit.Fit(c.tool, []byte(args)).Denial != nil; got != want {
			t.Errorf("%s: forbidden = %v, want %v", args, got, want)
		}
	}
}

func TestUnreadableArgumentsOrPatternsAreForbidden(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ pattern, args string }{
		{"/bcc", `{"a":`}, {"/bcc", ``}, {"/b~2", `{}`}, {"", `{}`}, {"a/b", `{}`},
	} {
		c := admitted()
		c.permit.Grant = permits.Grant{Tools: []string{"payout"}, DenyArgs: []string{tc.pattern}}
		if c.permit.Fit(c.tool, []byte(tc.args)).Denial == nil {
			t.Errorf("%q on %q: not forbidden", tc.pattern, tc.args)
		}
	}
}

func TestValueArgument(t *testing.T) {
	t.Parallel()
	usd := func(n int64) *permits.Value { return &permits.Value{Currency: "USD", Amount: n} }
	for _, tc := range []struct {
		args string
		want *permits.Value
	}{
		{`{"amount":0}`, usd(0)},
		{`{"amount":1200}`, usd(1200)},
		{`{"amount":9007199254740991}`, usd(permits.MaxInteger)},
		{`{"amount":9007199254740992}`, nil},
		{`{"amount":9007199254740993000}`, nil},
		{`{"amount":18446744073709551617}`, nil},
		{`{"amount":-1}`, nil},
		{`{"amount":1.5}`, nil},
		{`{"amount":1e+21}`, nil},
		{`{"amount":"1200"}`, nil},
		{`{"amount":null}`, nil},
		{`{"amount":true}`, nil},
		{`{"amount":[1200]}`, nil},
		{`{"amount":{"n":1200}}`, nil},
		{`{"Amount":1200}`, nil},
		{`{"deep":{"amount":1200}}`, nil},
		{`{}`, nil},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Parallel()
			c := admitted()
			f := c.permit.Fit(c.tool, []byte(tc.args))
			if diff := cmp.Diff(tc.want, f.Value); diff != "" {
				t.Error(diff)
			}
			// Under a value limit an unreadable value is denied, without one it is nobody's business.
			c.permit.Grant = permits.Grant{Tools: []string{"payout"}, Limits: permits.Limits{Credits: 500}}
			c.args = tc.args
			if got := c.reason(); got != "" {
				t.Errorf("without a value limit: %q", got)
			}
			c.permit.Grant.Limits.Value = &permits.ValueLimit{Currency: "USD"}
			want := permits.Reason("")
			if tc.want == nil {
				want = permits.ReasonValueMissing
			}
			if got := c.reason(); got != want {
				t.Errorf("with a value limit: %q, want %q", got, want)
			}
		})
	}
}

func TestValueLimitOnAToolThatCannotMeetIt(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]*permits.ValuePointer{
		"no pointer":       nil,
		"another currency": {Pointer: "/amount", Currency: "usd"},
		"another argument": {Pointer: "/total", Currency: "USD"},
	} {
		c := admitted()
		c.tool.Value = value
		if got := c.reason(); got != permits.ReasonValueMissing {
			t.Errorf("%s: %q, want %q", name, got, permits.ReasonValueMissing)
		}
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		have, need []string
		want       permits.Reason
	}{
		{nil, nil, ""},
		{[]string{"a", "b"}, []string{"b", "a"}, ""},
		{[]string{"a"}, []string{"a", "b"}, permits.ReasonScopeMissing},
		{[]string{"ab"}, []string{"a"}, permits.ReasonScopeMissing},
		{[]string{"A"}, []string{"a"}, permits.ReasonScopeMissing},
		{[]string{"*"}, []string{"a"}, permits.ReasonScopeMissing},
		{nil, []string{"a"}, permits.ReasonScopeMissing},
	} {
		c := admitted()
		c.permit.Scopes, c.tool.Scopes = tc.have, tc.need
		if got := c.reason(); got != tc.want {
			t.Errorf("have %q need %q: %q, want %q", tc.have, tc.need, got, tc.want)
		}
	}
}

func TestToolNamesAreExact(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Payout", "payout ", "pay", "payout2", "*"} {
		c := admitted()
		c.tool.Name = name
		if got := c.reason(); got != permits.ReasonToolNotAllowed {
			t.Errorf("%q: %q", name, got)
		}
	}
}
