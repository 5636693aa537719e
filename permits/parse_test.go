package permits_test

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/permits"
)

func TestParseReadsTheContractsPermit(t *testing.T) {
	t.Parallel()
	token := sign(t, signer(t, 1), basePayload)
	got, err := parse(t, basePayload)
	if err != nil {
		t.Fatal(err)
	}
	want := &permits.Permit{
		ID: "prm_q4", Issuer: issuer, Audience: audience, Wallet: "wal_ops", Agent: "agt_buyer",
		IssuedAt: iat, NotBefore: iat, Expires: iat + 3600,
		Scopes: []string{"payments.write", "payments.read"},
		Grant: permits.Grant{
			Tools: []string{"payout"},
			Limits: permits.Limits{
				Credits: 500, CallsTotal: ptr(100), Calls: map[string]int64{"payout": 10}, CreditsPerCall: ptr(50),
				Value: &permits.ValueLimit{Currency: "USD", Total: ptr(500000), PerCall: ptr(100000)},
			},
			DenyArgs:  []string{"/bcc", "/headers/*"},
			Recipient: &permits.Recipient{Domains: []string{"vendor.example"}},
			Approval:  &permits.Approval{ValueOver: ptr(50000)},
		},
		Token: token, SHA256: canon.SHA256Hex([]byte(token)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	canonical, err := canon.Canonical([]byte(basePayload))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(canonical), string(got.Payload())); diff != "" {
		t.Errorf("Payload is not the canonical form: %s", diff)
	}
}

func TestParseAcceptsTheLeastPermit(t *testing.T) {
	t.Parallel()
	payload := strings.Replace(basePayload, baseGrant, `{"type":"counterfoil.tool-permit.v1","tools":["payout"],"limits":{"credits":0}}`, 1)
	payload = strings.Replace(payload, "payments.write payments.read", "", 1)
	p, err := parse(t, payload)
	if err != nil {
		t.Fatal(err)
	}
	want := permits.Grant{Tools: []string{"payout"}}
	if diff := cmp.Diff(want, p.Grant); diff != "" || p.Scopes != nil {
		t.Errorf("%s, scopes %q", diff, p.Scopes)
	}
}

// refusals changes one text in the contract's permit each; the numbers are those of the reference's list.
func refusals() []struct{ name, old, new string } {
	const top = `"iss":"https://issuer.example"`
	const exp = `"exp":1790003600`
	const aud = `"aud":"https://gateway.example"`
	return []struct{ name, old, new string }{
		{"22 duplicate at the top", exp, exp + "," + exp},
		{"22 duplicate, differing", exp, exp + `,"exp":1790000001`},
		{"22 duplicate, escaped", exp, exp + `,"\u0065xp":1790003600`},
		{"22 duplicate nested", `"credits":500`, `"credits":500,"credits":5000`},
		{"22 duplicate in act", `{"sub":"agt_buyer"}`, `{"sub":"agt_buyer","sub":"agt_other"}`},
		{"22 duplicate tool limit", `{"payout":10}`, `{"payout":10,"payout":11}`},
		{"23 folded beside", exp, exp + `,"EXP":1790003601`},
		{"23 folded instead", `"exp"`, `"Exp"`},
		{"23 folded nested", `"credits":500`, `"Credits":500`},
		{"23 long s beside", top, top + `,"iſs":"https://evil.example"`},
		{"23 long s instead", `"iss"`, `"iſs"`},
		{"23 Kelvin sign in a tool limit", `"calls":{"payout":10}`, `"calls":{"k":1,"\u212a":2}`},
		{"24 trailing object", basePayload, basePayload + "{}"},
		{"24 trailing garbage", basePayload, basePayload + "x"},
		{"24 trailing NUL", basePayload, basePayload + "\x00"},
		{"24 BOM", basePayload, "\ufeff" + basePayload},
		{"24 truncated", basePayload, basePayload[:len(basePayload)-1]},
		{"25 null", basePayload, "null"},
		{"25 array", basePayload, "[" + basePayload + "]"},
		{"25 string", basePayload, `"permit"`},
		{"25 number", basePayload, "1"},
		{"25 true", basePayload, "true"},
		{"25 empty object", basePayload, "{}"},
		{"26 exp missing", "," + exp, ""},
		{"26 exp null", exp, `"exp":null`},
		{"26 exp string", exp, `"exp":"1790003600"`},
		{"26 exp float", exp, `"exp":1790003600.0`},
		{"26 exp fraction", exp, `"exp":1790003600.5`},
		{"26 exp exponent", exp, `"exp":1790003600e0`},
		{"26 exp 1e18", exp, `"exp":1e18`},
		{"26 exp 10^18", exp, `"exp":1000000000000000000`},
		{"26 exp 1e999", exp, `"exp":1e999`},
		{"26 exp negative", exp, `"exp":-1`},
		{"26 exp minus zero", exp, `"exp":-0`},
		{"26 exp leading zero", exp, `"exp":01790003600`},
		{"26 exp 0", exp, `"exp":0`},
		{"26 exp equal to iat and nbf", exp, `"exp":1790000000`},
		{"26 exp array", exp, `"exp":[1790003600]`},
		{"26 exp 2^53", exp, `"exp":9007199254740992`},
		{"27 nbf at exp", `"nbf":1790000000`, `"nbf":1790003600`},
		{"27 nbf after exp", `"nbf":1790000000`, `"nbf":1790003601`},
		{"27 nbf missing", `"nbf":1790000000,`, ""},
		{"27 iat after exp", `"iat":1790000000`, `"iat":1790003601`},
		{"27 iat missing", `"iat":1790000000,`, ""},
		{"27 iat null", `"iat":1790000000`, `"iat":null`},
		{"28 aud missing", aud + ",", ""},
		{"28 aud array", aud, `"aud":["https://gateway.example"]`},
		{"28 aud number", aud, `"aud":1`},
		{"28 aud null", aud, `"aud":null`},
		{"28 aud empty", aud, `"aud":""`},
		{"28 aud other", aud, `"aud":"https://other.example"`},
		{"28 aud trailing slash", aud, `"aud":"https://gateway.example/"`},
		{"29 iss other", top, `"iss":"https://other.example"`},
		{"29 iss missing", top + ",", ""},
		{"29 iss empty", top, `"iss":""`},
		{"29 iss trailing slash", top, `"iss":"https://issuer.example/"`},
		{"29 iss case", top, `"iss":"https://Issuer.example"`},
		{"30 lifetime one above the maximum", exp, `"exp":1790003601`},
		{"30 lifetime by an earlier iat", `"iat":1790000000`, `"iat":1789999999`},
		{"30 lifetime at the largest exp", exp, `"exp":9007199254740991`},
		{"33 credits 5.0", `"credits":500`, `"credits":5.0`},
		{"33 credits 5e3", `"credits":500`, `"credits":5e3`},
		{"33 credits -1", `"credits":500`, `"credits":-1`},
		{"33 credits -0", `"credits":500`, `"credits":-0`},
		{"33 credits 2^53", `"credits":500`, `"credits":9007199254740992`},
		{"33 credits 2^63", `"credits":500`, `"credits":9223372036854775808`},
		{"33 credits string", `"credits":500`, `"credits":"5"`},
		{"33 credits null", `"credits":500`, `"credits":null`},
		{"33 credits missing", `"credits":500,`, ""},
		{"33 calls_total 5.0", `"calls_total":100`, `"calls_total":5.0`},
		{"33 calls_total null", `"calls_total":100`, `"calls_total":null`},
		{"33 calls 2^53", `"payout":10`, `"payout":9007199254740992`},
		{"33 calls null", `"payout":10`, `"payout":null`},
		{"33 credits_per_call string", `"credits_per_call":50`, `"credits_per_call":"50"`},
		{"33 value total 5e3", `"total":500000`, `"total":5e3`},
		{"33 value per_call -1", `"per_call":100000`, `"per_call":-1`},
		{"33 value_over 2^53", `"value_over":50000`, `"value_over":9007199254740992`},
		{"38 cnf", top, top + `,"cnf":{"jkt":"x"}`},
		{"38 par_hash", top, top + `,"par_hash":"x"`},
		{"38 del_depth", top, top + `,"del_depth":1`},
		{"38 del_max_depth", top, top + `,"del_max_depth":1`},
		{"38 crit", top, top + `,"crit":[]`},
		{"38 unknown in act", `{"sub":"agt_buyer"}`, `{"sub":"agt_buyer","act":{"sub":"agt_b"}}`},
		{"38 unknown in the grant", `"deny_args"`, `"allow_args":[],"deny_args"`},
		{"38 unknown in limits", `"credits":500`, `"credits":500,"tokens":1`},
		{"38 unknown in value", `"currency":"USD"`, `"currency":"USD","minimum":1`},
		{"38 unknown in recipient", `"subdomains":false`, `"subdomains":false,"addresses":[]`},
		{"38 unknown in approval", `"always":false`, `"always":false,"by":"x"`},
		{"jti missing", `"jti":"prm_q4",`, ""},
		{"jti no id", `"prm_q4"`, `"q4"`},
		{"sub missing", `"sub":"wal_ops",`, ""},
		{"sub no id", `"wal_ops"`, `"wal_"`},
		{"act missing", `"act":{"sub":"agt_buyer"},`, ""},
		{"act empty", `{"sub":"agt_buyer"}`, `{}`},
		{"act string", `{"sub":"agt_buyer"}`, `"agt_buyer"`},
		{"act.sub with a line end", `"agt_buyer"`, `"agt_buyer\n"`},
		{"scope missing", `"scope":"payments.write payments.read",`, ""},
		{"scope array", `"payments.write payments.read"`, `["payments.write"]`},
		{"scope with two spaces", `payments.write payments.read`, `payments.write  payments.read`},
		{"scope with a space at its end", `payments.write payments.read`, `payments.write `},
		{"scope of one space", `payments.write payments.read`, ` `},
		{"scope with a tab", `payments.write payments.read`, `payments.write\tpayments.read`},
		{"scope with a quote", `payments.write payments.read`, `payments\"write`},
		{"details missing", `,"authorization_details":[` + baseGrant + `]`, ""},
		{"details empty", `[` + baseGrant + `]`, `[]`},
		{"details an object", `[` + baseGrant + `]`, baseGrant},
		{"two details", baseGrant, baseGrant + "," + baseGrant},
		{"details null", baseGrant, "null"},
		{"type missing", `"type":"counterfoil.tool-permit.v1",`, ""},
		{"type other", `tool-permit.v1`, `tool-permit.v2`},
		{"limits missing", `"limits":{"credits":500,"calls_total":100,"calls":{"payout":10},"credits_per_call":50,"value":{"currency":"USD","total":500000,"per_call":100000}},`, ""},
		{"currency missing", `"currency":"USD",`, ""},
		{"currency empty", `"USD"`, `""`},
		{"tools missing", `"tools":["payout"],`, ""},
		{"tools empty", `"tools":["payout"]`, `"tools":[]`},
		{"tools null", `"tools":["payout"]`, `"tools":null`},
		{"tools string", `"tools":["payout"]`, `"tools":"payout"`},
		{"tools with null", `"tools":["payout"]`, `"tools":["payout",null]`},
		{"tools with an empty name", `"tools":["payout"]`, `"tools":["payout",""]`},
		{"calls of a tool that is not granted", `"calls":{"payout":10}`, `"calls":{"payuot":10}`},
		{"deny_args null", `"deny_args":["/bcc","/headers/*"]`, `"deny_args":null`},
		{"deny_args the whole document", `"/bcc"`, `""`},
		{"deny_args half an escape", `"/bcc"`, `"/b~cc"`},
		{"deny_args path without slash", `"/bcc"`, `"headers/bcc"`},
		{"deny_args star in a segment", `"/bcc"`, `"/b*"`},
		{"deny_args star as a name", `"/bcc"`, `"*"`},
		{"recipient null", `"recipient":{"domains":["vendor.example"],"subdomains":false}`, `"recipient":null`},
		{"recipient without domains", `"domains":["vendor.example"],`, ""},
		{"recipient with no domain", `["vendor.example"]`, `[]`},
		{"recipient domain with a dot at its end", `"vendor.example"`, `"vendor.example."`},
		{"recipient domain with a dot before", `"vendor.example"`, `".vendor.example"`},
		{"recipient domain with a star", `"vendor.example"`, `"*.vendor.example"`},
		{"recipient top-level domain", `"vendor.example"`, `"example"`},
		{"recipient address", `"vendor.example"`, `"ap@vendor.example"`},
		{"recipient IP", `"vendor.example"`, `"192.0.2.1"`},
		{"recipient mixed script", `"vendor.example"`, `"vend\u043er.example"`},
		{"recipient empty domain", `"vendor.example"`, `""`},
		{"subdomains null", `"subdomains":false`, `"subdomains":null`},
		{"subdomains string", `"subdomains":false`, `"subdomains":"false"`},
		{"always number", `"always":false`, `"always":0`},
		{"lone surrogate", `"USD"`, `"\ud800"`},
		{"bad UTF-8", `"USD"`, "\"\xff\""},
		{"deep", `["payout"]`, strings.Repeat("[", 20) + strings.Repeat("]", 20)},
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range refusals() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if strings.Count(basePayload, tc.old) != 1 {
				t.Fatalf("%q is not once in the contract's permit", tc.old)
			}
			p, err := parse(t, strings.Replace(basePayload, tc.old, tc.new, 1))
			if !errors.Is(err, permits.ErrInvalid) || p != nil {
				t.Errorf("got %v, %v", p, err)
			}
		})
	}
}

// What is not a refusal at parse but a verdict at use, or no fault at all.
func TestParseAccepts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, old, new string }{
		{"blanks and another order", `{"iss"`, "{ \n\"iss\""},
		{"escapes", `"wal_ops"`, `"\u0077al_ops"`},
		{"27 nbf in the future", `"nbf":1790000000`, `"nbf":1790003599`},
		{"nbf long ago", `"nbf":1790000000`, `"nbf":0`},
		{"subdomains absent", `,"subdomains":false`, ``},
		{"approval empty", `{"always":false,"value_over":50000}`, `{}`},
		{"value without limits", `,"total":500000,"per_call":100000`, ``},
		{"no deny_args", `["/bcc","/headers/*"]`, `[]`},
		{"no calls", `{"payout":10}`, `{}`},
		{"A-label", `"vendor.example"`, `"xn--bcher-kva.example"`},
		{"U-label", `"vendor.example"`, `"bücher.example"`},
		{"quotes and an n in a name", `"/bcc"`, `"/a\"n\\\\"`},
		{"bare name", `"/bcc"`, `"bcc"`},
		{"escapes in a pointer", `"/bcc"`, `"/a~1b/~0/*"`},
		{"tool in another alphabet", `"tools":["payout"]`, `"tools":["payout","выплата"]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if _, err := parse(t, strings.Replace(basePayload, tc.old, tc.new, 1)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestParseComparesSignatureAndKey(t *testing.T) {
	t.Parallel()
	s, other := signer(t, 1), signer(t, 2)
	token := sign(t, s, basePayload)
	with := func(change func(*jws.Key)) jws.KeySet {
		k := permitKey(s)
		change(&k)
		return keySet(t, k)
	}
	forged := token[:strings.LastIndexByte(token, '.')+1] + base64.RawURLEncoding.EncodeToString(make([]byte, 64))
	large := sign(t, s, strings.Replace(basePayload, `"payout"]`, `"payout","`+strings.Repeat("x", permits.MaxTokenBytes)+`"]`, 1))
	for _, tc := range []struct {
		name, token string
		keys        jws.KeySet
		want        error
	}{
		{"no keys", token, jws.KeySet{}, jws.ErrKeyUnknown},
		{"another key", token, keySet(t, permitKey(other)), jws.ErrKeyUnknown},
		{"receipt key", token, with(func(k *jws.Key) { k.Purpose = jws.PurposeReceipt }), jws.ErrKeyUnknown},
		{"revoked key", token, with(func(k *jws.Key) { k.Status = jws.StatusRevoked }), jws.ErrKeyRevoked},
		{"issued when the key had ended", token, with(func(k *jws.Key) { k.Status, k.Expires = jws.StatusRetired, iat }), permits.ErrInvalid},
		{"forged signature", forged, keySet(t, permitKey(s)), jws.ErrSignature},
		{"empty", "", keySet(t, permitKey(s)), jws.ErrMalformed},
		{"line feed at the end", token + "\n", keySet(t, permitKey(s)), jws.ErrMalformed},
		{"above 8 KiB", large, keySet(t, permitKey(s)), jws.ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := permits.Parse(tc.token, tc.keys, expect())
			if !errors.Is(err, tc.want) || !errors.Is(err, permits.ErrInvalid) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	t.Run("own key, rotated while a gateway ran on", func(t *testing.T) {
		t.Parallel()
		own := sign(t, s, strings.Replace(basePayload, issuer, audience, 1))
		e := expect()
		e.Issuers = []string{audience}
		if _, err := permits.Parse(own, with(func(k *jws.Key) { k.Status, k.Expires = jws.StatusRetired, iat }), e); err != nil {
			t.Error(err)
		}
	})
	retired := with(func(k *jws.Key) { k.Status, k.Expires = jws.StatusRetired, iat+1 })
	if _, err := permits.Parse(token, retired, expect()); err != nil {
		t.Errorf("issued before the key ended: %v", err)
	}
}

// An incomplete expectation would switch a check off (34 of the reference's list).
func TestParseWantsACompleteExpectation(t *testing.T) {
	t.Parallel()
	s := signer(t, 1)
	token := sign(t, s, basePayload)
	for name, change := range map[string]func(*permits.Expect){
		"no issuer":       func(e *permits.Expect) { e.Issuers = nil },
		"empty issuer":    func(e *permits.Expect) { e.Issuers = []string{issuer, ""} },
		"empty audience":  func(e *permits.Expect) { e.Audience = "" },
		"no maximum":      func(e *permits.Expect) { e.MaxLifetime = 0 },
		"minus a maximum": func(e *permits.Expect) { e.MaxLifetime = -time.Hour },
	} {
		e := expect()
		change(&e)
		if _, err := permits.Parse(token, keySet(t, permitKey(s)), e); !errors.Is(err, permits.ErrExpect) || errors.Is(err, permits.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnyLifetime(t *testing.T) {
	t.Parallel()
	s := signer(t, 1)
	e := expect()
	e.MaxLifetime = permits.AnyLifetime
	token := sign(t, s, strings.Replace(basePayload, `"exp":1790003600`, `"exp":`+strconv.FormatInt(permits.MaxInteger, 10), 1))
	if _, err := permits.Parse(token, keySet(t, permitKey(s)), e); err != nil {
		t.Error(err)
	}
}

func TestParseClaimsIsAsStrictAsParse(t *testing.T) {
	t.Parallel()
	got, err := permits.ParseClaims([]byte(basePayload))
	if err != nil || got.ID != "prm_q4" || got.Token != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{`null`, `{}`, strings.Replace(basePayload, `"iss"`, `"Iss"`, 1), strings.Replace(basePayload, `500,`, `5.0,`, 1)} {
		if _, err := permits.ParseClaims([]byte(bad)); !errors.Is(err, permits.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestIssuerIsReadWithoutKeys(t *testing.T) {
	t.Parallel()
	got, err := permits.Issuer(sign(t, signer(t, 9), basePayload))
	if err != nil || got != issuer {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := permits.Issuer("a.b.c"); !errors.Is(err, permits.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
