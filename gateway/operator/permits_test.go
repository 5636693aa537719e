package operator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"counterfoil/internal/jws"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

func TestIssuedPermitIsWhatWasAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "ask")
	a := b.must(t, 200, "GET", "/v1/permits/prm_ask", "")
	trust := b.g.PermitTrust()
	p, err := permits.Parse(a.text(t, "token"), trust.Keys, permits.Expect{Issuers: []string{issuer}, Audience: issuer, MaxLifetime: trust.MaxLifetime})
	if err != nil {
		t.Fatal(err)
	}
	if p.ID != "prm_ask" || p.Wallet != "wal_ask" || p.Agent != "agt_ask" || p.SHA256 != a.text(t, "sha256") || p.NotBefore != p.IssuedAt {
		t.Errorf("claims %+v", p)
	}
	if diff := cmp.Diff(map[string]any{"credits": 50.0, "calls_total": 10.0, "calls": map[string]any{"payout": 8.0}, "value": 9000.0}, a.at("remaining")); diff != "" {
		t.Error(diff)
	}
	if a.text(t, "status") != "active" {
		t.Errorf("status %s", a.text(t, "status"))
	}
}

func TestPermitBodies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "bad")
	body := func(more string) string {
		members := map[string]string{
			"wallet_id": `"wal_bad"`, "agent_id": `"agt_bad"`, "scope": `"payments.write"`,
			"expires_at": fmt.Sprintf("%q", time.Now().Add(time.Hour).Format(time.RFC3339)), "grant": `{"tools":["payout"],"limits":{"credits":5}}`,
		}
		name, value, _ := strings.Cut(more, "=")
		members[name] = value
		var list []string
		for k, v := range members {
			if v != "" {
				list = append(list, fmt.Sprintf("%q:%s", k, v))
			}
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	b.must(t, 201, "POST", "/v1/permits", body("scope=\"\""))
	for _, more := range []string{
		"wallet_id=", "agent_id=", "scope=", "expires_at=", "grant=", "more=1", `wallet_id="wal_none"`, `agent_id="agt_none"`,
		`scope="a  b"`, `scope=" "`, `expires_at="2001-01-01T00:00:00Z"`, `expires_at=1700000000`,
		fmt.Sprintf("expires_at=%q", time.Now().Add(25*time.Hour).Format(time.RFC3339)),
		fmt.Sprintf("not_before=%q", time.Now().Add(2*time.Hour).Format(time.RFC3339)),
		`grant={}`, `grant=[]`, `grant={"tools":["payout"]}`, `grant={"tools":[],"limits":{"credits":5}}`,
		`grant={"tools":["payout"],"limits":{"credits":5.0}}`, `grant={"tools":["payout"],"limits":{"credits":-1}}`,
		`grant={"tools":["payout"],"limits":{"credits":9007199254740992}}`, `grant={"tools":["payout"],"limits":{"credits":5,"more":1}}`,
		`grant={"tools":["payout"],"limits":{"credits":5},"more":1}`, `grant={"tools":["payout"],"limits":{"credits":5},"approval":{"always":true}}`,
		`grant={"tools":["balance"],"limits":{"credits":5,"value":{"currency":"USD","total":5}}}`,
		`grant={"tools":["payout"],"limits":{"credits":5,"value":{"currency":"EUR","total":5}}}`,
		`grant={"tools":["payout"],"limits":{"credits":5,"calls":{"other":1}}}`, `grant={"tools":["payout"],"limits":{"credits":5},"deny_args":["/a~2"]}`,
	} {
		a := b.send(t, request{method: "POST", path: "/v1/permits", token: operatorToken, body: body(more)})
		if a.status != 400 || a.text(t, "reason") != "invalid_request" {
			t.Errorf("%s: %d %s", more, a.status, a.raw)
		}
	}
	b.refused(t, 409, "conflict", "POST", "/v1/permits", permitBody("bad", ""))
}

func TestPermitShowsWhatIsSpentHeldAndLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "use")
	b.call(t, "use", "k1")
	b.claim(t, "use", "k2")
	a := b.must(t, 200, "GET", "/v1/permits/prm_use", "")
	usage := map[string]any{
		"credits_spent": 5.0, "credits_held": 5.0, "calls_total": 2.0, "calls": map[string]any{"payout": 2.0}, "value_spent": 1200.0, "value_held": 1200.0,
	}
	left := map[string]any{"credits": 40.0, "calls_total": 8.0, "calls": map[string]any{"payout": 6.0}, "value": 6600.0}
	if diff := cmp.Diff(map[string]any{"usage": usage, "remaining": left}, map[string]any{"usage": a.at("usage"), "remaining": a.at("remaining")}); diff != "" {
		t.Error(diff)
	}
}

func TestRevokedPermitAdmitsNoCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "rev")
	first := b.must(t, 200, "POST", "/v1/permits/prm_rev/revoke", `{"note":"lost"}`)
	again := b.must(t, 200, "POST", "/v1/permits/prm_rev/revoke", "")
	if first.text(t, "status") != "revoked" || first.text(t, "revoked_at") != again.text(t, "revoked_at") {
		t.Errorf("%s and again %s", first.raw, again.raw)
	}
	if c := b.claim(t, "rev", "k1"); c.Denied == nil || c.Denied.Reason != receipts.ReasonRevoked {
		t.Errorf("a call under a revoked permit: %+v", c)
	}
	b.refused(t, 404, "not_found", "POST", "/v1/permits/prm_none/revoke", "")
	b.refused(t, 404, "not_found", "GET", "/v1/permits/prm_none", "")
}

func TestPermitStatusFollowsTheClock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "clock")
	later := strings.Replace(permitBody("clock", fmt.Sprintf(`,"not_before":%q`, time.Now().Add(30*time.Minute).Format(time.RFC3339))), `"id":"prm_clock",`, "", 1)
	if got := b.must(t, 201, "POST", "/v1/permits", later).text(t, "status"); got != "not_yet_valid" {
		t.Errorf("status %s", got)
	}
	short := fmt.Sprintf(`{"id":"prm_short","wallet_id":"wal_clock","agent_id":"agt_clock","scope":"","expires_at":%q,"grant":{"tools":["payout"],"limits":{"credits":1}}}`,
		time.Now().Add(2*time.Second).UTC().Format(time.RFC3339Nano))
	b.must(t, 201, "POST", "/v1/permits", short)
	deadline := time.After(10 * time.Second)
	for b.must(t, 200, "GET", "/v1/permits/prm_short", "").text(t, "status") != "expired" {
		select {
		case <-deadline:
			t.Fatal("the permit does not expire")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestImportOfOutsidePermits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "out")
	out, stranger := newOutsider(t, 11), newOutsider(t, 12)
	token := out.permit(t, "prm_foreign", "out")
	b.refused(t, 403, "permit_invalid", "POST", "/v1/permits/import", token)
	out.register(t, b, jws.StatusActive, 201)
	stranger.register(t, b, jws.StatusActive, 201)

	made := b.must(t, 201, "POST", "/v1/permits/import", token)
	if made.text(t, "token") != token || made.text(t, "issuer") != out.name {
		t.Errorf("imported as %s", made.raw)
	}
	b.must(t, 201, "POST", "/v1/permits/import", token)
	// A registered issuer cannot speak for another: neither under its name nor with its key.
	forged := stranger
	forged.name = out.name
	own := forged
	own.name = issuer
	signature := token[strings.LastIndex(token, ".")+1:]
	for name, bad := range map[string]string{
		"another issuer's key": forged.permit(t, "prm_forged", "out"),
		"our own name":         own.permit(t, "prm_own", "out"),
		"our own permit":       b.must(t, 200, "GET", "/v1/permits/prm_out", "").text(t, "token"),
		"line break":           token + "\n",
		"blank":                " " + token,
		"two parts":            strings.TrimSuffix(token, "."+signature),
		"flipped signature":    strings.TrimSuffix(token, signature) + flip(signature),
		"empty":                "",
		"JSON":                 `{"token":"` + token + `"}`,
		"approval":             out.withGrant(t, "prm_appr", "out", permits.Grant{Tools: []string{"payout"}, Limits: permits.Limits{Credits: 1}, Approval: &permits.Approval{Always: true}}),
	} {
		a := b.send(t, request{method: "POST", path: "/v1/permits/import", token: operatorToken, body: bad})
		if a.status != 403 || a.text(t, "reason") != "permit_invalid" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	b.refused(t, 409, "conflict", "POST", "/v1/permits/import", stranger.permit(t, "prm_foreign", "out"))
	b.refused(t, 400, "invalid_request", "POST", "/v1/permits/import", out.permit(t, "prm_nobody", "nobody"))
	if got := b.must(t, 200, "GET", "/v1/permits?wallet=wal_out", "").items(t, "id"); !cmp.Equal(got, []string{"prm_foreign", "prm_out"}) {
		t.Errorf("permits %v", got)
	}
}

func flip(s string) string {
	if s[0] == 'A' {
		return "B" + s[1:]
	}
	return "A" + s[1:]
}

func (o outsider) withGrant(t testing.TB, id, name string, grant permits.Grant) string {
	t.Helper()
	now := time.Now().Unix()
	p := &permits.Permit{
		ID: id, Issuer: o.name, Audience: issuer, Wallet: "wal_" + name, Agent: "agt_" + name, IssuedAt: now, NotBefore: now, Expires: now + 60, Grant: grant,
	}
	issued, err := p.Issue(o.signer, permits.Expect{Issuers: []string{o.name}, Audience: issuer, MaxLifetime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return issued.Token
}

func TestIssuerKeysOverTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "iss")
	out := newOutsider(t, 21)
	out.register(t, b, jws.StatusActive, 201)
	b.must(t, 201, "POST", "/v1/permits/import", out.permit(t, "prm_first", "iss"))
	if _, err := b.ledger.PermitByID(context.Background(), "prm_first", b.g.PermitTrust()); err != nil {
		t.Fatal(err)
	}
	// Retired: the permit that was imported stays good, no other is taken.
	out.register(t, b, jws.StatusRetired, 200)
	if _, err := b.ledger.PermitByID(context.Background(), "prm_first", b.g.PermitTrust()); err != nil {
		t.Errorf("after the key was retired: %v", err)
	}
	b.refused(t, 403, "permit_invalid", "POST", "/v1/permits/import", out.permit(t, "prm_second", "iss"))
	// Revoked: refused at use, at once, and still shown.
	out.register(t, b, jws.StatusRevoked, 200)
	if _, err := b.ledger.PermitByID(context.Background(), "prm_first", b.g.PermitTrust()); !errors.Is(err, permits.ErrInvalid) {
		t.Errorf("after the key was revoked: %v", err)
	}
	b.must(t, 200, "GET", "/v1/permits/prm_first", "")
	b.refused(t, 409, "conflict", "POST", "/v1/issuers", fmt.Sprintf(`{"issuer":%q,"keys":%s}`, out.name, out.jwks(t, jws.StatusActive)))
}

func TestIssuerBodies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out := newOutsider(t, 31)
	good := out.jwks(t, jws.StatusActive)
	own := string(b.keyring.Public().JWKS())
	for name, body := range map[string]string{
		"ourselves":       fmt.Sprintf(`{"issuer":%q,"keys":%s}`, issuer, good),
		"our own keys":    fmt.Sprintf(`{"issuer":"https://x.example","keys":%s}`, own),
		"no keys":         `{"issuer":"https://x.example","keys":{"keys":[]}}`,
		"no set":          `{"issuer":"https://x.example"}`,
		"null set":        `{"issuer":"https://x.example","keys":null}`,
		"a list":          `{"issuer":"https://x.example","keys":[]}`,
		"no issuer":       fmt.Sprintf(`{"keys":%s}`, good),
		"private key":     `{"issuer":"https://x.example","keys":` + strings.Replace(good, `"x":`, `"d":"AAAA","x":`, 1) + `}`,
		"receipt key":     `{"issuer":"https://x.example","keys":` + strings.Replace(good, `"permit"`, `"receipt"`, 1) + `}`,
		"other algorithm": `{"issuer":"https://x.example","keys":{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}}`,
		"small order":     `{"issuer":"https://x.example","keys":{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}}`,
	} {
		a := b.send(t, request{method: "POST", path: "/v1/issuers", token: operatorToken, body: body})
		if a.status != 400 || a.text(t, "reason") != "invalid_request" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	out.register(t, b, jws.StatusActive, 201)
	// A key is one issuer's.
	b.refused(t, 409, "conflict", "POST", "/v1/issuers", fmt.Sprintf(`{"issuer":"https://y.example","keys":%s}`, good))
	if got := b.must(t, 200, "GET", "/v1/issuers", "").items(t, "issuer"); !cmp.Equal(got, []string{out.name}) {
		t.Errorf("issuers %v", got)
	}
	if _, err := b.ledger.Issuer(context.Background(), "https://y.example"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a refused issuer: %v", err)
	}
}
