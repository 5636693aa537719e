package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// peer is an MCP server that is as new, as old or as broken as a test needs it. It keeps all that it was sent: a
// tools/call that it has read whole is an effect, whatever it then answers.
type peer struct {
	server   *httptest.Server
	modern   bool // 2026-07-28; else the handshake era
	sessions bool // it serves only the session that it has opened last
	tools    string

	mu      sync.Mutex
	heard   []heard        // guarded by mu
	instead map[string]act // by a text in the call; guarded by mu
	opened  int            // sessions; guarded by mu
}

// heard is one request as it came.
type heard struct {
	method, host, remote string
	header               http.Header
	body                 string
}

// act answers a call with its JSON-RPC id.
type act func(w http.ResponseWriter, r *http.Request, id string)

// peerTool is the tool that most peers have; it takes anything.
const (
	peerTool  = `{"name":"do","description":"Does it.","inputSchema":{"type":"object"}}`
	peerPrice = 5
	doLine    = "\n  - {name: do, upstream: peer, credits: 5}"
)

func newPeer(t *testing.T, p *peer) *peer {
	t.Helper()
	if p.tools == "" {
		p.tools = peerTool
	}
	p.instead = map[string]act{}
	p.server = httptest.NewServer(p)
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// line is the peer as an upstream of a configuration; more are further members.
func (p *peer) line(name, more string) string {
	return fmt.Sprintf("\n  - {name: %s, url: %q, forward_key_header: Idempotency-Key%s}", name, p.server.URL+"/mcp", more)
}

// newSystemWithPeer is a system whose tool "do" is the peer's; more are further members of its line.
func newSystemWithPeer(t *testing.T, p *peer, more ...string) *system {
	t.Helper()
	return newSystemBeside(t, p.line("peer", strings.Join(more, "")), toolLines+doLine)
}

// anythingOf allows tools of peers, as far as any test goes.
func anythingOf(tools ...string) object {
	return object{"tools": tools, "limits": object{"credits": 1_000_000}}
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(body, &m)
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.mu.Lock()
	p.heard = append(p.heard, heard{m.Method, r.Host, r.RemoteAddr, r.Header.Clone(), string(body)})
	live := fmt.Sprintf("session-%d", p.opened)
	p.mu.Unlock()
	id := string(m.ID)
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == "server/discover" && p.modern:
		answerWith(w, id, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	case m.Method == "initialize" && !p.modern:
		p.open(w, id)
	case p.sessions && !p.modern && r.Header.Get("Mcp-Session-Id") != live:
		w.WriteHeader(http.StatusNotFound)
	case m.Method == "tools/list":
		answerWith(w, id, `{"tools":[`+p.tools+`]}`)
	case m.Method == "tools/call":
		p.answer(body)(w, r, id)
	case m.Method == "notifications/initialized":
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, rpcError(id, -32601, "unknown method", ""))
	}
}

func (p *peer) open(w http.ResponseWriter, id string) {
	p.mu.Lock()
	p.opened++
	if p.sessions {
		w.Header().Set("Mcp-Session-Id", fmt.Sprintf("session-%d", p.opened))
	}
	p.mu.Unlock()
	answerWith(w, id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"peer","version":"1"}}`)
}

// loseSession forgets the open session, as a restart does.
func (p *peer) loseSession() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
}

// on answers the calls that contain a text; others are done.
func (p *peer) on(text string, do act) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instead[text] = do
}

func (p *peer) answer(body []byte) act {
	p.mu.Lock()
	defer p.mu.Unlock()
	for text, do := range p.instead {
		if strings.Contains(string(body), text) {
			return do
		}
	}
	return result(`{"content":[{"type":"text","text":"done"}]}`)
}

// requests are what came with a method and a text in it.
func (p *peer) requests(method, text string) []heard {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.heard), func(h heard) bool { return h.method != method || !strings.Contains(h.body, text) })
}

// did counts the calls that contain a text.
func (p *peer) did(text string) int { return len(p.requests("tools/call", text)) }

// result is an answer with these bytes as the result.
func result(value string) act {
	return func(w http.ResponseWriter, _ *http.Request, id string) { answerWith(w, id, value) }
}

// plain is an answer that is no JSON-RPC.
func plain(status int, kind, text string) act {
	return func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// breakOff ends the connection without an answer.
func breakOff(http.ResponseWriter, *http.Request, string) { panic(http.ErrAbortHandler) }

// events is an answer as a stream, of which ID stands for the call's id, and which ends with it. Each part is sent by itself.
func events(parts ...string) act {
	return func(w http.ResponseWriter, _ *http.Request, id string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, part := range parts {
			_, _ = io.WriteString(w, strings.ReplaceAll(part, "ID", id))
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func event(data string) string { return "event: message\ndata: " + data + "\n\n" }

func answerWith(w http.ResponseWriter, id, value string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, rpcResult(id, value))
}

func rpcResult(id, value string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + value + `}`
}

// rpcError is an error answer; data is raw, or "".
func rpcError(id string, code int, message, data string) string {
	if data != "" {
		data = `,"data":` + data
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q%s}}`, id, code, message, data)
}

// do is a call of the peer's tool. Its arguments carry the key, by which the peer knows it.
func (x tenant) doing(key string) call {
	return call{tool: "do", args: fmt.Sprintf(`{"which":%q}`, key), wallet: x.wallet, permit: x.permit, key: key}
}

func bodyOf(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }
