package mcp_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// keyedTransport adds the static headers that a client is configured with.
type keyedTransport struct {
	base    http.RoundTripper
	headers map[string]string
}

func (k keyedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range k.headers {
		r.Header.Set(name, value)
	}
	return k.base.RoundTrip(r)
}

func TestOfficialClientListsAndCalls(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, revision := range []string{"2026-07-28", "2025-11-25", "2025-06-18"} {
		ctx := t.Context()
		client := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, &sdk.ClientOptions{MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true}, Capabilities: &sdk.ClientCapabilities{}})
		transport := &sdk.StreamableClientTransport{
			Endpoint: h.base + "/mcp", MaxRetries: -1, DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: keyedTransport{h.plain.Transport, map[string]string{"Authorization": "Bearer " + keyOne, "Idempotency-Key": "sdk-" + revision}}},
		}
		session, err := client.Connect(ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: revision})
		if err != nil {
			t.Fatalf("%s: connect: %v", revision, err)
		}
		if got := session.InitializeResult(); got.ProtocolVersion != revision || got.ServerInfo == nil || got.ServerInfo.Name != "counterfoil" {
			t.Errorf("%s: negotiated %+v", revision, got)
		}
		list, err := session.ListTools(ctx, nil)
		if err != nil {
			t.Fatalf("%s: list: %v", revision, err)
		}
		if len(list.Tools) != 10 || list.Tools[0].Name != "echo" || list.Tools[5].Name != "pay" || list.Tools[5].Description != "<b>pay</b>" {
			t.Errorf("%s: tools %+v", revision, list.Tools)
		}
		res, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "pay", Arguments: json.RawMessage(payArgs)})
		if err != nil {
			t.Fatalf("%s: call: %v", revision, err)
		}
		if res.IsError || res.Meta["counterfoil/outcome"] != "succeeded" || res.Meta["counterfoil/receipt"] == "" {
			t.Errorf("%s: result %+v", revision, res)
		}
		if _, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "nothing", Arguments: map[string]any{"a": 1}}); err == nil {
			t.Errorf("%s: an unknown tool was called", revision)
		}
		if err := session.Close(); err != nil {
			t.Errorf("%s: close: %v", revision, err)
		}
	}
	if h.tool.count() != 3 {
		t.Errorf("%d effects, want 3", h.tool.count())
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	modernHeaders := []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method"}
	meta := `"_meta":{` + version + `,` + caps + `}`
	for name, c := range map[string]struct {
		body   string
		pairs  []string
		status int
		code   int
		has    string
	}{
		"ping":                 {`{"jsonrpc":"2.0","id":"é\u00e9","method":"ping"}`, nil, 200, 0, `{"jsonrpc":"2.0","id":"é\u00e9","result":{}}`},
		"big id":               {`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, nil, 200, 0, `"id":9007199254740993`},
		"initialize":           {`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, nil, 200, 0, `"protocolVersion":"2025-06-18"`},
		"initialize, old":      {`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`, nil, 200, 0, `"protocolVersion":"2025-11-25"`},
		"initialize, modern":   {`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}`, nil, 200, 0, `"protocolVersion":"2025-11-25"`},
		"initialized":          {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil, 202, 0, ""},
		"cancelled":            {`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, nil, 202, 0, ""},
		"stray response":       {`{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 202, 0, ""},
		"call without id":      {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"pay","mcpContext":{"idempotency_key":"n"}}}`, nil, 202, 0, ""},
		"unknown":              {`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, nil, 200, -32601, ""},
		"discover, handshake":  {`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, nil, 200, -32601, ""},
		"discover":             {`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`, append(modernHeaders, "server/discover"), 200, 0, `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18"]`},
		"ping, modern":         {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + meta + `}}`, append(modernHeaders, "ping"), 404, -32601, ""},
		"initialize in modern": {`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + meta + `}}`, append(modernHeaders, "initialize"), 404, -32601, ""},
		"list, modern":         {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`, append(modernHeaders, "tools/list"), 200, 0, `"cacheScope":"private"`},
		"list, cursor":         {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`, nil, 200, -32602, ""},
		"list, params array":   {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`, nil, 200, -32602, ""},
		"old version header":   {`{"jsonrpc":"2.0","id":1,"method":"ping"}`, []string{"MCP-Protocol-Version", "2025-03-26"}, 400, -32022, `"supported":["2026-07-28","2025-11-25","2025-06-18"],"requested":"2025-03-26"`},
		"modern call, no name": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay",` + meta + `}}`, append(modernHeaders, "tools/call"), 400, -32020, ""},
		"modern, bad args":     {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":[],` + meta + `}}`, append(modernHeaders, "tools/call", "Mcp-Name", "pay"), 400, -32602, ""},
	} {
		a := h.post(c.body, c.pairs...)
		if a.status != c.status || a.code != c.code || !strings.Contains(a.body, c.has) {
			t.Errorf("%s: got %d %s", name, a.status, a.body)
		}
	}
	if h.tool.count() != 0 {
		t.Errorf("%d effects of calls that asked for none", h.tool.count())
	}
}

func TestPublicPages(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.pay("k")
	h.pay("k")
	h.post(callBody("fail", payArgs, keyed("f")))
	for path, c := range map[string]struct {
		status int
		has    []string
	}{
		"/healthz":                              {200, []string{`"ok"`}},
		"/readyz":                               {200, []string{`"ready"`}},
		"/.well-known/jwks.json":                {200, []string{`"cf_purpose":"receipt"`, `"cf_purpose":"permit"`, `"cf_status":"active"`}},
		"/.well-known/counterfoil.json":         {200, []string{`"issuer":"http://gateway.test"`, `"jwks_uri":"http://gateway.test/.well-known/jwks.json"`}},
		"/.well-known/oauth-protected-resource": {404, []string{`"reason":"not_found"`}},
		"/register":                             {404, []string{`"reason":"not_found"`}},
		"/":                                     {404, []string{`"reason":"not_found"`}},
		"/metrics": {200, []string{
			`counterfoil_calls_total{outcome="succeeded",reason="",tool="pay"} 1`, `counterfoil_calls_total{outcome="failed",reason="tool_error",tool="fail"} 1`,
			`counterfoil_replays_total{tool="pay"} 1`, `counterfoil_call_duration_seconds_count{tool="pay"} 1`, "counterfoil_gateway_overhead_seconds_count 2",
			`counterfoil_upstream_duration_seconds_count{tool="pay"} 1`, "counterfoil_commit_batch_size_count", "counterfoil_commit_duration_seconds_count",
			"counterfoil_operations_in_flight 0", "counterfoil_operations_uncertain 0", "counterfoil_approvals_pending 0",
			`counterfoil_credits_charged_total{tool="pay"} 5`, `counterfoil_build_info{version="test"} 1`,
		}},
	} {
		resp := h.request(http.MethodGet, path)
		body := resp.Header.Get("X-Test-Body")
		for _, part := range c.has {
			if resp.StatusCode != c.status || !strings.Contains(body, part) {
				t.Errorf("%s: %d lacks %s:\n%s", path, resp.StatusCode, part, body)
				break
			}
		}
	}
}
