package chaosproxy_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/internal/testdb"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// Statements of the tests; a proxy finds them by the word in their comment.
const (
	insertFirst  = "insert into marks (n) values (1) -- first"
	insertSecond = "insert into marks (n) values (2) -- second"
)

// patience is for what comes soon; a busy machine may be slow.
const patience = 30 * time.Second

// bench is a table, a client that goes through a proxy, and one that does not.
type bench struct {
	proxy          *chaosproxy.Proxy
	client, direct *pgx.Conn
}

func setup(t *testing.T) *bench {
	t.Helper()
	target := testdb.New(t)
	b := &bench{direct: connect(t, target)}
	if _, err := b.direct.Exec(t.Context(), "create table marks (n integer)"); err != nil {
		t.Fatal(err)
	}
	proxy, front := chaosproxy.Start(t, target)
	b.proxy, b.client = proxy, connect(t, front)
	return b
}

func connect(t *testing.T, target string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// transaction inserts two rows and commits, in one pipeline.
func (b *bench) transaction(wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	pipeline := &pgx.Batch{}
	for _, text := range []string{"begin", insertFirst, insertSecond, "commit -- end"} {
		pipeline.Queue(text)
	}
	return b.client.SendBatch(ctx, pipeline).Close()
}

func (b *bench) marks(t *testing.T) int {
	t.Helper()
	var n int
	if err := b.direct.QueryRow(t.Context(), "select count(*) from marks").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// sessions is how many of the client's sessions the server still knows.
func (b *bench) sessions(t *testing.T) int {
	t.Helper()
	var n int
	const text = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
	if err := b.direct.QueryRow(t.Context(), text).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// What each fault leaves of a transaction, wherever in its pipeline it strikes, and how the client hears of it.
func TestWhatAFaultLeaves(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name  string
		fault chaosproxy.Fault
		wait  time.Duration // how long the client waits
		marks int           // rows that stay
	}{
		{"not executed", chaosproxy.NotExecuted, patience, 0},
		{"executed, answer lost", chaosproxy.AnswerLost, patience, 2},
		{"reset", chaosproxy.Reset, patience, 0},
		{"executed, then reset", chaosproxy.AnswerReset, patience, 2},
		{"held until the client gives up", chaosproxy.Held, 300 * time.Millisecond, 0},
		{"executed, answer held until the client gives up", chaosproxy.AnswerHeld, 300 * time.Millisecond, 2},
		{"executed when the client has given up", chaosproxy.Late, 300 * time.Millisecond, 2},
	}
	for _, row := range rows {
		for _, at := range []string{"first", "second", "end"} {
			t.Run(row.name+", at "+at, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				// The statements are prepared by now, as they are in a program that has run for a while.
				if err := b.transaction(patience); err != nil {
					t.Fatal(err)
				}
				b.proxy.Arm(chaosproxy.Strike{Match: "-- " + at, Fault: row.fault})
				if err := b.transaction(row.wait); err == nil {
					t.Error("the client noticed nothing")
				}
				if n := b.proxy.Struck(); n != 1 {
					t.Errorf("struck %d times, want once", n)
				}
				eventually(t, "the server forgets the client", func() bool { return b.sessions(t) == 0 })
				if n := b.marks(t); n != 2+row.marks {
					t.Errorf("%d rows stay of the struck transaction, want %d", n-2, row.marks)
				}
			})
		}
	}
}

func TestAResetIsAReset(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]chaosproxy.Fault{"before": chaosproxy.Reset, "after": chaosproxy.AnswerReset, "end before": chaosproxy.NotExecuted, "end after": chaosproxy.AnswerLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.proxy.Arm(chaosproxy.Strike{Match: "-- first", Fault: fault})
			err := b.transaction(patience)
			want := fault == chaosproxy.Reset || fault == chaosproxy.AnswerReset
			if err == nil || errors.Is(err, syscall.ECONNRESET) != want {
				t.Errorf("got %v; a reset is wanted: %v", err, want)
			}
		})
	}
}

// What is held goes on after a while, or when it is let go, as if nothing had been.
func TestWhatIsHeldGoesOn(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]chaosproxy.Fault{"statement": chaosproxy.Held, "answer": chaosproxy.AnswerHeld} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.proxy.Arm(chaosproxy.Strike{Match: "-- first", Fault: fault, Hold: 50 * time.Millisecond})
			began := time.Now()
			if err := b.transaction(patience); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < 50*time.Millisecond {
				t.Errorf("held for %v only", took)
			}
			b.proxy.Arm(chaosproxy.Strike{Match: "-- second", Fault: fault})
			done := make(chan error, 1)
			go func() { done <- b.transaction(patience) }()
			eventually(t, "the second fault strikes", func() bool { return b.proxy.Struck() == 2 })
			if fault == chaosproxy.AnswerHeld {
				eventually(t, "the statement is executed", func() bool { return b.marks(t) == 4 })
			}
			select {
			case err := <-done:
				t.Fatalf("the client was answered: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			b.proxy.Release()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if err := b.transaction(patience); err != nil {
				t.Fatalf("the transaction after that: %v", err)
			}
			if n := b.marks(t); n != 6 {
				t.Errorf("%d rows, want 6", n)
			}
		})
	}
}

// A server that does not hear of the client's end keeps the session, and its locks, until its own limit for
// a transaction without a client ends it.
func TestASeveredClientKeepsItsLocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.client.Exec(t.Context(), "set idle_in_transaction_session_timeout = 1000"); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"begin", insertFirst} {
		if _, err := b.client.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	b.proxy.Arm(chaosproxy.Strike{Match: "commit", Fault: chaosproxy.Severed})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := b.client.Exec(ctx, "commit"); err == nil {
		t.Error("the client noticed nothing")
	}
	if n := b.sessions(t); n != 1 {
		t.Errorf("the server knows %d sessions after the client has given up, want 1", n)
	}
	eventually(t, "the server's limit ends the session", func() bool { return b.sessions(t) == 0 })
	if n := b.marks(t); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}

func TestARoundTripIsDelayed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.transaction(patience); err != nil {
		t.Fatal(err)
	}
	b.proxy.Delay(100 * time.Millisecond)
	began := time.Now()
	if err := b.transaction(patience); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("one round trip took %v, want at least 100ms", took)
	}
}
