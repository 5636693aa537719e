package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

const asksName = `{"resultType":"input_required","inputRequests":{"name":{"method":"elicitation/create","params":{"message":"who?"}}},"requestState":"s-1\u00e9"}`

func askable() upstream.Call {
	q := pay()
	q.MayAsk = true
	return q
}

// What goes up is what the caller declared and answered, byte for byte, and nothing where it did not.
func TestWhatTheCallerAnswersGoesUpVerbatim(t *testing.T) {
	t.Parallel()
	const responses = `{ "name" : {"action":"accept","content":{"n":12345678901234567890}}}`
	for _, tt := range []struct {
		name         string
		capabilities string
		input        *upstream.Input
		members      string // between the arguments and _meta
		declared     string
	}{
		{"nothing", "", nil, ``, `{}`},
		{"capabilities", `{"sampling":{},"x/y":[1.0]}`, nil, ``, `{"sampling":{},"x/y":[1.0]}`},
		{
			"an answer", `{"elicitation":{}}`, &upstream.Input{Responses: []byte(responses), State: []byte(`"s-1\u00e9"`)},
			`,"inputResponses":` + responses + `,"requestState":"s-1\u00e9"`, `{"elicitation":{}}`,
		},
		{"an answer without a state", `{}`, &upstream.Input{Responses: []byte(`{}`)}, `,"inputResponses":{}`, `{}`},
		{"a state alone", `{}`, &upstream.Input{State: []byte(`""`)}, `,"requestState":""`, `{}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, true, pays)
			c := f.client(upstream.Config{})
			q := askable()
			q.Input = tt.input
			if tt.capabilities != "" {
				q.Capabilities = []byte(tt.capabilities)
			}
			if a := c.Call(context.Background(), q); a.Outcome != receipts.Succeeded || a.Round != nil {
				t.Fatalf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
			}
			want := string(q.Arguments) + tt.members + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
				`"io.modelcontextprotocol/clientCapabilities":` + tt.declared + `,"io.modelcontextprotocol/clientInfo":{"name":"counterfoil","version":"1"}}}}`
			if body := f.last().body; !strings.HasSuffix(body, want) {
				t.Errorf("%s\ndoes not end in\n%s", body, want)
			}
			// What one caller can do is not told of another, nor of us.
			if _, err := c.Tools(t.Context()); err != nil {
				t.Fatal(err)
			}
			if body := f.last().body; !strings.Contains(body, `"io.modelcontextprotocol/clientCapabilities":{}`) {
				t.Error(body)
			}
		})
	}
}

func TestAToolAsksForInput(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, sent, result, state string }{
		{"requests and state", asksName, asksName, `"s-1\u00e9"`},
		{"requests alone", `{"resultType":"input_required","inputRequests":{"a":{}}}`, `{"resultType":"input_required","inputRequests":{"a":{}}}`, ""},
		{"a state alone", `{"requestState":"","resultType":"input_required"}`, `{"requestState":"","resultType":"input_required"}`, `""`},
		{"no requests, to shed load", `{"inputRequests":{},"resultType":"input_required"}`, `{"inputRequests":{},"resultType":"input_required"}`, ""},
		{
			"undressed like any result, its type kept",
			`{"resultType":"input_required", "ttlMs":1,"requestState":"s","_meta":{"counterfoil/receipt":"x","io.modelcontextprotocol/serverInfo":{},"v/x":1},"counterfoil/y":2}`,
			`{"resultType":"input_required","requestState":"s","_meta":{"v/x":1}}`, `"s"`,
		},
		{"a null is left out", `{"resultType":"input_required","inputRequests":null,"requestState":"s"}`, `{"resultType":"input_required","requestState":"s"}`, `"s"`},
		{
			"scrubbed", `{"resultType":"input_required","inputRequests":{"` + opKey + `":{"message":"` + opKey + `"}},"requestState":"s"}`,
			`{"resultType":"input_required","inputRequests":{"` + handle + `":{"message":"` + handle + `"}},"requestState":"s"}`, `"s"`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := answerOf(t, true, upstream.Config{ForwardKeyHeader: "Idempotency-Key"}, askable(), tt.sent)
			if a.Outcome != "" || a.Reason != "" || a.Round == nil || a.Result != nil {
				t.Fatalf("%s/%s (%s) %s", a.Outcome, a.Reason, a.Note, a.Result)
			}
			if diff := cmp.Diff(tt.result, string(a.Round.Result)); diff != "" {
				t.Error(diff)
			}
			if string(a.Round.State) != tt.state || (a.Round.State == nil) != (tt.state == "") {
				t.Errorf("state %q, want %q", a.Round.State, tt.state)
			}
			if a.Scrubbed != (tt.name == "scrubbed") {
				t.Errorf("scrubbed: %v", a.Scrubbed)
			}
		})
	}
}

// A question that cannot be put has failed, for the tool has not run. What is none is not understood.
func TestQuestionsThatAreNotPut(t *testing.T) {
	t.Parallel()
	pin := upstream.Config{Headers: http.Header{"X-Pin": {"123456"}}}
	for _, tt := range []struct {
		name, sent string
		modern     bool
		mayAsk     bool
		config     upstream.Config
		outcome    receipts.Outcome
		reason     receipts.Reason
	}{
		{"to a caller who cannot be asked", asksName, true, false, upstream.Config{}, receipts.Failed, receipts.ReasonInputAbandoned},
		{"by a handshake server", asksName, false, true, upstream.Config{}, receipts.Uncertain, receipts.ReasonResponseRejected},
		{"requests are a list", `{"resultType":"input_required","inputRequests":[],"requestState":"s"}`, true, true, upstream.Config{}, receipts.Uncertain, receipts.ReasonResponseRejected},
		{"state is a number", `{"resultType":"input_required","inputRequests":{},"requestState":7}`, true, true, upstream.Config{}, receipts.Uncertain, receipts.ReasonResponseRejected},
		{"state is a number, to nobody", `{"resultType":"input_required","requestState":7}`, true, false, upstream.Config{}, receipts.Uncertain, receipts.ReasonResponseRejected},
		{"neither", `{"resultType":"input_required","content":[]}`, true, true, upstream.Config{}, receipts.Uncertain, receipts.ReasonResponseRejected},
		{"nulls", `{"resultType":"input_required","inputRequests":null,"requestState":null}`, true, true, upstream.Config{}, receipts.Uncertain, receipts.ReasonResponseRejected},
		{"a secret in the state", `{"resultType":"input_required","requestState":"key=` + opKey + `"}`, true, true, upstream.Config{}, receipts.Failed, receipts.ReasonInputAbandoned},
		{"a secret in the state, escaped", `{"resultType":"input_required","request\u0053tate":"\u0063` + opKey[1:] + `"}`, true, true, upstream.Config{}, receipts.Failed, receipts.ReasonInputAbandoned},
		{"a secret that cannot be taken out", `{"resultType":"input_required","inputRequests":{"pin":123456}}`, true, true, pin, receipts.Failed, receipts.ReasonInputAbandoned},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := askable()
			q.MayAsk = tt.mayAsk
			a := answerOf(t, tt.modern, tt.config, q, tt.sent)
			if a.Outcome != tt.outcome || a.Reason != tt.reason || a.Round != nil || a.Result != nil || a.Scrubbed {
				t.Errorf("%s/%s (%s) %+v", a.Outcome, a.Reason, a.Note, a.Round)
			}
			if strings.Contains(a.Note, opKey) {
				t.Error(a.Note)
			}
		})
	}
}

// A handshake server would run the tool and not look at the answers, of which one may be "no".
func TestAnswersAreNotSentToAHandshakeServer(t *testing.T) {
	t.Parallel()
	f := newFake(t, false, pays)
	q := askable()
	q.Input = &upstream.Input{Responses: []byte(`{"ok":{"action":"decline"}}`)}
	a := f.client(upstream.Config{}).Call(context.Background(), q)
	if a.Outcome != receipts.Failed || a.Reason != receipts.ReasonUpstreamRejected || f.count("tools/call") != 0 {
		t.Errorf("%s/%s (%s), %d effects", a.Outcome, a.Reason, a.Note, f.count("tools/call"))
	}
}

// Every JSON-RPC error comes with its object, whatever it means for the money.
func TestEveryErrorIsKept(t *testing.T) {
	t.Parallel()
	for _, code := range []int{-32700, -32600, -32601, -32602, -32020, -32021, -32022, -32603, -32000, 7} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			for _, modern := range []bool{true, false} {
				f := newFake(t, modern, func(c net.Conn, id string, _ int) bool {
					return respond(c, 400, "application/json", rpcError(id, code))
				})
				a := call(t, f.client(upstream.Config{}))
				if want := `{"code":` + strconv.Itoa(code) + `,"message":"no","data":{"x":1}}`; string(a.Error) != want {
					t.Errorf("modern %v: %s/%s %s", modern, a.Outcome, a.Reason, a.Error)
				}
			}
		})
	}
}

// The official SDK's server asks, is answered, and sees what this caller declared.
func TestSDKServerAsksForInput(t *testing.T) {
	t.Parallel()
	url, server := sdkServer(t, &mcp.StreamableHTTPOptions{Stateless: true})
	server.AddTool(&mcp.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)}, askForName)
	c := client(t, upstream.Config{URL: url})
	q := upstream.Call{Tool: "ask", Handle: handle, MayAsk: true, Capabilities: []byte(`{"elicitation":{}}`)}
	a := c.Call(context.Background(), q)
	if a.Round == nil || string(a.Round.State) != `"state-1"` || !strings.Contains(string(a.Round.Result), "your name?") {
		t.Fatalf("%s/%s (%s) %s %+v", a.Outcome, a.Reason, a.Note, a.Error, a.Round)
	}
	q.Input = &upstream.Input{Responses: []byte(`{"name":{"action":"accept","content":{"name":"Zoë"}}}`), State: a.Round.State}
	a = c.Call(context.Background(), q)
	if a.Outcome != receipts.Succeeded || !strings.Contains(string(a.Result), "Zoë of state-1") {
		t.Errorf("%s/%s (%s) %s", a.Outcome, a.Reason, a.Note, a.Result)
	}
	q.Capabilities, q.Input = nil, nil
	if a = c.Call(context.Background(), q); a.Reason != receipts.ReasonUpstreamRejected || !strings.Contains(string(a.Error), "-32021") {
		t.Errorf("nothing declared: %s/%s (%s) %s", a.Outcome, a.Reason, a.Note, a.Error)
	}
}

// askForName is a tool that asks for a name, if its caller can be asked.
func askForName(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if caps := r.ClientCapabilities(); caps == nil || caps.Elicitation == nil {
		return nil, &jsonrpc.Error{
			Code: mcp.CodeMissingRequiredClientCapabilities, Message: "cannot ask",
			Data: json.RawMessage(`{"requiredCapabilities":{"elicitation":{}}}`),
		}
	}
	if given, ok := r.Params.InputResponses["name"].(*mcp.ElicitResult); ok {
		text := fmt.Sprintf("%s of %s", given.Content["name"], r.Params.RequestState)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	}
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{"name": &mcp.ElicitParams{Message: "your name?"}},
		RequestState:  "state-1",
	}, nil
}
