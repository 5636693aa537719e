package gateway

import (
	"sync"
	"time"

	"counterfoil/receipts"
)

// limiter bounds the new calls of each agent. It remembers only agents that
// have called lately.
type limiter struct {
	limits Limits
	mu     sync.Mutex
	agents map[string]*allowance
}

type allowance struct {
	running int
	tokens  float64
	at      time.Time
}

// maxIdleAgents bounds the memory of the limiter.
const maxIdleAgents = 10_000

func newLimiter(l Limits) *limiter { return &limiter{limits: l, agents: map[string]*allowance{}} }

// admit takes one call in; release gives its place back. Replays are not
// counted: they cost nobody anything, and a limit must not hide an outcome.
func (l *limiter) admit(agent string, now time.Time) (release func(), refusal *Refusal) {
	if l.limits.AgentRate == 0 && l.limits.AgentConcurrent == 0 {
		return func() {}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.agents[agent]
	if a == nil {
		l.forgetIdle(now)
		a = &allowance{tokens: float64(l.limits.AgentRate), at: now}
		l.agents[agent] = a
	}
	if !l.take(a, now) {
		return nil, &Refusal{Reason: receipts.ReasonRateLimited}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		a.running--
	}, nil
}

func (l *limiter) take(a *allowance, now time.Time) bool {
	if l.limits.AgentConcurrent > 0 && a.running >= l.limits.AgentConcurrent {
		return false
	}
	if rate := float64(l.limits.AgentRate); rate > 0 {
		// A clock that steps back gives nothing and takes nothing.
		a.tokens = min(rate, a.tokens+max(0, now.Sub(a.at).Seconds())*rate)
		a.at = now
		if a.tokens < 1 {
			return false
		}
		a.tokens--
	}
	a.running++
	return true
}

func (l *limiter) forgetIdle(now time.Time) {
	if len(l.agents) < maxIdleAgents {
		return
	}
	for id, a := range l.agents {
		if a.running == 0 && now.Sub(a.at) > time.Second {
			delete(l.agents, id)
		}
	}
}
