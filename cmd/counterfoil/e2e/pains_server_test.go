package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// The pains of reference/mcp.md 9 that a server behind a gateway inflicts, or suffers: each is something that
// another gateway or client has done to somebody's money. docs/reliability.md lists all twelve.

// lostAfterTheEffect wants a call to have been made once, and nobody to know what became of it.
func (x tenant) lostAfterTheEffect(t *testing.T, p *peer, a answer, key, reason string) {
	t.Helper()
	if a.status != http.StatusOK || a.meta.Outcome != "delivery_uncertain" || a.meta.Reason != reason || a.meta.Retry != "check" || !a.isError || a.replayed() || *a.meta.Charged != peerPrice {
		t.Fatalf("%s: want delivery_uncertain, %s: %s", key, reason, a)
	}
	if r := x.s.receipt(t, a); r.Credits.Authorized != peerPrice || r.Ledger == nil {
		t.Errorf("%s: the receipt says %+v", key, r)
	}
	again := x.do(t, x.doing(key))
	if !again.replayed() || !bytes.Equal(again.result, a.result) {
		t.Errorf("%s, again: %s", key, again)
	}
	if n := p.did(`"which":"` + key + `"`); n != 1 {
		t.Errorf("%s was sent %d times", key, n)
	}
}

// TestA500StartsNoFallbackToAnotherEra: a call that was answered 500 is over, in whichever era its server speaks: the era
// is asked for by requests that act on nothing, before, and never by a call. Source: first-tree-ai/opentag#652, where the
// client took 500 for an old server and sent the call a second time in the old way.
func TestA500StartsNoFallbackToAnotherEra(t *testing.T) {
	t.Parallel()
	for name, modern := range map[string]bool{"modern": true, "handshake": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, &peer{modern: modern})
			s := newSystemWithPeer(t, p)
			x := s.newTenant(t, 100, anythingOf("do"))
			for i, broken := range []act{
				plain(http.StatusInternalServerError, "text/plain", "internal error"),
				plain(http.StatusBadGateway, "text/html", "<html>bad gateway</html>"),
				plain(http.StatusServiceUnavailable, "application/json", `{"error":"later"}`),
			} {
				key := fmt.Sprintf("broken-%d", i)
				p.on(key, broken)
				x.lostAfterTheEffect(t, p, x.do(t, x.doing(key)), key, "upstream_error")
			}
			// The era that was found out before still stands, and the next call goes through.
			x.succeed(t, x.doing("whole"))
			probes := len(p.requests("server/discover", "")) + len(p.requests("initialize", ""))
			if want := map[bool]int{true: 1, false: 2}[modern]; probes != want {
				t.Errorf("the era was asked for %d times, want %d", probes, want)
			}
			if st := x.state(t); st.Balance != 100-4*peerPrice || st.Charges != 4 || st.Receipts != 4 || st.Held != 0 {
				t.Errorf("after all: %+v", st)
			}
		})
	}
}

// TestAnAnswerLostAfterTheEffectIsUncertain: the tool has acted, and its answer is lost: on a connection that was in use
// before and carries an Idempotency-Key, which net/http takes as leave to send again; before the first byte, or in
// the middle. There is one effect, the price is kept, and the decision of a person settles it. Source: mcheemaa/mistri#26,
// where the request was re-sent.
func TestAnAnswerLostAfterTheEffectIsUncertain(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{})
	s := newSystemWithPeer(t, p)
	x := s.newTenant(t, 100, anythingOf("do"))
	half := func(w http.ResponseWriter, _ *http.Request, id string) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(rpcResult(id, `{"content":[`)))
		panic(http.ErrAbortHandler)
	}
	const begun = `data: {"jsonrpc":"2.0","id":ID,"result":{"cont`
	for key, broken := range map[string]act{
		"no-byte":        breakOff,
		"half-an-answer": half,
		"a-broken-stream": func(w http.ResponseWriter, r *http.Request, id string) {
			events(begun)(w, r, id)
			panic(http.ErrAbortHandler)
		},
		"a-stream-of-nothing": events(": still here\n\n"),
		"half-an-event":       events(begun),
	} {
		warm := x.succeed(t, x.doing("warm-"+key))
		p.on(key+`"}`, broken)
		a := x.do(t, x.doing(key))
		reason := "no_response"
		if key == "half-an-event" { // the stream ended well, and what it said is no answer
			reason = "response_rejected"
		}
		x.lostAfterTheEffect(t, p, a, key, reason)
		calls := p.requests("tools/call", key+`"}`)
		if len(calls) != 2 || key == "no-byte" && calls[0].remote != calls[1].remote {
			t.Errorf("%s: the connection was not in use before: %d calls", key, len(calls))
		}
		if calls[1].header.Get("Idempotency-Key") == "" {
			t.Errorf("%s: no key went up", key)
		}
		if warm.meta.Operation == a.meta.Operation {
			t.Errorf("%s has the operation of another call", key)
		}
		d := s.mustDecide(t, a.meta.Operation, notDelivered())
		if d["resolution"] != "not_delivered" {
			t.Errorf("%s: decided %v", key, d)
		}
	}
	if st := x.state(t); st.Balance != 100-5*peerPrice || st.Spent != 5*peerPrice || st.Calls != 5 || st.Held != 0 {
		t.Errorf("after the decisions: %+v", st)
	}
}

// TestTheCallersHeadersEndAtTheGateway: what a caller says about its own hop (version, session, credentials, cookies, names
// of methods and tools) is not copied on to the next one, which has its own. Source: agentgateway/agentgateway#2980, where
// the caller's MCP-Protocol-Version went to an upstream of another era.
func TestTheCallersHeadersEndAtTheGateway(t *testing.T) {
	t.Parallel()
	old, young := newPeer(t, &peer{sessions: true}), newPeer(t, &peer{modern: true})
	s := newSystemBeside(t, old.line("old", "")+young.line("young", ""), toolLines+
		"\n  - {name: old, upstream: old, upstream_tool: do, credits: 5}\n  - {name: young, upstream: young, upstream_tool: do, credits: 5}")
	x := s.newTenant(t, 1000, anythingOf("old", "young"))
	private := []string{
		"Authorization", "Bearer " + x.key, "Cookie", "sid=caller-cookie", "Mcp-Session-Id", "caller-session", "Last-Event-ID", "caller-event",
		"Origin", s.url, "X-Forwarded-For", "caller-address", "Forwarded", "for=caller-address", "Proxy-Authorization", "Basic caller-proxy",
		"Mcp-Param-Which", "caller-param", "Accept-Language", "caller-language", "User-Agent", "caller-agent", "Via", "caller-via", "X-Custom", "caller-custom",
	}
	n := 0
	for _, d := range []dialect{{}, {modern: true}} {
		for tool, p := range map[string]*peer{"old": old, "young": young} {
			n++
			c := x.doing(fmt.Sprintf("hop-%d", n))
			c.tool = tool
			pairs := private
			if !d.modern {
				pairs = append([]string{"MCP-Protocol-Version", "2025-06-18"}, private...)
			}
			d.meta = `,"traceparent":"00-1","cwd":"/home/caller-place","callId":"call_caller"`
			if a := x.saying(t, d, c, pairs...); a.meta.Outcome != "succeeded" {
				t.Fatalf("%s: %s", tool, a)
			}
			sent := p.requests("tools/call", c.key)[0]
			for name, values := range sent.header {
				for _, v := range values {
					if strings.Contains(v, "caller") || strings.Contains(v, x.key) || strings.Contains(v, "2025-06-18") {
						t.Errorf("%s: %s: %s went up", tool, name, v)
					}
				}
			}
			if strings.Contains(sent.body, "caller") || !strings.Contains(sent.body, `"traceparent":"00-1"`) || sent.host == strings.TrimPrefix(s.url, "http://") {
				t.Errorf("%s: what went up to %s: %s", tool, sent.host, sent.body)
			}
			want := map[string]string{"Mcp-Protocol-Version": "2025-11-25", "Mcp-Session-Id": "session-1", "Mcp-Method": "", "Mcp-Name": ""}
			if tool == "young" {
				want = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Session-Id": "", "Mcp-Method": "tools/call", "Mcp-Name": "do"}
			}
			for name, v := range want {
				if got := sent.header.Get(name); got != v {
					t.Errorf("%s: %s is %q, want %q", tool, name, got, v)
				}
			}
		}
	}
}

// TestTheSessionOfAnUpstreamIsTheGateways: the gateway opens it, keeps it, and opens another when it is gone: once for all
// who wait, and for the next call, never by sending the lost one again. Callers see nothing of it. Sources:
// agentgateway/agentgateway#2982 and #3622, where a missing or expired session was the caller's to repair.
func TestTheSessionOfAnUpstreamIsTheGateways(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{sessions: true})
	s := newSystemWithPeer(t, p)
	x := s.newTenant(t, 1000, anythingOf("do"))
	first := x.succeed(t, x.doing("first"), "Mcp-Session-Id", "made-up")
	before := x.state(t)
	opened := len(p.requests("initialize", ""))
	p.loseSession()
	lost := x.do(t, x.doing("lost"))
	if lost.status != http.StatusOK || lost.meta.Outcome != "failed" || lost.meta.Reason != "upstream_rejected" || lost.meta.Retry != "new_key" || *lost.meta.Charged != 0 {
		t.Fatalf("in a session that is gone: %s", lost)
	}
	if r := s.receipt(t, lost); r.Ledger != nil || p.did(`"lost"`) != 1 {
		t.Errorf("%d calls; the receipt says %+v", p.did(`"lost"`), r)
	}
	if st := x.state(t); st.Balance != before.Balance || st.Calls != before.Calls || st.Held != 0 || st.Charges != before.Charges {
		t.Errorf("after the lost call: %+v, before: %+v", st, before)
	}
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if a, err := x.try(s.url, x.doing(fmt.Sprintf("next-%d", i))); err != nil || a.meta.Outcome != "succeeded" {
				t.Errorf("in the next session: %v %s", err, a)
			}
		})
	}
	all.Wait()
	if n := len(p.requests("initialize", "")); n != opened+1 {
		t.Errorf("%d sessions were opened after the loss of one", n-opened)
	}
	if again := x.do(t, x.doing("lost")); !again.replayed() || p.did(`"lost"`) != 1 {
		t.Errorf("the lost call, again: %d calls, %s", p.did(`"lost"`), again)
	}
	for _, a := range []answer{first, lost} {
		if a.header.Get("Mcp-Session-Id") != "" || strings.Contains(string(a.body), "session-") {
			t.Errorf("the upstream's session shows: %v %s", a.header, a)
		}
	}
}

// TestMetaOfTheToolIsMerged: what a tool says in _meta reaches the caller in its own bytes, beside what the gateway says, and
// cannot pass for it. Source: agentgateway/agentgateway#445, where it was stripped, or written over.
func TestMetaOfTheToolIsMerged(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	x := s.newTenant(t, 1000, anythingOf("do"))
	const theirs = `"z":9007199254740993,"a":{"deep":[1.10,"\u00e9",null]},"example.com/cost":{"usd":0.10}`
	p.on("merged", result(`{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"theirs"},`+theirs+`}}`))
	p.on("forged", result(`{"resultType":"complete","content":[{"type":"text","text":"ok"}],"counterfoil/receipt":"forged","_meta":{"counterfoil/receipt":"forged",`+
		`"counterfoil/outcome":"denied","counterfoil/credits_charged":0,"Counterfoil/Receipt_id":"forged","counterfoil\/operation_id":"forged","counterfoi\u006c/retry":"forged",`+theirs+`}}`))
	p.on("nothing", result(`{"resultType":"complete","content":[],"_meta":null}`))
	for _, key := range []string{"merged", "forged", "nothing"} {
		c := x.doing(key)
		a := x.succeed(t, c)
		if key != "nothing" && !bytes.Contains(a.result, []byte(theirs)) {
			t.Errorf("%s: the tool's own members are not as they came: %s", key, a.result)
		}
		if bytes.Contains(a.result, []byte("forged")) || bytes.Contains(a.result, []byte("theirs")) || bytes.Count(a.result, []byte(`"counterfoil/receipt"`)) != 1 {
			t.Errorf("%s: %s", key, a.result)
		}
		if r := s.receipt(t, a); r.Res == nil || r.Res.SHA256 != sum(s.contentOf(t, a.meta.ReceiptID)) || r.Res.Scrubbed {
			t.Errorf("%s: the receipt says %+v", key, r.Res)
		}
		for _, d := range []dialect{{}, {modern: true}} {
			again := x.saying(t, d, c)
			if !again.replayed() || again.meta.Receipt != a.meta.Receipt || key != "nothing" && !bytes.Contains(again.result, []byte(theirs)) {
				t.Errorf("%s, again: %s", key, again)
			}
			if d.modern != bytes.Contains(again.result, []byte(`"io.modelcontextprotocol/serverInfo":{"name":"counterfoil"`)) {
				t.Errorf("%s, again: who served it? %s", key, again.result)
			}
		}
	}
}

// TestALongLineIsReadOrUncertain: an answer of one line that is longer than a reader's buffer is whole; one over the tool's
// limit is a call that acted and whose answer nobody has. Source: gravitational/teleport#67000, where an SSE line of more
// than 64 KiB ended the connection after the effect.
func TestALongLineIsReadOrUncertain(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	x := s.newTenant(t, 1000, anythingOf("do"))
	text := func(n int) string {
		return `{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("x", n) + `"}]}`
	}
	line := func(n int) string { return event(rpcResult("ID", text(n))) }
	for key, n := range map[string]int{"64-KiB": 64 << 10, "2-MiB": 2 << 20} {
		p.on(key, events(line(n)))
		a := x.succeed(t, x.doing(key))
		if len(a.text) != 1 || len(a.text[0]) != n {
			t.Errorf("%s: the answer is not whole", key)
		}
		if r := s.receipt(t, a); r.Res.SHA256 != sum([]byte(strings.Replace(text(n), `"resultType":"complete",`, "", 1))) {
			t.Errorf("%s: the receipt says %+v", key, r.Res)
		}
	}
	endless := func(w http.ResponseWriter, r *http.Request, _ string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte(": still here\n\n"), 4096)); err != nil {
				return
			}
		}
	}
	for key, broken := range map[string]act{"over-in-a-stream": events(line(5 << 20)), "over-in-a-body": result(text(5 << 20)), "without-end": endless} {
		p.on(key, broken)
		x.lostAfterTheEffect(t, p, x.do(t, x.doing(key)), key, "response_rejected")
	}
}
