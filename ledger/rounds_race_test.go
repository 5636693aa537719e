package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/ledger"
	"counterfoil/receipts"

	"github.com/jackc/pgx/v5"
)

// I1: whoever asks, at whatever gateway, a round is gone on with once; and so is the next one.
func TestRacersOnOneRoundGetOneGrant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ledgers := []*ledger.Ledger{b.ledger, b.open(t, func(o *ledger.Options) { o.Shards = 2 })}
	p := b.payer(t)
	const operations, racers = 8, 24
	var grants [operations]atomic.Pointer[ledger.Granted]
	var rounds [operations]*ledger.Operation
	for i := range operations {
		rounds[i] = ask(t, ledgers[i%2], asked(granted(t, ledgers[i%2], claim(t, p, fmt.Sprintf("key-%d", i), 1)), "s"))
	}
	for number := range 3 {
		race(operations*racers, func(n int) {
			i := n % operations
			g, err := ledgers[n/operations%2].Continue(context.Background(), rounds[i])
			switch {
			case errors.Is(err, ledger.ErrRoundTaken):
			case err != nil:
				t.Error(err)
			case !grants[i].CompareAndSwap(nil, g):
				t.Errorf("round %d of operation %d was gone on with twice", number+1, i)
			}
		})
		if r := b.fsck(t); r.Open != operations || r.Awaiting != 0 {
			t.Fatalf("after round %d: %+v", number+1, r)
		}
		for i := range operations {
			g := grants[i].Swap(nil)
			if g == nil {
				t.Fatalf("nobody goes on with round %d of operation %d", number+1, i)
			}
			// Who asks again is not who went on: at the other gateway nobody may.
			if _, err := ledgers[(number+i)%2].Ask(context.Background(), asked(g, "s")); err != nil && !errors.Is(err, ledger.ErrSuperseded) {
				t.Fatal(err)
			}
			rounds[i] = b.parked(t, ledgers, g, rounds[i])
		}
	}
	b.fsck(t)
}

// parked makes sure that the next round of an operation is open: a ledger parks only what is its own.
func (b *bundle) parked(t *testing.T, ledgers []*ledger.Ledger, g *ledger.Granted, before *ledger.Operation) *ledger.Operation {
	t.Helper()
	for _, l := range ledgers {
		op, err := l.Lookup(context.Background(), before.Wallet, before.Key)
		if err != nil {
			t.Fatal(err)
		}
		if op.Round == nil {
			op, err = l.Ask(context.Background(), asked(g, "s"))
		}
		if err == nil && op.Round.Number == before.Round.Number+1 {
			return op
		}
		if !errors.Is(err, ledger.ErrSuperseded) {
			t.Fatalf("the next round: %+v, %v", op, err)
		}
	}
	t.Fatal("neither gateway could ask")
	return nil
}

// A gateway that is thought dead asks while others take over what it runs: each operation is parked or uncertain, never
// both, and what was parked is gone on with.
func TestAskRacesWithATakeover(t *testing.T) {
	t.Parallel()
	b := setup(t)
	zombie := b.open(t, func(o *ledger.Options) { o.Lease = time.Hour })
	p := b.payer(t)
	const operations = 60
	var grants [operations]*ledger.Granted
	var parked [operations]*ledger.Operation
	for i := range operations {
		grants[i] = granted(t, zombie, claim(t, p, fmt.Sprintf("key-%d", i), 0))
	}
	b.exec(t, "update instances set heartbeat_at = 'epoch' where lease_ms = 3600000")
	race(operations+2, func(i int) {
		if i >= operations {
			b.open(t) // looks at once
			return
		}
		op, err := zombie.Ask(context.Background(), asked(grants[i], "s"))
		if err != nil && !errors.Is(err, ledger.ErrSuperseded) {
			t.Error(err)
		}
		parked[i] = op
	})
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	waiting := 0
	for i, round := range parked {
		op, err := b.ledger.Wait(ctx, "wal_ops", fmt.Sprintf("key-%d", i))
		switch {
		case err != nil:
			t.Fatal(err)
		case round == nil && op.Outcome != receipts.Uncertain:
			t.Errorf("key-%d was taken over, and is %s %s", i, op.State, op.Outcome)
		case round != nil && op.State != ledger.StateAwaitingInput:
			t.Errorf("key-%d asked for input, and is %s %s", i, op.State, op.Outcome)
		case round != nil:
			waiting++
			g, err := b.ledger.Continue(ctx, op)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.ledger.Settle(ctx, succeeded(g)); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d of %d were parked", waiting, operations)
	if r := b.fsck(t); r.Open != 0 || r.Awaiting != 0 || r.Receipts != operations {
		t.Errorf("afterwards: %+v", r)
	}
}

// What nobody answers in time is given up once, by whichever gateway, or gone on with once: never both.
func TestExpiryRacesWithContinue(t *testing.T) {
	t.Parallel()
	quick := func(o *ledger.Options) { o.Lease = time.Second } // looks every 333 ms
	b := setup(t, quick)
	var abandoned atomic.Int64
	count := func(o *ledger.Options) { o.OnAbandoned = func(string) { abandoned.Add(1) } }
	ledgers := []*ledger.Ledger{b.open(t, quick, count), b.open(t, quick, count)}
	p := b.payer(t)
	const operations = 40
	var continued atomic.Int64
	race(operations, func(i int) {
		ctx := context.Background()
		l := ledgers[i%2]
		c, err := l.Claim(ctx, claim(t, p, fmt.Sprintf("key-%d", i), 0))
		if err != nil || c.Granted == nil {
			t.Errorf("claim: %+v, %v", c, err)
			return
		}
		a := asked(c.Granted, "s")
		a.TTL = time.Duration(i*25) * time.Millisecond
		op, err := l.Ask(ctx, a)
		if err != nil {
			t.Error(err)
			return
		}
		<-time.After(time.Until(op.Round.Expires) - 5*time.Millisecond)
		race(2, func(n int) {
			g, err := ledgers[n].Continue(ctx, op)
			if errors.Is(err, ledger.ErrRoundTaken) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			continued.Add(1)
			if _, err := ledgers[n].Settle(ctx, succeeded(g)); err != nil {
				t.Errorf("settle what was gone on with: %v", err)
			}
		})
	})
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	outcomes := map[receipts.Reason]int64{}
	for i := range operations {
		key := fmt.Sprintf("key-%d", i)
		await(t, key+" ends", func() bool {
			op, err := b.ledger.Lookup(ctx, "wal_ops", key)
			if err != nil || !op.Finished() {
				return false
			}
			outcomes[op.Reason]++
			return true
		})
	}
	if n := outcomes[receipts.ReasonInputAbandoned]; outcomes[""] != continued.Load() || n != operations-continued.Load() {
		t.Errorf("%d were gone on with; outcomes %v", continued.Load(), outcomes)
	}
	if abandoned.Load() > outcomes[receipts.ReasonInputAbandoned] {
		t.Errorf("%d were counted as abandoned, %v are", abandoned.Load(), outcomes)
	}
	w, err := b.ledger.Wallet(ctx, "wal_ops")
	if err != nil || w.Held != 0 || w.Balance != 1000-continued.Load()*payout.Price {
		t.Errorf("%d were gone on with; the wallet: %+v, %v", continued.Load(), w, err)
	}
	b.fsck(t)
}

// A round that expires while somebody takes it is his: the sweep has read it as expired, waits for the wallet, and
// finds it gone.
func TestARoundThatIsTakenAsItExpires(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *ledger.Options) { o.Lease = time.Second })
	p := b.payer(t)
	proxy, url := chaosproxy.Start(t, b.url)
	through := b.open(t, func(o *ledger.Options) { o.URL, o.Lease = url, time.Hour })
	ctx := context.Background()
	op := ask(t, through, asked(granted(t, through, claim(t, p, "k", 1)), "s"))
	proxy.Arm(chaosproxy.Strike{Match: textOf("continue_write"), Fault: chaosproxy.Held})
	going := begin(func() (*ledger.Granted, error) { return through.Continue(ctx, op) })
	await(t, "the round is locked", func() bool { return proxy.Struck() == 1 })
	b.exec(t, "update rounds set expires_ms = asked_ms")
	clerk := dial(t, b.url)
	await(t, "the sweep waits for the wallet", func() bool { return waits(ctx, clerk) })
	proxy.Release()
	g, err := end(t, going)
	if err != nil {
		t.Fatalf("continue: %v", err)
	}
	await(t, "the sweep has ended", func() bool { return idle(ctx, clerk) })
	if got, err := through.Settle(ctx, succeeded(g)); err != nil || got.Outcome != receipts.Succeeded {
		t.Errorf("settle: %+v, %v", got, err)
	}
	b.fsck(t)
}

// idle reports that nobody else is in a transaction of this database.
func idle(ctx context.Context, clerk *pgx.Conn) bool {
	var busy bool
	err := clerk.QueryRow(ctx, `select exists (select 1 from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null)`).Scan(&busy)
	return err == nil && !busy
}

// waits reports that a transaction of this database waits for a lock.
func waits(ctx context.Context, clerk *pgx.Conn) bool {
	var waiting bool
	err := clerk.QueryRow(ctx, "select exists (select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')").Scan(&waiting)
	return err == nil && waiting
}
