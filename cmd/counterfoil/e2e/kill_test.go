package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"counterfoil/internal/testdb"
)

// TestKilledAtRandom: kill -9 under load, wherever it hits, and again. What was acknowledged is there, and
// nothing is done, paid or answered twice.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	r := newRounds(t, 8)
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.NewDurable(t).URL()), longLease)
	b := s.newBook(t, 4)
	c := &tally{}
	slowest := time.Duration(0)
	for rng, more := r.next(t); more; rng, more = r.next(t) {
		crowd := r.crowd(16, func(rng *rand.Rand) bool {
			if rng.IntN(20) == 0 {
				return b.change(t, s.url, rng) != unknown
			}
			return b.ask(t, s.url, b.pick(rng)) != unknown
		})
		b.moment(t, rng)
		s.first.kill(t)
		crowd.Wait()
		if rng.IntN(4) == 0 { // and once more, while it recovers
			again := serve(t, s.config)
			pass(time.Duration(rng.IntN(20)) * time.Millisecond)
			again.kill(t)
		}
		s.start(t)
		began := time.Now()
		b.settle(t, s.url, c)
		slowest = max(slowest, time.Since(began))
		if r.done%10 == 0 {
			s.fsck(t)
		}
	}
	b.audit(t, s.url)
	b.report(t, "%d rounds: %s; the slowest recovery took %s", r.done, c, slowest.Round(time.Millisecond))
	if slowest > recoverySlack {
		t.Errorf("a lone gateway took %s to recover, as if it waited for a lease", slowest)
	}
	if c.interrupted == 0 || r.long && (c.neverMade == 0 || c.unheard == 0) {
		t.Errorf("the kills did not hit every state of a call: %s", c)
	}
}
