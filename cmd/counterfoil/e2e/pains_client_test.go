package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The pains of reference/mcp.md 9 that a client brings along: each has been somebody's double payment, or dead
// session. docs/reliability.md lists all twelve.

// TestACallIsNeverAnswered404: a client that has been given a session id, and is answered 404, opens another session and
// sends the call again. Nobody is given one, one that is brought along is not missed, and whatever is wrong with a call
// is not said by that status. Source: openai/codex#13514.
func TestACallIsNeverAnswered404(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{sessions: true})
	s := newSystemWithPeer(t, p)
	x := s.newTenant(t, 1000, anythingOf("do", "flaky"))
	for _, version := range []string{"2025-06-18", "2025-11-25"} {
		a := s.post(t, x.key, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		if _, given := a.header["Mcp-Session-Id"]; given || a.status != http.StatusOK || !strings.Contains(string(a.body), version) {
			t.Errorf("initialize: %v %s", a.header, a)
		}
	}
	r := repeated{x: x, call: x.doing("paid"), first: x.succeed(t, x.doing("paid"), "Mcp-Session-Id", "of another server")}
	n := 0
	wrong := func(what string, change func(*call)) {
		for _, d := range []dialect{{}, {modern: true}} {
			n++
			c := x.doing(fmt.Sprintf("wrong-%d", n))
			change(&c)
			a := x.saying(t, d, c, "Mcp-Session-Id", "gone", "Last-Event-ID", "7")
			if _, given := a.header["Mcp-Session-Id"]; given || a.status == http.StatusNotFound || a.status == http.StatusUnauthorized || a.status == http.StatusForbidden ||
				a.meta.Outcome == "succeeded" && !a.replayed() || a.header.Get("WWW-Authenticate") != "" {
				t.Errorf("%s: %v %s", what, a.header, a)
			}
			if again := x.saying(t, d, c); again.reason() != a.reason() {
				t.Errorf("%s, sent again: %s", what, again)
			}
		}
	}
	wrong("a tool that is not there", func(c *call) { c.tool = "nothing" })
	wrong("a permit that is not there", func(c *call) { c.permit = "prm_nothing" })
	wrong("a tool that is not allowed", func(c *call) { c.tool = "payout" })
	wrong("somebody else's wallet", func(c *call) { c.wallet = "wal_nothing" })
	wrong("a used key", func(c *call) { c.key = "paid" })
	wrong("no key", func(c *call) { c.key = "" })
	wrong("arguments that are refused", func(c *call) { c.args = `{"n":9007199254740993}` })
	wrong("a tool whose server is 404", func(c *call) {
		p.on(c.args, plain(http.StatusNotFound, "text/html", "<html>"))
	})
	wrong("a tool whose session is gone", func(c *call) {
		x.succeed(t, x.doing("before "+c.key))
		p.loseSession()
	})
	st := x.state(t)
	if st.Charges != 3 || st.Balance != 1000-3*peerPrice || st.Held != 0 || p.did("paid") != 1 {
		t.Errorf("after all: %+v", st)
	}
	s.restart(t)
	r.then = st
	r.same(t, x.do(t, r.call, "Mcp-Session-Id", "of the process before"))
}

// TestAGatewayThatComesOrGoesNeverSays404: to some clients one early 404 is the end of the server. One that starts takes no
// connection until it serves; one that stops says 503. Source: anthropics/claude-code#94273.
func TestAGatewayThatComesOrGoesNeverSays404(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 1000, anything())
	listen := freeAddress(t)
	config := s.configure(t, "comes.yaml", listen, toolLines)
	began := make(chan struct{})
	served := make(chan answer, 1)
	go func() {
		for tries := 0; ; tries++ {
			if tries == 1 {
				close(began)
			}
			a, err := x.try("http://"+listen, x.payout("early"))
			switch {
			case err != nil || a.status == http.StatusServiceUnavailable || a.reason() == "store_unavailable":
			case a.status == http.StatusOK:
				served <- a
				return
			default:
				t.Errorf("a gateway that starts says %s", a)
				served <- a
				return
			}
		}
	}()
	receive(t, began, "the first call")
	comes := serve(t, config)
	if a := receive(t, served, "the first answer"); a.meta.Outcome != "succeeded" {
		t.Errorf("the first answer: %s", a)
	}

	// One call runs; another client is in the middle of its request when the gateway is told to stop.
	release := s.tool.keep(`"amount":77`)
	kept := x.payout("kept")
	kept.args = fmt.Sprintf(`{"to":"%svendor.example","amount":77}`, x.marker())
	answers := make(chan answer, 1)
	go func() {
		a, err := x.try("http://"+listen, kept)
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}()
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, `"amount":77`)) == 1 })
	conn := dial(t, "http://"+listen)
	body := x.payout("late").body()
	if _, err := io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-API-Key: "+x.key+"\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.vitals("http://" + listen); !ok { // connections are taken in their order: the one before has been
		t.Fatal("the gateway does not answer")
	}
	comes.signal(t, syscall.SIGTERM)
	eventually(t, "the end of new connections", func() bool {
		other, err := net.Dial("tcp", listen)
		if err == nil {
			_ = other.Close()
		}
		return err != nil
	})
	if _, err := fmt.Fprintf(conn, "Content-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("a client in the middle of its request was cut: %v", err)
	}
	late, err := read(resp)
	if err != nil || late.status != http.StatusServiceUnavailable || !resp.Close || !strings.Contains(string(late.body), "nothing happened") {
		t.Errorf("a gateway that stops says %v %s", err, late)
	}
	release()
	if a := receive(t, answers, "the answer of the kept call"); a.meta.Outcome != "succeeded" {
		t.Errorf("the call that ran: %s", a)
	}
	if status := comes.status(t); status != 0 {
		t.Errorf("exit status %d", status)
	}
	// The key of the one that came too late is free.
	x.succeed(t, x.payout("late"))
}

// TestACallSentTwiceStaysWithinItsLimits: a client sends each call twice within milliseconds, under other JSON-RPC ids.
// Under one key it is one call. Under two keys they are two, which nothing can know to be one: what holds then are the
// limits of the permit, and the reference of what is being paid. Source: anthropics/claude-code#36149.
func TestACallSentTwiceStaysWithinItsLimits(t *testing.T) {
	t.Parallel()
	const actions = 6
	s := newSystemBeside(t, "", toolLines+
		"\n  - {name: invoice, upstream: payments, upstream_tool: payout, credits: 5, value: {pointer: /amount, currency: USD}, operation_ref: /invoice_id}")
	for name, c := range map[string]struct {
		tool    string
		limits  object
		same    bool // one key for both
		effects int
		reason  string // of those that do not act
	}{
		"under one key":                 {"payout", object{"credits": 1000}, true, actions, ""},
		"under two keys":                {"payout", object{"credits": 1000}, false, 2 * actions, ""},
		"under two keys, calls limited": {"payout", object{"credits": 1000, "calls": object{"payout": actions}}, false, actions, "permit_calls_exceeded"},
		"under two keys, all limited":   {"payout", object{"credits": 1000, "calls_total": 1}, false, 1, "permit_calls_exceeded"},
		"under two keys, credits":       {"payout", object{"credits": actions * payoutPrice}, false, actions, "permit_credits_exceeded"},
		"under two keys, value":         {"payout", object{"credits": 1000, "value": object{"currency": "USD", "total": 1200 * actions}}, false, actions, "permit_value_exceeded"},
		"under two keys, one reference": {"invoice", object{"credits": 1000}, false, actions, "operation_ref_reused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := s.newTenant(t, 1000, object{"tools": []string{c.tool}, "limits": c.limits})
			answers := s.together(t, 2*actions, func(i int) (answer, error) {
				one := x.payout(fmt.Sprintf("call-%d", i))
				if c.same {
					one.key = fmt.Sprintf("call-%d", i/2)
				}
				one.tool, one.id = c.tool, fmt.Sprint(i)
				one.args = fmt.Sprintf(`{"to":"%svendor.example","amount":1200,"invoice_id":"inv-%d"}`, x.marker(), i/2)
				return x.try(s.url, one)
			})
			acted := 0
			for i, a := range answers {
				if string(a.id) != fmt.Sprint(i) {
					t.Errorf("call %d is answered under the id %s", i, a.id)
				}
				switch {
				case a.meta.Outcome == "succeeded" && !a.replayed():
					acted++
				case c.same && (a.replayed() && string(a.result) == string(answers[i^1].result) || a.reason() == "idempotency_in_progress"):
				case c.reason != "" && a.meta.Outcome == "denied" && a.meta.Reason == c.reason && *a.meta.Charged == 0:
					s.receipt(t, a)
				default:
					t.Errorf("call %d: %s", i, a)
				}
			}
			st := x.state(t)
			if acted != c.effects || st.Effects != c.effects || st.Charges != c.effects || st.Balance != 1000-int64(c.effects)*payoutPrice || st.Held != 0 {
				t.Errorf("%d acted, want %d: %+v", acted, c.effects, st)
			}
			if c.tool == "invoice" {
				for i := range actions {
					if n := len(s.tool.effects(t, fmt.Sprintf(`%svendor.example","amount":1200,"invoice_id":"inv-%d"`, x.marker(), i))); n > 1 {
						t.Errorf("invoice %d was paid %d times", i, n)
					}
				}
			}
		})
	}
}

// TestLargeIntegersAreNotRounded: what is larger than a double holds comes back in the tool's own digits, and is refused in
// arguments, which whoever reads them could round. Source: modelcontextprotocol/go-sdk#1236.
func TestLargeIntegersAreNotRounded(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	x := s.newTenant(t, 1000, anythingOf("do"))
	const said = `{"content":[{"type":"text","text":"9007199254740993"}],"structuredContent":{"z":9007199254740993,"y":12345678901234567890,` +
		`"x":-9223372036854775809,"w":1.10,"v":1E5,"u":0.30000000000000004,"t":1e400, "a" : "\u00e9\/" }}`
	p.on("large", result(strings.Replace(said, `{"content"`, `{"resultType":"complete","content"`, 1)))
	a := x.succeed(t, x.doing("large"))
	if got := string(s.contentOf(t, a.meta.ReceiptID)); got != said {
		t.Errorf("stored: %s", got)
	}
	if !strings.HasSuffix(string(a.result), said[1:]) {
		t.Errorf("answered: %s", a.result)
	}
	if r := s.receipt(t, a); r.Res.SHA256 != sum([]byte(said)) || r.Res.Bytes != int64(len(said)) {
		t.Errorf("the receipt says %+v", r.Res)
	}
	before := x.state(t)
	for i, n := range []string{"9007199254740993", "-9007199254740993", "12345678901234567890", "1152921504606846977", "1e400", "0.12345678901234567"} {
		c := x.doing(fmt.Sprintf("refused-%d", i))
		c.args = fmt.Sprintf(`{"which":"refused","deep":[{"n":%s}]}`, n)
		for _, d := range []dialect{{}, {modern: true}} {
			if a := x.saying(t, d, c); a.reason() != "arguments_invalid" || a.refusal.Data.Retry != "never" {
				t.Errorf("%s: %s", n, a)
			}
		}
	}
	if unchanged(t, "after the refusals", before, x.state(t)); p.did("refused") != 0 {
		t.Error("a refused call was sent")
	}
	for literal, want := range map[string]string{
		"9007199254740992": "9007199254740992", "-9007199254740991": "-9007199254740991", "1.10": "1.1", "1.0": "1", "1e3": "1000", "1e23": "1e+23",
		"0.1": "0.1", `"9007199254740993"`: `"9007199254740993"`, `"\u00e9<>&"`: `"é<>&"`, "10000000000000000000000": "1e+22",
	} {
		c := x.doing("passed " + literal[:min(4, len(literal))] + fmt.Sprint(len(literal)))
		c.args = fmt.Sprintf(`{"n":%s}`, literal)
		a := x.succeed(t, c)
		if p.did(`"arguments":{"n":`+want+`}`) != 1 || s.receipt(t, a).Req.SHA256 != sum([]byte(`{"n":`+want+`}`)) {
			t.Errorf("%s did not go as %s", literal, want)
		}
	}
}

// TestOneDeadlineAndOneRecord: the gateway's own deadline ends a call that its tool does not answer, whether its callers wait
// for longer or have left before, and one operation, one receipt, one charge and one count come of it. Sources:
// IBM/mcp-context-forge#6181, where a time-out below the client's hid the outcome, and #855, where it was recorded twice.
func TestOneDeadlineAndOneRecord(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{})
	s := newSystemWithPeer(t, p, ", timeout: 2s")
	x := s.newTenant(t, 100, anythingOf("do"))
	called := make(chan struct{})
	p.on("slow", func(_ http.ResponseWriter, r *http.Request, _ string) {
		close(called)
		<-r.Context().Done()
	})
	told := make(chan answer, 2)
	var waiting sync.WaitGroup
	ask := func(pairs ...string) {
		a, err := s.send(t.Context(), s.raw, s.url+"/mcp", x.key, x.doing("slow").body(), pairs...)
		if err != nil {
			t.Error(err)
		}
		told <- a
	}
	waiting.Go(func() { ask() })
	receive(t, called, "the call")
	// A client whose time-out is shorter asks again, and is told to wait; one that waits gets what the first one gets.
	if a := x.do(t, x.doing("slow")); a.reason() != "idempotency_in_progress" {
		t.Errorf("while it runs: %s", a)
	}
	waiting.Go(func() { ask("Prefer", "wait=60") })
	first, second := receive(t, told, "an answer"), receive(t, told, "another answer")
	waiting.Wait()
	if string(first.result) != string(second.result) || first.replayed() == second.replayed() {
		t.Errorf("two answers:\n%s\n%s", first, second)
	}
	if second.replayed() {
		first, second = second, first
	}
	x.lostAfterTheEffect(t, p, second, "slow", "no_response")
	want := state{Balance: 95, Available: 95, Spent: 5, Calls: 1, Charges: 1, Receipts: 1, Operations: 1}
	unchanged(t, "after the deadline", want, x.state(t))
	if n := s.metric(t, `counterfoil_calls_total{outcome="delivery_uncertain",reason="no_response",tool="do"}`); n != 1 {
		t.Errorf("the call is counted %v times", n)
	}
	if n := s.metric(t, `counterfoil_calls_total{`); n != 1 {
		t.Errorf("%v calls are counted", n)
	}
}
