package upstream_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

// The rows of reference/mcp.md 9 that are decided here, each under its number.

// Pain 4: a gateway that takes a failed call for a server of the other era sends it again.
func TestEraFallbackNeverSendsACallAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		do     func(c net.Conn, id string) bool
		reason receipts.Reason
		probed bool // before the next call
	}{
		{"status 500", func(c net.Conn, _ string) bool { return respond(c, 500, "text/html", "<h1>oops</h1>") }, receipts.ReasonUpstreamError, false},
		{"status 405", func(c net.Conn, _ string) bool { return respond(c, 405, "", "") }, receipts.ReasonUpstreamRejected, true},
		{"unknown method", func(c net.Conn, id string) bool { return respond(c, 404, "application/json", rpcError(id, -32601)) }, receipts.ReasonUpstreamRejected, true},
		{"unknown version", func(c net.Conn, id string) bool { return respond(c, 400, "application/json", rpcError(id, -32022)) }, receipts.ReasonUpstreamRejected, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, modern := range []bool{true, false} {
				f := newFake(t, modern, func(c net.Conn, id string, n int) bool {
					if n > 1 {
						return result(c, id, paid)
					}
					return tt.do(c, id)
				})
				c := f.client(upstream.Config{})
				if a := call(t, c); a.Reason != tt.reason || f.last().method != "tools/call" || f.count("tools/call") != 1 {
					t.Errorf("modern %v: %s/%s, and %d calls were sent", modern, a.Outcome, a.Reason, f.count("tools/call"))
				}
				before := len(f.requests())
				if a := call(t, c); a.Outcome != receipts.Succeeded || f.count("tools/call") != 2 {
					t.Errorf("modern %v: the next call: %s/%s", modern, a.Outcome, a.Reason)
				}
				if probed := len(f.requests()) > before+1; probed != tt.probed {
					t.Errorf("modern %v: probed again: %v", modern, probed)
				}
			}
		})
	}
}

// Pain 5: the tool has acted, and its answer is lost.
func TestAnAnswerLostAfterTheEffect(t *testing.T) {
	t.Parallel()
	f := newFake(t, true, func(net.Conn, string, int) bool { return false })
	if a := call(t, f.client(upstream.Config{})); a.Outcome != receipts.Uncertain || a.Reason != receipts.ReasonNoResponse || f.count("tools/call") != 1 {
		t.Errorf("HTTP: %s/%s, %d effects", a.Outcome, a.Reason, f.count("tools/call"))
	}
	p := startTool(t, "modern", upstream.Config{})
	if a := p.call("exits"); a.Outcome != receipts.Uncertain || a.Reason != receipts.ReasonNoResponse || len(p.lines("call")) != 1 {
		t.Errorf("process: %s/%s, %d effects", a.Outcome, a.Reason, len(p.lines("call")))
	}
}

// Pain 7: the version is of this hop, whatever the caller speaks: none before it is agreed, then the agreed one.
func TestTheVersionHeaderIsOfThisHop(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26", "2026-07-28"} {
		f := newFake(t, version == "2026-07-28", pays)
		f.version = version
		if a := call(t, f.client(upstream.Config{})); a.Outcome != receipts.Succeeded {
			t.Fatalf("%s: %s/%s (%s)", version, a.Outcome, a.Reason, a.Note)
		}
		for _, r := range f.requests() {
			want := map[string][]string{"initialize": nil, "server/discover": {"2026-07-28"}}
			wanted, named := want[r.method]
			if !named {
				wanted = []string{version}
			}
			if got := r.header.Values("Mcp-Protocol-Version"); !slices.Equal(got, wanted) {
				t.Errorf("%s: %s was sent under %q", version, r.method, got)
			}
		}
	}
}

// Pain 8: the session is ours. A server that has forgotten it refuses a call, which is over; the next one has a
// new session. One that gives none is sent none.
func TestAnExpiredSessionIsRenewedForTheNextCall(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(c net.Conn) bool{
		"404 with an error": func(c net.Conn) bool {
			return respond(c, 404, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
		},
		"404 without one": func(c net.Conn) bool { return respond(c, 404, "", "") },
		"400 in words": func(c net.Conn) bool {
			return respond(c, 400, "text/plain", "Bad Request: no valid session ID provided")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, false, func(c net.Conn, id string, n int) bool {
				if n == 2 {
					return refuse(c)
				}
				return result(c, id, paid)
			})
			f.sessions = true
			c := f.client(upstream.Config{})
			var got []string
			for range 3 {
				a := call(t, c)
				got = append(got, fmt.Sprintf("%s %s %s", a.Outcome, a.Reason, f.last().header.Get("Mcp-Session-Id")))
			}
			if diff := cmp.Diff([]string{"succeeded  session-1", "failed upstream_rejected session-1", "succeeded  session-2"}, got); diff != "" {
				t.Error(diff)
			}
			if f.count("tools/call") != 3 || f.count("initialize") != 2 {
				t.Errorf("%d calls, %d handshakes", f.count("tools/call"), f.count("initialize"))
			}
		})
	}
	f := newFake(t, false, pays)
	if a := call(t, f.client(upstream.Config{})); a.Outcome != receipts.Succeeded || len(f.last().header.Values("Mcp-Session-Id")) != 0 {
		t.Errorf("without a session: %s/%s, sent %q", a.Outcome, a.Reason, f.last().header.Values("Mcp-Session-Id"))
	}
}

// Pain 9: what the tool says in _meta stays beside what others add; only what would pass for the gateway's goes.
func TestTheToolsMetaIsKept(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{true, false} {
		a := answerOf(t, modern, upstream.Config{}, pay(), `{"content":[],"_meta":{"vendor/trace": {"a":[1.0]},"counterfoil/outcome":"succeeded","progressToken":1}}`)
		if want := `{"content":[],"_meta":{"vendor/trace": {"a":[1.0]},"progressToken":1}}`; string(a.Result) != want {
			t.Errorf("modern %v: %s", modern, a.Result)
		}
	}
}

// Pain 10: a line of a stream longer than a reader's buffer, after the effect. Up to the cap it is read; beyond, it is
// not known what came of the call.
func TestALongLineOfAStream(t *testing.T) {
	t.Parallel()
	for size, reason := range map[int]receipts.Reason{
		64<<10 - 1: "", 64 << 10: "", 64<<10 + 1: "", 1 << 20: "", 1<<20 + 200: receipts.ReasonResponseRejected, 4 << 20: receipts.ReasonResponseRejected,
	} {
		text := func(id string) string {
			return rpcResult(id, `{"content":[],"x":"`+repeat("x", size-100)+`"}`)
		}
		f := newFake(t, true, func(c net.Conn, id string, _ int) bool { return stream(c, event(text(id))) })
		q := pay()
		q.MaxResponseBytes = 1 << 20
		a := f.client(upstream.Config{}).Call(t.Context(), q)
		if a.Reason != reason || (a.Outcome == receipts.Succeeded) != (reason == "") || f.count("tools/call") != 1 {
			t.Errorf("%d bytes: %s/%s, %d effects", size, a.Outcome, a.Reason, f.count("tools/call"))
		}
	}
}

// A request that breaks off while it is written may have been understood.
func TestResetWhileTheRequestIsWritten(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	effects := make(chan int, 8)
	serve(t, listener, func(c net.Conn, n int) {
		if n == 1 {
			known(c)
			return
		}
		read, _ := io.CopyN(io.Discard, c, 64<<10)
		effects <- int(read)
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	c := client(t, upstream.Config{URL: "http://" + listener.Addr().String()})
	if _, err := c.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := pay()
	q.Arguments = []byte(`{"x":"` + repeat("x", 16<<20) + `"}`)
	if a := c.Call(t.Context(), q); a.Outcome != receipts.Uncertain || a.Reason != receipts.ReasonNoResponse {
		t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	if read := <-effects; read != 64<<10 || len(effects) != 0 {
		t.Errorf("read %d bytes, and then %d more requests", read, len(effects))
	}
}

func TestOutlineFindsWhoseAnswerItIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		`{"jsonrpc":"2.0","id":7,"result":{"id":8}}`:                      7,
		`{"result":{"a":["{\"id\":9,",{"id":8}]},"jsonrpc":"2.0","id":7}`: 7,
		` { "id" : 7 , "x" : [ 1 ] } `:                                    7,
		`{"x":"\\","id":7}`:                                               7,
		`{"x":"\"id\":8","id":7,"y":"` + repeat(`\"`, 40) + `"}`:          7,
		`{"` + repeat("n", 100) + `":1,"id":-7}`:                          -7,
		`{"id":7,"method":"ping"}`:                                        0,
		`{"method":"ping","id":7}`:                                        0,
		`{"id":"7","result":{}}`:                                          0,
		`{"id":7.0}`:                                                      0,
		`{"id":07}`:                                                       0,
		`{"id":null}`:                                                     0,
		`{"id":[7]}`:                                                      0,
		`{"a":{"id":7}}`:                                                  0,
		`[{"id":7}]`:                                                      0,
		`{"id":12345678901234567890}`:                                     0,
		`Server started, id: 7`:                                           0,
		`}}}{"id":7}`:                                                     0,
		`{"id":7`:                                                         0,
		``:                                                                0,
	} {
		var bytewise [][]byte
		for i := range len(text) {
			bytewise = append(bytewise, []byte(text[i:i+1]))
		}
		for _, pieces := range [][][]byte{{[]byte(text)}, bytewise} {
			if id, ok := upstream.Answers(pieces...); ok != (want != 0) || ok && id != want {
				t.Errorf("%s: %d, %v in %d pieces", strings.ReplaceAll(text, "nnn", "n"), id, ok, len(pieces))
			}
		}
	}
}
