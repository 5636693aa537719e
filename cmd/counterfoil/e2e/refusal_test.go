package e2e_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"counterfoil/internal/testdb"
)

// TestRefusals: what never becomes a governed outcome is a JSON-RPC error at HTTP 200, has no receipt, and
// leaves nothing behind.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	other := s.newTenant(t, 100, anything())
	colleague := x.colleague(t)
	body := func(params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":"r","method":"tools/call","params":{"name":"payout","arguments":%s%s}}`, x.payoutArgs(), params)
	}
	context := func(members string) string { return body(`,"mcpContext":{` + members + `}`) }
	arguments := func(members string) string {
		c := x.payout("a")
		c.id, c.args = `"r"`, strings.TrimSuffix(x.payoutArgs(), "}")+","+members+"}"
		return c.body()
	}
	named := fmt.Sprintf(`"wallet_id":%q,"permit_id":%q`, x.wallet, x.permit)
	before, theirs := x.state(t), other.state(t)
	for name, c := range map[string]struct {
		body    string
		headers []string
		code    int
		reason  string
	}{
		"wallets disagree":       {context(named + `,"idempotency_key":"k"`), []string{"Counterfoil-Wallet", other.wallet}, -31400, "context_conflict"},
		"permits disagree":       {context(named + `,"idempotency_key":"k"`), []string{"Counterfoil-Permit", other.permit}, -31400, "context_conflict"},
		"meta disagrees":         {body(`,"mcpContext":{` + named + `,"idempotency_key":"k"},"_meta":{"counterfoil/context":{"wallet_id":"wal_x"}}`), nil, -31400, "context_conflict"},
		"keys disagree":          {context(named + `,"idempotency_key":"k"`), []string{"Idempotency-Key", "K"}, -31400, "idempotency_key_conflict"},
		"key header twice":       {body(""), []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, -31400, "idempotency_key_conflict"},
		"no key":                 {context(named), nil, -31400, "idempotency_key_required"},
		"two harness identities": {body(`,"_meta":{"callId":"call_1","claudecode/toolUseId":"t"},"mcpContext":{` + named + `}`), nil, -31400, "identity_ambiguous"},
		"bad harness identity":   {body(`,"_meta":{"callId":"call 1"},"mcpContext":{` + named + `}`), nil, -31400, "idempotency_key_invalid"},
		"blank key":              {context(named + `,"idempotency_key":" \t "`), nil, -31400, "idempotency_key_invalid"},
		"empty key":              {context(named + `,"idempotency_key":""`), nil, -31400, "idempotency_key_invalid"},
		"long key":               {context(named + `,"idempotency_key":"` + strings.Repeat("k", 129) + `"`), nil, -31400, "idempotency_key_invalid"},
		"control in the key":     {context(named + `,"idempotency_key":"a\u0000"`), nil, -31400, "idempotency_key_invalid"},
		"key of a number":        {context(named + `,"idempotency_key":7`), nil, -31400, "idempotency_key_invalid"},
		"unknown tool":           {strings.Replace(context(named+`,"idempotency_key":"k"`), `"payout"`, `"Payout"`, 1), nil, -32602, "tool_unknown"},
		"unknown context member": {context(named + `,"idempotency_key":"k","tenant":"x"`), nil, -31400, "arguments_invalid"},
		"context in other case":  {context(`"Wallet_id":"w","idempotency_key":"k"`), nil, -31400, "arguments_invalid"},
		"context of text":        {body(`,"mcpContext":"k"`), nil, -31400, "arguments_invalid"},

		"idempotency_key in arguments": {arguments(`"idempotency_key":"k"`), nil, -31400, "identity_in_arguments"},
		"wallet_id in arguments, deep": {arguments(`"a":[{"b":{"wallet_id":"w"}}]`), nil, -31400, "identity_in_arguments"},
		"toolUseId in arguments":       {arguments(`"toolUseId":"t"`), nil, -31400, "identity_in_arguments"},
		"_meta in arguments":           {arguments(`"_meta":{}`), nil, -31400, "identity_in_arguments"},
		"platform in arguments":        {arguments(`"platform":"codex"`), nil, -31400, "identity_in_arguments"},

		"no permit":                {context(`"idempotency_key":"k"`), nil, -31400, "permit_required"},
		"unknown permit":           {context(`"permit_id":"prm_nothing","idempotency_key":"k"`), nil, -31404, "permit_not_found"},
		"permit of another wallet": {context(`"permit_id":"` + other.permit + `","idempotency_key":"k"`), nil, -31403, "permit_wallet_mismatch"},
		"permit of another agent":  {context(`"permit_id":"` + colleague.permit + `","idempotency_key":"k"`), nil, -31403, "permit_agent_mismatch"},
		"another wallet":           {context(`"wallet_id":"` + other.wallet + `","idempotency_key":"k"`), nil, -31403, "wallet_forbidden"},
		"unknown wallet":           {context(`"wallet_id":"wal_nothing","idempotency_key":"k"`), nil, -31403, "wallet_forbidden"},
		"empty wallet":             {context(`"wallet_id":"","idempotency_key":"k"`), nil, -31403, "wallet_forbidden"},
		"input that nobody awaits": {body(`,"requestState":"s","mcpContext":{` + named + `,"idempotency_key":"k"}`), nil, -32602, "arguments_invalid"},
	} {
		a := s.post(t, x.key, c.body, c.headers...)
		if a.status != http.StatusOK || a.refusal == nil || a.refusal.Code != c.code || a.reason() != c.reason || a.refusal.Data.Retry == "" ||
			a.refusal.Message == "" || a.result != nil || string(a.id) != `"r"` {
			t.Errorf("%s: want %d %s: %s", name, c.code, c.reason, a)
		}
		if strings.Contains(string(a.body), "rcp_") || strings.Contains(string(a.body), "op_") {
			t.Errorf("%s: a refusal with a record: %s", name, a)
		}
	}
	unchanged(t, "after the refusals", before, x.state(t))
	unchanged(t, "another wallet after the refusals", theirs, other.state(t))

	// None of these keys was used up.
	x.succeed(t, x.payout("k"))
}

// TestRefusedForWantOfContext: an agent without a default wallet must name one.
func TestRefusedForWantOfContext(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	agent := s.operator(t, http.MethodPost, "/v1/agents", object{"name": "no default", "wallets": []string{x.wallet}}, http.StatusCreated).text(t, "id")
	x.agent, x.key = agent, s.newKey(t, agent)
	c := x.payout("k")
	c.wallet, c.permit = "", ""
	if a := x.do(t, c); a.refusal == nil || a.refusal.Code != -31400 || a.reason() != "context_missing" {
		t.Errorf("no wallet: %s", a)
	}
}

// outsider is a permit issuer that is not the gateway.
type outsider struct {
	name   string
	public string // base64url
	kid    string
	key    ed25519.PrivateKey
}

func newOutsider(t *testing.T) outsider {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x := base64.RawURLEncoding.EncodeToString(public)
	thumbprint := sha256.Sum256(fmt.Appendf(nil, `{"crv":"Ed25519","kty":"OKP","x":%q}`, x))
	return outsider{name: "https://" + x[:8] + ".issuer.example", public: x, kid: base64.RawURLEncoding.EncodeToString(thumbprint[:]), key: private}
}

func (o outsider) register(t *testing.T, s *system, status string) {
	t.Helper()
	key := object{"kty": "OKP", "crv": "Ed25519", "x": o.public, "kid": o.kid, "use": "sig", "cf_purpose": "permit", "cf_status": status}
	code, data := s.ask(t, s.url, operatorToken, http.MethodPost, "/v1/issuers", object{"issuer": o.name, "keys": object{"keys": []object{key}}})
	if code != http.StatusCreated && code != http.StatusOK {
		t.Fatalf("register an issuer: %d %s", code, data)
	}
}

func (o outsider) sign(t *testing.T, claims object) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	header := fmt.Sprintf(`{"alg":"EdDSA","typ":"vnd.counterfoil.permit+jwt","kid":%q}`, o.kid)
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	return input + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(o.key, []byte(input)))
}

func (o outsider) claims(s *system, x tenant, id string) object {
	now := time.Now().Unix()
	grant := anything()
	grant["type"] = "counterfoil.tool-permit.v1"
	return object{
		"iss": o.name, "aud": s.url, "sub": x.wallet, "act": object{"sub": x.agent}, "jti": id, "iat": now - 5, "nbf": now - 5, "exp": now + 3600,
		"scope": "payments.write", "authorization_details": []object{grant},
	}
}

// TestImportedPermit: a registered issuer's permit works until the issuer's key is revoked; then it is not a
// verdict of the permit but no permit at all, without a receipt. What was done under it still replays.
func TestImportedPermit(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newWallet(t, 100)
	o := newOutsider(t)
	token := o.sign(t, o.claims(s, x, "prm_outside"))
	if status, data := s.ask(t, s.url, operatorToken, http.MethodPost, "/v1/permits/import", token); status != http.StatusForbidden || !strings.Contains(string(data), "permit_invalid") {
		t.Errorf("import from an unknown issuer: %d %s", status, data)
	}
	o.register(t, s, "active")
	for name, bend := range map[string]func(object){
		"audience":       func(c object) { c["aud"] = "https://elsewhere.example" },
		"extra claim":    func(c object) { c["extra"] = 1 },
		"no expiry":      func(c object) { delete(c, "exp") },
		"fraction":       func(c object) { c["exp"] = json.Number("1e10") },
		"unknown member": func(c object) { c["authorization_details"].([]object)[0]["free"] = true },
		"two grants": func(c object) {
			d := c["authorization_details"].([]object)
			c["authorization_details"] = append(d, d[0])
		},
	} {
		c := o.claims(s, x, "prm_bent")
		bend(c)
		if status, data := s.ask(t, s.url, operatorToken, http.MethodPost, "/v1/permits/import", o.sign(t, c)); status < 400 || status >= 500 {
			t.Errorf("import with another %s: %d %s", name, status, data)
		}
	}
	cut := token[:len(token)-1] + map[bool]string{true: "Q", false: "A"}[token[len(token)-1] == 'A']
	if status, data := s.ask(t, s.url, operatorToken, http.MethodPost, "/v1/permits/import", cut); status != http.StatusForbidden {
		t.Errorf("import with another signature: %d %s", status, data)
	}
	s.operator(t, http.MethodPost, "/v1/permits/import", token, http.StatusCreated)
	x.permit = "prm_outside"
	r := x.once(t, x.payout("invoice-1"))
	o.register(t, s, "revoked")
	eventually(t, "the revocation of the issuer's key", func() bool {
		return x.do(t, x.payout("invoice-2")).reason() == "permit_invalid"
	})
	if a := x.do(t, x.payout("invoice-2")); a.refusal == nil || a.refusal.Code != -31403 {
		t.Errorf("under a revoked issuer: %s", a)
	}
	unchangedBut := x.state(t)
	unchanged(t, "after the refusal", r.then, unchangedBut)
	r.same(t, x.do(t, r.call))
}

// TestRateLimited: an agent that makes too many calls is refused before anything is stored, and its replays
// are not.
func TestRateLimited(t *testing.T) {
	t.Parallel()
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), "limits: {per_agent: {concurrent: 1}}")
	x := s.newTenant(t, 100, anything())
	r := x.once(t, x.payout("invoice-1"))
	release := s.tool.keep("kept@vendor.example")
	c := x.payout("invoice-2")
	c.args = `{"to":"kept@vendor.example","amount":1}`
	done := make(chan answer, 1)
	go func() {
		a, err := x.try(s.url, c)
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, "kept@")) == 1 })
	a := x.do(t, x.payout("invoice-3"))
	if a.refusal == nil || a.refusal.Code != -31429 || a.reason() != "rate_limited" || a.refusal.Data.Retry != "same_key" {
		t.Errorf("a second call at a time: %s", a)
	}
	if again := x.do(t, r.call); !again.replayed() {
		t.Errorf("a replay meanwhile: %s", again)
	}
	release()
	receive(t, done, "the first call")
	x.succeed(t, x.payout("invoice-3"))
	if n := len(s.all(t, "/v1/operations", url.Values{"wallet": {x.wallet}})); n != 3 {
		t.Errorf("%d operations, want 3", n)
	}
}
