package upstream_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

// sdkServer is a real server of the official SDK; it answers with what arguments and key it got.
func sdkServer(t *testing.T, options *mcp.StreamableHTTPOptions) (url string, server *mcp.Server) {
	t.Helper()
	server = mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{PageSize: 2})
	echo := func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{
			Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments) + r.Extra.Header.Get("Idempotency-Key")}},
		}, nil
	}
	for _, tool := range []*mcp.Tool{
		{Name: "plain", InputSchema: json.RawMessage(`{"type":"object"}`)},
		{Name: "mirrored", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)},
		{Name: "größe", InputSchema: json.RawMessage(`{"type":"object"}`)},
	} {
		server.AddTool(tool, echo)
	}
	server.AddTool(&mcp.Tool{Name: "fails", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no"}}}, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	return web.URL, server
}

func TestSDKServer(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]*mcp.StreamableHTTPOptions{
		"stateful":       {},
		"stateful, JSON": {JSONResponse: true},
		"stateless":      {Stateless: true},
		"one JSON":       {Stateless: true, JSONResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := sdkServer(t, options)
			c := client(t, upstream.Config{URL: url, ForwardKeyHeader: "Idempotency-Key"})
			var calls sync.WaitGroup
			for range 20 {
				calls.Go(func() {
					q := upstream.Call{Tool: "plain", Arguments: []byte(`{"z":1.5,"é":"<&>"}`), OperationKey: opKey, Handle: handle}
					a := c.Call(context.Background(), q)
					text, _ := json.Marshal(`{"z":1.5,"é":"<&>"}` + handle)
					want := `{"content":[{"type":"text","text":` + string(text) + `}]}`
					if a.Outcome != receipts.Succeeded || !a.Scrubbed || !sameJSON(want, a.Result) {
						t.Errorf("%s/%s (%s) %s", a.Outcome, a.Reason, a.Note, a.Result)
					}
				})
			}
			calls.Wait()
			for tool, want := range map[string]receipts.Reason{
				"mirrored": "", "fails": receipts.ReasonToolError, "unknown": receipts.ReasonUpstreamRejected,
			} {
				a := c.Call(context.Background(), upstream.Call{Tool: tool, Arguments: []byte(`{"region":"eu west"}`), OperationKey: opKey, Handle: handle})
				if a.Reason != want {
					t.Errorf("%s: %s/%s (%s) %s", tool, a.Outcome, a.Reason, a.Note, a.Error)
				}
			}
			// The SDK refuses encoded names where names are mirrored: nothing runs, and the next call works.
			a := c.Call(context.Background(), upstream.Call{Tool: "größe", Handle: handle})
			if options.Stateless != (a.Reason == receipts.ReasonUpstreamRejected) {
				t.Errorf("non-ASCII name: %s/%s (%s)", a.Outcome, a.Reason, a.Note)
			}
			if a := c.Call(context.Background(), upstream.Call{Tool: "plain", Handle: handle}); a.Outcome != receipts.Succeeded {
				t.Errorf("afterwards: %s/%s (%s)", a.Outcome, a.Reason, a.Note)
			}
		})
	}
}

func sameJSON(want string, got []byte) bool {
	var a, b any
	return json.Unmarshal([]byte(want), &a) == nil && json.Unmarshal(got, &b) == nil && cmp.Equal(a, b)
}

func TestSDKTools(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]*mcp.StreamableHTTPOptions{"stateful": {}, "stateless": {Stateless: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, server := sdkServer(t, options)
			c := client(t, upstream.Config{URL: url})
			tools, err := c.Tools(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range tools {
				names = append(names, tool.Name)
			}
			if diff := cmp.Diff([]string{"fails", "größe", "mirrored", "plain"}, names); diff != "" {
				t.Error(diff)
			}
			want := `{"inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"}},"type":"object"},"name":"mirrored"}`
			if got := string(tools[2].Definition); got != want {
				t.Error(got)
			}
			if got := string(tools[2].InputSchema); !strings.HasPrefix(want, `{"inputSchema":`+got) {
				t.Error(got)
			}
			// A tool that comes later is mirrored once it has been listed.
			server.AddTool(&mcp.Tool{Name: "later", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer","x-mcp-header":"A"}}}`)},
				func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{}, nil
				})
			if tools, err = c.Tools(t.Context()); err != nil || len(tools) != 5 {
				t.Fatalf("%d tools, %v", len(tools), err)
			}
			if a := c.Call(context.Background(), upstream.Call{Tool: "later", Arguments: []byte(`{"a":1}`), Handle: handle}); a.Outcome != receipts.Succeeded {
				t.Errorf("%s/%s (%s) %s", a.Outcome, a.Reason, a.Note, a.Error)
			}
		})
	}
}

func TestToolsLeftOut(t *testing.T) {
	t.Parallel()
	header := func(annotation string) string { return `{"type":"object","properties":{"a":` + annotation + `}}` }
	tool := func(name, schema string) string { return `{"name":"` + name + `","inputSchema":` + schema + `}` }
	f := newFake(t, true, pays)
	f.tool = strings.Join([]string{
		tool("good", header(`{"type":"string","x-mcp-header":"Good"}`)),
		tool("number", header(`{"type":"number","x-mcp-header":"A"}`)),
		tool("typeless", header(`{"x-mcp-header":"A"}`)),
		tool("blank", header(`{"type":"string","x-mcp-header":"a b"}`)),
		tool("empty", header(`{"type":"string","x-mcp-header":""}`)),
		tool("twice", `{"properties":{"a":{"type":"string","x-mcp-header":"X"},"b":{"type":"string","x-mcp-header":"x"}}}`),
		tool("good", `{}`), tool("case", `{"A":1,"a":2}`), tool("exact", `{"maximum":9007199254740993}`),
		tool("large", `{"description":"`+repeat("x", 256<<10)+`"}`), tool("sound", header(`{"type":"string","x-mcp-header":"Good"}`)),
		`{"inputSchema":{}}`, `7`,
		tool("elsewhere", `{"type":"object","items":{"x-mcp-header":"a b"}}`),
	}, ",")
	tools, err := f.client(upstream.Config{}).Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faults := map[string]bool{}
	for _, tool := range tools {
		faults[tool.Name] = tool.Fault != nil
	}
	want := map[string]bool{
		"good": true, "number": true, "typeless": true, "blank": true, "empty": true, "twice": true, "case": true,
		"exact": true, "large": true, "elsewhere": false, "sound": false,
	}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Error(diff)
	}
}
