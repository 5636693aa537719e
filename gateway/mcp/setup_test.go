package mcp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"counterfoil/gateway"
	"counterfoil/gateway/mcp"
	"counterfoil/gateway/upstream"
	"counterfoil/internal/apitest"
	"counterfoil/internal/jws"
	"counterfoil/internal/testdb"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testdb.Runner(m)) }

const (
	issuer   = "http://gateway.test"
	price    = 5
	keyOne   = "cf_agent-one"
	keyTwo   = "cf_agent-two"
	keyOther = "cf_agent-other"
)

// tool is a real MCP server on the official SDK, whose effects can be counted.
type tool struct {
	server  *httptest.Server
	mu      sync.Mutex
	effects []string      // arguments, as they arrived
	headers []http.Header // of tool calls
	gate    chan struct{} // slow waits for it
	started chan struct{} // slow has begun
	refuse  atomic.Bool   // drop connections after acting
}

func newTool(t *testing.T) *tool {
	t.Helper()
	u := &tool{gate: make(chan struct{}), started: make(chan struct{}, 1000)}
	srv := sdk.NewServer(&sdk.Implementation{Name: "tool", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"},"amount":{"type":"number"},"n":{},"bcc":{}}}`)
	add := func(name string, h sdk.ToolHandler) {
		srv.AddTool(&sdk.Tool{Name: name, Description: "<b>" + name + "</b>", InputSchema: schema}, h)
	}
	add("pay", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		u.act(r)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "paid"}}, StructuredContent: map[string]any{"cost": 2}}, nil
	})
	add("fail", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		u.act(r)
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: "no funds"}}}, nil
	})
	add("slow", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		u.act(r)
		u.started <- struct{}{}
		<-u.gate
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil
	})
	add("echo", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		u.act(r)
		return &sdk.CallToolResult{
			Meta:    sdk.Meta{"counterfoil/receipt": "forged", "theirs": 1},
			Content: []sdk.Content{&sdk.TextContent{Text: "key " + r.Extra.Header.Get("Idempotency-Key")}},
		}, nil
	})
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return srv }, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	u.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u.refuse.Load() {
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, r)
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(u.server.Close)
	return u
}

func (u *tool) act(r *sdk.CallToolRequest) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.effects = append(u.effects, string(r.Params.Arguments))
	u.headers = append(u.headers, r.Extra.Header)
}

func (u *tool) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.effects)
}

// house is one gateway on its own database, served over a real socket.
type house struct {
	t      *testing.T
	url    string // of the database
	keys   *jws.Keyring
	tool   *tool
	config gateway.Config
	log    *journal
	spec   *apitest.Spec
	drain  time.Duration
	locked *slog.Logger

	gateway *gateway.Gateway
	ledger  *ledger.Ledger
	metrics *prometheus.Registry
	base    string
	client  *http.Client // checks every answer against openapi.yaml
	plain   *http.Client
	stop    func() error
}

type option func(*gateway.Config)

func newHouse(t *testing.T, options ...option) *house {
	t.Helper()
	keys, _, err := jws.CreateMissing(t.TempDir(), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	u := newTool(t)
	h := &house{t: t, url: testdb.New(t), keys: keys, tool: u, log: &journal{}, spec: apitest.Load(t), drain: 20 * time.Second}
	h.locked = slog.New(slog.NewTextHandler(h.log, nil))
	h.config = gateway.Config{
		Issuer: issuer, Version: "test", MaxPermitLifetime: 366 * 24 * time.Hour, OperatorToken: "operator-token", ApproverToken: "approver-token",
		AllowedOrigins: []string{"https://app.test"},
		Upstreams:      []upstream.Config{{Name: "u", URL: u.server.URL, Timeout: 20 * time.Second, ForwardKeyHeader: "Idempotency-Key", Headers: http.Header{"X-Secret": {"upstream-secret-1"}}}},
		Tools: []gateway.Tool{
			{Name: "pay", Upstream: "u", Price: price, Scopes: []string{"payments.write"}, Value: &permits.ValuePointer{Pointer: "/amount", Currency: "USD"}, Recipients: []string{"/to"}},
			{Name: "metered", Upstream: "u", UpstreamTool: "pay", Price: price, ActualPointer: "/structuredContent/cost"},
			{Name: "fail", Upstream: "u", Price: price},
			{Name: "fail_charged", Upstream: "u", UpstreamTool: "fail", Price: price, ChargeOnToolError: true},
			{Name: "slow", Upstream: "u", Price: price},
			{Name: "echo", Upstream: "u", Price: price},
			{Name: "gone", Upstream: "u", Price: price},
		},
	}
	for _, o := range options {
		o(&h.config)
	}
	h.open()
	t.Cleanup(func() { h.close() })
	h.furnish()
	return h
}

func (h *house) open() {
	h.t.Helper()
	signer, err := h.keys.Active(jws.PurposeReceipt)
	if err != nil {
		h.t.Fatal(err)
	}
	h.metrics = prometheus.NewRegistry()
	metrics := gateway.NewMetrics(h.metrics, "test")
	h.ledger, err = ledger.Open(h.t.Context(), ledger.Options{
		Now: time.Now,
		URL: h.url, Issuer: issuer, Signer: signer, Explain: gateway.Explain, Lease: 15 * time.Second,
		Logger: h.locked, OnCommit: metrics.OnCommit, OnAbandoned: metrics.OnAbandoned,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.gateway, err = gateway.New(h.config, gateway.Deps{Ledger: h.ledger, Keyring: h.keys, Logger: h.locked, Metrics: metrics, Now: time.Now})
	if err != nil {
		h.t.Fatal(err)
	}
	mcp.Register(h.gateway)
	waiting, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
	defer cancel()
	h.gateway.WaitCatalogue(waiting)
	h.serve()
}

func (h *house) serve() {
	h.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	h.base = "http://" + l.Addr().String()
	h.plain = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 600}, Timeout: time.Minute}
	h.client = &http.Client{Transport: h.spec.Transport(h.t, h.plain.Transport), Timeout: time.Minute}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	drain, g := h.drain, h.gateway
	go func() { served <- g.Serve(ctx, l, drain) }()
	var once sync.Once
	var result error
	h.stop = func() error {
		once.Do(func() {
			cancel()
			result = <-served
		})
		return result
	}
}

func (h *house) close() {
	h.plain.CloseIdleConnections()
	if err := h.stop(); err != nil && h.drain > time.Second {
		h.t.Errorf("serve: %v", err)
	}
	h.gateway.Close()
	if err := h.ledger.Close(context.Background()); err != nil {
		h.t.Errorf("close ledger: %v", err)
	}
}

// restart closes the whole gateway and opens another on the same database.
func (h *house) restart(change option) {
	h.t.Helper()
	h.close()
	if change != nil {
		change(&h.config)
	}
	h.open()
}

// admin runs one act of administration.
func (h *house) admin(do func(context.Context, *ledger.Admin) error) {
	h.t.Helper()
	_, err := h.ledger.Administer(context.Background(), ledger.Act{Actor: "test"}, func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
		return ledger.Answer{Status: 200}, do(ctx, a)
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// furnish makes wallets wal_1 (1,000,000 credits), wal_2 and wal_x, and three
// agents: agt_1 and agt_2 share wal_1, agt_other has wal_x alone.
func (h *house) furnish() {
	h.t.Helper()
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		for _, w := range []string{"wal_1", "wal_2", "wal_x", "wal_poor"} {
			if _, err := a.CreateWallet(ctx, w, w); err != nil {
				return err
			}
			if w == "wal_poor" {
				continue
			}
			if _, err := a.Deposit(ctx, w, "start", 1_000_000); err != nil {
				return err
			}
		}
		for _, n := range []struct {
			agent ledger.Agent
			key   string
		}{
			{ledger.Agent{ID: "agt_1", Name: "one", Wallets: []string{"wal_1", "wal_2", "wal_poor"}, DefaultWallet: "wal_1", DefaultPermit: "prm_1"}, keyOne},
			{ledger.Agent{ID: "agt_2", Name: "two", Wallets: []string{"wal_1"}, DefaultWallet: "wal_1"}, keyTwo},
			{ledger.Agent{ID: "agt_other", Name: "other", Wallets: []string{"wal_x"}}, keyOther},
		} {
			if _, err := a.CreateAgent(ctx, n.agent); err != nil {
				return err
			}
			if _, err := a.CreateAgentKey(ctx, n.agent.ID, sha256.Sum256([]byte(n.key)), nil, nil); err != nil {
				return err
			}
		}
		return nil
	})
	h.permit("prm_1", nil)
}

// permit issues a permit for all tools; change makes it narrower.
func (h *house) permit(id string, change func(*permits.Permit)) *permits.Permit {
	h.t.Helper()
	signer, err := h.keys.Active(jws.PurposePermit)
	if err != nil {
		h.t.Fatal(err)
	}
	now := time.Now().Unix()
	p := &permits.Permit{
		ID: id, Issuer: issuer, Audience: issuer, Wallet: "wal_1", Agent: "agt_1", IssuedAt: now - 60, NotBefore: now - 60, Expires: now + 3600,
		Scopes: []string{"payments.write"},
		Grant:  permits.Grant{Tools: []string{"pay", "metered", "fail", "fail_charged", "slow", "echo", "gone"}, Limits: permits.Limits{Credits: 100_000}},
	}
	if change != nil {
		change(p)
	}
	signed, err := p.Issue(signer, permits.Expect{Issuers: []string{issuer}, Audience: issuer, MaxLifetime: 366 * 24 * time.Hour})
	if err != nil {
		h.t.Fatalf("issue %s: %v", id, err)
	}
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.IssuePermit(ctx, signed)
		return err
	})
	return signed
}

// answer is one HTTP answer of the endpoint.
type answer struct {
	status  int
	header  http.Header
	body    string
	result  json.RawMessage
	code    int
	message string
	reason  string // of the error
	retry   string
	meta    map[string]any // of the result
	isError bool
	texts   []string
}

func (a answer) text(name string) string { s, _ := a.meta[name].(string); return s }

// post sends one body. Headers come in pairs; "X-API-Key" overrides keyOne.
func (h *house) post(body string, pairs ...string) answer {
	h.t.Helper()
	a, err := h.try(context.Background(), body, pairs...)
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

func (h *house) try(ctx context.Context, body string, pairs ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+"/mcp/messages", bytes.NewReader([]byte(body)))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", keyOne)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] == "X-API-Key" || pairs[i] == "Content-Type" {
			req.Header.Set(pairs[i], pairs[i+1])
			if pairs[i+1] == "" {
				req.Header.Del(pairs[i])
			}
			continue
		}
		if pairs[i] == "Host" {
			req.Host = pairs[i+1]
			continue
		}
		req.Header.Add(pairs[i], pairs[i+1])
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	return parse(resp, raw), nil
}

func parse(resp *http.Response, raw []byte) answer {
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(raw)}
	var wire struct {
		Result json.RawMessage
		Reason string
		Error  *struct {
			Code    int
			Message string
			Data    struct{ Reason, Retry string }
		}
	}
	if json.Unmarshal(raw, &wire) != nil {
		return a
	}
	a.result, a.reason = wire.Result, wire.Reason
	if wire.Error != nil {
		a.code, a.message, a.reason, a.retry = wire.Error.Code, wire.Error.Message, wire.Error.Data.Reason, wire.Error.Data.Retry
	}
	var result struct {
		Meta    map[string]any `json:"_meta"`
		IsError bool           `json:"isError"`
		Content []struct{ Text string }
	}
	_ = json.Unmarshal(wire.Result, &result)
	a.meta, a.isError = result.Meta, result.IsError
	for _, c := range result.Content {
		a.texts = append(a.texts, c.Text)
	}
	return a
}

// callBody is a tools/call with a context object's members.
func callBody(tool, args, ctx string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + args + `,"mcpContext":{` + ctx + `}}}`
}

const payArgs = `{"to":"ap@vendor.example","amount":1200}`

func keyed(key string) string { return `"idempotency_key":"` + key + `"` }

// pay calls the tool pay under a key, with the agent's defaults.
func (h *house) pay(key string, pairs ...string) answer {
	h.t.Helper()
	return h.post(callBody("pay", payArgs, keyed(key)), pairs...)
}

// state is what a refused call must leave as it was.
type state struct {
	Available, Held int64
	Receipts        int
	Effects         int
	Transfers       int
}

func (h *house) state(wallet string) state {
	h.t.Helper()
	ctx := context.Background()
	w, err := h.ledger.Wallet(ctx, wallet)
	if err != nil {
		h.t.Fatal(err)
	}
	transfers, err := h.ledger.Transfers(ctx, wallet, "", 2000)
	if err != nil {
		h.t.Fatal(err)
	}
	return state{w.Available, w.Held, len(h.receipts(wallet)), h.tool.count(), len(transfers)}
}

func (h *house) receipts(wallet string) []*ledger.Receipt {
	h.t.Helper()
	list, err := h.ledger.Receipts(context.Background(), ledger.ReceiptFilter{Wallets: []string{wallet}}, "", 2000)
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

// claims verifies an answer's receipt against the published keys.
func (h *house) claims(a answer) *receipts.Claims {
	h.t.Helper()
	c, _, err := receipts.Parse(a.text("counterfoil/receipt"), h.keys.Public())
	if err != nil {
		h.t.Fatalf("receipt of %s: %v", a.body, err)
	}
	if c.ID != a.text("counterfoil/receipt_id") || c.Operation != a.text("counterfoil/operation_id") {
		h.t.Errorf("the receipt is of %s, %s; the answer of %v", c.ID, c.Operation, a.meta)
	}
	return c
}

// journal keeps the log, for a look at what must not be in it.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// defaultPermit makes a permit the default of agt_1.
func (h *house) defaultPermit(id string) {
	h.t.Helper()
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.UpdateAgent(ctx, "agt_1", ledger.AgentChange{DefaultPermit: &id})
		return err
	})
}
