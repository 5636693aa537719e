package permits_test

import (
	"strings"
	"testing"

	"counterfoil/internal/canon"
	"counterfoil/permits"
)

func recipientCall(r permits.Recipient, args string) *call {
	c := admitted()
	c.permit.Grant = permits.Grant{Tools: []string{"payout"}, Limits: permits.Limits{Credits: 500}, Recipient: &r}
	c.args = args
	return c
}

func toArgs(address string) string {
	return `{"to":` + string(canon.AppendString(nil, address)) + `}`
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	exact := permits.Recipient{Domains: []string{"other.example", "Vendor.Example"}}
	below := permits.Recipient{Domains: []string{"vendor.example"}, Subdomains: true}
	german := permits.Recipient{Domains: []string{"bücher.example"}}
	german2 := permits.Recipient{Domains: []string{"xn--bcher-kva.example"}}
	japanese := permits.Recipient{Domains: []string{"日本のカタ.example"}}
	long := strings.Repeat("a", 64)
	for _, tc := range []struct {
		name      string
		recipient permits.Recipient
		address   string
		want      bool
	}{
		{"plain", exact, "ap@vendor.example", true},
		{"second domain of the list", exact, "ap@other.example", true},
		{"upper case", exact, "AP@VENDOR.Example", true},
		{"dots, plus and hyphen", exact, "a.p+tag-1_x@vendor.example", true},
		{"apostrophe", exact, "o'brien@vendor.example", true},
		{"longest local part", exact, long + "@vendor.example", true},
		{"subdomain", below, "ap@eu.vendor.example", true},
		{"two labels below", below, "ap@a.b.vendor.example", true},
		{"the domain itself", below, "ap@vendor.example", true},
		{"U-label", german, "ap@bücher.example", true},
		{"U-label as A-label", german, "ap@xn--bcher-kva.example", true},
		{"A-label in capitals", german2, "ap@XN--BCHER-KVA.example", true},
		{"A-label as U-label", german2, "ap@bücher.example", true},
		{"Japanese mixture", japanese, "ap@日本のカタ.example", true},

		{"other domain", exact, "ap@evil.example", false},
		{"subdomain not granted", exact, "ap@eu.vendor.example", false},
		{"no label boundary", below, "ap@evilvendor.example", false},
		{"no label boundary, hyphen", below, "ap@evil-vendor.example", false},
		{"parent", below, "ap@example", false},
		{"suffix added", below, "ap@vendor.example.evil.example", false},
		{"empty label before", below, "ap@.vendor.example", false},
		{"trailing dot", exact, "ap@vendor.example.", false},
		{"two trailing dots", exact, "ap@vendor.example..", false},
		{"double dot", below, "ap@a..vendor.example", false},
		{"empty", exact, "", false},
		{"blank", exact, " ", false},
		{"no at", exact, "vendor.example", false},
		{"no local part", exact, "@vendor.example", false},
		{"no domain", exact, "ap@", false},
		{"two ats", exact, "ap@vendor.example@evil.example", false},
		{"two ats, allowed last", exact, "ap@evil.example@vendor.example", false},
		{"list with comma", exact, "ap@vendor.example,x@evil.example", false},
		{"list with semicolon", exact, "ap@vendor.example;x@evil.example", false},
		{"list with blank", exact, "ap@vendor.example x@evil.example", false},
		{"list of allowed", exact, "ap@vendor.example, bp@vendor.example", false},
		{"display name", exact, "AP <ap@vendor.example>", false},
		{"angle brackets", exact, "<ap@vendor.example>", false},
		{"display name that is an address", exact, "ap@vendor.example <x@evil.example>", false},
		{"group", exact, "undisclosed:ap@vendor.example;", false},
		{"comment", exact, "ap(x)@vendor.example", false},
		{"comment in the domain", exact, "ap@vendor.example(x)", false},
		{"comment hides at", exact, "x@evil.example(@vendor.example", false},
		{"quoted local part", exact, `"ap"@vendor.example`, false},
		{"quoted at", exact, `"x@evil.example"@vendor.example`, false},
		{"quoted with escape", exact, `"x\"@evil.example"@vendor.example`, false},
		{"backslash", exact, `a\p@vendor.example`, false},
		{"percent relay", exact, "x%evil.example@vendor.example", false},
		{"bang relay", exact, "evil.example!x@vendor.example", false},
		{"source route", exact, "@evil.example:ap@vendor.example", false},
		{"mailto", exact, "mailto:ap@vendor.example", false},
		{"URL with userinfo", exact, "https://ap@vendor.example", false},
		{"URL userinfo trick", exact, "https://vendor.example@evil.example", false},
		{"path after the domain", exact, "ap@vendor.example/evil.example", false},
		{"query after the domain", exact, "ap@vendor.example?cc=x", false},
		{"percent in the domain", exact, "ap@vendor%2eexample", false},
		{"port", exact, "ap@vendor.example:25", false},
		{"option", exact, "-oQ@vendor.example", false},
		{"leading dot", exact, ".ap@vendor.example", false},
		{"dot before at", exact, "ap.@vendor.example", false},
		{"two dots", exact, "a..p@vendor.example", false},
		{"blank before", exact, " ap@vendor.example", false},
		{"blank after", exact, "ap@vendor.example ", false},
		{"tab", exact, "ap\t@vendor.example", false},
		{"line feed and header", exact, "ap@vendor.example\nBcc: x@evil.example", false},
		{"carriage return", exact, "ap@vendor.example\r", false},
		{"NUL", exact, "ap@vendor.example\x00.evil.example", false},
		{"DEL", exact, "a\x7fp@vendor.example", false},
		{"local part too long", exact, long + "a@vendor.example", false},
		{"address too long", below, long + "@" + strings.Repeat("abcdefgh.", 20) + "vendor.example", false},
		{"domain too long", below, "a@" + strings.Repeat("a.", 120) + "vendor.example", false},
		{"label too long", below, "ap@" + long + ".vendor.example", false},
		{"IPv4", exact, "ap@192.0.2.1", false},
		{"IPv4 literal", exact, "ap@[192.0.2.1]", false},
		{"IPv6 literal", exact, "ap@[IPv6:2001:db8::1]", false},
		{"underscore", below, "ap@a_b.vendor.example", false},
		{"hyphen first", below, "ap@-a.vendor.example", false},
		{"hyphen last", below, "ap@a-.vendor.example", false},
		{"Cyrillic look-alike", exact, "ap@vend\u043er.example", false},
		{"mixed script below", below, "ap@p\u0430ypal.vendor.example", false},
		{"mixed script below, as A-label", below, "ap@xn--pypal-4ve.vendor.example", false},
		{"full width", exact, "ap@\uff56endor.example", false},
		{"full width at", exact, "ap\uff20vendor.example", false},
		{"small at", exact, "x@evil.example\ufe6bvendor.example", false},
		{"ideographic stop", below, "ap@eu\u3002vendor.example", false},
		{"full width stop", below, "ap@eu\uff0evendor.example", false},
		{"one dot leader", exact, "ap@vendor\u2024example", false},
		{"soft hyphen", exact, "ap@ven\u00addor.example", false},
		{"zero width space", exact, "ap@ven\u200bdor.example", false},
		{"zero width joiner", exact, "ap@ven\u200ddor.example", false},
		{"word joiner in the local part", exact, "a\u2060p@vendor.example", false},
		{"right-to-left override", exact, "ap@\u202evendor.example", false},
		{"Kelvin sign", permits.Recipient{Domains: []string{"kit.example"}}, "ap@\u212ait.example", false},
		{"long s", permits.Recipient{Domains: []string{"sit.example"}}, "ap@\u017fit.example", false},
		{"combining accent", german, "ap@bu\u0308cher.example", false},
		{"capital umlaut", german, "ap@BÜCHER.example", false},
		{"accent dropped", german, "ap@bucher.example", false},
		{"A-label of ASCII", exact, "ap@xn--vendor-.example", false},
		{"A-label broken", exact, "ap@xn--vendor.example", false},
		{"A-label of another", german, "ap@xn--bcher-kvb.example", false},
		{"non-ASCII local part", exact, "\u0430p@vendor.example", false},
		{"BOM", exact, "\ufeffap@vendor.example", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := permits.ReasonRecipientNotAllowed
			if tc.want {
				want = ""
			}
			if got := recipientCall(tc.recipient, toArgs(tc.address)).reason(); got != want {
				t.Errorf("%q: %q, want %q", tc.address, got, want)
			}
		})
	}
}

func TestRecipientArguments(t *testing.T) {
	t.Parallel()
	vendor := permits.Recipient{Domains: []string{"vendor.example"}}
	for _, tc := range []struct {
		name     string
		pointers []string
		args     string
		want     bool
	}{
		{"string", []string{"/to"}, `{"to":"a@vendor.example"}`, true},
		{"array", []string{"/to"}, `{"to":["a@vendor.example","b@vendor.example"]}`, true},
		{"two arguments", []string{"/to", "/cc"}, `{"cc":["b@vendor.example"],"to":"a@vendor.example"}`, true},
		{"deep, with an escape", []string{"/a~1b/0"}, `{"a/b":["a@vendor.example"]}`, true},
		{"one of the array is not allowed", []string{"/to"}, `{"to":["a@vendor.example","b@evil.example"]}`, false},
		{"list inside the array", []string{"/to"}, `{"to":["a@vendor.example,b@vendor.example"]}`, false},
		{"second argument not allowed", []string{"/to", "/cc"}, `{"cc":"b@evil.example","to":"a@vendor.example"}`, false},
		{"second argument missing", []string{"/to", "/cc"}, `{"to":"a@vendor.example"}`, false},
		{"missing", []string{"/to"}, `{}`, false},
		{"empty array", []string{"/to"}, `{"to":[]}`, false},
		{"null", []string{"/to"}, `{"to":null}`, false},
		{"number", []string{"/to"}, `{"to":1}`, false},
		{"object", []string{"/to"}, `{"to":{"email":"a@vendor.example"}}`, false},
		{"null in the array", []string{"/to"}, `{"to":["a@vendor.example",null]}`, false},
		{"array in the array", []string{"/to"}, `{"to":[["a@vendor.example"]]}`, false},
		{"no pointers", nil, `{"to":"a@vendor.example"}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := recipientCall(vendor, tc.args)
			c.tool.Recipients = tc.pointers
			if got := c.reason() == ""; got != tc.want {
				t.Errorf("allowed = %v, want %v", got, tc.want)
			}
		})
	}
}

// Accepted means: written in one way only, and the text itself shows the domain.
func FuzzAddress(f *testing.F) {
	seeds := []string{
		"ap@vendor.example", "AP@eu.VENDOR.example", "a@b@vendor.example", `"a"@vendor.example`, "a@evil.example,b@vendor.example",
		"a@xn--bcher-kva.vendor.example", "a@bücher.vendor.example", "a@vendor.example.", "a@[192.0.2.1]", "a@vend\u043er.example",
	}
	for _, s := range seeds {
		f.Add(s)
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	r := permits.Recipient{Domains: []string{"vendor.example"}, Subdomains: true}
	f.Fuzz(func(t *testing.T, s string) {
		if canon.Check([]byte(toArgs(s))) != nil || recipientCall(r, toArgs(s)).reason() != "" {
			return
		}
		local, domain, _ := strings.Cut(s, "@")
		lower := strings.ToLower(domain)
		if lower != "vendor.example" && !strings.HasSuffix(lower, ".vendor.example") {
			t.Errorf("%q passes, its domain does not show it", s)
		}
		if strings.ContainsAny(s, " \t\r\n,;:<>()[]\"\\%!/|?`") || strings.Contains(domain, "@") || local == "" {
			t.Errorf("%q passes, with a character that has a meaning somewhere", s)
		}
		for _, c := range local {
			if c > '~' {
				t.Errorf("%q passes, its local part is not ASCII", s)
			}
		}
	})
}
