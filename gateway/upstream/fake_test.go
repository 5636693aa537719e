package upstream_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/gateway/upstream"
)

const (
	handle = "op_0198c0de-0000-7000-8000-000000000001"
	opKey  = "cfk_6fQ0yJb1Zr8uXw3N"
)

// fake is an upstream on a bare TCP connection, so that it can misbehave in any way. Whatever it then
// does, a tools/call that it has read whole is an effect.
type fake struct {
	t        *testing.T
	listener net.Listener
	modern   bool
	sessions bool
	version  string // that a handshake ends in; "": 2025-11-25
	// call answers the n-th tools/call, n from 1, and reports whether the connection goes on.
	call func(c net.Conn, id string, n int) bool
	tool string // definition in tools/list

	mu      sync.Mutex
	seen    []seen
	conns   map[net.Conn]bool
	effects int
	opened  int // sessions
}

type seen struct {
	method string
	header http.Header
	body   string
	conn   net.Conn
}

func newFake(t *testing.T, modern bool, call func(c net.Conn, id string, n int) bool) *fake {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, listener: listener, modern: modern, call: call, conns: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns[conn] = true
			f.mu.Unlock()
			serving.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		f.mu.Lock()
		for conn := range f.conns {
			_ = conn.Close()
		}
		f.mu.Unlock()
		serving.Wait()
	})
	return f
}

func (f *fake) url() string { return "http://" + f.listener.Addr().String() + "/mcp" }

func (f *fake) serve(conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil || !f.answer(conn, request, body) {
			return
		}
	}
}

func (f *fake) answer(conn net.Conn, request *http.Request, body []byte) bool {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(body, &m)
	f.mu.Lock()
	f.seen = append(f.seen, seen{m.Method, request.Header, string(body), conn})
	if m.Method == "tools/call" {
		f.effects++
	}
	n := f.effects
	f.mu.Unlock()
	id := string(m.ID)
	switch {
	case m.Method == "tools/call":
		return f.call(conn, id, n)
	case m.Method == "server/discover" && f.modern:
		return result(conn, id, `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}}}`)
	case m.Method == "initialize" && !f.modern:
		return f.open(conn, id)
	case m.Method == "tools/list":
		return result(conn, id, `{"tools":[`+f.tool+`]}`)
	case m.Method == "notifications/initialized":
		return respond(conn, 202, "", "")
	}
	return respond(conn, 404, "application/json", rpcError(id, -32601))
}

func (f *fake) open(conn net.Conn, id string) bool {
	f.mu.Lock()
	f.opened++
	session := ""
	if f.sessions {
		session = fmt.Sprintf("Mcp-Session-Id: session-%d\r\n", f.opened)
	}
	f.mu.Unlock()
	version := f.version
	if version == "" {
		version = "2025-11-25"
	}
	body := `{"jsonrpc":"2.0","id":` + id + `,"result":{"protocolVersion":"` + version + `","capabilities":{"tools":{}},"serverInfo":{"name":"f","version":"1"}}}`
	return send(conn, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", session, len(body), body))
}

// count returns how often a method was received.
func (f *fake) count(method string) int {
	n := 0
	for _, s := range f.requests() {
		if s.method == method {
			n++
		}
	}
	return n
}

func (f *fake) requests() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]seen(nil), f.seen...)
}

func (f *fake) last() seen {
	all := f.requests()
	return all[len(all)-1]
}

func (f *fake) client(config upstream.Config) *upstream.Client {
	f.t.Helper()
	config.URL = f.url()
	return client(f.t, config)
}

func client(t *testing.T, config upstream.Config) *upstream.Client {
	t.Helper()
	if config.Timeout == 0 {
		config.Timeout = time.Minute // the machine may be busy
	}
	c, err := upstream.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func pay() upstream.Call {
	return upstream.Call{Tool: "payout", Arguments: []byte(`{"amount":1200,"to":"ap@vendor.example"}`), OperationKey: opKey, Handle: handle, MaxResponseBytes: 4 << 20}
}

func call(t *testing.T, c *upstream.Client) upstream.Answer {
	t.Helper()
	return c.Call(context.Background(), pay())
}

func send(conn net.Conn, text string) bool {
	_, err := io.WriteString(conn, text)
	return err == nil
}

func respond(conn net.Conn, status int, contentType, body string) bool {
	head := fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n", status, len(body))
	if contentType != "" {
		head += "Content-Type: " + contentType + "\r\n"
	}
	if status >= 300 && status < 400 {
		head += "Location: /elsewhere\r\n"
	}
	return send(conn, head+"\r\n"+body)
}

// chunked answers with a body that ends when it ends, in one chunk a part; an unfinished one has no end.
func chunked(conn net.Conn, contentType string, finished bool, parts ...string) bool {
	ok := send(conn, "HTTP/1.1 200 OK\r\nContent-Type: "+contentType+"\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, part := range parts {
		ok = ok && send(conn, fmt.Sprintf("%x\r\n%s\r\n", len(part), part))
	}
	if finished {
		return ok && send(conn, "0\r\n\r\n")
	}
	return ok
}

func stream(conn net.Conn, parts ...string) bool {
	return chunked(conn, "text/event-stream", true, parts...)
}

func result(conn net.Conn, id, value string) bool {
	return respond(conn, 200, "application/json", rpcResult(id, value))
}

func rpcResult(id, value string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + value + `}`
}

func rpcError(id string, code int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no","data":{"x":1}}}`, id, code)
}

// held keeps a connection open, silent, until the other side has had enough.
func held(conn net.Conn) bool {
	_, _ = io.Copy(io.Discard, conn)
	return false
}

func event(data string) string { return "event: message\r\ndata: " + data + "\r\n\r\n" }

const paid = `{"content":[{"type":"text","text":"paid"}]}`

func repeat(s string, n int) string { return strings.Repeat(s, n) }
