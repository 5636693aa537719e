package mcp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"counterfoil/gateway"
	"counterfoil/gateway/upstream"
)

// plainTool is an upstream that says exactly what it is told to, and keeps exactly what it is sent.
type plainTool struct {
	server *httptest.Server

	mu     sync.Mutex
	modern bool
	listed []string // entries of tools/list, a page each tenth
	result string   // of tools/call; the whole body, where it begins with {"jsonrpc"
	away   bool     // refuses what is no call
	calls  []sentCall
}

type sentCall struct {
	header http.Header
	body   string
}

func newPlainTool(t *testing.T, modern bool, listed ...string) *plainTool {
	t.Helper()
	u := &plainTool{modern: modern, listed: listed, result: `{"content":[]}`}
	u.server = httptest.NewServer(u)
	t.Cleanup(u.server.Close)
	return u
}

func (u *plainTool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Cursor string }
	}
	_ = json.Unmarshal(body, &m)
	u.mu.Lock()
	defer u.mu.Unlock()
	answer := ""
	switch {
	case m.Method == "tools/call":
		u.calls = append(u.calls, sentCall{r.Header.Clone(), string(body)})
		answer = u.result
	case u.away:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case m.Method == "server/discover" && u.modern:
		answer = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
	case m.Method == "initialize" && !u.modern:
		answer = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"u","version":"1"}}`
	case m.Method == "tools/list":
		answer = u.page(m.Params.Cursor)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !strings.HasPrefix(answer, `{"jsonrpc"`) {
		answer = `{"jsonrpc":"2.0","id":ID,"result":` + answer + `}`
	}
	_, _ = io.WriteString(w, strings.Replace(answer, "ID", string(m.ID), 1))
}

// page is called under the lock.
func (u *plainTool) page(cursor string) string {
	from := 0
	_, _ = fmt.Sscanf(cursor, "from %d", &from)
	to, next := len(u.listed), ""
	if to > from+100 {
		to = from + 100
		next = fmt.Sprintf(`"nextCursor":"from %d",`, to)
	}
	return `{"resultType":"complete",` + next + `"tools":[` + strings.Join(u.listed[from:to], ",") + `]}`
}

func (u *plainTool) list(entries ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.listed = entries
}

func (u *plainTool) answer(result string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.result = result
}

func (u *plainTool) beAway(away bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.away = away
}

func (u *plainTool) sent() []sentCall {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]sentCall(nil), u.calls...)
}

// of puts the tools of this upstream, and it, into a configuration in the place of what is there.
func (u *plainTool) of(tools ...gateway.Tool) option {
	return func(c *gateway.Config) {
		for i := range tools {
			tools[i].Upstream = "u"
		}
		c.Upstreams = []upstream.Config{{Name: "u", URL: u.server.URL, Headers: http.Header{"X-Upstream-Key": {"upstream-secret-1"}}}}
		c.Tools = tools
	}
}

func defined(name, more string) string {
	return `{"name":"` + name + `","inputSchema":{"type":"object"}` + more + `}`
}
