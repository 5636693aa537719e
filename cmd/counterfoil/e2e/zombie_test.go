package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"counterfoil/internal/testdb"
)

// freeze stops a process as a debugger or a hypervisor does: it knows nothing of it.
func (p *process) freeze(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { p.thaw() })
}

func (p *process) thaw() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// TestPausedAtRandom: a gateway that stands still for longer than its lease, wherever in its calls, holds up
// nobody, and comes back to operations that are no longer its own. It changes nothing and answers what is
// recorded; what its tool said is kept beside the record.
func TestPausedAtRandom(t *testing.T) {
	t.Parallel()
	r := newRounds(t, 2)
	databaseURL := testdb.NewDurable(t).URL()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	s, fleet := newFleet(t, databaseURL, 2)
	sound, zombie := fleet[0], fleet[1]
	b := s.newBook(t, 2)
	pause, c := &stopwatch{}, &tally{}
	late := map[string]int{}
	for rng, more := r.next(t); more; rng, more = r.next(t) {
		from := len(b.all())
		over := make(chan struct{})
		crowd := r.crowd(12, func(rng *rand.Rand) bool {
			b.insist(t, b.pick(rng), at(zombie.url))
			return !closed(over)
		})
		b.moment(t, rng)
		zombie.process.freeze(t)
		if (r.done+int(r.seed%2))%2 == 0 {
			b.freezeWithLocks(t, rng, zombie, conn)
		}
		pause.start()
		close(over)
		each([]*page{b.write(rng), b.write(rng), b.write(rng), b.write(rng)}, func(p *page) { b.insist(t, p, at(sound.url)) })
		pause.stop()
		eventually(t, "the takeover", func() bool { return s.inFlight(t) == 0 })
		pause.stop()
		if rng.IntN(2) == 0 { // somebody makes elsewhere the calls that the zombie is still going to make
			b.settle(t, sound.url, c)
		}
		before := b.journal()
		zombie.process.thaw()
		crowd.Wait()
		b.lateResults(t, b.all()[from:], before, late)
	}
	b.audit(t, zombie.url)
	b.report(t, "%d rounds, of the second callers %s; nobody waited for more than %s; late results %v", r.done, c, pause.slowest.Round(time.Millisecond), late)
	pause.check(t)
	if r.long && (late["succeeded"] == 0 || late[notDispatchedEnding] == 0) {
		t.Errorf("the pauses did not hit every state of a call: %v", late)
	}
}

// freezeWithLocks lets a frozen gateway go on until it stands still in the middle of a transaction.
func (b *book) freezeWithLocks(t *testing.T, rng *rand.Rand, m *member, conn *pgx.Conn) {
	t.Helper()
	eventually(t, "a gateway that stands still with locks", func() bool {
		var n int
		pass(50 * time.Millisecond)
		err := conn.QueryRow(t.Context(), `select count(*) from pg_stat_activity
			where state = 'idle in transaction' and state_change < clock_timestamp() - interval '40 milliseconds'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return true
		}
		m.process.thaw()
		pass(time.Duration(2000+rng.IntN(8000)) * time.Microsecond)
		m.process.freeze(t)
		return false
	})
}

// inFlight counts the operations that have no outcome.
func (s *system) inFlight(t *testing.T) int {
	t.Helper()
	return len(s.all(t, "/v1/operations", url.Values{"state": {"dispatching"}}))
}

// lateResults wants what became of each interrupted call to be kept, as its gateway lives, and counts it. What
// was said by then stands beside the outcome, in whose place it never comes.
func (b *book) lateResults(t *testing.T, pages []*page, before journal, kinds map[string]int) {
	t.Helper()
	late := map[*page]string{}
	for _, p := range pages {
		if a, _ := p.answered(); a.ending() == interruptedEnding {
			late[p] = b.lateResult(t, p.call.key, a.meta.Operation)
			kinds[late[p]]++
		}
	}
	after := b.journal()
	for p, outcome := range late {
		if !p.unique() {
			continue
		}
		n := after.byArgs[p.call.args]
		if before.byArgs[p.call.args] == 0 && n == 1 {
			kinds["sent after the takeover"]++ // frozen between its last look at the lease and the first byte
		}
		if (outcome == "succeeded") != (n == 1) {
			t.Errorf("%d effects of %s, and late it is %s", n, p.call.key, outcome)
		}
	}
}

// lateResult is how the call ended, too late.
func (b *book) lateResult(t *testing.T, key, operation string) string {
	t.Helper()
	var late map[string]any
	eventually(t, "the late result of "+key, func() bool {
		op := b.s.operator(t, http.MethodGet, "/v1/operations/"+operation, nil, http.StatusOK)
		if op["outcome"] != "delivery_uncertain" || op["reason"] != "gateway_interrupted" || op["state"] != "finished" {
			t.Fatalf("the outcome of %s has changed: %v", key, op)
		}
		late, _ = op["late_result"].(map[string]any)
		return late != nil
	})
	if late["reason"] == nil {
		return fmt.Sprint(late["outcome"])
	}
	return fmt.Sprint(late["outcome"], " ", late["reason"])
}
