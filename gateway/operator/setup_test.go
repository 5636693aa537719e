package operator_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"counterfoil/gateway"
	"counterfoil/gateway/mcp"
	"counterfoil/gateway/operator"
	"counterfoil/gateway/upstream"
	"counterfoil/internal/apitest"
	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/internal/testdb"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testdb.Runner(m)) }

const (
	issuer          = "http://gateway.test"
	operatorToken   = "operator-token-of-the-tests"
	approverToken   = "approver-token-of-the-tests"
	reconcilerToken = "reconciler-token-of-the-tests"
)

// bundle is a gateway on a database of its own. Every answer to it is checked against openapi.yaml.
type bundle struct {
	g       *gateway.Gateway
	ledger  *ledger.Ledger
	keyring *jws.Keyring
	spec    *apitest.Spec
}

func setup(t *testing.T) *bundle {
	t.Helper()
	ring, _, err := jws.CreateMissing(t.TempDir()+"/keys", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ring.Active(jws.PurposeReceipt)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	l, err := ledger.Open(context.Background(), ledger.Options{
		Now: time.Now,
		URL: testdb.New(t), Issuer: issuer, Signer: signer, Signers: ring.Signer, Explain: gateway.Explain, Lease: 15 * time.Second, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	upstreamServer := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(upstreamServer.Close)
	g, err := gateway.New(gateway.Config{
		Issuer: issuer, Version: "test", MaxPermitLifetime: 24 * time.Hour,
		OperatorToken: operatorToken, ApproverToken: approverToken, ReconcilerToken: reconcilerToken,
		Upstreams: []upstream.Config{{Name: "payments", URL: upstreamServer.URL}},
		Tools: []gateway.Tool{
			{
				Name: "payout", Upstream: "payments", UpstreamTool: "payout", Price: 5, Scopes: []string{"payments.write"},
				Value: &permits.ValuePointer{Pointer: "/amount", Currency: "USD"}, Recipients: []string{"/to"},
			},
			{Name: "balance", Upstream: "payments", UpstreamTool: "balance", Price: 1},
		},
	}, gateway.Deps{Ledger: l, Keyring: ring, Logger: log, Metrics: gateway.NewMetrics(prometheus.NewRegistry(), "test"), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	mcp.Register(g)
	operator.Register(g)
	return &bundle{g: g, ledger: l, keyring: ring, spec: apitest.Load(t)}
}

// answer is an HTTP answer, its JSON decoded.
type answer struct {
	status int
	header http.Header
	raw    []byte
	json   map[string]any
}

func (a answer) text(t testing.TB, path ...string) string {
	t.Helper()
	s, ok := a.at(path...).(string)
	if !ok {
		t.Fatalf("no text at %v in %s", path, a.raw)
	}
	return s
}

func (a answer) number(t testing.TB, path ...string) int64 {
	t.Helper()
	f, ok := a.at(path...).(float64)
	if !ok {
		t.Fatalf("no number at %v in %s", path, a.raw)
	}
	return int64(f)
}

func (a answer) at(path ...string) any {
	var v any = a.json
	for _, name := range path {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[name]
	}
	return v
}

// items are the ids of a list.
func (a answer) items(t testing.TB, member string) []string {
	t.Helper()
	list, ok := a.json["items"].([]any)
	if !ok {
		t.Fatalf("no items in %s", a.raw)
	}
	ids := make([]string, 0, len(list))
	for _, item := range list {
		ids = append(ids, fmt.Sprint(item.(map[string]any)[member]))
	}
	return ids
}

// request is one HTTP request; header holds pairs.
type request struct {
	method, path, token, body string
	header                    []string
}

func (b *bundle) send(t testing.TB, r request) answer {
	t.Helper()
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	req := httptest.NewRequest(r.method, issuer+r.path, body)
	if r.body != "" && !slices.Contains(r.header, "Content-Type") {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	for i := 0; i+1 < len(r.header); i += 2 {
		req.Header.Add(r.header[i], r.header[i+1])
	}
	w := b.spec.Do(t, b.g.Echo(), req)
	a := answer{status: w.Code, header: w.Header(), raw: w.Body.Bytes()}
	if strings.Contains(w.Header().Get("Content-Type"), "json") && !strings.Contains(w.Header().Get("Content-Type"), "jsonl") {
		if err := json.Unmarshal(a.raw, &a.json); err != nil {
			t.Fatalf("%s %s: %v in %s", r.method, r.path, err, a.raw)
		}
	}
	return a
}

// must sends as the operator and wants a status.
func (b *bundle) must(t testing.TB, status int, method, path, body string, header ...string) answer {
	t.Helper()
	a := b.send(t, request{method: method, path: path, token: operatorToken, body: body, header: header})
	if a.status != status {
		t.Fatalf("%s %s: %d, want %d: %s", method, path, a.status, status, a.raw)
	}
	return a
}

// refused sends as the operator and wants a problem with this status and reason.
func (b *bundle) refused(t testing.TB, status int, reason, method, path, body string, header ...string) answer {
	t.Helper()
	a := b.must(t, status, method, path, body, header...)
	if got := a.text(t, "reason"); got != reason {
		t.Fatalf("%s %s: reason %s, want %s: %s", method, path, got, reason, a.raw)
	}
	return a
}

// world makes a wallet with 100 credits, an agent of it with a key, and a permit; it returns the key.
func (b *bundle) world(t testing.TB, name string) (key string) {
	t.Helper()
	b.must(t, 201, "POST", "/v1/wallets", fmt.Sprintf(`{"id":"wal_%s","name":"Wallet"}`, name))
	b.must(t, 201, "POST", "/v1/wallets/wal_"+name+"/deposits", `{"credits":100,"reference":"opening"}`)
	b.must(t, 201, "POST", "/v1/agents", fmt.Sprintf(`{"id":"agt_%s","name":"Agent","wallets":["wal_%s"],"default_wallet_id":"wal_%s"}`, name, name, name))
	key = b.must(t, 201, "POST", "/v1/agents/agt_"+name+"/keys", `{}`).text(t, "key")
	b.must(t, 201, "POST", "/v1/permits", permitBody(name, ""))
	return key
}

// permitBody asks for the permit prm_NAME; more is added to it.
func permitBody(name, more string) string {
	return fmt.Sprintf(`{"id":"prm_%s","wallet_id":"wal_%s","agent_id":"agt_%s","scope":"payments.write","expires_at":%q,
		"grant":{"tools":["payout"],"limits":{"credits":50,"calls_total":10,"calls":{"payout":8},"value":{"currency":"USD","total":9000}}}%s}`,
		name, name, name, time.Now().Add(time.Hour).UTC().Format(time.RFC3339), more)
}

// claim takes one call of payout through T1.
func (b *bundle) claim(t testing.TB, name, key string) *ledger.Claimed {
	t.Helper()
	return b.claimUnder(t, "prm_"+name, name, key)
}

func (b *bundle) claimUnder(t testing.TB, id, name, key string) *ledger.Claimed {
	t.Helper()
	return b.claimAs(t, id, name, key, "")
}

// claimAs claims with an operation reference; "" is none.
func (b *bundle) claimAs(t testing.TB, id, name, key, ref string) *ledger.Claimed {
	t.Helper()
	ctx := context.Background()
	permit, err := b.ledger.PermitByID(ctx, id, b.g.PermitTrust())
	if err != nil {
		t.Fatal(err)
	}
	args, err := canon.Canonical([]byte(`{"to":"ap@vendor.example","amount":1200}`))
	if err != nil {
		t.Fatal(err)
	}
	tool, _ := b.g.PermitTool("payout")
	claimed, err := b.ledger.Claim(ctx, &ledger.Claim{
		Wallet: "wal_" + name, Key: key, KeySource: "context", Agent: "agt_" + name, Permit: permit, Tool: "payout",
		ToolSHA256: canon.SHA256Hex([]byte("definition")), RequestHash: sha256.Sum256([]byte(key)), Arguments: args,
		Fit: permit.Fit(tool, args), Price: 5, Ref: ref,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &claimed
}

// call takes one call of payout through T1 and T2; it returns the operation.
func (b *bundle) call(t testing.TB, name, key string) *ledger.Operation {
	t.Helper()
	return b.callUnder(t, "prm_"+name, name, key)
}

func (b *bundle) callUnder(t testing.TB, id, name, key string) *ledger.Operation {
	t.Helper()
	claimed := b.claimUnder(t, id, name, key)
	if claimed.Granted == nil {
		t.Fatalf("claim %s was not granted: %+v", key, claimed)
	}
	op, err := b.ledger.Settle(context.Background(), &ledger.Settlement{
		Granted: claimed.Granted, Outcome: receipts.Succeeded, Charged: 5, KeepCall: true, KeepValue: true, Result: []byte(`{"content":[]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func sum(data []byte) string { return canon.SHA256Hex(data) }

// outsider is a permit issuer of its own.
type outsider struct {
	name   string
	signer jws.Signer
}

func newOutsider(t testing.TB, seed byte) outsider {
	t.Helper()
	s, err := jws.SignerFromKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return outsider{name: fmt.Sprintf("https://issuer-%d.example", seed), signer: s}
}

func (o outsider) jwks(t testing.TB, status jws.Status) string {
	t.Helper()
	set, err := jws.NewKeySet(jws.Key{Public: o.signer.Public(), Purpose: jws.PurposePermit, Status: status})
	if err != nil {
		t.Fatal(err)
	}
	return string(set.JWKS())
}

func (o outsider) register(t testing.TB, b *bundle, status jws.Status, want int) answer {
	t.Helper()
	return b.must(t, want, "POST", "/v1/issuers", fmt.Sprintf(`{"issuer":%q,"keys":%s}`, o.name, o.jwks(t, status)))
}

// permit signs a permit for the world of that name, as issued this long ago.
func (o outsider) permit(t testing.TB, id, name string) string {
	t.Helper()
	now := time.Now().Unix()
	p := &permits.Permit{
		ID: id, Issuer: o.name, Audience: issuer, Wallet: "wal_" + name, Agent: "agt_" + name,
		IssuedAt: now - 5, NotBefore: now - 5, Expires: now + 3600, Scopes: []string{"payments.write"},
		Grant: permits.Grant{Tools: []string{"payout"}, Limits: permits.Limits{Credits: 20}},
	}
	issued, err := p.Issue(o.signer, permits.Expect{Issuers: []string{o.name}, Audience: issuer, MaxLifetime: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return issued.Token
}
