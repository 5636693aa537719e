package gateway

import (
	"sync"
	"time"

	"counterfoil/receipts"
)

// bound is how much of something may go on. 0 is no limit.
type bound struct {
	rate       int // beginnings a second
	concurrent int
}

// allowance is what one party has used of its bound.
type allowance struct {
	bound
	running int
	tokens  float64
	at      time.Time
}

func newAllowance(b bound, now time.Time) allowance {
	return allowance{bound: b, tokens: float64(b.rate), at: now}
}

// free reports whether one more may begin.
func (a *allowance) free(now time.Time) bool {
	// Calls do not come here in the order in which they began: time is counted once.
	if now.After(a.at) {
		a.tokens = min(float64(a.rate), a.tokens+now.Sub(a.at).Seconds()*float64(a.rate))
		a.at = now
	}
	return (a.concurrent == 0 || a.running < a.concurrent) && (a.rate == 0 || a.tokens >= 1)
}

func (a *allowance) take() {
	a.running++
	if a.rate > 0 {
		a.tokens--
	}
}

// caller is what is under way for one agent.
type caller struct {
	requests int       // of any kind, repeats too
	calls    allowance // new ones
}

// limiter bounds what is under way: for each agent, for each upstream, and in
// all. Who is over a bound is refused before anything is written.
type limiter struct {
	agent bound // of each agent's new calls
	share int   // of one agent's requests at a time

	mu        sync.Mutex
	calls     allowance             // of the whole gateway
	upstreams map[string]*allowance // fixed after start
	agents    map[string]*caller    // those that have called lately
	swept     time.Time
}

const (
	// maxIdleAgents bounds the memory of the limiter.
	maxIdleAgents = 10_000
	// perSlot is how many calls are let in for each that may be at an upstream at
	// once: the others claim, wait for a slot or are recorded.
	perSlot = 2
)

func newLimiter(l Limits, upstreams map[string]bound, now time.Time) *limiter {
	out := &limiter{
		agent: bound{l.AgentRate, l.AgentConcurrent},
		// One agent never holds all connections, whatever it does on them.
		share: max(1, l.Connections/2),
		calls: newAllowance(bound{concurrent: l.InFlight}, now), upstreams: map[string]*allowance{}, agents: map[string]*caller{},
	}
	for name, b := range upstreams {
		a := newAllowance(b, now)
		out.upstreams[name] = &a
	}
	return out
}

// enter takes one request of an agent in, of whatever kind; leave ends it.
func (l *limiter) enter(agent string, now time.Time) (leave func(), refusal *Refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.caller(agent, now)
	if c.requests >= l.share {
		return nil, &Refusal{Reason: receipts.ReasonRateLimited}
	}
	c.requests++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.requests--
	}, nil
}

// place is what one new call holds of the bounds until it leaves.
type place struct {
	limiter *limiter
	held    []*allowance
	// sent says that the call goes to its upstream: only then does it count
	// against that one's rate.
	sent     bool
	upstream *allowance
}

// admit takes one new call in. Replays do not come here: they cost nobody
// anything, and a limit must not hide an outcome. An upstream that does not exist
// has no bound.
func (l *limiter) admit(agent, upstream string, now time.Time) (*place, *Refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	up := l.upstreams[upstream]
	own := &l.caller(agent, now).calls
	switch {
	case !own.free(now):
		return nil, &Refusal{Reason: receipts.ReasonRateLimited}
	case up != nil && !up.free(now):
		return nil, &Refusal{Reason: receipts.ReasonRateLimited, Detail: "The tool's server gets as many calls as it may; nothing was stored, ask again with the same key."}
	case !l.calls.free(now):
		return nil, &Refusal{Reason: receipts.ReasonRateLimited, Detail: "The gateway has as many calls in flight as it may; nothing was stored, ask again with the same key."}
	}
	p := &place{limiter: l, held: []*allowance{own, &l.calls}, upstream: up}
	if up != nil {
		p.held = append(p.held, up)
	}
	for _, a := range p.held {
		a.take()
	}
	return p, nil
}

// leave gives back what the call holds, once.
func (p *place) leave() {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	for _, a := range p.held {
		a.running--
	}
	if !p.sent && p.upstream != nil {
		p.upstream.tokens = min(float64(p.upstream.rate), p.upstream.tokens+1)
	}
	p.held, p.upstream = nil, nil
}

// caller finds an agent's record. One that is in use is never forgotten.
func (l *limiter) caller(agent string, now time.Time) *caller {
	c := l.agents[agent]
	if c == nil {
		l.forgetIdle(now)
		c = &caller{calls: newAllowance(l.agent, now)}
		l.agents[agent] = c
	}
	return c
}

func (l *limiter) forgetIdle(now time.Time) {
	if len(l.agents) < maxIdleAgents || now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for id, c := range l.agents {
		if c.requests == 0 && c.calls.running == 0 && now.Sub(c.calls.at) > time.Second {
			delete(l.agents, id)
		}
	}
}
