package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// away bounds each wait for something that another process does.
const away = time.Minute

func dial(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// answered is what an act of the ledger returned.
type answered[T any] struct {
	value T
	err   error
}

// begin runs an act beside the test.
func begin[T any](act func() (T, error)) <-chan answered[T] {
	done := make(chan answered[T], 1)
	go func() {
		value, err := act()
		done <- answered[T]{value, err}
	}()
	return done
}

func end[T any](t *testing.T, from <-chan answered[T]) (T, error) {
	t.Helper()
	select {
	case a := <-from:
		return a.value, a.err
	case <-time.After(away):
		t.Fatal("no answer although the standby is back")
		panic("unreachable")
	}
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(away)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("in vain waited for %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
