package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"counterfoil/internal/testdb"
)

// TestStoppedUnderLoad: SIGTERM loses no answer. Whoever was let in has its outcome, whoever was not is refused
// before anything was stored, and what is left behind is complete: nothing in flight, nothing unsigned.
func TestStoppedUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRounds(t, 4)
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.NewDurable(t).URL()), longLease)
	b := s.newBook(t, 4)
	c := &tally{}
	for rng, more := r.next(t); more; rng, more = r.next(t) {
		crowd := r.crowd(24, func(rng *rand.Rand) bool {
			w := b.ask(t, s.url, b.pick(rng))
			return w == final || w == running
		})
		b.moment(t, rng)
		s.first.signal(t, syscall.SIGTERM)
		crowd.Wait()
		if status := s.first.status(t); status != 0 {
			t.Errorf("exit status %d", status)
		}
		status, out := program(t, "counterfoil", "fsck", "--config", s.config)
		if status != 0 || !strings.Contains(out, "(0 not yet signed), 0 operations in flight") {
			t.Errorf("what a drained gateway left: status %d: %s", status, out)
		}
		s.start(t)
		b.settle(t, s.url, c)
	}
	if c.interrupted+c.unheard > 0 {
		t.Errorf("the drain lost answers: %s", c)
	}
	b.audit(t, s.url)
	b.report(t, "%d rounds: %s", r.done, c)
}
