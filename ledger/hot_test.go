package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// I1, I2, I3: a key is granted once; afterwards it answers what was stored.
func TestAKeyIsGrantedOnceAndThenAnswersItsRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	ctx := context.Background()

	first, err := b.ledger.Claim(ctx, claim(t, p, "invoice-1", 1200))
	if err != nil || first.Granted == nil {
		t.Fatalf("first claim: %+v, %v", first, err)
	}
	again, err := b.ledger.Claim(ctx, claim(t, p, "invoice-1", 1200))
	if err != nil || again.Existing == nil || again.Existing.Finished() {
		t.Fatalf("second claim while the first runs: %+v, %v", again, err)
	}
	if r := b.fsck(t); r.Open != 1 || r.Receipts != 0 {
		t.Fatalf("while dispatching: %+v", r)
	}
	op, err := b.ledger.Settle(ctx, succeeded(first.Granted))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := receipts.Parse(op.Receipt, b.keys); err != nil {
		t.Fatalf("the receipt does not verify: %v", err)
	}
	found, err := b.ledger.Lookup(ctx, "wal_ops", "invoice-1")
	if err != nil || found == nil {
		t.Fatalf("look-up: %v, %v", found, err)
	}
	if found.Receipt != op.Receipt || !bytes.Equal(found.Result, op.Result) || found.ReceiptID != op.ReceiptID {
		t.Error("the stored record is not what was answered")
	}
	if _, err := b.ledger.Settle(ctx, succeeded(first.Granted)); !errors.Is(err, ledger.ErrSuperseded) {
		t.Errorf("a second settlement: %v, want ErrSuperseded", err)
	}
	w, err := b.ledger.Wallet(ctx, "wal_ops")
	if err != nil || w.Balance != 995 || w.Held != 0 || w.Available != 995 {
		t.Errorf("wallet after one charge of 5: %+v, %v", w, err)
	}
	b.fsck(t)
}

func TestRacersOnOneKeyGetOneGrant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	second := b.open(t)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	var granted, seen atomic.Int64
	race(200, func(i int) {
		l := []*ledger.Ledger{b.ledger, second}[i%2]
		c, err := l.Claim(context.Background(), claim(t, p, "invoice-1", 1200))
		switch {
		case err != nil:
			t.Error(err)
		case c.Granted != nil:
			granted.Add(1)
			if _, err := l.Settle(context.Background(), succeeded(c.Granted)); err != nil {
				t.Error(err)
			}
		case c.Existing != nil:
			seen.Add(1)
		}
	})
	if granted.Load() != 1 || seen.Load() != 199 {
		t.Errorf("%d granted, %d saw the first; want 1 and 199", granted.Load(), seen.Load())
	}
	if r := b.fsck(t); r.Receipts != 1 {
		t.Errorf("%d receipts, want 1", r.Receipts)
	}
}

// I6, I7: no interleaving of calls or gateways over-holds a permit or a wallet.
func TestNoInterleavingExceedsAPermit(t *testing.T) {
	t.Parallel()
	for _, wallets := range []int{1, 20} {
		t.Run(fmt.Sprintf("%d wallets", wallets), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			second := b.open(t, func(o *ledger.Options) { o.Shards = 2 })
			list := make([]*permits.Permit, wallets)
			for i := range list {
				wallet, agent := fmt.Sprintf("wal_%d", i), fmt.Sprintf("agt_%d", i)
				b.wallet(t, wallet, 100000)
				b.agent(t, agent, wallet)
				list[i] = b.grant(t, fmt.Sprintf("prm_%d", i), wallet, agent, permits.Limits{
					Credits: 250, CallsTotal: ptr(int64(400)), Value: &permits.ValueLimit{Currency: "USD", Total: ptr(int64(1 << 40))},
				})
			}
			n := 500
			var granted, denied atomic.Int64
			race(n, func(i int) {
				l, p := []*ledger.Ledger{b.ledger, second}[i%2], list[i%wallets]
				c, err := l.Claim(context.Background(), claim(t, p, fmt.Sprintf("key-%d", i), 10))
				switch {
				case err != nil:
					t.Error(err)
				case c.Denied != nil:
					denied.Add(1)
					if c.Denied.Reason != receipts.ReasonCreditsExceeded || c.Denied.Receipt == "" {
						t.Errorf("denial: %s, receipt %q", c.Denied.Reason, c.Denied.Receipt)
					}
				case c.Granted != nil:
					granted.Add(1)
					if _, err := l.Settle(context.Background(), succeeded(c.Granted)); err != nil {
						t.Error(err)
					}
				}
			})
			want := int64(min(n, 50*wallets))
			if granted.Load() != want || denied.Load() != int64(n)-want {
				t.Errorf("%d granted, %d denied; want %d and %d", granted.Load(), denied.Load(), want, int64(n)-want)
			}
			if r := b.fsck(t); r.Receipts != int64(n) {
				t.Errorf("%d receipts for %d operations", r.Receipts, n)
			}
		})
	}
}

func TestAnUndeliveredCallGivesEverythingBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{
		Credits: 5, CallsTotal: ptr(int64(1)), Calls: map[string]int64{"payout": 1},
		Value: &permits.ValueLimit{Currency: "USD", Total: ptr(int64(100))},
	})
	ctx := context.Background()
	for i, s := range []ledger.Settlement{
		{Outcome: receipts.Failed, Reason: receipts.ReasonUpstreamUnreachable},
		{Outcome: receipts.Succeeded, Charged: 5, KeepCall: true, KeepValue: true},
		{},
	} {
		c, err := b.ledger.Claim(ctx, claim(t, p, fmt.Sprintf("key-%d", i), 100))
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if c.Denied == nil || c.Denied.Reason != receipts.ReasonCallsExceeded {
				t.Fatalf("third call: %+v", c)
			}
			break
		}
		if c.Granted == nil {
			t.Fatalf("call %d was not granted: %+v", i, c.Denied)
		}
		s.Granted, s.Result = c.Granted, []byte(`{}`)
		if _, err := b.ledger.Settle(ctx, &s); err != nil {
			t.Fatal(err)
		}
	}
	b.fsck(t)
}

func TestASettlementCannotChargeMoreThanWasReserved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	c, err := b.ledger.Claim(context.Background(), claim(t, p, "k", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, charged := range []int64{-1, 6} {
		s := succeeded(c.Granted)
		s.Charged = charged
		if _, err := b.ledger.Settle(context.Background(), s); !errors.Is(err, ledger.ErrOverCharge) {
			t.Errorf("charging %d of 5: %v", charged, err)
		}
	}
	s := succeeded(c.Granted)
	s.Charged = 2
	if _, err := b.ledger.Settle(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	w, err := b.ledger.Wallet(context.Background(), "wal_ops")
	if err != nil || w.Balance != 998 || w.Available != 998 {
		t.Errorf("wallet after an actual cost of 2: %+v, %v", w, err)
	}
	b.fsck(t)
}

// Design 5: what a silent gateway left becomes uncertain, once; what it brings late is kept as evidence.
func TestATakeoverSettlesWhatASilentGatewayLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *ledger.Options) { o.Endpoint = "host|a"; o.Lease = time.Hour })
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	ctx := context.Background()
	c, err := b.ledger.Claim(ctx, claim(t, p, "k", 1))
	if err != nil {
		t.Fatal(err)
	}
	successor := b.open(t, func(o *ledger.Options) { o.Endpoint = "host|a"; o.Lease = time.Hour })
	wait, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	op, err := successor.Wait(wait, "wal_ops", "k")
	if err != nil || op.Outcome != receipts.Uncertain || op.Reason != receipts.ReasonGatewayInterrupted || op.Charged != 5 {
		t.Fatalf("after the takeover: %+v, %v", op, err)
	}
	if _, err := b.ledger.Settle(ctx, succeeded(c.Granted)); !errors.Is(err, ledger.ErrSuperseded) {
		t.Fatalf("the late settlement: %v, want ErrSuperseded", err)
	}
	again, err := b.ledger.Lookup(ctx, "wal_ops", "k")
	if err != nil || again.Receipt != op.Receipt {
		t.Error("the late result changed the outcome")
	}
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var outcome string
	if err := conn.QueryRow(ctx, "select outcome from late_results").Scan(&outcome); err != nil || outcome != "succeeded" {
		t.Errorf("late result: %q, %v", outcome, err)
	}
	b.fsck(t)
}

func TestACallerThatLeavesBeforeItsBatchLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.ledger.Claim(ctx, claim(t, p, "k", 1)); !errors.Is(err, context.Canceled) {
		t.Fatalf("claim of a caller that left: %v", err)
	}
	if op, err := b.ledger.Lookup(context.Background(), "wal_ops", "k"); err != nil || op != nil {
		t.Errorf("it left %+v, %v", op, err)
	}
}

// design 8: the gateway's role cannot change or remove a record.
func TestTheGatewaysRoleMayOnlyInsertRecords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "set role counterfoil_gateway"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"operations", "receipts", "transfers", "signatures", "responses", "audit", "permits", "deposits", "late_results", "reconciliations", "tool_definitions"} {
		for _, statement := range []string{"delete from " + table, "truncate " + table, "update " + table + " set wallet_id = wallet_id"} {
			switch table {
			case "audit", "permits", "tool_definitions":
				statement = "delete from " + table
			case "responses": // bodies are pruned; they are never changed
				statement = "update responses set result = result"
			}
			_, err := conn.Exec(ctx, statement)
			if !isCode(err, "42501") {
				t.Errorf("%s: %v, want 42501 (insufficient privilege)", statement, err)
			}
		}
	}
}

func isCode(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}

// A gateway is judged by its own lease, and by one that has been able to hear of it for as long.
func TestATakeoverGoesByTheLeaseOfTheSilentOne(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		silent  string
		watched time.Duration
		taken   bool
	}{
		"within its lease":           {"29 minutes", 45 * time.Minute, false},
		"after its lease":            {"31 minutes", 45 * time.Minute, true},
		"nobody could have heard it": {"31 minutes", 20 * time.Minute, false},
		"it has ended":               {"100 years", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(o *ledger.Options) { o.Lease = 30 * time.Minute })
			b.wallet(t, "wal_ops", 1000)
			b.agent(t, "agt_a", "wal_ops")
			p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
			ctx := context.Background()
			c, err := b.ledger.Claim(ctx, claim(t, p, "k", 1))
			if err != nil || c.Granted == nil {
				t.Fatalf("claim: %+v, %v", c, err)
			}
			b.exec(t, "update instances set heartbeat_at = greatest('epoch', now() - interval '"+tt.silent+"')")
			// A look is over when the uncertain are counted.
			looked := make(chan struct{})
			done := make(chan struct{})
			defer close(done)
			var passed atomic.Int64
			b.open(t, func(o *ledger.Options) {
				o.Lease = time.Hour
				o.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
				o.OnUncertain = func(ledger.AtRisk) {
					select {
					case looked <- struct{}{}:
					case <-done:
					}
				}
			})
			<-looked
			if open := b.fsck(t).Open; tt.watched > 0 && open != 1 {
				t.Error("taken over by one that has just come")
			}
			passed.Store(int64(tt.watched))
			<-looked
			<-looked
			_, err = b.ledger.Settle(ctx, succeeded(c.Granted))
			if errors.Is(err, ledger.ErrSuperseded) != tt.taken || (!tt.taken && err != nil) {
				t.Errorf("settling afterwards: %v", err)
			}
			b.fsck(t)
		})
	}
}
