package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"counterfoil/internal/testdb"
)

// member is one gateway of several on a database.
type member struct {
	config, url string
	process     *process
}

// join starts one more gateway on a system's database.
func (s *system) join(t *testing.T, name string) *member {
	t.Helper()
	listen := freeAddress(t)
	m := &member{config: s.configure(t, name+".yaml", listen, toolLines), url: "http://" + listen}
	m.start(t, s)
	return m
}

func (m *member) start(t *testing.T, s *system) {
	t.Helper()
	m.process = serve(t, m.config)
	s.described(t, m.url)
}

// fleetLease is the lease of gateways whose death is waited for.
const fleetLease = 2 * time.Second

// takeoverSlack is what a takeover may take beyond the lease.
const takeoverSlack = 5 * time.Second

// newFleet starts gateways on one database.
func newFleet(t *testing.T, databaseURL string, gateways int) (*system, []*member) {
	t.Helper()
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", databaseURL), fmt.Sprintf("limits: {lease: %s}", fleetLease))
	members := []*member{{config: s.config, url: s.url, process: s.first}}
	for i := 1; i < gateways; i++ {
		members = append(members, s.join(t, fmt.Sprintf("gateway-%d", i)))
	}
	return s, members
}

// stopwatch measures how long after a death the calls of the dead were settled.
type stopwatch struct {
	mu      sync.Mutex
	since   time.Time     // guarded by mu; zero: it stands
	n       int           // guarded by mu
	slowest time.Duration // guarded by mu
}

func (w *stopwatch) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Now()
}

// stop takes a time. It goes on, for others.
func (w *stopwatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return
	}
	w.n++
	w.slowest = max(w.slowest, time.Since(w.since))
}

func (w *stopwatch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
}

func (w *stopwatch) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == 0 || w.slowest > fleetLease+takeoverSlack {
		t.Errorf("%d calls were taken over, the slowest within %s of the death; the lease is %s", w.n, w.slowest, fleetLease)
	}
}

// TestOneOfThreeKilled: whoever lost its gateway asks the others, with the same key, and has the outcome soon
// after the lease. The dead one comes back, and goes on.
func TestOneOfThreeKilled(t *testing.T) {
	t.Parallel()
	r := newRounds(t, 2)
	s, fleet := newFleet(t, testdb.NewDurable(t).URL(), 3)
	b := s.newBook(t, 4)
	takeover := &stopwatch{}
	for rng, more := r.next(t); more; rng, more = r.next(t) {
		over := make(chan struct{})
		crowd := r.crowd(16, func(rng *rand.Rand) bool {
			b.callFleet(t, rng, fleet, takeover)
			return !closed(over)
		})
		b.moment(t, rng)
		victim := fleet[rng.IntN(len(fleet))]
		takeover.start()
		victim.process.kill(t)
		b.moment(t, rng) // the others go on
		back := r.done > 1 && rng.IntN(3) == 0
		if back { // at once: then it settles its own calls
			victim.start(t, s)
		}
		close(over)
		crowd.Wait()
		takeover.reset()
		if !back {
			victim.start(t, s)
		}
	}
	b.audit(t, fleet[r.done%len(fleet)].url)
	b.report(t, "%d rounds, %d calls taken over, the slowest %s after the death", r.done, takeover.n, takeover.slowest.Round(time.Millisecond))
	takeover.check(t)
}

// callFleet makes one call until it has its outcome: at one gateway or at several at once, and elsewhere when
// one does not answer.
func (b *book) callFleet(t *testing.T, rng *rand.Rand, fleet []*member, takeover *stopwatch) {
	if rng.IntN(20) == 0 {
		b.change(t, fleet[rng.IntN(len(fleet))].url, rng)
		return
	}
	p := b.pick(rng)
	_, ended := p.answered()
	copies := 1
	if rng.IntN(4) == 0 {
		copies = len(fleet)
	}
	var wg sync.WaitGroup
	for i := range copies {
		n := rng.IntN(len(fleet)) + i
		wg.Go(func() {
			b.insist(t, p, func() string { n++; return fleet[n%len(fleet)].url })
		})
	}
	wg.Wait()
	if a, _ := p.answered(); !ended && a.ending() == interruptedEnding {
		takeover.stop()
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
