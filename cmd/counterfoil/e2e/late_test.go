package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/internal/testdb"
)

// lateCall is a call whose gateway stands still while the tool's answer waits for it. Another gateway has
// settled it as uncertain.
type lateCall struct {
	x     tenant
	first answer
	said  []byte        // what the tool answers, once it is let go
	ended <-chan answer // of the gateway that stood still
}

// late is a system whose second gateway stands still with so many calls.
type late struct {
	s       *system
	other   *process
	calls   []*lateCall
	release func()
}

func newLate(t *testing.T, n int) *late {
	t.Helper()
	l := &late{s: newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), shortLease)}
	gate := make(chan struct{})
	l.release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(l.release)
	var url string
	l.other, url = l.s.second(t)
	for range n {
		x := l.s.newTenant(t, 100, anything())
		said, ended := make(chan []byte, 1), make(chan answer, 1)
		l.s.tool.answer(x.marker(), func(w http.ResponseWriter, r *http.Request) {
			recorded := httptest.NewRecorder()
			l.s.tool.inner.ServeHTTP(recorded, r)
			said <- recorded.Body.Bytes()
			<-gate
			for name, values := range recorded.Header() {
				w.Header()[name] = values
			}
			_, _ = w.Write(recorded.Body.Bytes())
		})
		go func() {
			a, _ := x.try(url, x.payout("invoice-1"))
			ended <- a
		}()
		l.calls = append(l.calls, &lateCall{x: x, said: receive(t, said, "the effect"), ended: ended})
	}
	l.other.freeze(t)
	for _, c := range l.calls {
		c.first = l.s.takenOver(t, c.x)
	}
	return l
}

// thaw lets the tool's answers go, and the gateway that waits for them.
func (l *late) thaw() {
	l.release()
	l.other.thaw()
}

// result waits for the answer that came too late.
func (l *late) result(t *testing.T, c *lateCall) object {
	t.Helper()
	var result object
	eventually(t, "the late result", func() bool {
		op := l.s.operator(t, http.MethodGet, "/v1/operations/"+c.first.meta.Operation, nil, http.StatusOK)
		result, _ = op["late_result"].(map[string]any)
		return result != nil
	})
	if result["outcome"] != "succeeded" {
		t.Errorf("the evidence: %v", result)
	}
	return result
}

// saidThis wants each member of a result to be one of the tool's, byte for byte. What belongs to the protocol between
// gateway and tool is not kept.
func (c *lateCall) saidThis(t *testing.T, result []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(result, &members); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"content", "structuredContent"} {
		if len(members[name]) == 0 || !bytes.Contains(c.said, fmt.Appendf(nil, "%q:%s", name, members[name])) {
			t.Errorf("the tool said %s\nand the answer is %s", c.said, result)
		}
	}
	if len(members) != 2 {
		t.Errorf("the answer has other members: %s", result)
	}
}

// contentOf is the result that a receipt's bundle holds.
func (s *system) contentOf(t *testing.T, receipt string) []byte {
	t.Helper()
	var bundle struct {
		Content struct {
			Result string `json:"result_b64"`
		}
	}
	raw := s.download(t, "/v1/receipts/"+receipt+"/bundle", "application/vnd.counterfoil.bundle+json")
	if err := json.Unmarshal(raw, &bundle); err != nil {
		t.Fatal(err)
	}
	result, err := base64.StdEncoding.DecodeString(bundle.Content.Result)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// TestTheLateAnswerIsTheAnswer: where the tool's answer came before the decision that it acted, a repeat gets it,
// byte for byte.
func TestTheLateAnswerIsTheAnswer(t *testing.T) {
	t.Parallel()
	l := newLate(t, 2)
	l.thaw()
	for i, body := range []object{delivered(), notDelivered()} {
		c := l.calls[i]
		result := l.result(t, c)
		queue := l.s.operator(t, http.MethodGet, "/v1/reconciliations?wallet="+c.x.wallet, nil, http.StatusOK).list(t, "items")
		if len(queue) != 1 || queue[0]["late_result"] != true || queue[0]["operation_id"] != c.first.meta.Operation {
			t.Errorf("the queue: %v", queue)
		}
		a := c.x.decided(t, c.x.payout("invoice-1"), c.first, l.s.mustDecide(t, c.first.meta.Operation, body))
		content := l.s.contentOf(t, a.meta.ReceiptID)
		if body["resolution"] == "not_delivered" {
			// The reconciler's word stands, whatever the evidence says; a result that says "paid" would mislead.
			if bytes.Contains(content, []byte("paid")) || !a.isError || a.meta.Retry != "new_key" {
				t.Errorf("the repeat says %s", a)
			}
			continue
		}
		c.saidThis(t, content)
		if sum(content) != result["sha256"] {
			t.Errorf("the answer is not the evidence %v: %s", result, content)
		}
		if a.isError || len(a.text) != 1 || !strings.Contains(a.text[0], "paid 1200 to "+c.x.marker()) || a.meta.Retry != "never" || *a.meta.Charged != payoutPrice {
			t.Errorf("the repeat says %s", a)
		}
	}
}

// TestReconcilersRaceLateAnswers: a gateway that stood still wakes up with the tool's answers while somebody decides.
// Whoever is first: one decision for each call, and the answer is kept as evidence.
func TestReconcilersRaceLateAnswers(t *testing.T) {
	t.Parallel()
	l := newLate(t, 8)
	decisions := make([]object, len(l.calls))
	var deciding sync.WaitGroup
	l.thaw()
	for i, c := range l.calls {
		deciding.Go(func() {
			<-time.After(time.Duration(i/2) * 4 * time.Millisecond) // so that some come before the late answer, some after
			status, data := l.s.decide(t, l.s.url, c.first.meta.Operation, []object{delivered(), notDelivered()}[i%2])
			if status != http.StatusOK {
				t.Errorf("decide: %d %s", status, data)
				return
			}
			decisions[i] = decodeObject(t, data)
		})
	}
	deciding.Wait()
	after := 0
	for i, c := range l.calls {
		if decisions[i] == nil {
			continue
		}
		a := c.x.decided(t, c.x.payout("invoice-1"), c.first, decisions[i])
		result := l.result(t, c)
		if own := receive(t, c.ended, "the answer of the gateway that stood still"); own.meta.Outcome == "succeeded" {
			t.Errorf("a second outcome: %s", own)
		}
		if b := c.x.do(t, c.x.payout("invoice-1")); !bytes.Equal(a.result, b.result) {
			t.Errorf("another answer: %s", b)
		}
		if sum(l.s.contentOf(t, a.meta.ReceiptID)) == result["sha256"] {
			after++
			if decisions[i]["resolution"] != "delivered" {
				t.Errorf("what was not delivered is answered %s", a)
			}
		} else if !strings.Contains(a.text[0], "has been found out") {
			t.Errorf("the repeat says %s", a)
		}
		charged := decisions[i].number(t, "credits_charged")
		if st := c.x.state(t); st.Receipts != 2 || st.Effects != 1 || st.Balance != 100-charged || st.Spent != charged || st.Open != 0 {
			t.Errorf("after all: %+v", st)
		}
	}
	t.Logf("the late answer was there before %d of %d decisions that it was delivered", after, len(l.calls)/2)
}
