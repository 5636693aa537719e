package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/embeddedpg"
	"counterfoil/internal/testdb"
)

// durable is a database that syncs to disk, and can be killed and started again.
type durable struct{ server *embeddedpg.Server }

// newDurable must be called before anything that uses the database, so that it ends after it.
func newDurable(t *testing.T) *durable {
	t.Helper()
	d := &durable{server: testdb.NewDurable(t)}
	t.Cleanup(func() {
		if err := d.server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *durable) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	server, err := embeddedpg.Start(ctx, embeddedpg.Options{
		Dir: d.server.Dir(), Settings: map[string]string{"dynamic_shared_memory_type": "mmap"},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.server = server
}

// children are the processes of a postmaster.
func children(t *testing.T, postmaster int) []int {
	t.Helper()
	out, err := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(postmaster)).Output()
	if err != nil {
		t.Fatalf("list the database's processes: %v", err)
	}
	var pids []int
	for _, field := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// ways are what kill -9 can do to a database.
var ways = []string{"the postmaster", "everything", "one process"}

// kill kills the database in one of these ways. It reports false where the postmaster survives: it then ends
// all other processes and recovers by itself.
func (d *durable) kill(t *testing.T, way string, rng *rand.Rand) (gone bool) {
	t.Helper()
	all := children(t, d.server.PID())
	if way == "one process" {
		// Any of them: whichever it is, the postmaster no longer trusts the shared memory.
		_ = syscall.Kill(all[rng.IntN(len(all))], syscall.SIGKILL)
		return false
	}
	if err := syscall.Kill(d.server.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if way == "everything" {
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	receive(t, d.server.Done(), "the end of the database")
	return true
}

// TestDatabaseKilled: kill -9 of PostgreSQL under load. Callers hear that the store is away, or that nothing is
// known, and have the outcome when they come again with the same key. Nothing that was acknowledged is lost,
// nothing is sent twice, and the gateway needs nobody's help.
func TestDatabaseKilled(t *testing.T) {
	t.Parallel()
	r := newRounds(t, 2)
	d := newDurable(t)
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", d.server.URL()), longLease)
	b := s.newBook(t, 4)
	began := map[string]int{}
	for rng, more := r.next(t); more; rng, more = r.next(t) {
		over := make(chan struct{})
		crowd := r.crowd(12, func(rng *rand.Rand) bool {
			if rng.IntN(20) == 0 {
				b.change(t, s.url, rng)
			} else {
				b.insist(t, b.pick(rng), at(s.url))
			}
			return !closed(over)
		})
		b.moment(t, rng)
		way := ways[(r.done+int(r.seed%3))%len(ways)]
		began[way]++
		if d.kill(t, way, rng) {
			pass(time.Duration(rng.IntN(300)) * time.Millisecond)
			d.start(t)
		}
		b.moment(t, rng) // and on
		close(over)
		crowd.Wait()
		s.fsck(t)
	}
	b.audit(t, s.url)
	b.report(t, "%d rounds: %v", r.done, began)
	if b.counts["no answer"] > 0 || b.counts["store_unavailable"]+b.counts["outcome_unknown"] == 0 {
		t.Errorf("while the database was away, callers heard %v", b.counts)
	}
	for _, p := range b.all() {
		if a, _ := p.answered(); a.ending() == interruptedEnding {
			t.Errorf("the gateway lived all the time, and %s is left to a takeover", p.call.key)
		}
	}
}

// TestEmbeddedDatabaseKilled: a gateway whose own database dies says so and ends, with whatever it ran. Another
// one started over and over would hide what is wrong with it. The next start recovers.
func TestEmbeddedDatabaseKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(testdb.Dir(t), "pg")
	s := newSystemOn(t, fmt.Sprintf("database: {embedded: {dir: %q}}", dir), "limits: {lease: 60s, timeouts: {store: 3s}}")
	b := s.newBook(t, 2)
	r := newRounds(t, 1)
	c := &tally{}
	slowest := time.Duration(0)
	for rng, more := r.next(t); more; rng, more = r.next(t) {
		crowd := r.crowd(12, func(rng *rand.Rand) bool { return b.ask(t, s.url, b.pick(rng)) == final })
		b.moment(t, rng)
		began := time.Now()
		pid, err := strconv.Atoi(strings.SplitN(string(readFile(t, filepath.Join(dir, "data", "postmaster.pid"))), "\n", 2)[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if status := s.first.status(t); status != 1 || !strings.Contains(s.first.logged(), "the embedded database ended by itself") {
			t.Errorf("without its database the gateway ended with status %d:\n%s", status, tail(s.first.logged(), 3000))
		}
		slowest = max(slowest, time.Since(began))
		crowd.Wait()
		s.start(t)
		b.settle(t, s.url, c)
	}
	b.audit(t, s.url)
	b.report(t, "%d rounds: %s; the slowest end took %s", r.done, c, slowest.Round(time.Millisecond))
}
