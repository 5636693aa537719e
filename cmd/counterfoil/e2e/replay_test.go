package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// repeated is a call that was made once, and everything as it was then.
type repeated struct {
	x     tenant
	call  call
	first answer
	then  state
}

func (x tenant) once(t *testing.T, c call) repeated {
	t.Helper()
	r := repeated{x: x, call: c, first: x.succeed(t, c)}
	r.then = x.state(t)
	if r.then.Effects != 1 || r.then.Charges != 1 || r.then.Receipts != 1 || r.then.Held != 0 || *r.first.meta.Charged != payoutPrice {
		t.Fatalf("after one call: %+v, %s", r.then, r.first)
	}
	return r
}

// same wants that an answer is the first one again, and that nothing else happened.
func (r repeated) same(t *testing.T, again answer) {
	t.Helper()
	if !again.replayed() || again.status != http.StatusOK {
		t.Errorf("not replayed: %s", again)
	}
	if !bytes.Equal(again.result, r.first.result) {
		t.Errorf("another result:\n%s\n%s", r.first.result, again.result)
	}
	if again.meta.ReceiptID != r.first.meta.ReceiptID || again.meta.ReceiptID == "" {
		t.Errorf("another receipt: %q, was %q", again.meta.ReceiptID, r.first.meta.ReceiptID)
	}
	unchanged(t, "after the repeat", r.then, r.x.state(t))
}

// TestSameCallTwice: however the world has changed meanwhile, a repeat is the stored answer.
func TestSameCallTwice(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for name, check := range map[string]func(*testing.T, *system){
		"at once":                     repeatAtOnce,
		"arguments written otherwise": repeatRewritten,
		"context in other places":     repeatFromOtherPlaces,
		"after a new API key":         repeatWithRotatedKey,
		"after the permit was revoked": func(t *testing.T, s *system) {
			x := s.newTenant(t, 100, anything())
			r := x.once(t, x.payout("invoice-1"))
			s.revoke(t, x.permit)
			r.same(t, x.do(t, r.call))
			if a := x.do(t, x.payout("invoice-2")); a.meta.Reason != "permit_revoked" {
				t.Errorf("a new call: %s", a)
			}
		},
		"after the permit expired": func(t *testing.T, s *system) {
			x := s.newWallet(t, 100)
			x.permit = x.issue(t, terms{grant: anything(), lives: 8 * time.Second})
			r := x.once(t, x.payout("invoice-1"))
			s.expired(t, x.permit)
			r.same(t, x.do(t, r.call))
			if a := x.do(t, x.payout("invoice-2")); a.meta.Reason != "permit_expired" {
				t.Errorf("a new call: %s", a)
			}
		},
		"after the permit was spent": func(t *testing.T, s *system) {
			x := s.newTenant(t, 100, object{"tools": []string{"payout"}, "limits": object{"credits": payoutPrice}})
			r := x.once(t, x.payout("invoice-1"))
			r.same(t, x.do(t, r.call))
		},
		"after the wallet was frozen": func(t *testing.T, s *system) {
			x := s.newTenant(t, 100, anything())
			r := x.once(t, x.payout("invoice-1"))
			s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/freeze", object{}, http.StatusOK)
			r.same(t, x.do(t, r.call))
		},
		"under a new default permit": repeatUnderNewDefault,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, s)
		})
	}
}

func repeatAtOnce(t *testing.T, s *system) {
	x := s.newTenant(t, 100, anything())
	r := x.once(t, x.payout("invoice-1"))
	for range 3 {
		r.same(t, x.do(t, r.call))
	}
	c := r.call
	c.id = `"another JSON-RPC id"`
	again := x.do(t, c)
	r.same(t, again)
	if string(again.id) != c.id {
		t.Errorf("answered under the id %s", again.id)
	}
	claims := s.receipt(t, r.first)
	if claims.Res == nil || claims.Sub != x.wallet || claims.Act.Sub != x.agent || claims.Permit.Jti != x.permit || claims.Call.Tool != "payout" ||
		claims.Call.KeySource != "context" || claims.Value == nil || claims.Value.Amount != 1200 || claims.Value.Currency != "USD" ||
		claims.Req.SHA256 != sum([]byte(`{"amount":1200,"to":"`+x.marker()+`vendor.example"}`)) || claims.Chain.Seq != 1 || claims.Chain.Prev != "" {
		t.Errorf("the receipt says %+v", claims)
	}
	canonical := fmt.Sprintf(`{"agent":%q,"arguments":{"amount":1200,"to":"%svendor.example"},"permit":%q,"tool":"payout","wallet":%q}`, x.agent, x.marker(), x.permit, x.wallet)
	if claims.Req.RequestHash != sum([]byte(canonical)) {
		t.Error("the request hash is not that of the contract")
	}
	effects := s.tool.effects(t, x.marker())
	if string(effects[0].Arguments) != `{"amount":1200,"to":"`+x.marker()+`vendor.example"}` {
		t.Errorf("what went upstream is not what was hashed: %s", effects[0].Arguments)
	}
	if effects[0].Key == "" || strings.Contains(string(r.first.body), effects[0].Key) || strings.Contains(effects[0].Key, "invoice-1") {
		t.Errorf("the operation key that goes upstream is not private: %q", effects[0].Key)
	}
}

func repeatRewritten(t *testing.T, s *system) {
	x := s.newTenant(t, 100, anything())
	c := x.payout("invoice-1")
	c.args = fmt.Sprintf(`{"to":"%svendor.example","amount":1}`, x.marker())
	r := x.once(t, c)
	for _, args := range []string{
		`{"amount":1,"to":"%svendor.example"}`,
		`{"amount":1.0,"to":"%svendor.example"}`,
		`{"amount":10e-1,"to":"%svendor.example"}`,
		" { \"\\u0074o\" : \"%svendor.ex\\u0061mple\" ,\n\t\"amount\": 1.000 } ",
	} {
		c.args = fmt.Sprintf(args, x.marker())
		r.same(t, x.do(t, c))
	}
}

func repeatFromOtherPlaces(t *testing.T, s *system) {
	x := s.newTenant(t, 100, anything())
	r := x.once(t, x.payout("invoice-1"))
	bare := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"payout","arguments":` + x.payoutArgs() + `%s}}`
	context := fmt.Sprintf(`{"wallet_id":%q,"permit_id":%q,"idempotency_key":"invoice-1"}`, x.wallet, x.permit)
	headers := []string{"Counterfoil-Wallet", x.wallet, "Counterfoil-Permit", x.permit, "Idempotency-Key"}
	meta := fmt.Sprintf(bare, `,"_meta":{"counterfoil/context":`+context+`}`)
	r.same(t, s.post(t, x.key, meta))
	r.same(t, s.post(t, x.key, fmt.Sprintf(bare, ""), append(headers, "invoice-1")...))
	r.same(t, s.post(t, x.key, fmt.Sprintf(bare, ""), append(headers, `"invoice-1"`)...))
	r.same(t, s.post(t, x.key, meta, append(headers, "invoice-1")...))
	// The default wallet, and the permit of the stored operation.
	r.same(t, s.post(t, x.key, fmt.Sprintf(bare, ""), "Idempotency-Key", "invoice-1"))
	r.same(t, s.post(t, "", fmt.Sprintf(bare, ""), "X-API-Key", "", "Authorization", "Bearer "+x.key, "Idempotency-Key", "invoice-1"))
	alias, err := s.send(t.Context(), s.client, s.url+"/mcp", x.key, r.call.body())
	if err != nil {
		t.Fatal(err)
	}
	r.same(t, alias)
}

func repeatWithRotatedKey(t *testing.T, s *system) {
	x := s.newTenant(t, 100, anything())
	r := x.once(t, x.payout("invoice-1"))
	keys := s.operator(t, http.MethodGet, "/v1/agents/"+x.agent, nil, http.StatusOK).list(t, "keys")
	fresh := s.newKey(t, x.agent)
	s.operator(t, http.MethodDelete, "/v1/agents/"+x.agent+"/keys/"+keys[0].text(t, "id"), nil, http.StatusNoContent)
	if a := x.do(t, r.call); a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") != `Bearer realm="counterfoil"` {
		t.Errorf("the deleted key: %s", a)
	}
	x.key = fresh
	r.same(t, x.do(t, r.call))
}

func repeatUnderNewDefault(t *testing.T, s *system) {
	x := s.newWallet(t, 100)
	x.permit = x.issue(t, terms{grant: anything()})
	s.operator(t, http.MethodPatch, "/v1/agents/"+x.agent, object{"default_permit_id": x.permit}, http.StatusOK)
	c := x.payout("invoice-1")
	c.permit = ""
	r := x.once(t, c)
	other := x.issue(t, terms{grant: anything()})
	s.operator(t, http.MethodPatch, "/v1/agents/"+x.agent, object{"default_permit_id": other}, http.StatusOK)
	r.same(t, x.do(t, c))
	c.permit = other
	if a := x.do(t, c); a.reason() != "idempotency_key_reused" {
		t.Errorf("another permit by name: %s", a)
	}
}

// TestSameCallAfterRestart: the answer outlives the process, and the tool in the configuration.
func TestSameCallAfterRestart(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	r := x.once(t, x.payout("invoice-1"))
	s.restart(t)
	r.same(t, x.do(t, r.call))

	s.config = s.configure(t, "counterfoil.yaml", s.first.listen, "\n"+strings.Join(strings.Split(toolLines, "\n")[2:], "\n"))
	if strings.Contains(string(readFile(t, s.config)), "name: payout") {
		t.Fatal("the tool is still configured")
	}
	s.restart(t)
	r.same(t, x.do(t, r.call))
	if a := x.do(t, x.payout("invoice-2")); a.refusal == nil || a.refusal.Code != -32602 || a.reason() != "tool_unknown" {
		t.Errorf("a new call of a tool that has left: %s", a)
	}
	unchanged(t, "after all", r.then, x.state(t))
}
