package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/ledger"
)

// Many callers, few keys, and statements that are struck at random. COUNTERFOIL_SEED repeats a run as far as
// the race of its callers allows; COUNTERFOIL_FAULT_ROUNDS makes it longer.
func TestFaultsAtRandom(t *testing.T) {
	t.Parallel()
	seed, rounds := number(t, "COUNTERFOIL_SEED", time.Now().UnixNano()), number(t, "COUNTERFOIL_FAULT_ROUNDS", 24)
	t.Logf("COUNTERFOIL_SEED=%d COUNTERFOIL_FAULT_ROUNDS=%d", seed, rounds)
	b := setup(t)
	granted := b.furnish(t, "wal_round", int(2*rounds))
	verdicts := make([]chan error, rounds)
	slots := make(chan struct{}, 6)
	for i := range verdicts {
		r := &round{random: rand.New(rand.NewPCG(uint64(seed), uint64(i)))}
		for _, p := range granted[2*i : 2*i+2] {
			r.rows = append(r.rows, &row{t: t, lane: &lane{}, fault: fault{brief: true}, permit: p})
		}
		verdicts[i] = make(chan error, 1)
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			verdict := errors.New("the round ended without a verdict")
			defer func() { verdicts[i] <- verdict }()
			verdict = r.run(t, b)
		}()
	}
	for i := range verdicts {
		t.Run(fmt.Sprintf("round %d", i), func(t *testing.T) {
			if err := <-verdicts[i]; err != nil {
				t.Errorf("%v (COUNTERFOIL_SEED=%d)", err, seed)
			}
		})
	}
	b.fsck(t)
}

func number(t *testing.T, name string, fallback int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// round is a little load on two wallets of one ledger, while statements are struck.
type round struct {
	random *rand.Rand
	rows   []*row // one for each wallet: what the outside saw of it
}

// Callers of a round, the calls of each, and the keys they share.
const (
	callers = 8
	calls   = 5
	keys    = 9
)

func (r *round) run(t *testing.T, b *bundle) error {
	s := newStation(t, b, b.ledger)
	tune := func(o *ledger.Options) { o.Shards, o.MaxBatch, o.Patience = 2, 1+r.random.IntN(8), 3*time.Second }
	if err := s.open(&lane{options: tune}, &fault{brief: true}); err != nil {
		return err
	}
	for _, one := range r.rows {
		one.station = s
	}
	armed := r.strikes()
	s.proxy.Arm(armed...)
	s.proxy.Delay(time.Duration(r.random.IntN(3)) * time.Millisecond)
	err := errors.Join(r.load(s)...)
	s.proxy.Disarm()
	for _, one := range r.rows {
		err = errors.Join(err, one.check())
	}
	if err != nil {
		return fmt.Errorf("%w, after %+v", err, armed)
	}
	return s.leave()
}

// strikes are one to four faults at statements that calls execute.
func (r *round) strikes() []chaosproxy.Strike {
	var statements []string
	for _, l := range append(claimLanes(), settleLanes()...) {
		statements = append(statements, l.statements...)
	}
	list := make([]chaosproxy.Strike, 1+r.random.IntN(4))
	for i := range list {
		list[i] = chaosproxy.Strike{
			Match: textOf(statements[r.random.IntN(len(statements))]),
			Skip:  r.random.IntN(8),
			Fault: faults()[r.random.IntN(len(faults()))].fault,
			Hold:  time.Duration(1+r.random.IntN(1500)) * time.Millisecond,
		}
	}
	return list
}

// load lets the callers call and repeat, each on his own.
func (r *round) load(s *station) []error {
	var wait sync.WaitGroup
	failed := make([]error, callers)
	for i := range callers {
		random := rand.New(rand.NewPCG(r.random.Uint64(), 0))
		wait.Go(func() {
			for range calls {
				one := r.rows[random.IntN(len(r.rows))]
				end := []func(*ledger.Granted) *ledger.Settlement{succeeded, unreachable, unanswered}[random.IntN(3)]
				if err := one.anyCall(fmt.Sprintf("shared-%d", random.IntN(keys)), end); err != nil {
					failed[i] = err
					return
				}
			}
		})
	}
	wait.Wait()
	s.proxy.Release()
	return failed
}

// anyCall is a call, or a repeat of one, that may be told anything but a lie.
func (r *row) anyCall(key string, end func(*ledger.Granted) *ledger.Settlement) error {
	g, err := r.claim(key)
	if g != nil && err == nil {
		err = r.settle(key, end(g))
	}
	if notSaid(err) {
		return nil
	}
	return err
}
