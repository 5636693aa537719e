package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	soakClients = 48
	soakPause   = 60 * time.Millisecond // of a client between two calls, in the mean
	soakWallets = 8                     // the first is hot
	patience    = 3 * time.Second       // of a client for one answer; then it asks elsewhere
)

// counts of what the clients have done.
type counts struct {
	attempts atomic.Int64 // requests
	calls    atomic.Int64 // keys
	broken   atomic.Int64 // requests that got no answer
	repeats  atomic.Int64 // of used keys
	changed  atomic.Int64 // repeats with other arguments
	twins    atomic.Int64 // keys that were sent to both gateways at once
	decided  atomic.Int64 // uncertain operations that a reconciler has decided
	dropped  atomic.Int64 // keys given up after an answer that says that nothing happened
}

// drive keeps the clients busy until load ends, and returns when each call has its answer, or wait ends.
func (s *soak) drive(load, wait context.Context) {
	var wg sync.WaitGroup
	for i := range soakClients {
		chance := rand.New(rand.NewPCG(s.Seed, uint64(i+1)))
		wg.Go(func() {
			for rest(load, time.Duration(chance.ExpFloat64()*float64(soakPause))) {
				s.step(wait, chance)
			}
		})
	}
	for i := range reconcilers {
		chance := rand.New(rand.NewPCG(s.Seed, uint64(1000+i)))
		wg.Go(func() { s.reconcile(load, wait, chance) })
	}
	wg.Wait()
}

// step is one thing that a client does.
func (s *soak) step(ctx context.Context, chance *rand.Rand) {
	switch roll := chance.IntN(100); {
	case roll < 22:
		s.repeat(ctx, chance)
	case roll < 27:
		s.change(ctx, chance)
	case roll < 37:
		n := s.open(chance)
		s.counts.twins.Add(1)
		var wg sync.WaitGroup
		for i := range s.fleet.nodes {
			wg.Go(func() { s.settle(ctx, n, i, false) })
		}
		wg.Wait()
	default:
		n := s.open(chance)
		s.settle(ctx, n, chance.IntN(len(s.fleet.nodes)), chance.IntN(4) == 0)
	}
}

// open begins a call under a new key.
func (s *soak) open(chance *rand.Rand) int {
	roll, kind := chance.IntN(100), 0
	for i, k := range callKinds() {
		if kind = i; roll < k.share {
			break
		}
		roll -= k.share
	}
	wallet := 0
	switch {
	case callKinds()[kind].tight:
		wallet = soakWallets
	case chance.IntN(2) == 0:
		wallet = 1 + chance.IntN(soakWallets-1)
	}
	s.counts.calls.Add(1)
	return s.book.add(wallet, kind)
}

// settle asks for a key until it has its final answer. credulous: the caller leaves it at a first answer which
// says that nothing happened, so that the end can tell whether that was true.
func (s *soak) settle(ctx context.Context, n, at int, credulous bool) {
	began := time.Now()
	for try := 0; ; try++ {
		r, err := s.ask(ctx, n, at, usualAmount)
		switch {
		case err != nil:
			s.counts.broken.Add(1)
		case credulous && try == 0 && nothingHappened(r.verdict()):
			s.counts.dropped.Add(1)
			s.acknowledge(n, r, began)
			return
		case r.final:
			s.acknowledge(n, r, began)
			return
		}
		at = (at + 1) % len(s.fleet.nodes)
		if !rest(ctx, min(20*time.Millisecond<<min(try, 5), 500*time.Millisecond)) {
			return
		}
	}
}

func (s *soak) acknowledge(n int, r reply, began time.Time) {
	incident := s.incidents.answered(began, callKinds()[s.book.at(n).kind], r.outcome)
	if err := s.book.acknowledge(n, r, incident); err != nil {
		s.report(foundLost, err.Error())
	}
	if r.outcome == outcomeUncertain {
		s.cases.add(n, r.operation)
	}
}

// pick finds a key that was answered for good, or −1.
func (s *soak) pick(chance *rand.Rand) int {
	total := s.book.len()
	for range 8 {
		if total == 0 {
			break
		}
		n := chance.IntN(total)
		if chance.IntN(2) == 0 { // what was in flight a moment ago is the hard case
			n = total - 1 - chance.IntN(min(total, 200))
		}
		if s.book.repeatable(n) {
			return n
		}
	}
	return -1
}

// repeat asks again for a used key. The answer must be the same bytes.
func (s *soak) repeat(ctx context.Context, chance *rand.Rand) {
	n := s.pick(chance)
	if n < 0 {
		return
	}
	s.counts.repeats.Add(1)
	if r, err := s.ask(ctx, n, chance.IntN(len(s.fleet.nodes)), usualAmount); err == nil {
		s.same(n, r)
	}
}

// same compares a repeat with what was answered. An answer that says to ask again says nothing else.
func (s *soak) same(n int, r reply) bool {
	if !r.final {
		return false
	}
	if err := s.book.acknowledge(n, r, 0); err != nil {
		s.report(foundLost, err.Error())
	} else if !r.replayed {
		s.report(foundLost, fmt.Sprintf("%s%d had an answer, and its repeat was no replay: %s", keyPrefix, n, r.text))
	}
	return true
}

// change asks under a used key for something else, which must be refused.
func (s *soak) change(ctx context.Context, chance *rand.Rand) {
	n := s.pick(chance)
	if n < 0 {
		return
	}
	s.counts.changed.Add(1)
	r, err := s.ask(ctx, n, chance.IntN(len(s.fleet.nodes)), usualAmount+1)
	if err == nil && r.final && r.verdict() != verdictRefused+"/idempotency_key_reused" {
		s.report(foundUnexpected, fmt.Sprintf("%s%d was used, and another request under it was answered %s", keyPrefix, n, r.text))
	}
}

// usualAmount is the amount of every call, in cents.
const usualAmount = 1200

// ask sends a call once, to one of the gateways.
func (s *soak) ask(ctx context.Context, n, at, amount int) (reply, error) {
	s.counts.attempts.Add(1)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	record := s.book.at(n)
	from := s.accounts[record.wallet]
	req, err := newCall(ctx, s.fleet.nodes[at].base+"/mcp", from.APIKey, soakBody(from, callKinds()[record.kind], n, amount))
	if err != nil {
		return reply{}, err
	}
	if n%3 == 0 {
		req.Header.Set("Prefer", "wait=2")
	}
	res, err := exchange(s.client, req)
	if err != nil {
		return reply{}, err
	}
	r, err := readReply(res.body, res.header.Get("Idempotent-Replayed") == "true")
	if err != nil || res.status != http.StatusOK && r.final {
		s.odd(res)
	}
	return r, err
}
