package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// speechless breaks off each connection that is answered by it; what acts has acted by then.
func (up *tool) speechless(acts bool) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		if acts {
			up.inner.ServeHTTP(httptest.NewRecorder(), r)
		}
		panic(http.ErrAbortHandler)
	}
}

// lose makes a call whose answer is lost.
func (x tenant) lose(t *testing.T, c call, acts bool) answer {
	t.Helper()
	x.s.tool.answer(x.marker(), x.s.tool.speechless(acts))
	defer x.s.tool.answer(x.marker(), nil)
	a := x.do(t, c)
	if a.meta.Outcome != "delivery_uncertain" || a.meta.Retry != "check" || *a.meta.Charged != payoutPrice || a.replayed() {
		t.Fatalf("the answer was not lost: %s", a)
	}
	return a
}

// decide sends a decision to a gateway as the reconciler.
func (s *system) decide(t *testing.T, base, operation string, body object) (status int, data []byte) {
	t.Helper()
	return s.ask(t, base, reconcilerToken, http.MethodPost, "/v1/operations/"+operation+"/reconcile", body)
}

func (s *system) mustDecide(t *testing.T, operation string, body object) object {
	t.Helper()
	status, data := s.decide(t, s.url, operation, body)
	if status != http.StatusOK {
		t.Fatalf("decide %v: %d %s", body, status, data)
	}
	return decodeObject(t, data)
}

func notDelivered() object {
	return object{"resolution": "not_delivered", "evidence": "not on the bank's list of 3 May"}
}

func delivered() object {
	return object{"resolution": "delivered", "evidence": "on the bank's list of 3 May", "provider_reference": "po_77"}
}

// decided wants a repeat of a call to tell the decision about it.
func (x tenant) decided(t *testing.T, c call, first answer, decision object) answer {
	t.Helper()
	a := x.do(t, c)
	m := a.meta
	if !a.replayed() || m.Outcome != "reconciled" || m.Resolution != decision["resolution"] || m.Operation != first.meta.Operation || m.ReceiptID == first.meta.ReceiptID ||
		m.ReceiptID != decision["receipt_id"] || m.Receipt != decision["receipt"] || *m.Charged != decision.number(t, "credits_charged") {
		t.Errorf("after the decision %v\nthe repeat says %s", decision, a)
	}
	r := x.s.receipt(t, a)
	if r.Reconciles == nil || r.Reconciles.Jti != first.meta.ReceiptID || r.Reconciles.Resolution != decision["resolution"] || r.Reconciles.ChargedBefore != payoutPrice ||
		r.Reconciles.EvidenceSHA256 != evidenceSum(t, decision) {
		t.Errorf("the receipt of the decision says %+v", r.Reconciles)
	}
	x.s.verified(t, first, "permit,content")
	x.s.verified(t, a, "permit,content")
	return a
}

// evidenceSum makes the hash of the evidence anew, as docs/format.md says.
func evidenceSum(t *testing.T, decision object) string {
	t.Helper()
	r, _ := decision["reconciliation"].(map[string]any)
	reference, _ := r["provider_reference"].(string)
	text, err := json.Marshal(object{"evidence": r["evidence"], "provider_reference": reference})
	if err != nil {
		t.Fatal(err)
	}
	return sum(text)
}

func TestReconciled(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for name, check := range map[string]func(*testing.T, *system){
		"not delivered":         reconciledNotDelivered,
		"delivered":             func(t *testing.T, s *system) { reconciledDelivered(t, s, delivered(), payoutPrice) },
		"delivered for less":    func(t *testing.T, s *system) { reconciledDelivered(t, s, priced(2), 2) },
		"delivered for nothing": func(t *testing.T, s *system) { reconciledDelivered(t, s, priced(0), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, s)
		})
	}
}

func priced(credits int64) object {
	d := delivered()
	d["credits_charged"] = credits
	return d
}

// reconciledNotDelivered: everything comes back, a spent permit admits one call more, and the old key never runs.
func reconciledNotDelivered(t *testing.T, s *system) {
	x := s.newTenant(t, 5, object{"tools": []string{"payout"}, "limits": object{
		"credits": payoutPrice, "calls_total": 1, "value": object{"currency": "USD", "total": 1200},
	}})
	c := x.payout("invoice-1")
	first := x.lose(t, c, false)
	if again := x.do(t, c); !again.replayed() || !bytes.Equal(again.result, first.result) {
		t.Errorf("before the decision: %s", again)
	}
	if a := x.do(t, x.payout("invoice-2")); a.meta.Outcome != "denied" {
		t.Fatalf("the permit is not spent: %s", a)
	}
	decision := s.mustDecide(t, first.meta.Operation, notDelivered())
	a := x.decided(t, c, first, decision)
	if a.meta.Retry != "new_key" || *a.meta.Charged != 0 || !a.isError || len(a.text) != 1 || !strings.Contains(a.text[0], "did not act") {
		t.Errorf("the repeat says %s", a)
	}
	want := state{Balance: 5, Available: 5, Charges: 1, Receipts: 3, Operations: 2}
	unchanged(t, "after the decision", want, x.state(t))
	x.succeed(t, x.payout("invoice-3"))
	if a := x.do(t, x.payout("invoice-4")); a.meta.Outcome != "denied" {
		t.Errorf("one call too many: %s", a)
	}
	if b := x.do(t, c); !b.replayed() || !bytes.Equal(b.result, a.result) {
		t.Errorf("another answer: %s", b)
	}
	want = state{Spent: 5, Calls: 1, Value: 1200, Charges: 2, Receipts: 5, Operations: 4, Effects: 1}
	unchanged(t, "after all", want, x.state(t))
}

// reconciledDelivered: the call and its value stay used, and what the reconciler says it cost is charged.
func reconciledDelivered(t *testing.T, s *system, body object, charged int64) {
	x := s.newTenant(t, 100, object{"tools": []string{"payout"}, "limits": object{
		"credits": 50, "value": object{"currency": "USD", "total": 5000},
	}})
	c := x.payout("invoice-1")
	first := x.lose(t, c, true)
	decision := s.mustDecide(t, first.meta.Operation, body)
	a := x.decided(t, c, first, decision)
	if a.meta.Retry != "never" || *a.meta.Charged != charged || !a.isError || len(a.text) != 1 || !strings.Contains(a.text[0], "did act") {
		t.Errorf("the repeat says %s", a)
	}
	want := state{
		Balance: 100 - charged, Available: 100 - charged, Spent: charged, Calls: 1, Value: 1200, Charges: 1, Receipts: 2, Operations: 1, Effects: 1,
	}
	unchanged(t, "after the decision", want, x.state(t))
	status, data := s.decide(t, s.url, first.meta.Operation, notDelivered())
	if status != http.StatusConflict || !strings.Contains(string(data), a.meta.ReceiptID) {
		t.Errorf("another decision: %d %s", status, data)
	}
	unchanged(t, "after another decision", want, x.state(t))
	for _, transfer := range s.all(t, "/v1/wallets/"+x.wallet+"/transfers", url.Values{}) {
		if transfer["kind"] == "reversal" && transfer.number(t, "credits") != payoutPrice-charged {
			t.Errorf("given back: %v", transfer)
		}
	}
}

// TestReconcilersRace: many who disagree, at two gateways, make one decision, which each of them is then told.
func TestReconcilersRace(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	_, other := s.second(t)
	x := s.newTenant(t, 100, anything())
	c := x.payout("invoice-1")
	first := x.lose(t, c, true)
	bodies := []object{notDelivered(), delivered(), priced(2), {"resolution": "delivered", "evidence": "a rumour", "provider_reference": "po_77"}}
	type told struct {
		status int
		data   string
		body   int
	}
	all := make([]told, 32)
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() {
			status, data := s.decide(t, []string{s.url, other}[i/len(bodies)%2], first.meta.Operation, bodies[i%len(bodies)])
			all[i] = told{status, string(data), i % len(bodies)}
		})
	}
	wait.Wait()
	winner := slices.IndexFunc(all, func(a told) bool { return a.status == http.StatusOK })
	if winner < 0 {
		t.Fatalf("nobody decided: %v", all)
	}
	decision := decodeObject(t, []byte(all[winner].data))
	for _, a := range all {
		same := a.body == all[winner].body
		if same && (a.status != http.StatusOK || a.data != all[winner].data) ||
			!same && (a.status != http.StatusConflict || !strings.Contains(a.data, decision.text(t, "receipt_id"))) {
			t.Errorf("%v was told %d %s", bodies[a.body], a.status, a.data)
		}
	}
	x.decided(t, c, first, decision)
	charged := decision.number(t, "credits_charged")
	st := x.state(t)
	if st.Balance != 100-charged || st.Spent != charged || st.Receipts != 2 || st.Effects != 1 {
		t.Errorf("after the race: %+v", st)
	}
}
