package e2e_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bell rings once, when as many events have passed as it was made for. A nil bell hears nothing.
type bell struct {
	left atomic.Int64
	rung chan struct{}
}

func newBell(events int) *bell {
	b := &bell{rung: make(chan struct{})}
	b.left.Store(int64(events))
	return b
}

func (b *bell) pass() {
	if b != nil && b.left.Add(-1) == 0 {
		close(b.rung)
	}
}

// rounds bound a test that repeats itself with other random choices: a few by default, many where
// COUNTERFOIL_KILL_ROUNDS and COUNTERFOIL_KILL_SECONDS say so. COUNTERFOIL_SEED repeats the choices of a run.
type rounds struct {
	seed  uint64
	most  int
	long  bool
	until time.Time
	done  int
}

// longForm is from how many rounds on a test wants to have seen everything that can happen.
const longForm = 50

func newRounds(t *testing.T, usual int) *rounds {
	t.Helper()
	r := &rounds{seed: rand.Uint64() >> 1, most: usual, until: time.Now().Add(2 * time.Minute)}
	if n := setting(t, "COUNTERFOIL_SEED"); n > 0 {
		r.seed = uint64(n)
	}
	if n := setting(t, "COUNTERFOIL_KILL_ROUNDS"); n > 0 {
		r.most, r.until = int(n), time.Now().Add(time.Hour)
	}
	if n := setting(t, "COUNTERFOIL_KILL_SECONDS"); n > 0 {
		r.until = time.Now().Add(time.Duration(n) * time.Second)
	}
	r.long = r.most >= longForm
	t.Logf("at most %d rounds; COUNTERFOIL_SEED=%d makes the same choices", r.most, r.seed)
	return r
}

func setting(t *testing.T, name string) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q", name, text)
	}
	return n
}

// next begins a round, with its own source of choices.
func (r *rounds) next(t *testing.T) (rng *rand.Rand, more bool) {
	if t.Failed() || r.done == r.most || (r.done > 0 && time.Now().After(r.until)) {
		return nil, false
	}
	r.done++
	return r.random(0), true
}

// random is a source of choices for one worker of this round.
func (r *rounds) random(worker int) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed, uint64(r.done)<<16|uint64(worker)))
}

// crowd runs workers that each repeat a step until it reports false.
func (r *rounds) crowd(workers int, step func(rng *rand.Rand) bool) *sync.WaitGroup {
	wg := &sync.WaitGroup{}
	for worker := range workers {
		rng := r.random(worker + 1)
		wg.Go(func() {
			for step(rng) {
			}
		})
	}
	return wg
}

// moment waits for a random moment of a loaded gateway: some calls after now, as a call arrives at the tool,
// when it has acted, or when a caller has its answer; and then a few milliseconds more, or not.
func (b *book) moment(t *testing.T, rng *rand.Rand) {
	t.Helper()
	ring := newBell(1 + rng.IntN(50))
	where := []*atomic.Pointer[bell]{&b.answers, &b.s.tool.arrivals, &b.s.tool.acts}[rng.IntN(3)]
	wait := time.Duration(rng.IntN(2)*rng.IntN(8000)) * time.Microsecond
	where.Store(ring)
	defer where.Store(nil)
	receive(t, ring.rung, "the moment")
	pass(wait)
}

// pass lets time pass: chance, and no condition that could be waited for.
func pass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
