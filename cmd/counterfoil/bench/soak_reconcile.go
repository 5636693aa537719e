package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const (
	reconcilers    = 2
	reconcilePause = 50 * time.Millisecond // of a reconciler between two decisions, in the mean
	// reflection is how long an uncertain call is left alone. A gateway that was only paused, or an upstream that is
	// slow to read, may still act; whoever decides before that decides wrongly, and the promises are not about that.
	reflection = 12 * time.Second
)

// cases are the uncertain operations that wait for a decision, and what the upstream's journal says of them.
type cases struct {
	mu      sync.Mutex
	waiting []uncertainCase
	known   map[int]bool
	journal func(offset int64) (list []effect, next int64, err error)
	offset  int64
	acted   map[string]bool // by invoice
}

type uncertainCase struct {
	n         int
	operation string
	since     time.Time
}

func (c *cases) add(n int, operation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = make(map[int]bool)
	}
	if c.known[n] {
		return // two callers of one key
	}
	c.known[n] = true
	c.waiting = append(c.waiting, uncertainCase{n: n, operation: operation, since: time.Now()})
}

// take takes any one out that has waited for long enough.
func (c *cases) take(chance *rand.Rand) (uncertainCase, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return uncertainCase{}, false
	}
	i, last := chance.IntN(len(c.waiting)), len(c.waiting)-1
	taken := c.waiting[i]
	if time.Since(taken.since) < reflection {
		return uncertainCase{}, false
	}
	c.waiting[i] = c.waiting[last]
	c.waiting = c.waiting[:last]
	return taken, true
}

// truth is what the journal says.
func (c *cases) truth(n int) (dispute, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, next, err := c.journal(c.offset)
	if err != nil {
		return undisputed, err
	}
	if c.acted == nil {
		c.acted = make(map[string]bool)
	}
	for _, e := range list {
		c.acted[e.invoice] = true
	}
	c.offset = next
	if c.acted[fmt.Sprint(keyPrefix, n)] {
		return delivered, nil
	}
	return notDelivered, nil
}

// reconcile decides uncertain operations at random until load ends, each with the truth.
func (s *soak) reconcile(load, wait context.Context, chance *rand.Rand) {
	for rest(load, time.Duration(chance.ExpFloat64()*float64(reconcilePause))) {
		if c, ok := s.cases.take(chance); ok {
			s.decide(wait, c, chance)
		}
	}
}

// decision is the request of a reconciler.
type decision struct {
	Resolution string `json:"resolution"`
	Evidence   string `json:"evidence"`
	Reference  string `json:"provider_reference"`
	Charged    *int64 `json:"credits_charged,omitempty"`
}

// decide says once what became of an operation, and asks for its answer, which must say so from then on.
func (s *soak) decide(ctx context.Context, c uncertainCase, chance *rand.Rand) {
	truth, err := s.cases.truth(c.n)
	if err != nil {
		s.report(foundProcess, err.Error())
		return
	}
	d := decision{Resolution: truth.resolution(), Evidence: "the upstream's journal", Reference: s.name(c.n)}
	if truth == delivered && chance.IntN(4) == 0 {
		d.Charged = new(int64)
		*d.Charged = 1
	}
	s.book.disputed(c.n, truth)
	at := chance.IntN(len(s.fleet.nodes))
	receipt, ok := s.tell(ctx, c, d, at)
	if !ok {
		return
	}
	s.counts.decided.Add(1)
	if r, err := s.ask(ctx, c.n, at, usualAmount); err == nil && s.same(c.n, r) && r.outcome != outcomeReconciled {
		s.report(foundLost, fmt.Sprintf("%s was decided, and is still answered %s", d.Reference, r.text))
	}
	switch chance.IntN(3) {
	case 0: // the same once more, at the other gateway
		if again, ok := s.tell(ctx, c, d, at+1); ok && again != receipt {
			s.report(foundLost, fmt.Sprintf("the decision about %s was answered with another receipt", d.Reference))
		}
	case 1:
		s.contradict(ctx, c, d, at+1)
	}
}

// tell sends a decision until it is answered, and gives its receipt; false when ctx ends first, or it is refused.
func (s *soak) tell(ctx context.Context, c uncertainCase, d decision, at int) (receipt string, ok bool) {
	for {
		res, err := s.resolve(ctx, c.operation, d, at)
		var answer struct {
			Outcome string `json:"outcome"`
			Receipt string `json:"receipt"`
		}
		switch {
		case err != nil || res.status >= http.StatusInternalServerError || res.status == http.StatusTooManyRequests:
			// the same again is safe
		case res.status != http.StatusOK:
			s.report(foundUnexpected, fmt.Sprintf("the decision about %s: HTTP %d: %.300s", d.Reference, res.status, res.body))
			return "", false
		case json.Unmarshal(res.body, &answer) != nil || answer.Outcome != outcomeReconciled || answer.Receipt == "":
			s.report(foundUnexpected, fmt.Sprintf("the decision about %s was answered %.300s", d.Reference, res.body))
			return "", false
		default:
			return answer.Receipt, true
		}
		if at++; !rest(ctx, 200*time.Millisecond) {
			return "", false
		}
	}
}

// contradict says the opposite of what was decided, which must be refused.
func (s *soak) contradict(ctx context.Context, c uncertainCase, d decision, at int) {
	other := decision{Resolution: delivered.resolution(), Evidence: d.Evidence, Reference: d.Reference}
	if d.Resolution == other.Resolution {
		other.Resolution = notDelivered.resolution()
	}
	res, err := s.resolve(ctx, c.operation, other, at)
	if err == nil && res.status < http.StatusInternalServerError && res.status != http.StatusConflict {
		s.report(foundUnexpected, fmt.Sprintf("%s was decided, and the opposite was answered HTTP %d: %.300s", d.Reference, res.status, res.body))
	}
}

// resolve sends a decision once.
func (s *soak) resolve(ctx context.Context, operation string, d decision, at int) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := json.Marshal(d)
	if err != nil {
		return response{}, err
	}
	o := operator{base: s.fleet.nodes[at%len(s.fleet.nodes)].base, token: s.fleet.reconciler}
	return o.send(ctx, http.MethodPost, "/v1/operations/"+operation+"/reconcile", body)
}
