package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"counterfoil/gateway"
)

// gate drives a limiter on a clock of its own.
type gate struct {
	gateway.Limiter
	now    time.Time
	leaves []func(sent bool)
}

func newGate(l gateway.Limits, rate, concurrent int) *gate {
	now := time.Unix(1_000_000, 0)
	return &gate{Limiter: gateway.NewLimiter(l, rate, concurrent, now), now: now}
}

// take asks for a new call, and wants it admitted, or refused in words that hold why.
func (g *gate) take(t *testing.T, agent, upstream, why string) {
	t.Helper()
	leave, refusal := g.Admit(agent, upstream, g.now)
	switch {
	case refusal == nil && why == "":
		g.leaves = append(g.leaves, leave)
	case refusal == nil || why == "" || refusal.Reason != "rate_limited" || !strings.Contains(refusal.Message(), why):
		t.Fatalf("%s to %s after %v: refused %+v, want %q", agent, upstream, g.now.Sub(time.Unix(1_000_000, 0)), refusal, why)
	}
}

// leave ends the oldest call.
func (g *gate) leave(sent bool) {
	g.leaves[0](sent)
	g.leaves = g.leaves[1:]
}

const (
	agentBusy    = "This agent"
	upstreamBusy = "The tool's server"
	gatewayBusy  = "The gateway"
)

func TestAnAgentHasItsOwnRateAndConcurrency(t *testing.T) {
	t.Parallel()
	g := newGate(gateway.Limits{AgentRate: 2, AgentConcurrent: 3}, 0, 0)
	g.take(t, "a", "u", "")
	g.take(t, "a", "u", "")
	g.take(t, "a", "u", agentBusy) // the rate
	g.take(t, "b", "u", "")        // is each agent's own
	g.now = g.now.Add(time.Second)
	g.take(t, "a", "u", "")
	g.take(t, "a", "u", agentBusy) // three are running
	g.leave(true)
	g.take(t, "a", "u", "")
}

func TestAnUpstreamHasItsOwnRateAndConcurrency(t *testing.T) {
	t.Parallel()
	g := newGate(gateway.Limits{}, 2, 3)
	g.take(t, "a", "u", "")
	g.take(t, "b", "u", "")
	g.take(t, "c", "u", upstreamBusy) // whoever asks
	g.take(t, "c", "v", "")           // and there only
	g.now = g.now.Add(time.Second / 2)
	g.take(t, "c", "u", "")
	g.take(t, "c", "u", upstreamBusy)
	g.now = g.now.Add(time.Minute)
	g.take(t, "c", "u", upstreamBusy) // three are running
	g.leave(true)
	g.take(t, "c", "u", "")
	g.take(t, "c", "u", upstreamBusy)
}

// A caller whose calls are denied must not use up what an upstream gets of the others.
func TestACallThatIsNotSentGivesItsRateBack(t *testing.T) {
	t.Parallel()
	g := newGate(gateway.Limits{}, 1, 0)
	for range 10 {
		g.take(t, "a", "u", "")
		g.leave(false)
	}
	g.take(t, "b", "u", "")
	g.leave(true)
	g.take(t, "b", "u", upstreamBusy)
}

func TestARefusedCallHoldsNothing(t *testing.T) {
	t.Parallel()
	g := newGate(gateway.Limits{AgentRate: 2, AgentConcurrent: 2, InFlight: 2}, 0, 1)
	g.take(t, "a", "u", "")
	for range 10 {
		g.take(t, "a", "u", upstreamBusy)
		g.take(t, "b", "u", upstreamBusy)
	}
	g.take(t, "b", "v", "") // neither its rate nor its places are gone
	for range 10 {
		g.take(t, "b", "v", gatewayBusy)
		g.take(t, "c", "v", gatewayBusy)
	}
	g.leave(true)
	g.take(t, "b", "u", "")
}

// Calls are admitted in another order than they began, as far as their look-ups took different times.
func TestTimeIsCountedOnce(t *testing.T) {
	t.Parallel()
	g := newGate(gateway.Limits{AgentRate: 1}, 0, 0)
	g.take(t, "a", "u", "")
	later := g.now.Add(time.Second)
	admitted := 0
	for i := range 20 {
		g.now = later
		if i%2 == 0 {
			g.now = later.Add(-time.Second)
		}
		if _, refusal := g.Admit("a", "u", g.now); refusal == nil {
			admitted++
		}
	}
	if admitted != 1 {
		t.Errorf("%d calls in one second at a rate of 1", admitted)
	}
}

func TestOneAgentGetsHalfTheConnections(t *testing.T) {
	t.Parallel()
	g := newGate(gateway.Limits{Connections: 6}, 0, 0)
	var leaves []func()
	for range 3 {
		leave, refusal := g.Enter("a", g.now)
		if refusal != nil {
			t.Fatalf("refused: %+v", refusal)
		}
		leaves = append(leaves, leave)
	}
	if _, refusal := g.Enter("a", g.now); refusal == nil || refusal.Reason != "rate_limited" {
		t.Errorf("a fourth request: %+v", refusal)
	}
	if _, refusal := g.Enter("b", g.now); refusal != nil {
		t.Errorf("another agent: %+v", refusal)
	}
	leaves[0]()
	if _, refusal := g.Enter("a", g.now); refusal != nil {
		t.Errorf("after one has left: %+v", refusal)
	}
}

func TestIdleAgentsAreForgotten(t *testing.T) {
	t.Parallel()
	g := newGate(gateway.Limits{AgentConcurrent: 1, Connections: 2}, 0, 0)
	g.take(t, "busy", "u", "")
	if _, refusal := g.Enter("present", g.now); refusal != nil {
		t.Fatal(refusal)
	}
	for i := range 60_000 {
		if i%6000 == 0 {
			g.now = g.now.Add(2 * time.Second)
		}
		g.take(t, fmt.Sprint(i), "u", "")
		g.leaves[len(g.leaves)-1](true)
	}
	if n := g.Known(); n > 20_000 {
		t.Errorf("%d agents are remembered", n)
	}
	g.take(t, "busy", "u", agentBusy)
	if _, refusal := g.Enter("present", g.now); refusal == nil {
		t.Error("an agent was forgotten in the middle of its request")
	}
}
