package ledger_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// What is due is picked once, by whoever comes first; it is due again later and later, and not for ever.
func TestDueProbesArePickedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 10_000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 10_000})
	const lost = 40
	keys := map[string]string{}
	for i := range lost {
		g := b.lose(t, p, fmt.Sprint("k", i))
		keys[g.ID] = g.OperationKey
	}
	pay(t, b.ledger, p, "paid")
	ledgers := []*ledger.Ledger{b.ledger, b.open(t)}
	ctx := context.Background()
	pick := func(plan ledger.ProbePlan) map[string]ledger.Probe {
		t.Helper()
		var mu sync.Mutex
		got := map[string]ledger.Probe{}
		race(8, func(i int) {
			list, err := ledgers[i%2].DueProbes(ctx, []ledger.ProbePlan{{Tool: "other", GiveUp: time.Hour}, plan}, 10)
			if err != nil || len(list) > 10 {
				t.Errorf("%d probes, %v", len(list), err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, q := range list {
				if _, twice := got[q.Operation]; twice || q.OperationKey != keys[q.Operation] || q.Tool != "payout" {
					t.Errorf("twice %v: %+v", twice, q)
				}
				got[q.Operation] = q
			}
		})
		return got
	}
	hour := ledger.ProbePlan{Tool: "payout", First: time.Hour, Longest: time.Hour, GiveUp: 24 * time.Hour}
	if n := len(pick(hour)); n != 0 {
		t.Errorf("%d are due an hour early", n)
	}
	over := ledger.ProbePlan{Tool: "payout", First: 0, Longest: time.Hour, GiveUp: time.Nanosecond}
	if n := len(pick(over)); n != 0 {
		t.Errorf("%d are due although their time is over", n)
	}
	minute := ledger.ProbePlan{Tool: "payout", First: 30 * time.Second, Longest: 100 * time.Second, GiveUp: 24 * time.Hour}
	b.exec(t, "update uncertain set since_ms = since_ms - 31000")
	first := map[string]ledger.Probe{}
	for range 10 { // whoever meets another's rows leaves them
		for id, q := range pick(minute) {
			if _, twice := first[id]; twice || q.Tries != 1 {
				t.Errorf("picked twice: %+v", q)
			}
			first[id] = q
		}
	}
	if len(first) != lost {
		t.Errorf("%d of %d were picked", len(first), lost)
	}
	b.due(t, p, 60*time.Second) // twice the first wait
	b.exec(t, "update uncertain set probe_at = now()")
	id := ""
	for id = range first {
		break
	}
	if _, err := b.reconcile(ledger.Reconciliation{Operation: id, Resolution: receipts.Delivered, Evidence: "e"}); err != nil {
		t.Fatal(err)
	}
	again := 0
	for range 10 {
		for other, q := range pick(minute) {
			if again++; q.Tries != 2 || other == id {
				t.Errorf("the second try: %+v", q)
			}
		}
	}
	if again != lost-1 {
		t.Errorf("%d were picked again", again)
	}
	b.due(t, p, 100*time.Second) // not four times
	b.exec(t, "update uncertain set since_ms = since_ms + 31000")
	b.fsck(t)
}

// due wants all that wait to be due in such a time, which a slow machine may have used up by half a minute.
func (b *bundle) due(t *testing.T, p *permits.Permit, wait time.Duration) {
	t.Helper()
	list, err := b.ledger.UncertainQueue(context.Background(), []string{p.Wallet}, "", 500)
	if err != nil || len(list) == 0 {
		t.Fatalf("%d wait, %v", len(list), err)
	}
	for _, u := range list {
		if u.NextProbe == nil || time.Until(*u.NextProbe) > wait || time.Until(*u.NextProbe) < wait-30*time.Second {
			t.Errorf("after %d tries due at %v, want in %s", u.Probes, u.NextProbe, wait)
		}
	}
}
