package ledger_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// A gateway that was away for longer than its lease asks before it sends: what was taken over is not sent any
// more, what is still its own may be.
func TestAGrantIsAskedForAgainAfterTheLease(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"still its own": false, "taken over": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.wallet(t, "wal_ops", 1000)
			b.agent(t, "agt_a", "wal_ops")
			p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
			var away atomic.Int64
			l := b.open(t, func(o *ledger.Options) {
				o.Lease = time.Hour // no heartbeat comes between
				o.Now = func() time.Time { return time.Now().Add(time.Duration(away.Load())) }
			})
			ctx := context.Background()
			c, err := l.Claim(ctx, claim(t, p, "k", 1))
			if err != nil || c.Granted == nil {
				t.Fatalf("claim: %+v, %v", c, err)
			}
			if !l.Holds(ctx, c.Granted) {
				t.Fatal("not its own within the lease")
			}
			if taken {
				b.takeOver(t)
			}
			if !l.Holds(ctx, c.Granted) {
				t.Error("it looked although its lease was fresh")
			}
			away.Store(int64(2 * time.Hour))
			if held := l.Holds(ctx, c.Granted); held == taken {
				t.Errorf("after the lease: may send %v", held)
			}
			// The look has renewed the lease; the grant is of the earlier term all the same.
			if held := l.Holds(ctx, c.Granted); held == taken {
				t.Errorf("after the lease was renewed: may send %v", held)
			}
			s := &ledger.Settlement{Granted: c.Granted, Outcome: receipts.Failed, Reason: receipts.ReasonNotDispatched, Result: []byte("{}")}
			if _, err := l.Settle(ctx, s); errors.Is(err, ledger.ErrSuperseded) != taken {
				t.Errorf("settle: %v", err)
			}
			b.fsck(t)
		})
	}
}

// takeOver makes every other instance look silent, and waits until the bundle's own ledger has settled what they had.
func (b *bundle) takeOver(t *testing.T) {
	t.Helper()
	b.exec(t, "update instances set heartbeat_at = 'epoch' where lease_ms = 3600000")
	b.open(t) // looks at once
	for range 10000 {
		if b.fsck(t).Open == 0 {
			return
		}
	}
	t.Fatal("not taken over")
}
