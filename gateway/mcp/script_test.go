package mcp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"counterfoil/gateway"
	"counterfoil/gateway/upstream"
	"counterfoil/permits"
)

// script is an upstream of the modern era that says exactly what a test wants, and remembers what it was asked.
type script struct {
	server *httptest.Server
	mu     sync.Mutex
	asked  []wire // tools/call, in order
	tools  map[string]func(w http.ResponseWriter, r *http.Request, q wire)
}

// wire is one tools/call as it came.
type wire struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name           string
		Arguments      json.RawMessage
		InputResponses json.RawMessage `json:"inputResponses"`
		RequestState   json.RawMessage `json:"requestState"`
		Meta           struct {
			ProgressToken json.RawMessage `json:"progressToken"`
			Capabilities  json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	}
	key string // the private operation key
}

// newScript serves these tools, and adds them to the house that gets its option.
func newScript(t *testing.T, tools map[string]func(http.ResponseWriter, *http.Request, wire)) (*script, option) {
	t.Helper()
	s := &script{tools: tools}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s, func(c *gateway.Config) {
		c.Upstreams = append(c.Upstreams, upstream.Config{Name: "script", URL: s.server.URL, ForwardKeyHeader: "Idempotency-Key"})
		for name := range tools {
			c.Tools = append(c.Tools, gateway.Tool{Name: name, Upstream: "script", Price: price})
		}
	}
}

// mirrored has arguments of each kind that are repeated in headers.
const mirrored = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},"yes":{"type":"boolean","x-mcp-header":"Yes"},
	"deep":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"Deep"}}},
	"list":{"type":"array","items":{"type":"object","properties":{"x":{"type":"integer","x-mcp-header":"Item"}}}}}}`

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q wire
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch q.Method {
	case "server/discover":
		q.result(w, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	case "tools/list":
		var list []string
		schema := `{"type":"object"}`
		if r.URL.Query().Get("schema") == "params" {
			schema = mirrored
		}
		for name := range s.tools {
			list = append(list, `{"name":"`+name+`","inputSchema":`+schema+`}`)
		}
		q.result(w, `{"resultType":"complete","tools":[`+strings.Join(list, ",")+`]}`)
	case "tools/call":
		q.key = r.Header.Get("Idempotency-Key")
		s.mu.Lock()
		s.asked = append(s.asked, q)
		s.mu.Unlock()
		s.tools[q.Params.Name](w, r, q)
	}
}

func (s *script) calls() []wire {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]wire(nil), s.asked...)
}

func (q wire) result(w http.ResponseWriter, result string) { q.answer(w, `"result":`+result) }

func (q wire) fail(w http.ResponseWriter, fail string) { q.answer(w, `"error":`+fail) }

func (q wire) answer(w http.ResponseWriter, member string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(q.ID)+`,`+member+`}`)
}

// event sends a message in a stream.
func event(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "event: message\ndata: "+message+"\n\n")
	_ = http.NewResponseController(w).Flush()
}

// progress sends a notification; members are further members of its params.
func (q wire) progress(w http.ResponseWriter, members string) {
	event(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+string(q.Params.Meta.ProgressToken)+members+`}}`)
}

// permitFor lets agt_1 call these tools too, by default.
func (h *house) permitFor(tools ...string) {
	h.t.Helper()
	h.permit("prm_script", func(p *permits.Permit) { p.Grant.Tools = append(p.Grant.Tools, tools...) })
	h.defaultPermit("prm_script")
}
