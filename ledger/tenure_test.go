package ledger_test

import (
	"context"
	"testing"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/internal/testdb"
	"counterfoil/ledger"

	"github.com/jackc/pgx/v5"
)

// A heartbeat is written at some moment between its sending and its answer. Where the lease may have run out by then,
// another gateway may have taken over what was granted before, and a new term begins (design 5).
func TestAHeartbeatThatMayHaveComeTooLateBeginsANewTerm(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	began := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		name        string
		sent, heard time.Duration
		renewed     bool // a new term
		until       time.Duration
	}{
		{name: "within the lease", sent: 3 * time.Second, heard: 4 * time.Second, until: 13 * time.Second},
		{name: "at its end", sent: 9 * time.Second, heard: 10 * time.Second, until: 19 * time.Second},
		{name: "sent within it, and heard after it", sent: 9 * time.Second, heard: 11 * time.Second, renewed: true, until: 19 * time.Second},
		{name: "after it", sent: 11 * time.Second, heard: 12 * time.Second, renewed: true, until: 21 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var tenure ledger.Tenure
			tenure.Renew(began, began, lease)
			before, _ := tenure.Now(began, lease)
			tenure.Renew(began.Add(c.sent), began.Add(c.heard), lease)
			term, holds := tenure.Now(began.Add(c.until), lease)
			if (term != before) != c.renewed || !holds {
				t.Errorf("term %d after %d, and the lease holds: %v", term, before, holds)
			}
			if _, holds := tenure.Now(began.Add(c.until+1), lease); holds {
				t.Error("the lease holds for longer than it was renewed for")
			}
		})
	}
}

// A gateway that stops just after its connections died still says that it is gone, so that nobody waits for its lease.
func TestAStopAfterAnOutageEndsTheLease(t *testing.T) {
	t.Parallel()
	b := newBundle(t, testdb.New(t))
	proxy, url := chaosproxy.Start(t, b.url)
	ctx := context.Background()
	l, err := ledger.Open(ctx, b.options(func(o *ledger.Options) { o.URL = url }))
	if err != nil {
		t.Fatal(err)
	}
	race(8, func(int) { // so that more than one connection is idle
		if err := l.Ready(ctx); err != nil {
			t.Error(err)
		}
	})
	proxy.Down()
	proxy.Up()
	if err := l.Close(ctx); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var alive int
	if err := conn.QueryRow(ctx, "select count(*) from instances where heartbeat_at <> 'epoch'").Scan(&alive); err != nil || alive != 0 {
		t.Errorf("%d instances hold a lease, %v", alive, err)
	}
}
