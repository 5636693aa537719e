package e2e_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// object is a JSON object of the operator API. Its numbers are json.Number.
type object map[string]any

func (o object) text(t *testing.T, member string) string {
	t.Helper()
	v, ok := o[member].(string)
	if !ok {
		t.Fatalf("no text %q in %v", member, o)
	}
	return v
}

// number reads an integer; path names members inside one another.
func (o object) number(t *testing.T, path ...string) int64 {
	t.Helper()
	var v any = map[string]any(o)
	for _, member := range path {
		inner, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("no object above %v in %v", path, o)
		}
		v = inner[member]
	}
	literal, ok := v.(json.Number)
	if !ok {
		t.Fatalf("no number %v in %v", path, o)
	}
	n, err := literal.Int64()
	if err != nil {
		t.Fatalf("%v: %v", path, err)
	}
	return n
}

func (o object) list(t *testing.T, member string) []object {
	t.Helper()
	items, ok := o[member].([]any)
	if !ok {
		t.Fatalf("no list %q in %v", member, o)
	}
	out := make([]object, len(items))
	for i, item := range items {
		out[i], _ = item.(map[string]any)
	}
	return out
}

// operator sends a request as the operator and wants a status. A body that is a string is sent as it is.
func (s *system) operator(t *testing.T, method, path string, body any, want int) object {
	t.Helper()
	return s.operatorAt(t, s.url, method, path, body, want)
}

func (s *system) operatorAt(t *testing.T, base, method, path string, body any, want int) object {
	t.Helper()
	status, data := s.ask(t, base, operatorToken, method, path, body)
	if status != want {
		t.Fatalf("%s %s: status %d, want %d: %s", method, path, status, want, data)
	}
	return decodeObject(t, data)
}

func (s *system) ask(t *testing.T, base, token, method, path string, body any) (status int, data []byte) {
	t.Helper()
	var payload []byte
	switch b := body.(type) {
	case nil:
	case string:
		payload = []byte(b)
	default:
		var err error
		if payload, err = json.Marshal(b); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequest(method, base+path, bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, data
}

func decodeObject(t *testing.T, data []byte) object {
	t.Helper()
	if len(data) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		t.Fatalf("decode %s: %v", data, err)
	}
	return o
}

// all follows a list to its end.
func (s *system) all(t *testing.T, path string, query url.Values) []object {
	t.Helper()
	return s.allAt(t, s.url, path, query)
}

func (s *system) allAt(t *testing.T, base, path string, query url.Values) []object {
	t.Helper()
	var items []object
	query.Set("limit", "500")
	for {
		page := s.operatorAt(t, base, http.MethodGet, path+"?"+query.Encode(), nil, http.StatusOK)
		items = append(items, page.list(t, "items")...)
		next, more := page["next"].(string)
		if !more {
			return items
		}
		query.Set("after", next)
	}
}

// tenant is a wallet, an agent of it with an API key, and a permit.
type tenant struct {
	s                     *system
	wallet, agent, permit string
	key                   string
}

// newTenant makes a wallet with credits, its agent, and a permit with this grant for every scope.
func (s *system) newTenant(t *testing.T, credits int64, grant object) tenant {
	t.Helper()
	x := s.newWallet(t, credits)
	x.permit = x.issue(t, terms{grant: grant})
	return x
}

// newWallet is newTenant without a permit.
func (s *system) newWallet(t *testing.T, credits int64) tenant {
	t.Helper()
	n := s.names.Add(1)
	x := tenant{s: s, wallet: fmt.Sprintf("wal_w%d", n), agent: fmt.Sprintf("agt_a%d", n)}
	s.operator(t, http.MethodPost, "/v1/wallets", object{"id": x.wallet, "name": t.Name()}, http.StatusCreated)
	if credits > 0 {
		s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/deposits", object{"credits": credits, "reference": "opening"}, http.StatusCreated)
	}
	s.operator(t, http.MethodPost, "/v1/agents", object{
		"id": x.agent, "name": t.Name(), "wallets": []string{x.wallet}, "default_wallet_id": x.wallet,
	}, http.StatusCreated)
	x.key = s.newKey(t, x.agent)
	return x
}

// colleague is another agent of the same wallet, with a permit of its own.
func (x tenant) colleague(t *testing.T) tenant {
	t.Helper()
	other := tenant{s: x.s, wallet: x.wallet, agent: fmt.Sprintf("agt_a%d", x.s.names.Add(1))}
	x.s.operator(t, http.MethodPost, "/v1/agents", object{
		"id": other.agent, "name": t.Name(), "wallets": []string{x.wallet}, "default_wallet_id": x.wallet,
	}, http.StatusCreated)
	other.key = x.s.newKey(t, other.agent)
	other.permit = other.issue(t, terms{grant: anything()})
	return other
}

func (s *system) newKey(t *testing.T, agent string) string {
	t.Helper()
	key := s.operator(t, http.MethodPost, "/v1/agents/"+agent+"/keys", object{}, http.StatusCreated).text(t, "key")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = append(s.secrets, key)
	return key
}

// terms are what a permit says; what is left out is wide.
type terms struct {
	scope     *string
	notBefore time.Time
	lives     time.Duration // 0: an hour
	grant     object
}

// anything allows all tools as far as any test goes.
func anything() object {
	return object{"tools": []string{"payout", "refund", "send_email", "slow", "flaky", "flaky_charged", "metered"}, "limits": object{"credits": 1_000_000}}
}

// issue issues a permit of the tenant's and gives its id.
func (x tenant) issue(t *testing.T, p terms) string {
	t.Helper()
	id := fmt.Sprintf("prm_p%d", x.s.names.Add(1))
	body := object{
		"id": id, "wallet_id": x.wallet, "agent_id": x.agent, "scope": "payments.write mail.send",
		"expires_at": time.Now().Add(cmp.Or(p.lives, time.Hour)).UTC().Format(time.RFC3339), "grant": p.grant,
	}
	if p.scope != nil {
		body["scope"] = *p.scope
	}
	if !p.notBefore.IsZero() {
		body["not_before"] = p.notBefore.UTC().Format(time.RFC3339)
	}
	x.s.operator(t, http.MethodPost, "/v1/permits", body, http.StatusCreated)
	return id
}

func (s *system) revoke(t *testing.T, permit string) {
	t.Helper()
	s.operator(t, http.MethodPost, "/v1/permits/"+permit+"/revoke", object{}, http.StatusOK)
}

// expired waits until the database's clock has passed a permit's end.
func (s *system) expired(t *testing.T, permit string) {
	t.Helper()
	eventually(t, "the end of the permit", func() bool {
		return s.operator(t, http.MethodGet, "/v1/permits/"+permit, nil, http.StatusOK)["status"] == "expired"
	})
}

// state is everything that a call can change, as the operator and the tool see it.
type state struct {
	Balance, Held, Available         int64 // of the wallet
	Spent, PermitHeld, Calls         int64 // of the permit
	Value                            int64
	Charges, Receipts, Open, Effects int
	Operations                       int
}

func (x tenant) state(t *testing.T) state {
	t.Helper()
	w := x.s.operator(t, http.MethodGet, "/v1/wallets/"+x.wallet, nil, http.StatusOK)
	st := state{
		Balance: w.number(t, "balance"), Held: w.number(t, "held"), Available: w.number(t, "available"),
		Receipts: len(x.s.all(t, "/v1/receipts", url.Values{"wallet": {x.wallet}})),
		Effects:  len(x.s.tool.effects(t, x.marker())),
	}
	if x.permit != "" {
		p := x.s.operator(t, http.MethodGet, "/v1/permits/"+x.permit, nil, http.StatusOK)
		st.Spent, st.PermitHeld = p.number(t, "usage", "credits_spent"), p.number(t, "usage", "credits_held")
		st.Calls = p.number(t, "usage", "calls_total")
		st.Value = p.number(t, "usage", "value_spent") + p.number(t, "usage", "value_held")
	}
	for _, transfer := range x.s.all(t, "/v1/wallets/"+x.wallet+"/transfers", url.Values{}) {
		if transfer["kind"] == "charge" {
			st.Charges++
		}
	}
	for _, op := range x.s.all(t, "/v1/operations", url.Values{"wallet": {x.wallet}}) {
		st.Operations++
		if op["state"] != "finished" && op["state"] != "reconciled" {
			st.Open++
		}
	}
	return st
}

// marker is a text in every argument list of the tenant's, by which its effects are known.
func (x tenant) marker() string { return strings.TrimPrefix(x.wallet, "wal_") + "@" }
