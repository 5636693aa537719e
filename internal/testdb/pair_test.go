//go:build unix && !aix && !solaris

package testdb_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"counterfoil/internal/testdb"
	"counterfoil/sql"
)

// A row that a synchronous pair has acknowledged is there after the primary was killed and its standby
// promoted, and the pair's URL leads to it.
func TestPairFailsOver(t *testing.T) {
	t.Parallel()
	p := testdb.NewPair(t)
	p.Synchronise(t)
	conn := connect(t, p.URL())
	if err := sql.CheckSchema(t.Context(), conn); err != nil {
		t.Error(err)
	}
	execute(t, conn, "create table kept as select 'row' as value")
	p.KillPrimary(t)
	if _, err := conn.Exec(t.Context(), "select 1"); err == nil {
		t.Error("a backend of the primary outlived it")
	}
	if conn, err := pgx.Connect(t.Context(), p.URL()); err == nil {
		_ = conn.Close(context.Background())
		t.Error("a standby was taken for a server that may be written to")
	}
	p.Promote(t)
	conn = connect(t, p.URL())
	if got := scan[string](t, conn, "select value from kept"); got != "row" {
		t.Errorf("the row is %q", got)
	}
	execute(t, conn, "insert into kept values ('later')") // and waits for nobody
}

// While the standby is cut off, a commit of a synchronous pair waits, and ends when it is back.
func TestPairWaitsForItsStandby(t *testing.T) {
	t.Parallel()
	p := testdb.NewPair(t)
	p.Synchronise(t)
	p.Cut(t)
	conn, watcher := connect(t, p.URL()), connect(t, p.Primary.URL())
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "create table waited ()")
		done <- err
	}()
	eventually(t, "the wait", func() bool {
		return scan[int](t, watcher, "select count(*) from pg_stat_activity where wait_event = 'SyncRep'") == 1
	})
	select {
	case err := <-done:
		t.Fatalf("committed without its standby: %v", err)
	default:
	}
	p.Rejoin(t)
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("the commit goes on waiting for a standby that is back")
	}
	if name := scan[string](t, watcher, "select application_name from pg_stat_replication"); !strings.HasPrefix(name, "sb") {
		t.Errorf("the standby is called %q", name)
	}
}
