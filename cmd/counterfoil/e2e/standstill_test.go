package e2e_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// standstill is a transaction whose locks the store's work waits for.
type standstill struct{ tx pgx.Tx }

// standStill locks what a statement says, until the store may go on or the test ends.
func standStill(t *testing.T, database, statement string, args ...any) *standstill {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(ctx) })
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, statement, args...); err != nil {
		t.Fatal(err)
	}
	return &standstill{tx: tx}
}

// stick locks a wallet, so that each claim of it waits.
func stick(t *testing.T, database, wallet string) *standstill {
	t.Helper()
	return standStill(t, database, "select 1 from wallets where id = $1 for update", wallet)
}

// count asks something within the transaction.
func (s *standstill) count(t *testing.T, statement string, args ...any) (n int) {
	t.Helper()
	if err := s.tx.QueryRow(context.Background(), statement, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// waits returns when one session waits for a lock.
func (s *standstill) waits(t *testing.T) {
	t.Helper()
	eventually(t, "the lane to stand still", func() bool {
		return s.count(t, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == 1
	})
}

// goOn lets the store work again.
func (s *standstill) goOn(t *testing.T) {
	t.Helper()
	if err := s.tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
}
