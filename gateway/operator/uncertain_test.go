package operator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"counterfoil/ledger"
	"counterfoil/receipts"
)

func TestTheQueueHoldsWhatWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "one")
	b.world(t, "two")
	empty := b.must(t, 200, "GET", "/v1/reconciliations", "")
	nothing := map[string]any{"count": 0.0, "credits": 0.0, "values": []any{}, "oldest_since": nil, "oldest_age_seconds": nil}
	if diff := cmp.Diff(nothing, empty.at("at_risk")); diff != "" || len(empty.items(t, "operation_id")) != 0 {
		t.Errorf("an empty queue: %s", empty.raw)
	}
	b.call(t, "one", "done")
	b.claim(t, "one", "running")
	ids := []string{b.lose(t, "one", "k1"), b.lose(t, "two", "k1"), b.lose(t, "one", "k2")}
	all := b.must(t, 200, "GET", "/v1/reconciliations", "")
	if diff := cmp.Diff(ids, all.items(t, "operation_id")); diff != "" {
		t.Error(diff)
	}
	first := b.must(t, 200, "GET", "/v1/operations/"+ids[0], "")
	want := map[string]any{
		"operation_id": ids[0], "operation_key": first.text(t, "operation_key"), "wallet_id": "wal_one", "agent_id": "agt_one", "permit_id": "prm_one", "tool": "payout", "reason": "no_response",
		"credits_charged": 5.0, "value": map[string]any{"currency": "USD", "amount": 1200.0}, "since": first.text(t, "finished_at"),
		"late_result": false, "probes": 0.0, "next_probe_at": nil,
	}
	if diff := cmp.Diff(want, without(item(all, 0), "age_seconds")); diff != "" {
		t.Error(diff)
	}
	if age, _ := item(all, 0)["age_seconds"].(float64); age > 600 {
		t.Errorf("age %v", age)
	}
	for query, risk := range map[string]map[string]any{
		"":                                {"count": 3.0, "credits": 15.0, "amount": 3600.0, "since": item(all, 0)["since"]},
		"?limit=1":                        {"count": 3.0, "credits": 15.0, "amount": 3600.0, "since": item(all, 0)["since"]},
		"?wallet=wal_two":                 {"count": 1.0, "credits": 5.0, "amount": 1200.0, "since": item(all, 1)["since"]},
		"?wallet=wal_one&after=" + ids[0]: {"count": 2.0, "credits": 10.0, "amount": 2400.0, "since": item(all, 0)["since"]},
	} {
		a := b.must(t, 200, "GET", "/v1/reconciliations"+query, "")
		values, _ := a.at("at_risk", "values").([]any)
		if len(values) != 1 {
			t.Fatalf("%s: %s", query, a.raw)
		}
		got := map[string]any{
			"count": a.at("at_risk", "count"), "credits": a.at("at_risk", "credits"), "since": a.at("at_risk", "oldest_since"),
			"amount": values[0].(map[string]any)["amount"],
		}
		if diff := cmp.Diff(risk, got); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	page := b.must(t, 200, "GET", "/v1/reconciliations?limit=2", "")
	rest := b.must(t, 200, "GET", "/v1/reconciliations?limit=2&after="+page.text(t, "next"), "")
	if got := append(page.items(t, "operation_id"), rest.items(t, "operation_id")...); !cmp.Equal(got, ids) || rest.at("next") != nil {
		t.Errorf("by pages: %v", got)
	}
	for _, query := range []string{"limit=0", "after=wal_1", "state=finished", "wallet="} {
		b.refused(t, 400, "invalid_request", "GET", "/v1/reconciliations?"+query, "")
	}
	b.decide(t, 200, ids[0], notDelivered)
	b.decide(t, 200, ids[1], delivered)
	left := b.must(t, 200, "GET", "/v1/reconciliations", "")
	if diff := cmp.Diff(ids[2:], left.items(t, "operation_id")); diff != "" || left.number(t, "at_risk", "count") != 1 {
		t.Errorf("after two decisions: %s", left.raw)
	}
}

func TestTheQueueShowsAge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "old")
	b.lose(t, "old", "k1")
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		a := b.must(t, 200, "GET", "/v1/reconciliations", "")
		if age, _ := item(a, 0)["age_seconds"].(float64); age >= 1 && a.number(t, "at_risk", "oldest_age_seconds") >= 1 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("it does not age: %s", a.raw)
		}
	}
}

func TestTheReconcilerSeesTheQueueAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	agentKey := b.world(t, "rec")
	id := b.lose(t, "rec", "k1")
	a := b.send(t, request{method: "GET", path: "/v1/reconciliations", token: reconcilerToken})
	if a.status != 200 || !cmp.Equal(a.items(t, "operation_id"), []string{id}) {
		t.Errorf("the queue: %d %s", a.status, a.raw)
	}
	each(b, func(method, path string) {
		path = strings.Replace(path, "any_1", id, 1)
		if path == "/v1/reconciliations" || strings.HasSuffix(path, "/reconcile") {
			return
		}
		if a := b.send(t, request{method: method, path: path, token: reconcilerToken}); a.status != 403 {
			t.Errorf("%s %s: %d", method, path, a.status)
		}
	})
	for what, token := range map[string]string{"the operator": operatorToken, "the approver": approverToken, "an agent": agentKey} {
		if a := b.send(t, request{method: "POST", path: "/v1/operations/" + id + "/reconcile", token: token, body: notDelivered}); a.status != 403 {
			t.Errorf("%s decides: %d %s", what, a.status, a.raw)
		}
	}
	for what, token := range map[string]string{"the approver": approverToken, "an agent": agentKey} {
		if a := b.send(t, request{method: "GET", path: "/v1/reconciliations", token: token}); a.status != 403 {
			t.Errorf("%s sees the queue: %d %s", what, a.status, a.raw)
		}
	}
}

// claimRef takes a call with a reference through T1.
func (b *bundle) claimRef(t testing.TB, name, key, ref string) ledger.Claimed {
	t.Helper()
	return *b.claimAs(t, "prm_"+name, name, key, ref)
}

func TestAReferenceIsReleasedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "ref")
	first := b.claimRef(t, "ref", "k1", "INV-7").Granted
	_, err := b.ledger.Settle(context.Background(), &ledger.Settlement{
		Granted: first, Outcome: receipts.Succeeded, Charged: 5, KeepCall: true, KeepValue: true, Result: []byte(`{"content":[]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	second := b.claimRef(t, "ref", "k2", "INV-7").Denied
	if second == nil {
		t.Fatal("the invoice is paid twice")
	}
	if a := b.must(t, 200, "GET", "/v1/receipts/"+second.ReceiptID, ""); a.text(t, "receipt", "detail", "operation_id") != first.ID {
		t.Errorf("the denial's receipt: %s", a.raw)
	}
	path := "/v1/operations/" + first.ID
	if a := b.must(t, 200, "GET", path, ""); a.text(t, "operation_ref") != "INV-7" || a.at("operation_ref_held") != true {
		t.Errorf("the first: %s", a.raw)
	}
	if a := b.must(t, 200, "GET", "/v1/operations/"+second.ID, ""); a.text(t, "operation_ref") != "INV-7" || a.at("operation_ref_held") != false {
		t.Errorf("the second: %s", a.raw)
	}
	for _, body := range []string{``, `{"why":""}`, `{"why":" "}`, `{"why":"a\nb"}`, `{"why":"w","note":"n"}`, `{"why":"` + strings.Repeat("x", 1001) + `"}`} {
		b.refused(t, 400, "invalid_request", "POST", path+"/release-reference", body)
	}
	b.refused(t, 404, "not_found", "POST", "/v1/operations/op_none/release-reference", `{"why":"w"}`)
	b.refused(t, 409, "conflict", "POST", "/v1/operations/"+second.ID+"/release-reference", `{"why":"w"}`)
	why := `{"why":"the vendor sent the money back"}`
	done := b.must(t, 200, "POST", path+"/release-reference", why, "Idempotency-Key", "r-1")
	if done.at("operation_ref_held") != false || done.text(t, "operation_ref") != "INV-7" || done.text(t, "outcome") != "succeeded" {
		t.Errorf("released: %s", done.raw)
	}
	again := b.must(t, 200, "POST", path+"/release-reference", why, "Idempotency-Key", "r-1")
	if again.header.Get("Idempotent-Replayed") != "true" || string(again.raw) != string(done.raw) {
		t.Errorf("again: %v %s", again.header, again.raw)
	}
	a := b.refused(t, 409, "conflict", "POST", path+"/release-reference", why)
	if !strings.Contains(a.text(t, "detail"), "holds no reference") {
		t.Errorf("%s", a.raw)
	}
	event := item(b.must(t, 200, "GET", "/v1/audit", ""), -1)
	want := map[string]any{"wallet_id": "wal_ref", "tool": "payout", "reference": "INV-7", "why": "the vendor sent the money back"}
	if event["action"] != "operation.reference_released" || event["subject"] != first.ID || event["actor"] != "operator" || !cmp.Equal(event["detail"], any(want)) {
		t.Errorf("event %v", event)
	}
	third := b.claimRef(t, "ref", "k3", "INV-7")
	if third.Granted == nil {
		t.Errorf("after the release: %+v", third.Denied)
	}
}
