package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"counterfoil/internal/testdb"
)

// probedTools have a probe that is asked soon and often.
const probedTools = `
  - {name: payout, upstream: payments, credits: 5, scopes: [payments.write], probe: {tool: payout_status, after: 200ms, longest: 800ms, give_up: 1h}}`

func newProbedSystem(t *testing.T, limits, tools string) *system {
	t.Helper()
	return newSystemWith(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), limits, tools)
}

// question is what a probe was asked. It waits for its answer: a result, "" to break off, or a status.
type question struct {
	key    string
	header http.Header
	at     time.Time
	reply  chan string
}

// oracle takes the questions that contain a text, in the place of the tool.
func (up *tool) oracle(t *testing.T, text string) <-chan *question {
	t.Helper()
	asked := make(chan *question, 100)
	up.answer(text, func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Params struct{ Arguments map[string]string }
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil || len(m.Params.Arguments) != 1 {
			t.Errorf("not a question: %+v, %v", m, err)
		}
		q := &question{header: r.Header, at: time.Now(), reply: make(chan string, 1)}
		for _, q.key = range m.Params.Arguments {
		}
		asked <- q
		select {
		case reply := <-q.reply:
			switch {
			case reply == "":
				panic(http.ErrAbortHandler)
			case reply[0] != '{':
				http.Error(w, reply, http.StatusServiceUnavailable)
			default:
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, reply)
			}
		case <-r.Context().Done():
		}
	})
	return asked
}

func says(status string) string {
	return fmt.Sprintf(`{"content":[],"structuredContent":{"status":%q}}`, status)
}

// waiting is the queue of reconciliations, by operation.
func (s *system) waiting(t *testing.T) map[string]object {
	t.Helper()
	out := map[string]object{}
	for _, item := range s.all(t, "/v1/reconciliations", url.Values{}) {
		out[item.text(t, "operation_id")] = item
	}
	return out
}

// reconciledBy waits until an operation is decided, and wants it to be decided so.
func (s *system) reconciledBy(t *testing.T, a answer, who, resolution string) object {
	t.Helper()
	var op, decision object
	eventually(t, "the decision", func() bool {
		op = s.operator(t, http.MethodGet, "/v1/operations/"+a.meta.Operation, nil, http.StatusOK)
		return op["state"] == "reconciled"
	})
	decision, _ = op["reconciliation"].(map[string]any)
	if op["outcome"] != "reconciled" || decision["resolution"] != resolution || decision["decided_by"] != who {
		t.Fatalf("want %s by %s: %v", resolution, who, op)
	}
	return decision
}

// TestProbeDecides: what was lost is found out by itself, from the tool's own journal.
func TestProbeDecides(t *testing.T) {
	t.Parallel()
	s := newProbedSystem(t, "", probedTools)
	x := s.newTenant(t, 1000, anything())
	seen := make(chan http.Header, 100)
	s.tool.answer("payout_status", func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		s.tool.inner.ServeHTTP(w, r)
	})

	acted, vanished := x.lose(t, x.payout("k1"), true), x.lose(t, x.payout("k2"), false)
	decision := s.reconciledBy(t, acted, "probe", "delivered")
	s.reconciledBy(t, vanished, "probe", "not_delivered")
	if evidence := decision.text(t, "evidence"); !strings.Contains(evidence, "payout_status") || !strings.Contains(evidence, `"status":"delivered"`) ||
		!regexp.MustCompile(`at \d{4}-\d\d-\d\dT[0-9:]{8}Z, and said delivered\. SHA-256 of its answer: [0-9a-f]{64}\.`).MatchString(evidence) {
		t.Errorf("the evidence: %s", evidence)
	}
	for _, c := range []struct {
		key, resolution, retry string
		charged                int64
		first                  answer
	}{{"k1", "delivered", "never", payoutPrice, acted}, {"k2", "not_delivered", "new_key", 0, vanished}} {
		a := x.do(t, x.payout(c.key))
		if !a.replayed() || a.meta.Outcome != "reconciled" || a.meta.Resolution != c.resolution || a.meta.Retry != c.retry || *a.meta.Charged != c.charged {
			t.Errorf("%s: %s", c.resolution, a)
		}
		if r := s.receipt(t, a); r.Reconciles == nil || r.Reconciles.Jti != c.first.meta.ReceiptID {
			t.Errorf("%s: the receipt says %+v", c.resolution, r)
		}
		s.verified(t, a, "permit,content")
	}
	want := state{Balance: 995, Available: 995, Spent: 5, Calls: 1, Charges: 2, Receipts: 4, Operations: 2, Effects: 1}
	unchanged(t, "after both decisions", want, x.state(t))

	// The key of what did not act never runs; another does. A further round gives nothing back again.
	x.succeed(t, x.payout("k3"))
	s.reconciledBy(t, x.lose(t, x.payout("k4"), true), "probe", "delivered")
	want = state{Balance: 985, Available: 985, Spent: 15, Calls: 3, Charges: 4, Receipts: 7, Operations: 4, Effects: 3}
	unchanged(t, "after all", want, x.state(t))
	for range len(seen) {
		if h := <-seen; h.Get("Idempotency-Key") != "" {
			t.Error("a question carries an operation key where a call does")
		}
	}
	s.meanwhile(t, x)
	s.keepsKeys(t, x, s.tool.effects(t, ""))
}

// meanwhile lets a person decide while the probe's answer is on its way.
func (s *system) meanwhile(t *testing.T, x tenant) {
	t.Helper()
	asked := s.tool.oracle(t, "payout_status")
	first := x.lose(t, x.payout("k5"), true)
	q := receive(t, asked, "the question")
	s.mustDecide(t, first.meta.Operation, notDelivered())
	q.reply <- says("delivered")
	eventually(t, "the probe's answer", func() bool {
		log := s.first.logged()
		i := strings.LastIndex(log, first.meta.Operation)
		return i >= 0 && strings.Contains(log[i:], `"answer":"delivered"`)
	})
	// What was in the queue after it is decided, so that one would be too.
	next := x.lose(t, x.payout("k6"), true)
	q = receive(t, asked, "the next question")
	q.reply <- fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"structuredContent":{"status":"delivered","of":%[1]q}}`, q.key)
	if decision := s.reconciledBy(t, next, "probe", "delivered"); !strings.Contains(decision.text(t, "evidence"), `"of":"`+next.meta.Operation+`"`) {
		t.Errorf("an echoed key, and the evidence is %v", decision)
	}
	s.reconciledBy(t, first, "reconciler", "not_delivered")
	if strings.Contains(s.first.logged(), "was not recorded") {
		t.Error("the log calls it a fault that a person was faster")
	}
}

// keepsKeys looks for the private keys that the tool got in what agents are shown, in what is kept for ever and in
// what is published.
func (s *system) keepsKeys(t *testing.T, x tenant, effects []effect) {
	t.Helper()
	var shown strings.Builder
	look := func(token, path string) {
		status, data := s.ask(t, s.url, token, http.MethodGet, path, nil)
		if status != http.StatusOK || len(data) < 20 {
			t.Errorf("%s: %d %s", path, status, data)
		}
		shown.Write(data)
	}
	for _, path := range []string{"/v1/audit", "/v1/receipts", "/v1/receipts/export", "/metrics", "/v1/wallets/" + x.wallet + "/transfers"} {
		look(operatorToken, path)
	}
	look(x.key, "/v1/operations")
	evidence := 0
	for _, op := range s.all(t, "/v1/operations", url.Values{}) {
		look(x.key, "/v1/operations/"+op.text(t, "id"))
		if decision, decided := op["reconciliation"].(map[string]any); decided {
			evidence++
			shown.WriteString(object(decision).text(t, "evidence"))
		}
	}
	if evidence < 3 {
		t.Errorf("only %d decisions", evidence)
	}
	for _, e := range effects {
		if len(e.Key) < 20 || strings.Contains(shown.String(), e.Key) {
			t.Errorf("a private key is shown, or is none: %q", e.Key)
		}
		s.secrets = append(s.secrets, e.Key) // which the gateway's log must not show
	}
}

// TestProbeIsAskedAgain: as long as it says nothing it is asked again, later and later; then what it says counts.
func TestProbeIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := newProbedSystem(t, "", probedTools)
	x := s.newTenant(t, 1000, anything())
	asked := s.tool.oracle(t, "payout_status")
	first := x.lose(t, x.payout("k1"), false)
	silence := []string{
		says("unknown"), "", "503", `{"content":[{"type":"text","text":"delivered"}]}`, says("Delivered"),
		`{"content":[],"isError":true,"structuredContent":{"status":"delivered"}}`,
		`{"content":[],"structuredContent":{"status":"not_delivered","status":"unknown"}}`,
		`{"content":[],"structuredContent":{"status":["not_delivered"]}}`,
	}
	var due time.Time
	for i, reply := range silence {
		q := receive(t, asked, "a question")
		item := s.waiting(t)[first.meta.Operation]
		if item == nil || item.number(t, "probes") != int64(i+1) {
			t.Fatalf("question %d: %v", i+1, item)
		}
		next, err := time.Parse(time.RFC3339, item.text(t, "next_probe_at"))
		if err != nil {
			t.Fatal(err)
		}
		if least := time.Duration(min(800, 200<<(i+1))) * time.Millisecond; i > 0 && next.Sub(due) < least-time.Millisecond {
			t.Errorf("try %d is due %s after the one before, want %s at least", i+2, next.Sub(due), least)
		}
		due = next
		q.reply <- reply
	}
	if op := s.operator(t, http.MethodGet, "/v1/operations/"+first.meta.Operation, nil, http.StatusOK); op["state"] != "finished" {
		t.Errorf("decided by what says nothing: %v", op)
	}
	receive(t, asked, "the last question").reply <- says("not_delivered")
	s.reconciledBy(t, first, "probe", "not_delivered")
	_, metrics := s.ask(t, s.url, operatorToken, http.MethodGet, "/metrics", nil)
	for answer, n := range map[string]int{"unknown": 1, "failed": len(silence) - 1, "not_delivered": 1, "delivered": 0} {
		if line := fmt.Sprintf("counterfoil_probes_total{answer=%q,tool=%q} %d\n", answer, "payout", n); !strings.Contains(string(metrics), line) {
			t.Errorf("the metrics do not say %s", line)
		}
	}
	if len(s.waiting(t)) != 0 {
		t.Error("it still waits")
	}
}

// TestProbeThatMayAct: a probe that its upstream does not call read-only is never asked, nor is one whose time is over.
func TestProbeThatMayAct(t *testing.T) {
	t.Parallel()
	s := newProbedSystem(t, "", probedTools+`
  - {name: refund, upstream: payments, upstream_tool: payout, credits: 5, probe: {tool: send_email, argument: to, after: 200ms}}
  - {name: metered, upstream: payments, upstream_tool: payout, credits: 5, probe: {tool: nothing, after: 200ms}}
  - {name: slow, upstream: payments, upstream_tool: payout, credits: 5, probe: {tool: payout_status, after: 200ms, longest: 200ms, give_up: 200ms}}`)
	x := s.newTenant(t, 1000, anything())
	mails, nothings := s.tool.oracle(t, "send_email"), s.tool.oracle(t, `"nothing"`)
	var left []string
	for _, tool := range []string{"refund", "metered", "slow"} {
		c := x.payout(tool)
		c.tool = tool
		left = append(left, x.lose(t, c, true).meta.Operation)
	}
	for _, key := range []string{"k1", "k2"} { // two rounds at least have passed them by
		s.reconciledBy(t, x.lose(t, x.payout(key), true), "probe", "delivered")
	}
	waiting := s.waiting(t)
	for _, id := range left {
		if item := waiting[id]; item == nil || item.number(t, "probes") != 0 {
			t.Errorf("it was asked: %v", item)
		}
	}
	if len(mails)+len(nothings) != 0 || len(waiting) != len(left) {
		t.Errorf("%d and %d questions, %d operations wait", len(mails), len(nothings), len(waiting))
	}
	if n := strings.Count(s.first.logged(), "a probe is not asked"); n < 2 {
		t.Errorf("the log says it %d times", n)
	}
	for _, tool := range s.operator(t, http.MethodGet, "/v1/tools", nil, http.StatusOK).list(t, "items") {
		probe, _ := tool["probe"].(map[string]any)
		if want := slices.Contains([]string{"payout", "slow"}, tool["name"].(string)); probe["read_only"] != want {
			t.Errorf("the catalogue says %v", tool)
		}
	}
}

// TestProbesOfTwoGateways: what one gateway asks the other does not, until it is due again.
func TestProbesOfTwoGateways(t *testing.T) {
	t.Parallel()
	s := newProbedSystem(t, "", strings.NewReplacer("after: 200ms, longest: 800ms", "after: 1s, longest: 20m").Replace(probedTools))
	s.second(t)
	x := s.newTenant(t, 1000, anything())
	asked := s.tool.oracle(t, "payout_status")
	first := x.lose(t, x.payout("k1"), true)
	held := receive(t, asked, "the first question")
	// Who asks waits for its answer, so another must ask this one; it has seen that operation too.
	second := x.lose(t, x.payout("k2"), true)
	q := receive(t, asked, "the second question")
	if q.key == held.key && q.at.Sub(held.at) < time.Second {
		t.Error("one question was asked twice")
	}
	q.reply <- says("delivered")
	held.reply <- says("delivered")
	over := make(chan struct{})
	defer close(over)
	go func() { // on a slow machine what had to wait is due again
		for {
			select {
			case q := <-asked:
				q.reply <- says("delivered")
			case <-over:
				return
			}
		}
	}()
	s.reconciledBy(t, first, "probe", "delivered")
	s.reconciledBy(t, second, "probe", "delivered")
	unchanged(t, "after all", state{Balance: 990, Available: 990, Spent: 10, Calls: 2, Charges: 2, Receipts: 4, Operations: 2, Effects: 2}, x.state(t))
}

// TestProbeAgainstALateAnswer: where the tool's own answer came late and says that it acted, no probe gives the money back.
func TestProbeAgainstALateAnswer(t *testing.T) {
	t.Parallel()
	s := newProbedSystem(t, shortLease, probedTools)
	other, gatewayURL := s.second(t)
	x := s.newTenant(t, 100, anything())
	asked := s.tool.oracle(t, "payout_status")
	answers, release := s.begun(t, x, gatewayURL)
	other.freeze(t)
	first := s.takenOver(t, x)
	q := receive(t, asked, "a question")
	release()
	other.thaw()
	receive(t, answers, "the late gateway's answer")
	eventually(t, "the late result", func() bool {
		op := s.operator(t, http.MethodGet, "/v1/operations/"+first.meta.Operation, nil, http.StatusOK)
		return op["late_result"] != nil
	})
	for range 2 { // either gateway may ask
		q.reply <- says("not_delivered")
		q = receive(t, asked, "another question")
	}
	unchanged(t, "in spite of the probe", state{Balance: 95, Available: 95, Spent: 5, Calls: 1, Charges: 1, Receipts: 1, Operations: 1, Effects: 1}, x.state(t))
	if !strings.Contains(s.first.logged()+other.logged(), "a person has to decide") {
		t.Error("no log says that a person has to decide")
	}
	q.reply <- says("delivered")
	s.reconciledBy(t, first, "probe", "delivered")
}
