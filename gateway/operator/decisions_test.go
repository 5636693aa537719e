package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/ledger"
	"counterfoil/receipts"
)

// lose makes a payout of 12.00 USD for 5 credits whose answer was lost; it returns the operation's id.
func (b *bundle) lose(t testing.TB, name, key string) string {
	t.Helper()
	claimed := b.claim(t, name, key)
	if claimed.Granted == nil {
		t.Fatalf("claim %s was not granted: %+v", key, claimed)
	}
	_, err := b.ledger.Settle(context.Background(), &ledger.Settlement{
		Granted: claimed.Granted, Outcome: receipts.Uncertain, Reason: receipts.ReasonNoResponse, Charged: 5,
		KeepCall: true, KeepValue: true, Result: []byte(`{"content":[],"isError":true}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return claimed.Granted.ID
}

// decide sends a decision as the reconciler and wants a status.
func (b *bundle) decide(t testing.TB, status int, operation, body string, header ...string) answer {
	t.Helper()
	a := b.send(t, request{method: "POST", path: "/v1/operations/" + operation + "/reconcile", token: reconcilerToken, body: body, header: header})
	if a.status != status {
		t.Fatalf("decide %s: %d, want %d: %s", body, a.status, status, a.raw)
	}
	return a
}

const (
	notDelivered = `{"resolution":"not_delivered","evidence":"The bank's list of 3 May\nholds no such payment."}`
	delivered    = `{"resolution":"delivered","evidence":"It is on the bank's list.","provider_reference":"po_77"}`
)

func TestADecisionGivesBackAndIsShown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body, resolution      string
		reference             any
		charged, calls, value int64
	}{
		"not delivered":           {notDelivered, "not_delivered", nil, 0, 0, 0},
		"not delivered, no price": {strings.Replace(notDelivered, `{`, `{"credits_charged":0,"provider_reference":"case 4",`, 1), "not_delivered", "case 4", 0, 0, 0},
		"delivered":               {delivered, "delivered", "po_77", 5, 1, 1200},
		"delivered for less":      {strings.Replace(delivered, `{`, `{"credits_charged":2,`, 1), "delivered", "po_77", 2, 1, 1200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			agentKey := b.world(t, "dec")
			id := b.lose(t, "dec", "k1")
			before := b.must(t, 200, "GET", "/v1/operations/"+id, "")
			operationKey := before.text(t, "operation_key")
			if len(operationKey) < 40 {
				t.Errorf("the operator does not see the operation key: %s", before.raw)
			}
			first := before.text(t, "receipt_id")
			if before.at("reconciliation") != nil || before.at("resolution") != nil || before.text(t, "value", "currency") != "USD" || before.number(t, "value", "amount") != 1200 {
				t.Errorf("before: %s", before.raw)
			}
			a := b.decide(t, 200, id, tt.body)
			claims, _, err := receipts.Parse(a.text(t, "receipt"), b.keyring.Public())
			if err != nil {
				t.Fatal(err)
			}
			if claims.ID != a.text(t, "receipt_id") || claims.ID == first || claims.Reconciles.ID != first || claims.Charged != tt.charged {
				t.Errorf("receipt of the decision: %+v", claims)
			}
			if a.header.Get("Idempotent-Replayed") != "" {
				t.Error("a decision says that it is a repeat")
			}
			want := map[string]any{
				"state": "reconciled", "outcome": "reconciled", "resolution": tt.resolution, "reason": "no_response", "credits_charged": float64(tt.charged),
				"credits_held": 0.0, "idempotency_key": "k1", "operation_ref": nil, "operation_ref_held": false, "late_result": nil,
				"value": map[string]any{"currency": "USD", "amount": 1200.0},
				"reconciliation": map[string]any{
					"resolution": tt.resolution, "evidence": evidenceOf(t, tt.body), "provider_reference": tt.reference, "charged_before": 5.0,
					"decided_by": "reconciler", "decided_at": a.at("finished_at"), "first_receipt_id": first,
				},
			}
			if diff := cmp.Diff(want, only(a.json, want)); diff != "" {
				t.Error(diff)
			}
			shown := b.must(t, 200, "GET", "/v1/operations/"+id, "")
			if diff := cmp.Diff(without(a.json, "receipt"), shown.json); diff != "" {
				t.Errorf("what was answered (-) and what is shown (+):\n%s", diff)
			}
			b.afterDecision(t, tt.charged, tt.calls, tt.value)
			mine := b.send(t, request{method: "GET", path: "/v1/operations?state=reconciled", token: agentKey})
			if got := mine.items(t, "id"); !cmp.Equal(got, []string{id}) {
				t.Errorf("the agent lists %v", got)
			}
			for _, secret := range []string{"evidence", "the bank's list", "decided_by", "reconciler\"", operationKey} {
				if strings.Contains(string(mine.raw), secret) {
					t.Errorf("the agent sees %s: %s", secret, mine.raw)
				}
			}
			if !strings.Contains(string(mine.raw), `"charged_before":5`) {
				t.Errorf("the agent does not see the decision: %s", mine.raw)
			}
		})
	}
}

func evidenceOf(t *testing.T, body string) string {
	t.Helper()
	var sent struct{ Evidence string }
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Fatal(err)
	}
	return sent.Evidence
}

// only keeps the members of a that want has.
func only(a, want map[string]any) map[string]any {
	out := map[string]any{}
	for name := range want {
		if v, ok := a[name]; ok {
			out[name] = v
		}
	}
	return out
}

func without(a map[string]any, member string) map[string]any {
	out := map[string]any{}
	for name, v := range a {
		if name != member {
			out[name] = v
		}
	}
	return out
}

// afterDecision checks wallet, permit, transfers and audit after the one decision about the one call.
func (b *bundle) afterDecision(t *testing.T, charged, calls, value int64) {
	t.Helper()
	w := b.must(t, 200, "GET", "/v1/wallets/wal_dec", "")
	p := b.must(t, 200, "GET", "/v1/permits/prm_dec", "")
	got := []int64{
		w.number(t, "balance"), w.number(t, "available"), p.number(t, "usage", "credits_spent"), p.number(t, "usage", "calls_total"),
		p.number(t, "usage", "value_spent"), p.number(t, "remaining", "credits"), p.number(t, "remaining", "calls", "payout"),
	}
	want := []int64{100 - charged, 100 - charged, charged, calls, value, 50 - charged, 8 - calls}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wallet and permit: %s", diff)
	}
	kinds := []string{"deposit", "charge"}
	if charged < 5 {
		kinds = append(kinds, "reversal")
	}
	transfers := b.must(t, 200, "GET", "/v1/wallets/wal_dec/transfers", "")
	if diff := cmp.Diff(kinds, transfers.items(t, "kind")); diff != "" {
		t.Errorf("transfers: %s", diff)
	}
	acts := b.must(t, 200, "GET", "/v1/audit", "")
	if last := item(transfers, -1); charged < 5 && (last["operation_id"] != item(acts, -1)["subject"] || last["credits"] != float64(5-charged) || last["debit"] != "revenue" || last["credit"] != "wal_dec") {
		t.Errorf("reversal %v", last)
	}
	names := acts.items(t, "action")
	if diff := cmp.Diff([]string{"call.delivery_uncertain", "call.reconciled", "operation.reconciled"}, names[len(names)-3:]); diff != "" {
		t.Errorf("audit: %s", diff)
	}
	outcome, act := item(acts, -2), item(acts, -1)
	detail, _ := outcome["detail"].(map[string]any)
	told, _ := act["detail"].(map[string]any)
	if act["actor"] != "reconciler" || told["credits_charged"] != float64(charged) || told["receipt_id"] != detail["receipt_id"] || act["subject"] != outcome["subject"] {
		t.Errorf("events %v, %v", outcome, act)
	}
	if detail["charged_before"] != 5.0 || detail["credits_charged"] != float64(charged) || detail["resolution"] == nil || detail["reconciles"] == nil {
		t.Errorf("the outcome's event %v", outcome)
	}
}

// item is one item of a list; -1 is the last.
func item(a answer, i int) map[string]any {
	items, _ := a.json["items"].([]any)
	if i < 0 {
		i += len(items)
	}
	one, _ := items[i].(map[string]any)
	return one
}

func TestARepeatedDecisionIsTheStoredOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "rep")
	id := b.lose(t, "rep", "k1")
	body := strings.Replace(delivered, `{`, `{"credits_charged":2,`, 1)
	first := b.decide(t, 200, id, body, "Idempotency-Key", "d-1")
	for what, header := range map[string][]string{"with its key": {"Idempotency-Key", "d-1"}, "with another key": {"Idempotency-Key", "d-2"}, "without": nil} {
		again := b.decide(t, 200, id, strings.Replace(body, `{`, `{ `, 1), header...)
		if string(again.raw) != string(first.raw) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %v %s", what, again.header, again.raw)
		}
	}
	b.decide(t, 422, id, delivered, "Idempotency-Key", "d-1")
	for what, other := range map[string]string{
		"other credits":    delivered,
		"other resolution": notDelivered,
		"other evidence":   strings.Replace(body, "It is", "It was", 1),
		"other reference":  strings.Replace(body, "po_77", "po_78", 1),
	} {
		a := b.decide(t, 409, id, other)
		words := a.text(t, "detail")
		for _, part := range []string{"delivered", "2 of 5 credits", first.text(t, "receipt_id"), "reconciler"} {
			if a.text(t, "reason") != "conflict" || !strings.Contains(words, part) {
				t.Errorf("%s: %q is not in %s", what, part, a.raw)
			}
		}
	}
	free := strings.Replace(delivered, `{`, `{"credits_charged":0,`, 1)
	gift := b.lose(t, "rep", "k2")
	b.decide(t, 200, gift, free)
	b.decide(t, 409, gift, strings.Replace(free, `"delivered"`, `"not_delivered"`, 1)) // the money would be the same
	if n := len(b.must(t, 200, "GET", "/v1/receipts", "").items(t, "id")); n != 4 {
		t.Errorf("%d receipts", n)
	}
	if got := b.must(t, 200, "GET", "/v1/wallets/wal_rep", "").number(t, "balance"); got != 98 {
		t.Errorf("balance %d", got)
	}
}

func TestWhatCannotBeDecided(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "not")
	running, done, id := b.claim(t, "not", "running").Granted.ID, b.call(t, "not", "done").ID, b.lose(t, "not", "lost")
	for what, tt := range map[string]struct {
		operation, body string
		status          int
		reason, words   string
	}{
		"one that runs":         {running, delivered, 409, "conflict", "still running: wait"},
		"one that succeeded":    {done, notDelivered, 409, "conflict", "its outcome is succeeded"},
		"none":                  {"op_01890000-0000-7000-8000-000000000000", delivered, 404, "not_found", ""},
		"no operation's id":     {"rcp_1", delivered, 404, "not_found", ""},
		"more than was charged": {id, strings.Replace(delivered, `{`, `{"credits_charged":6,`, 1), 400, "invalid_request", "at most the 5 credits"},
		"a price for nothing":   {id, strings.Replace(notDelivered, `{`, `{"credits_charged":1,`, 1), 400, "invalid_request", "must be 0 or absent"},
	} {
		a := b.decide(t, tt.status, tt.operation, tt.body)
		if a.text(t, "reason") != tt.reason || !strings.Contains(a.text(t, "detail"), tt.words) {
			t.Errorf("%s: %s", what, a.raw)
		}
	}
	long := func(n int) string { return strings.Repeat("é", n) }
	for what, body := range map[string]string{
		"no body":                    ``,
		"no resolution":              `{"evidence":"e"}`,
		"another resolution":         `{"resolution":"unknown","evidence":"e"}`,
		"no evidence":                `{"resolution":"not_delivered"}`,
		"empty evidence":             `{"resolution":"not_delivered","evidence":""}`,
		"blank evidence":             `{"resolution":"not_delivered","evidence":" \n\t "}`,
		"evidence of a NUL":          `{"resolution":"not_delivered","evidence":"a\u0000b"}`,
		"too long evidence":          `{"resolution":"not_delivered","evidence":"` + long(16385) + `"}`,
		"delivered, no reference":    `{"resolution":"delivered","evidence":"e"}`,
		"delivered, empty reference": `{"resolution":"delivered","evidence":"e","provider_reference":""}`,
		"blank reference":            `{"resolution":"delivered","evidence":"e","provider_reference":"  "}`,
		"reference of two lines":     `{"resolution":"delivered","evidence":"e","provider_reference":"a\nb"}`,
		"too long reference":         `{"resolution":"delivered","evidence":"e","provider_reference":"` + long(257) + `"}`,
		"unknown member":             `{"resolution":"not_delivered","evidence":"e","note":"n"}`,
		"a member twice":             `{"resolution":"not_delivered","resolution":"delivered","evidence":"e","provider_reference":"r"}`,
		"credits as a fraction":      `{"resolution":"delivered","evidence":"e","provider_reference":"r","credits_charged":5.0}`,
		"credits as a power":         `{"resolution":"delivered","evidence":"e","provider_reference":"r","credits_charged":5e0}`,
		"credits as a text":          `{"resolution":"delivered","evidence":"e","provider_reference":"r","credits_charged":"5"}`,
		"credits below nothing":      `{"resolution":"delivered","evidence":"e","provider_reference":"r","credits_charged":-1}`,
		"credits beyond all":         `{"resolution":"delivered","evidence":"e","provider_reference":"r","credits_charged":9007199254740992}`,
	} {
		if a := b.decide(t, 400, id, body); a.text(t, "reason") != "invalid_request" {
			t.Errorf("%s: %s", what, a.raw)
		}
	}
	if a := b.must(t, 200, "GET", "/v1/operations/"+id, ""); a.text(t, "state") != "finished" || a.number(t, "credits_charged") != 5 {
		t.Errorf("something was decided: %s", a.raw)
	}
	b.decide(t, 200, id, `{"resolution":"not_delivered","evidence":"`+long(16384)+`","provider_reference":"`+long(256)+`"}`)
}

func TestReconcilersRaceToOneDecision(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "race")
	id := b.lose(t, "race", "k1")
	answers := make([]answer, 24)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			r := request{method: "POST", path: "/v1/operations/" + id + "/reconcile", token: reconcilerToken, body: []string{delivered, notDelivered}[i%2]}
			if i%3 == 0 {
				r.header = []string{"Idempotency-Key", fmt.Sprint("d-", i%2)}
			}
			answers[i] = b.send(t, r)
		})
	}
	all.Wait()
	decision, fresh := "", 0
	for _, a := range answers {
		switch {
		case a.status == 409:
			continue
		case a.status != 200:
			t.Errorf("%d %s", a.status, a.raw)
		case decision == "":
			decision = string(a.raw)
		case decision != string(a.raw):
			t.Errorf("two decisions: %s and %s", decision, a.raw)
		}
		if a.header.Get("Idempotent-Replayed") == "" {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d fresh decisions", fresh)
	}
	if n := len(b.must(t, 200, "GET", "/v1/receipts", "").items(t, "id")); n != 2 {
		t.Errorf("%d receipts", n)
	}
}
