package ledger_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"counterfoil/permits"
	"counterfoil/receipts"

	"github.com/jackc/pgx/v5"
)

// The receipts of refusals are written by the claim lane, those of outcomes by the settle lane: both take the
// same chain's head, one after the other (I11).
func TestRefusalsAndOutcomesShareOneChain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 10_000)
	b.agent(t, "agt_a", "wal_ops")
	open := b.grant(t, "prm_open", "wal_ops", "agt_a", permits.Limits{Credits: 5000})
	shut := b.grant(t, "prm_shut", "wal_ops", "agt_a", permits.Limits{Credits: 0})
	second := b.open(t)
	ctx := context.Background()
	const callers, rounds = 16, 12
	race(callers, func(i int) {
		l := b.ledger
		if i%4 < 2 {
			l = second
		}
		for n := range rounds {
			key := fmt.Sprintf("k-%d-%d", i, n)
			if i%2 == 0 {
				c, err := l.Claim(ctx, claim(t, shut, key, 1))
				if err != nil || c.Denied == nil || c.Denied.Reason != receipts.ReasonCreditsExceeded {
					t.Errorf("a refusal: %+v, %v", c, err)
				}
				continue
			}
			c, err := l.Claim(ctx, claim(t, open, key, 1))
			if err != nil || c.Granted == nil {
				t.Errorf("a claim: %+v, %v", c, err)
				continue
			}
			if _, err := l.Settle(ctx, succeeded(c.Granted)); err != nil {
				t.Errorf("an outcome: %v", err)
			}
		}
	})
	if r := b.fsck(t); r.Receipts != callers*rounds {
		t.Errorf("%d receipts, want %d", r.Receipts, callers*rounds)
	}
}

// A refusal reads the head of the chain only once whoever moves it has ended: it waits at the lock, before it
// has read anything, and not at its own write (I11).
func TestARefusalWaitsForTheHeadOfTheChain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 100)
	b.agent(t, "agt_a", "wal_ops")
	shut := b.grant(t, "prm_shut", "wal_ops", "agt_a", permits.Limits{Credits: 0})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, b.url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
		return conn
	}
	// Who looks does so outside the transaction: inside, what others run is read only once.
	watcher := connect()
	holder, err := connect().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(ctx, "select 1 from chains where wallet_id = 'wal_ops' for update"); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		c, err := b.ledger.Claim(ctx, claim(t, shut, "k", 1))
		if err == nil && c.Denied == nil {
			err = fmt.Errorf("not refused: %+v", c)
		}
		refused <- err
	}()
	const waiting = "select coalesce(max(query), '') from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
	statement := ""
	for statement == "" {
		if err := watcher.QueryRow(ctx, waiting).Scan(&statement); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(statement, "insert into receipts") {
		t.Errorf("it had read the head before it had the lock, and waits with: %s", statement)
	}
	if err := holder.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-refused; err != nil {
		t.Error(err)
	}
	if r := b.fsck(t); r.Receipts != 1 {
		t.Errorf("%d receipts, want 1", r.Receipts)
	}
}
