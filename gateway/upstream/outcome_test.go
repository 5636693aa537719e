package upstream_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

// row is one line of contract 3.4: what an upstream does with a call that it has read and acted on.
type row struct {
	name    string
	do      func(c net.Conn, id string) bool
	outcome receipts.Outcome
	reason  receipts.Reason
	config  upstream.Config
	// The caller's time ends soon after the upstream has read the call.
	brief bool
	limit int64 // bytes of the answer; 0: as usual
}

func rows() []row {
	all := append(answeredRows(), brokenRows()...)
	for _, code := range []int{-32700, -32600, -32601, -32602, -32020, -32021, -32022} {
		all = append(all, row{"error " + strconv.Itoa(code), func(c net.Conn, id string) bool {
			return respond(c, 200, "application/json", rpcError(id, code))
		}, receipts.Failed, receipts.ReasonUpstreamRejected, upstream.Config{}, false, 0})
	}
	for _, code := range []int{-32603, -32000, -32001, -32023, 0, 7} {
		all = append(all, row{"error " + strconv.Itoa(code), func(c net.Conn, id string) bool {
			return respond(c, 400, "application/json", rpcError(id, code))
		}, receipts.Uncertain, receipts.ReasonUpstreamError, upstream.Config{}, false, 0})
	}
	for _, status := range []int{400, 401, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 422, 429, 431} {
		all = append(all, row{"status " + strconv.Itoa(status), func(c net.Conn, _ string) bool {
			return respond(c, status, "text/html", "<h1>no</h1>")
		}, receipts.Failed, receipts.ReasonUpstreamRejected, upstream.Config{}, false, 0})
	}
	for _, status := range []int{301, 302, 303, 307, 308, 407, 408, 409, 412, 418, 421, 423, 425, 428, 451, 500, 501, 502, 503, 504, 599} {
		all = append(all, row{"status " + strconv.Itoa(status), func(c net.Conn, _ string) bool {
			return respond(c, status, "text/html", "<h1>no</h1>")
		}, receipts.Uncertain, receipts.ReasonUpstreamError, upstream.Config{}, false, 0})
	}
	return all
}

func answeredRows() []row {
	body := func(status int, contentType string, text func(id string) string) func(net.Conn, string) bool {
		return func(c net.Conn, id string) bool { return respond(c, status, contentType, text(id)) }
	}
	events := func(parts func(id string) []string) func(net.Conn, string) bool {
		return func(c net.Conn, id string) bool { return stream(c, parts(id)...) }
	}
	ok := func(id string) string { return rpcResult(id, paid) }
	var none upstream.Config
	return []row{
		{"result", body(200, "application/json; charset=utf-8", ok), receipts.Succeeded, "", none, false, 0},
		{"result with status 500", body(500, "application/json", ok), receipts.Succeeded, "", none, false, 0},
		{"result with status 404", body(404, "application/json", ok), receipts.Succeeded, "", none, false, 0},
		{"result as text", body(200, "text/plain", ok), receipts.Succeeded, "", none, false, 0},
		{"result beside a null error", body(200, "application/json", func(id string) string {
			return `{"jsonrpc":"2.0","error":null,"result":` + paid + `,"id":` + id + `}`
		}), receipts.Succeeded, "", none, false, 0},
		{"result in a stream", events(func(id string) []string { return []string{event(ok(id))} }), receipts.Succeeded, "", none, false, 0},
		{"result in a stream behind other things", events(func(id string) []string {
			return []string{
				": hello\n\n", "id: 1\ndata:\n\n", "event: prime\ndata: {}\n\n",
				event(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`),
				event(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`), event(ok(id)),
			}
		}), receipts.Succeeded, "", none, false, 0},
		{"result in a stream in many pieces", events(func(id string) []string {
			return []string{"\ufeffda", "ta: {\"jsonrpc\":\"2.0\",\r", "\ndata:\"id\":" + id + ",\n", "data: \"result\":", paid + "}\n", "\n"}
		}), receipts.Succeeded, "", none, false, 0},
		{"result in a stream that then stays open", func(c net.Conn, id string) bool {
			chunked(c, "text/event-stream", false, event(ok(id)))
			return held(c)
		}, receipts.Succeeded, "", none, false, 0},
		{"result in a stream without its last blank line", events(func(id string) []string { return []string{"data: " + ok(id)} }), receipts.Succeeded, "", none, false, 0},
		{"2 MiB line in a stream", events(func(id string) []string {
			return []string{event(rpcResult(id, `{"content":[{"type":"text","text":"`+repeat("x", 2<<20)+`"}]}`))}
		}), receipts.Succeeded, "", none, false, 0},
		{"tool error", body(200, "application/json", func(id string) string {
			return rpcResult(id, `{"content":[],"isError":true}`)
		}), receipts.Failed, receipts.ReasonToolError, none, false, 0},
		{
			"error 32602 after acting", body(200, "application/json", func(id string) string { return rpcError(id, -32602) }),
			receipts.Uncertain, receipts.ReasonUpstreamError,
			upstream.Config{Refusals: []int{}},
			false, 0,
		},
		{
			"error 32000 as a refusal", body(200, "application/json", func(id string) string { return rpcError(id, -32000) }),
			receipts.Failed, receipts.ReasonUpstreamRejected,
			upstream.Config{Refusals: []int{-32000}},
			false, 0,
		},
		{
			"status 404 with an error under no id", body(404, "application/json", func(string) string { return rpcError("null", -32001) }),
			receipts.Failed, receipts.ReasonUpstreamRejected, none, false, 0,
		},
		{"status 400 without end", func(c net.Conn, _ string) bool {
			send(c, "HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
			return held(c)
		}, receipts.Failed, receipts.ReasonUpstreamRejected, none, true, 0},
	}
}

func brokenRows() []row {
	rejected := func(name, contentType string, text func(id string) string) row {
		return row{
			name, func(c net.Conn, id string) bool { return respond(c, 200, contentType, text(id)) },
			receipts.Uncertain, receipts.ReasonResponseRejected,
			upstream.Config{},
			false, 0,
		}
	}
	const brief = true
	lost := func(name string, do func(c net.Conn, id string) bool, brief bool) row {
		return row{name, do, receipts.Uncertain, receipts.ReasonNoResponse, upstream.Config{}, brief, 0}
	}
	all := []row{
		rejected("HTML", "text/html", func(string) string { return "<html>welcome</html>" }),
		rejected("no version", "application/json", func(id string) string { return `{"id":` + id + `,"result":` + paid + `}` }),
		rejected("wrong id", "application/json", func(string) string { return rpcResult("999999", paid) }),
		rejected("id as text", "application/json", func(id string) string { return rpcResult(`"`+id+`"`, paid) }),
		rejected("id null", "application/json", func(string) string { return rpcError("null", -32600) }),
		rejected("result and error", "application/json", func(id string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"result":{},"error":{"code":-32600,"message":"no"}}`
		}),
		rejected("neither", "application/json", func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `}` }),
		rejected("error without a code", "application/json", func(id string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":"-32600"}}`
		}),
		rejected("a request", "application/json", func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` }),
		rejected("batch", "application/json", func(id string) string { return `[` + rpcResult(id, paid) + `]` }),
		rejected("trailing data", "application/json", func(id string) string { return rpcResult(id, paid) + `{}` }),
		rejected("byte order mark", "application/json", func(id string) string { return "\ufeff" + rpcResult(id, paid) }),
		rejected("bad UTF-8", "application/json", func(id string) string { return rpcResult(id, "{\"content\":[\"\xff\"]}") }),
		rejected("lone surrogate", "application/json", func(id string) string { return rpcResult(id, `{"content":["\ud800"]}`) }),
		rejected("duplicate name", "application/json", func(id string) string { return rpcResult(id, `{"content":[],"x":{"a":1,"\u0061":2}}`) }),
		rejected("result is no object", "application/json", func(id string) string { return rpcResult(id, `[]`) }),
		rejected("content is no list", "application/json", func(id string) string { return rpcResult(id, `{"content":{}}`) }),
		rejected("isError is no boolean", "application/json", func(id string) string { return rpcResult(id, `{"content":[],"isError":"true"}`) }),
		rejected("_meta is no object", "application/json", func(id string) string { return rpcResult(id, `{"content":[],"_meta":[]}`) }),
		rejected("over the cap", "application/json", func(id string) string {
			return rpcResult(id, `{"content":["`+repeat("x", 5<<20)+`"]}`)
		}),
		lost("status 202", func(c net.Conn, _ string) bool { return respond(c, 202, "", "") }, !brief),
		lost("empty body", func(c net.Conn, _ string) bool { return respond(c, 200, "application/json", "") }, !brief),
		lost("nothing, until time is up", func(c net.Conn, _ string) bool { return held(c) }, brief),
		lost("half a body, until time is up", func(c net.Conn, _ string) bool {
			send(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"json")
			return held(c)
		}, brief),
		lost("closed", func(net.Conn, string) bool { return false }, !brief),
		lost("reset", func(c net.Conn, _ string) bool {
			_ = c.(*net.TCPConn).SetLinger(0)
			return false
		}, !brief),
		lost("half a head", func(c net.Conn, _ string) bool { send(c, "HTTP/1.1 20"); return false }, !brief),
		lost("not HTTP", func(c net.Conn, _ string) bool { send(c, "SSH-2.0-x\r\n\r\n"); return false }, !brief),
		lost("body cut", func(c net.Conn, id string) bool {
			send(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"+rpcResult(id, paid))
			return false
		}, !brief),
		lost("chunk cut", func(c net.Conn, id string) bool {
			chunked(c, "application/json", false, rpcResult(id, paid))
			return false
		}, !brief),
	}
	return append(all, brokenStreams()...)
}

func brokenStreams() []row {
	const brief, limit = true, 64 << 10
	endless := func(name string, reason receipts.Reason, brief bool, do func(c net.Conn, id string) bool) row {
		return row{name, do, receipts.Uncertain, reason, upstream.Config{}, brief, limit}
	}
	notice := event(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + repeat("x", limit/2) + `"}}`)
	return []row{
		endless("stream ends without an answer", receipts.ReasonNoResponse, !brief, func(c net.Conn, _ string) bool { return stream(c, notice) }),
		endless("stream is cut", receipts.ReasonNoResponse, !brief, func(c net.Conn, id string) bool {
			chunked(c, "text/event-stream", false, notice, "data: "+rpcResult(id, paid)[:20])
			return false
		}),
		endless("stream says nothing, for ever", receipts.ReasonNoResponse, brief, func(c net.Conn, _ string) bool {
			chunked(c, "text/event-stream", false, ": wait\n\n")
			return held(c)
		}),
		endless("stream says too much, for ever", receipts.ReasonResponseRejected, !brief, func(c net.Conn, _ string) bool {
			for chunked(c, "text/event-stream", false); send(c, fmt.Sprintf("%x\r\n%s\r\n", len(notice), notice)); {
			}
			return false
		}),
		endless("endless line in a stream", receipts.ReasonResponseRejected, !brief, func(c net.Conn, _ string) bool {
			for chunked(c, "text/event-stream", false, "data: "); send(c, "10000\r\n"+repeat("x", 0x10000)+"\r\n"); {
			}
			return false
		}),
		endless("endless body", receipts.ReasonResponseRejected, !brief, func(c net.Conn, _ string) bool {
			for chunked(c, "application/json", false); send(c, "10000\r\n"+repeat(" ", 0x10000)+"\r\n"); {
			}
			return false
		}),
		endless("wrong id in a stream", receipts.ReasonResponseRejected, !brief, func(c net.Conn, _ string) bool {
			return stream(c, event(rpcResult("999999", paid)))
		}),
		endless("not JSON in a stream", receipts.ReasonResponseRejected, !brief, func(c net.Conn, _ string) bool {
			return stream(c, event("done"))
		}),
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"handshake", "modern"} {
		for _, r := range rows() {
			t.Run(era+"/"+r.name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				f := newFake(t, era == "modern", func(c net.Conn, id string, n int) bool {
					if n > 1 {
						return result(c, id, paid)
					}
					if r.brief {
						time.AfterFunc(50*time.Millisecond, cancel)
					}
					return r.do(c, id)
				})
				config := r.config
				config.ForwardKeyHeader = "Idempotency-Key"
				c := f.client(config)
				q := pay()
				if r.limit > 0 {
					q.MaxResponseBytes = r.limit
				}
				a := c.Call(ctx, q)
				if a.Outcome != r.outcome || a.Reason != r.reason {
					t.Errorf("got %s/%s (%s), want %s/%s", a.Outcome, a.Reason, a.Note, r.outcome, r.reason)
				}
				if (a.Result != nil) != (r.outcome == receipts.Succeeded || r.reason == receipts.ReasonToolError) {
					t.Errorf("result %q", a.Result)
				}
				if n := f.count("tools/call"); n != 1 {
					t.Errorf("%d effects, want 1", n)
				}
				// Whatever happened, the next call goes through.
				if a := call(t, c); a.Outcome != receipts.Succeeded {
					t.Errorf("the next call: %s/%s (%s)", a.Outcome, a.Reason, a.Note)
				}
				if n := f.count("tools/call"); n != 2 {
					t.Errorf("%d effects after the next call, want 2", n)
				}
			})
		}
	}
}

// The upstream's own time-out ends a call whose caller would wait for ever.
func TestTimeout(t *testing.T) {
	t.Parallel()
	f := newFake(t, false, func(c net.Conn, id string, n int) bool {
		if n == 1 {
			return result(c, id, paid)
		}
		return held(c)
	})
	c := f.client(upstream.Config{Timeout: 2 * time.Second})
	if a := call(t, c); a.Outcome != receipts.Succeeded {
		t.Fatalf("first call: %s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	if a := call(t, c); a.Outcome != receipts.Uncertain || a.Reason != receipts.ReasonNoResponse || f.count("tools/call") != 2 {
		t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
}

func TestUnknownResultType(t *testing.T) {
	t.Parallel()
	do := func(c net.Conn, id string, _ int) bool { return result(c, id, `{"resultType":"task","content":[]}`) }
	if a := call(t, newFake(t, true, do).client(upstream.Config{})); a.Reason != receipts.ReasonResponseRejected {
		t.Errorf("modern: %s/%s", a.Outcome, a.Reason)
	}
	if a := call(t, newFake(t, false, do).client(upstream.Config{})); a.Outcome != receipts.Succeeded || string(a.Result) != `{"content":[]}` {
		t.Errorf("handshake: %s/%s %s", a.Outcome, a.Reason, a.Result)
	}
}

// An upstream that acts and then lets a reused connection die is where net/http would send an
// idempotent request again, in silence. There is one effect, and nobody knows what came of it.
func TestReusedConnectionDies(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		f := newFake(t, false, func(c net.Conn, id string, n int) bool {
			if n == 2 {
				return false
			}
			return result(c, id, paid)
		})
		c := f.client(upstream.Config{ForwardKeyHeader: name})
		if a := call(t, c); a.Outcome != receipts.Succeeded {
			t.Fatalf("first call: %s/%s", a.Outcome, a.Reason)
		}
		a := call(t, c)
		if a.Outcome != receipts.Uncertain || a.Reason != receipts.ReasonNoResponse {
			t.Errorf("got %s/%s (%s)", a.Outcome, a.Reason, a.Note)
		}
		all := f.requests()
		if n := f.count("tools/call"); n != 2 || all[len(all)-1].conn != all[len(all)-2].conn {
			t.Errorf("%d effects, want 2 on one connection", n)
		}
		if got := f.last().header.Get(name); got != opKey {
			t.Errorf("key sent: %q", got)
		}
	}
}

func TestNothingSent(t *testing.T) {
	t.Parallel()
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for name, url := range map[string]string{
		"connection refused": "http://" + closed.Addr().String(),
		"no such name":       "http://counterfoil.invalid/mcp",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := call(t, client(t, upstream.Config{URL: url, Timeout: 5 * time.Second}))
			if a.Outcome != receipts.Failed || a.Reason != receipts.ReasonUpstreamUnreachable {
				t.Errorf("got %s/%s (%s)", a.Outcome, a.Reason, a.Note)
			}
		})
	}
}

// The server is known and then gone: the call finds no connection.
func TestServerGone(t *testing.T) {
	t.Parallel()
	f := newFake(t, false, func(c net.Conn, id string, _ int) bool {
		send(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+rpcResult(id, paid))
		return false
	})
	c := f.client(upstream.Config{})
	if a := call(t, c); a.Outcome != receipts.Succeeded {
		t.Fatalf("first call: %s/%s", a.Outcome, a.Reason)
	}
	_ = f.listener.Close()
	a := call(t, c)
	if a.Outcome != receipts.Failed || a.Reason != receipts.ReasonUpstreamUnreachable || f.count("tools/call") != 1 {
		t.Errorf("got %s/%s (%s), %d effects", a.Outcome, a.Reason, a.Note, f.count("tools/call"))
	}
}

func TestNoFreeSlot(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	f := newFake(t, false, func(c net.Conn, id string, _ int) bool {
		close(entered)
		<-leave
		return result(c, id, paid)
	})
	c := f.client(upstream.Config{Concurrency: 1})
	first := make(chan upstream.Answer)
	go func() { first <- c.Call(context.Background(), pay()) }()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	a := c.Call(ctx, pay())
	if a.Outcome != receipts.Failed || a.Reason != receipts.ReasonUpstreamUnreachable || f.count("tools/call") != 1 {
		t.Errorf("got %s/%s, %d effects", a.Outcome, a.Reason, f.count("tools/call"))
	}
	close(leave)
	if a := <-first; a.Outcome != receipts.Succeeded {
		t.Errorf("the call in the slot: %s/%s", a.Outcome, a.Reason)
	}
}

func TestGivenUpBeforeSending(t *testing.T) {
	t.Parallel()
	f := newFake(t, false, func(c net.Conn, id string, _ int) bool { return result(c, id, paid) })
	c := f.client(upstream.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := c.Call(ctx, pay()); a.Outcome != receipts.Failed || a.Reason != receipts.ReasonNotDispatched {
		t.Errorf("got %s/%s", a.Outcome, a.Reason)
	}
	c.Close()
	if a := call(t, c); a.Reason != receipts.ReasonNotDispatched || len(f.requests()) != 0 {
		t.Errorf("after Close: %s/%s, %d requests", a.Outcome, a.Reason, len(f.requests()))
	}
}

// A caller who leaves while the upstream works does not make the call undone.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f := newFake(t, false, func(c net.Conn, _ string, _ int) bool {
		cancel()
		return held(c)
	})
	a := f.client(upstream.Config{}).Call(ctx, pay())
	if a.Outcome != receipts.Uncertain || a.Reason != receipts.ReasonNoResponse {
		t.Errorf("got %s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
}
