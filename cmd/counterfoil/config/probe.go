package config

import (
	"regexp"
	"time"
)

const (
	defaultProbeArgument = "operation_key"
	defaultProbeStatus   = "/structuredContent/status"
	defaultProbeAfter    = 30 * time.Second
	defaultProbeLongest  = 15 * time.Minute
	defaultProbeGiveUp   = 24 * time.Hour
	minProbeWait         = 100 * time.Millisecond
	maxProbeWait         = 365 * 24 * time.Hour
)

var argumentPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Probe is a read-only tool of the same upstream that knows what became of a call.
type Probe struct {
	Tool     string // as the upstream calls it
	Argument string // gets the operation key
	Status   string // pointer into the answer

	After, Longest, GiveUp time.Duration
}

// probe reads a tool's probe. That its upstream calls it read-only is known only when that has been asked.
func (s *section) probe(upstreamTool string) *Probe {
	p, present := s.section("probe")
	if !present {
		return nil
	}
	tool := p.required("tool", "a read-only tool of the same upstream, as that calls it, such as payout_status")
	argument, status := p.scalar("argument"), p.scalar("status")
	out := &Probe{
		Tool: tool.text, Argument: p.matching(argument, argumentPattern, "an argument's name"), Status: p.pointer(status),
		After:   p.duration("after", defaultProbeAfter, minProbeWait, maxProbeWait),
		Longest: p.duration("longest", defaultProbeLongest, minProbeWait, maxProbeWait),
		GiveUp:  p.duration("give_up", defaultProbeGiveUp, minProbeWait, maxProbeWait),
	}
	if !argument.set {
		out.Argument = defaultProbeArgument
	}
	if !status.set {
		out.Status = defaultProbeStatus
	}
	if tool.set && tool.text == upstreamTool {
		s.r.fault(tool.line, tool.path, "is the tool itself: a probe must not act")
	}
	if out.Longest < out.After || out.GiveUp < out.Longest {
		s.r.fault(p.line, p.path, "after %s, longest %s, give_up %s: each must be at least as long as the one before", out.After, out.Longest, out.GiveUp)
	}
	p.done()
	return out
}
