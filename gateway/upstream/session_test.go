package upstream_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

func pays(c net.Conn, id string, _ int) bool { return result(c, id, paid) }

// However many calls come first, the server is probed once, and never by a call.
func TestProbedOnce(t *testing.T) {
	t.Parallel()
	for name, modern := range map[string]bool{"modern": true, "handshake": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, modern, pays)
			f.sessions = true
			c := f.client(upstream.Config{})
			if len(f.requests()) != 0 {
				t.Error("probed before it was needed")
			}
			var calls sync.WaitGroup
			for range 50 {
				calls.Go(func() {
					if a := call(t, c); a.Outcome != receipts.Succeeded {
						t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
					}
				})
			}
			calls.Wait()
			handshakes := 1
			if modern {
				handshakes = 0
			}
			got := map[string]int{}
			for _, method := range []string{"server/discover", "initialize", "notifications/initialized", "tools/call"} {
				got[method] = f.count(method)
			}
			want := map[string]int{"server/discover": 1, "initialize": handshakes, "notifications/initialized": handshakes, "tools/call": 50}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSessionLost(t *testing.T) {
	t.Parallel()
	f := newFake(t, false, nil)
	f.sessions = true
	f.call = func(c net.Conn, id string, n int) bool {
		if n == 2 {
			return respond(c, 404, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
		}
		return result(c, id, paid)
	}
	c := f.client(upstream.Config{})
	var got []string
	for range 3 {
		a := call(t, c)
		got = append(got, string(a.Outcome)+" "+string(a.Reason)+" "+f.last().header.Get("Mcp-Session-Id"))
	}
	want := []string{"succeeded  session-1", "failed upstream_rejected session-1", "succeeded  session-2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// Three calls, three effects' worth of POSTs; the era is remembered.
	if f.count("tools/call") != 3 || f.count("initialize") != 2 || f.count("server/discover") != 1 {
		t.Errorf("%d calls, %d handshakes, %d probes", f.count("tools/call"), f.count("initialize"), f.count("server/discover"))
	}
}

func TestUnprobedServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		reason receipts.Reason
	}{
		"refuses us": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, receipts.ReasonUpstreamRejected},
		"is broken":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, receipts.ReasonUpstreamUnreachable},
		"redirects":  {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusTemporaryRedirect) }, receipts.ReasonUpstreamUnreachable},
		"is silent": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that we leave
			<-r.Context().Done()
		}, receipts.ReasonUpstreamUnreachable},
		"is too old": {func(w http.ResponseWriter, r *http.Request) {
			var m struct{ ID json.RawMessage }
			_ = json.NewDecoder(r.Body).Decode(&m)
			_, _ = w.Write([]byte(rpcResult(string(m.ID), `{"protocolVersion":"2024-11-05"}`)))
		}, receipts.ReasonUpstreamRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var called atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Method") == "tools/call" || r.URL.Path == "/x" {
					called.Store(true)
				}
				tt.answer(w, r)
			}))
			t.Cleanup(server.Close)
			a := call(t, client(t, upstream.Config{URL: server.URL, Timeout: 300 * time.Millisecond}))
			if a.Outcome != receipts.Failed || a.Reason != tt.reason || called.Load() {
				t.Errorf("got %s/%s (%s)", a.Outcome, a.Reason, a.Note)
			}
		})
	}
}

// Silence says nothing of a server's era: it may be old, or only slow to start.
func TestSilentOnDiscover(t *testing.T) {
	t.Parallel()
	for name, modern := range map[string]bool{"an old server": false, "a modern one that was slow": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var discovered atomic.Int64
			var version atomic.Value
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var m struct {
					ID     json.RawMessage
					Method string
				}
				_ = json.NewDecoder(r.Body).Decode(&m)
				id := string(m.ID)
				switch {
				case m.Method == "server/discover" && discovered.Add(1) == 1:
					<-r.Context().Done()
				case m.Method == "server/discover":
					_, _ = io.WriteString(w, rpcResult(id, `{"supportedVersions":["2026-07-28"]}`))
				case m.Method == "initialize" && modern:
					_, _ = io.WriteString(w, rpcError(id, -32601))
				case m.Method == "initialize":
					_, _ = io.WriteString(w, rpcResult(id, `{"protocolVersion":"2025-06-18"}`))
				case m.Method == "tools/call":
					version.Store(r.Header.Get("Mcp-Protocol-Version"))
					_, _ = io.WriteString(w, rpcResult(id, paid))
				default:
					_, _ = io.WriteString(w, rpcResult(id, `{"tools":[]}`))
				}
			}))
			t.Cleanup(server.Close)
			a := call(t, client(t, upstream.Config{URL: server.URL, Timeout: 6 * time.Second}))
			want := map[bool]string{true: "2026-07-28", false: "2025-06-18"}[modern]
			if a.Outcome != receipts.Succeeded || version.Load() != want {
				t.Errorf("%s/%s (%s), called as %v", a.Outcome, a.Reason, a.Note, version.Load())
			}
		})
	}
}

func TestCertificateIsVerified(t *testing.T) {
	t.Parallel()
	var called atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) }))
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	a := call(t, client(t, upstream.Config{URL: server.URL}))
	if a.Reason != receipts.ReasonUpstreamUnreachable || called.Load() != 0 {
		t.Errorf("got %s/%s (%s), %d requests", a.Outcome, a.Reason, a.Note, called.Load())
	}
}

const mirrored = `{"name":"payout","inputSchema":{"type":"object","properties":{
 "region":{"type":"string","x-mcp-header":"Region"},"amount":{"type":"integer","x-mcp-header":"Amount"},
 "who":{"type":"object","properties":{"name":{"type":"string","x-mcp-header":"Who"}}},
 "dry":{"type":"boolean","x-mcp-header":"Dry"},"none":{"type":"string","x-mcp-header":"None"}}}}`

func TestRequest(t *testing.T) {
	t.Parallel()
	q := pay()
	q.Arguments = []byte(`{"amount":1200,"dry":false,"none":null,"region":" a","who":{"name":"Zoë"}}`)
	q.Trace = map[string]string{"traceparent": "00-1", "cwd": "/home/me", "baggage": "a\"b"}
	for _, modern := range []bool{true, false} {
		f := newFake(t, modern, pays)
		f.tool, f.sessions = mirrored, true
		c := f.client(upstream.Config{ForwardKeyHeader: "idempotency-key", Headers: http.Header{"authorization": {"Bearer token-7"}}})
		if a := c.Call(context.Background(), q); a.Outcome != receipts.Succeeded {
			t.Fatalf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
		}
		last := f.last()
		header := map[string]string{}
		for name := range last.header {
			header[name] = last.header.Get(name)
		}
		want := map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "User-Agent": "counterfoil",
			"Authorization": "Bearer token-7", "Idempotency-Key": opKey, "Content-Length": header["Content-Length"],
		}
		meta := `{"traceparent":"00-1","baggage":"a\"b"}`
		if modern {
			want["Mcp-Protocol-Version"], want["Mcp-Method"], want["Mcp-Name"] = "2026-07-28", "tools/call", "payout"
			want["Mcp-Param-Region"], want["Mcp-Param-Amount"], want["Mcp-Param-Dry"] = "=?base64?IGE=?=", "1200", "false"
			want["Mcp-Param-Who"] = "=?base64?Wm/Dqw==?="
			meta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
				`"io.modelcontextprotocol/clientInfo":{"name":"counterfoil","version":"1"},` + meta[1:]
		} else {
			want["Mcp-Protocol-Version"], want["Mcp-Session-Id"] = "2025-11-25", "session-1"
		}
		if diff := cmp.Diff(want, header); diff != "" {
			t.Errorf("modern %v: %s", modern, diff)
		}
		body := `"method":"tools/call","params":{"name":"payout","arguments":` + string(q.Arguments) + `,"_meta":` + meta + `}}`
		if !strings.HasSuffix(last.body, body) {
			t.Errorf("modern %v: body %s", modern, last.body)
		}
	}
}

func TestNoArguments(t *testing.T) {
	t.Parallel()
	f := newFake(t, false, pays)
	f.client(upstream.Config{}).Call(context.Background(), upstream.Call{Tool: `p"`, Handle: handle})
	if body := f.last().body; !strings.HasSuffix(body, `"params":{"name":"p\"","arguments":{}}}`) {
		t.Error(body)
	}
	if _, sent := f.last().header["Idempotency-Key"]; sent {
		t.Error("a key was sent that nobody asked for")
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	f := newFake(t, true, func(c net.Conn, id string, _ int) bool {
		progress := func(token, message string) string {
			return event(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"message":"` + message + `"}}`)
		}
		return stream(c, progress(id, opKey), progress("77777", "another's"), event(rpcResult(id, paid)))
	})
	q := pay()
	var got []string
	q.Progress = func(params []byte) { got = append(got, string(params)) }
	a := f.client(upstream.Config{}).Call(context.Background(), q)
	if a.Outcome != receipts.Succeeded || len(got) != 1 || !strings.HasSuffix(got[0], `"message":"`+handle+`"}`) {
		t.Errorf("%s/%s %q", a.Outcome, a.Reason, got)
	}
	if !strings.Contains(f.last().body, `"progressToken":`) {
		t.Error(f.last().body)
	}
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	for _, config := range []upstream.Config{
		{},
		{URL: "ftp://x/"},
		{URL: "http://"},
		{URL: "http://u:p@x/"},
		{URL: "http://x/#f"},
		{URL: "http://x/", Timeout: -1},
		{URL: "http://x/", Concurrency: -1},
		{URL: "http://x/", ForwardKeyHeader: "Mcp-Name"},
		{URL: "http://x/", ForwardKeyHeader: "a b"},
		{URL: "http://x/", Headers: http.Header{"Content-Length": {"1"}}},
		{URL: "http://x/", Headers: http.Header{"X-A": {"a\nb"}}},
		{URL: "http://x/", Headers: http.Header{"Key": {"a"}}, ForwardKeyHeader: "key"},
	} {
		if c, err := upstream.New(config); err == nil {
			c.Close()
			t.Errorf("accepted %+v", config)
		}
	}
}
