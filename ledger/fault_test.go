package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// Design 4: a COMMIT whose answer is lost is unknown until it is read back; nothing is dispatched and
// nothing is done twice before that.
func TestALostAnswerToACommit(t *testing.T) {
	t.Parallel()
	faults := map[string]chaosproxy.Fault{"not executed": chaosproxy.NotExecuted, "executed, answer lost": chaosproxy.AnswerLost}
	// The commits of one call, in order: T1, then T2.
	commits := map[string]int{"of the claim": 0, "of the settlement": 1}
	for step, skip := range commits {
		for name, fault := range faults {
			t.Run(step+", "+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.wallet(t, "wal_ops", 1000)
				b.agent(t, "agt_a", "wal_ops")
				p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
				proxy, url := chaosproxy.Start(t, b.url)
				through := b.open(t, func(o *ledger.Options) { o.URL = url })
				proxy.Arm(chaosproxy.Strike{Match: "\ncommit", Skip: skip, Fault: fault})

				ctx := context.Background()
				c, err := through.Claim(ctx, claim(t, p, "k", 1))
				if err != nil || c.Granted == nil {
					t.Fatalf("claim: %+v, %v", c, err)
				}
				op, err := through.Settle(ctx, succeeded(c.Granted))
				if err != nil || op.Outcome != receipts.Succeeded {
					t.Fatalf("settle: %+v, %v", op, err)
				}
				if proxy.Struck() != 1 {
					t.Fatalf("%d cuts, want 1: the fault did not strike", proxy.Struck())
				}
				if r := b.fsck(t); r.Receipts != 1 || r.Open != 0 {
					t.Errorf("afterwards: %+v", r)
				}
				found, err := b.ledger.Lookup(ctx, "wal_ops", "k")
				if err != nil || found == nil || found.Receipt != op.Receipt {
					t.Errorf("the stored record is not what was answered: %v", err)
				}
			})
		}
	}
}

// A denial whose commit is not answered is read back too, and is the receipt that was stored.
func TestALostAnswerToADenial(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 1})
	proxy, url := chaosproxy.Start(t, b.url)
	through := b.open(t, func(o *ledger.Options) { o.URL = url })
	proxy.Arm(chaosproxy.Strike{Match: "\ncommit", Fault: chaosproxy.AnswerLost})
	c, err := through.Claim(context.Background(), claim(t, p, "k", 1))
	if err != nil || c.Denied == nil {
		t.Fatalf("claim: %+v, %v", c, err)
	}
	if r := b.fsck(t); r.Receipts != 1 || proxy.Struck() != 1 {
		t.Errorf("afterwards: %+v, %d cuts", r, proxy.Struck())
	}
	found, err := b.ledger.Lookup(context.Background(), "wal_ops", "k")
	if err != nil || found == nil || found.Receipt != c.Denied.Receipt {
		t.Errorf("the stored record is not what was answered: %v", err)
	}
}

// Design 5: what happened is recorded, however long the store is away and whether or not anybody waits.
func TestASettlementOutlivesItsWaiter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	proxy, url := chaosproxy.Start(t, b.url)
	through := b.open(t, func(o *ledger.Options) { o.URL, o.QueueSize, o.MaxBatch, o.Patience = url, 1, 1, 2*time.Second })
	ctx := context.Background()
	const calls = 8
	var granted []*ledger.Granted
	for i := range calls {
		c, err := through.Claim(ctx, claim(t, p, fmt.Sprintf("key-%d", i), 1))
		if err != nil || c.Granted == nil {
			t.Fatalf("claim: %+v, %v", c, err)
		}
		granted = append(granted, c.Granted)
	}
	proxy.Down()
	if _, err := through.Claim(ctx, claim(t, p, "while it is away", 1)); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("a claim while the store is away: %v, want ErrUnavailable", err)
	}
	// More settlements than the queue holds: each of their waiters leaves without an answer.
	race(calls, func(i int) {
		if _, err := through.Settle(ctx, succeeded(granted[i])); !errors.Is(err, ledger.ErrUnknown) {
			t.Errorf("settling while the store is away: %v, want ErrUnknown", err)
		}
	})
	proxy.Up()
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for i := range calls {
		op, err := b.ledger.Wait(wait, "wal_ops", fmt.Sprintf("key-%d", i))
		if err != nil || op == nil || op.Outcome != receipts.Succeeded {
			t.Errorf("key-%d afterwards: %+v, %v", i, op, err)
		}
	}
	if r := b.fsck(t); r.Receipts != calls {
		t.Errorf("%d receipts, want %d", r.Receipts, calls)
	}
}
