package ledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"

	"github.com/jackc/pgx/v5"
)

// until asks the database the same question until the answer is the wanted number.
func (b *bundle) until(t *testing.T, want int64, question string) {
	t.Helper()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	var got int64
	for {
		if err := conn.QueryRow(ctx, question).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: %d, want %d", question, got, want)
		}
	}
}

const bodies = "select count(*) from responses"

func retaining(d time.Duration) func(*ledger.Options) {
	return func(o *ledger.Options) { o.Retention = d }
}

// pay makes a call that succeeds.
func pay(t *testing.T, l *ledger.Ledger, p *permits.Permit, key string) {
	t.Helper()
	ctx := context.Background()
	c, err := l.Claim(ctx, claim(t, p, key, 1))
	if err != nil || c.Granted == nil {
		t.Errorf("claim %s: %+v, %v", key, c, err)
		return
	}
	if _, err := l.Settle(ctx, succeeded(c.Granted)); err != nil {
		t.Errorf("settle %s: %v", key, err)
	}
}

// pruned wants a key to be answered without a body, and never to run again.
func (b *bundle) pruned(t *testing.T, p *permits.Permit, key string, outcome receipts.Outcome) {
	t.Helper()
	op, err := b.ledger.Lookup(context.Background(), p.Wallet, key)
	if err != nil || op == nil || !op.Pruned() || op.Outcome != outcome {
		t.Fatalf("%s: %+v, %v", key, op, err)
	}
	if _, _, err := receipts.Parse(op.Receipt, b.keys); err != nil {
		t.Errorf("%s: its receipt: %v", key, err)
	}
	if c, err := b.ledger.Claim(context.Background(), claim(t, p, key, 1)); err != nil || c.Existing == nil || !c.Existing.Pruned() {
		t.Errorf("%s runs again: %+v, %v", key, c, err)
	}
}

// Bodies go page by page, over several gateways at once, and never beyond the oldest call that runs: what it will
// answer would be forgotten, and stay for ever.
func TestPruningStopsAtACallThatRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 100_000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 100_000})
	const before, after = 1100, 600 // pages of 500
	race(before, func(i int) { pay(t, b.ledger, p, fmt.Sprint("before", i)) })
	running, err := b.ledger.Claim(context.Background(), claim(t, p, "running", 1))
	if err != nil || running.Granted == nil {
		t.Fatalf("claim: %+v, %v", running, err)
	}
	race(after, func(i int) { pay(t, b.ledger, p, fmt.Sprint("after", i)) })

	for range 3 {
		b.open(t, retaining(time.Millisecond))
	}
	b.until(t, after, bodies)
	b.pruned(t, p, "before0", receipts.Succeeded)
	if op, err := b.ledger.Lookup(context.Background(), p.Wallet, "after0"); err != nil || op.Pruned() || len(op.Result) == 0 {
		t.Errorf("a body behind a call that runs is gone: %+v, %v", op, err)
	}
	b.fsck(t)
	if _, err := b.ledger.Settle(context.Background(), succeeded(running.Granted)); err != nil {
		t.Fatal(err)
	}
	b.until(t, 0, bodies)
	for _, key := range []string{"running", "after0", "before1099"} {
		b.pruned(t, p, key, receipts.Succeeded)
	}
	b.until(t, before+after+1, "select count(*) from receipts")
	b.fsck(t)
}

// What a call without a known result was answered stays, since it is evidence; what it is answered after a decision
// goes in its own time.
func TestPruningKeepsWhatIsUncertain(t *testing.T) {
	t.Parallel()
	b := setup(t, retaining(time.Millisecond))
	p, lost := b.uncertain(t, "lost")
	poor := b.grant(t, "prm_poor", "wal_ops", "agt_a", permits.Limits{Credits: 1})
	if c, err := b.ledger.Claim(context.Background(), claim(t, poor, "denied", 1)); err != nil || c.Denied == nil {
		t.Fatalf("not denied: %+v, %v", c, err)
	}
	pay(t, b.ledger, p, "paid")
	b.until(t, 1, bodies)
	b.pruned(t, p, "paid", receipts.Succeeded)
	b.pruned(t, poor, "denied", receipts.Denied)
	op, err := b.ledger.Lookup(context.Background(), p.Wallet, "lost")
	if err != nil || op.Outcome != receipts.Uncertain || op.Pruned() {
		t.Fatalf("the uncertain one: %+v, %v", op, err)
	}
	first := op.ReceiptID
	if _, err := b.reconcile(ledger.Reconciliation{Operation: lost.ID, Resolution: receipts.NotDelivered, Evidence: "the bank's list"}); err != nil {
		t.Fatal(err)
	}
	b.until(t, 1, bodies+" where receipt_id = (select operation_id from reconciliations)")
	b.until(t, 1, bodies)
	b.pruned(t, p, "lost", receipts.Reconciled)
	e, err := b.ledger.Evidence(context.Background(), first, nil)
	if err != nil || string(e.Result) != `{"isError":true}` {
		t.Errorf("what it was answered first: %s, %v", e.Result, err)
	}
	b.fsck(t)
}

// Calls go on while their predecessors' bodies go. Everything is forgotten in the end, and nothing too early.
func TestPruningUnderLoad(t *testing.T) {
	t.Parallel()
	const retention = 3 * time.Second // no call here takes as long
	b := setup(t, retaining(retention))
	b.wallet(t, "wal_ops", 100_000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 100_000})
	ledgers := []*ledger.Ledger{b.ledger, b.open(t, retaining(retention))}
	began := time.Now()
	calls := make([]int, 8)
	race(len(calls), func(i int) {
		for time.Since(began) < retention+time.Second {
			start := time.Now()
			key := fmt.Sprint("k", i, "-", calls[i])
			pay(t, ledgers[i%2], p, key)
			op, err := ledgers[(i+1)%2].Lookup(context.Background(), p.Wallet, key)
			if err != nil || op == nil || (op.Pruned() && time.Since(start) < retention) {
				t.Errorf("%s: %+v, %v", key, op, err)
				return
			}
			calls[i]++
		}
	})
	b.until(t, 0, bodies)
	total := int64(0)
	for i, n := range calls {
		total += int64(n)
		b.pruned(t, p, fmt.Sprint("k", i, "-", n-1), receipts.Succeeded)
	}
	b.until(t, total, "select count(*) from receipts")
	b.fsck(t)
}
