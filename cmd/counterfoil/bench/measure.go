package bench

import (
	"context"
	"fmt"
)

// phasePlan is one kind of load at one concurrency.
type phasePlan struct {
	name    string
	kind    string
	clients int
	many    bool
}

const (
	nameHot    = "governed, one wallet"
	nameMany   = "governed, many wallets"
	nameReplay = "replays"
	namePlain  = "pass-through"

	nameHotOpen   = "governed, one wallet, open loop"
	namePlainOpen = "pass-through, open loop"

	replayKeys  = 2000
	ratioPoint  = 64 // clients of the ratios
	warmSeconds = 2
)

func plans() []phasePlan {
	list := []phasePlan{}
	for _, clients := range []int{1, ratioPoint, 512} {
		list = append(list,
			phasePlan{namePlain, kindPassthrough, clients, false},
			phasePlan{nameHot, kindGoverned, clients, false},
			phasePlan{nameMany, kindGoverned, clients, true},
			phasePlan{nameReplay, kindReplay, clients, false})
	}
	return list
}

// measure runs the phases, each round in the opposite order of the one before (ABBA), so that a drift of
// the machine falls on all alike.
func (b *run) measure(ctx context.Context) error {
	b.Log("preparing pgbench")
	bench, err := newPgbench(ctx, b.db.BinDir(), b.db.URL())
	if err != nil {
		return err
	}
	commits, err := twoCommits(ctx, b.db.URL(), min(b.Seconds, 3))
	if err != nil {
		return err
	}
	b.report.TwoCommits = commits.Microseconds()
	if err := b.warm(ctx); err != nil {
		return err
	}
	for round := range b.Rounds {
		list := plans()
		if round%2 == 1 {
			for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
				list[i], list[j] = list[j], list[i]
			}
		}
		for i, p := range list {
			// pgbench runs beside the phase it is compared with.
			if p.name == nameHot && p.clients == ratioPoint {
				tps, err := bench.simpleUpdate(ctx, ratioPoint, b.Seconds)
				if err != nil {
					return err
				}
				b.report.Pgbench.add(tps)
				pause(ctx) // until its backends have ended: their CPU is not the next phase's
			}
			b.Log("round %d of %d, phase %d of %d: %s, %d in flight", round+1, b.Rounds, i+1, len(list), p.name, p.clients)
			if err := b.phase(ctx, round, p); err != nil {
				return err
			}
			pause(ctx)
		}
	}
	return b.openLoops(ctx)
}

// openShare is how much of the closed loop's rate the open loop asks for.
const openShare = 0.5

// openLoops send at a fixed rate, whatever is answered, so that a slow answer does not spare the calls behind
// it their wait: the latency that callers who do not know of each other see. Both sides get the same rate.
func (b *run) openLoops(ctx context.Context) error {
	rate := openShare * b.report.at(nameHot, ratioPoint).Rate.Median
	for _, p := range []phasePlan{{namePlainOpen, kindPassthrough, 0, false}, {nameHotOpen, kindGoverned, 0, false}} {
		b.Log("open loop: %s, %.0f calls/s", p.name, rate)
		if err := b.phaseAt(ctx, 0, p, rate); err != nil {
			return err
		}
		pause(ctx)
	}
	return nil
}

// warm fills caches and plans, and makes the calls that replays will repeat.
func (b *run) warm(ctx context.Context) error {
	b.Log("warming up")
	for _, spec := range []loadSpec{
		{URL: b.base + "/mcp", Kind: kindGoverned, Run: "replay", Clients: 32, Seconds: 120, Calls: replayKeys, Accounts: b.hot},
		{URL: b.base + "/mcp", Kind: kindGoverned, Run: "warm", Clients: 32, Seconds: warmSeconds, Accounts: b.many},
		{URL: b.plain, Kind: kindPassthrough, Run: "warm", Clients: 32, Seconds: warmSeconds, Accounts: b.hot},
	} {
		result, err := b.load(ctx, spec)
		if err != nil {
			return err
		}
		if result.Errors > 0 {
			return fmt.Errorf("%w: warm-up: %s", ErrUnsound, result.FirstErr)
		}
	}
	return nil
}

func (b *run) phase(ctx context.Context, round int, p phasePlan) error {
	return b.phaseAt(ctx, round, p, 0)
}

// phaseAt runs a phase at a rate, or at 0 as a closed loop.
func (b *run) phaseAt(ctx context.Context, round int, p phasePlan, rate float64) error {
	spec := loadSpec{
		URL: b.base + "/mcp", Kind: p.kind, Run: fmt.Sprintf("r%d-%t-%d", round, p.many, p.clients),
		Clients: p.clients, Seconds: b.Seconds, Rate: rate, Accounts: b.hot, Replays: replayKeys,
	}
	middle := b.gateway.cmd.Process.Pid
	switch {
	case p.kind == kindPassthrough:
		spec.URL, middle = b.plain, b.plainPID
	case p.kind == kindReplay:
		spec.Run = "replay"
	case p.many:
		spec.Accounts = b.many
	}
	before := b.used(middle)
	walBefore, err := b.walPosition(ctx)
	if err != nil {
		return err
	}
	result, err := b.load(ctx, spec)
	if err != nil {
		return err
	}
	walAfter, err := b.walPosition(ctx)
	if err != nil {
		return err
	}
	cpu := b.used(middle)
	if result.Errors > 0 {
		b.Log("  %d calls failed, first: %s", result.Errors, result.FirstErr)
	}
	b.report.phase(p, len(spec.Accounts)).add(result, walAfter-walBefore, cpu.minus(before))
	return nil
}

// used is the CPU of the parts so far.
func (b *run) used(middle int) PerCall {
	return PerCall{
		Middle: processUsage(middle).cpuUS, Upstream: processUsage(b.upPID).cpuUS, PostgreSQL: databaseCPU(b.db.PID()),
	}
}

func (c PerCall) minus(o PerCall) PerCall {
	return PerCall{Middle: c.Middle - o.Middle, Upstream: c.Upstream - o.Upstream, PostgreSQL: c.PostgreSQL - o.PostgreSQL}
}

func (r *Report) phase(p phasePlan, wallets int) *Phase {
	key := fmt.Sprint(p.name, p.clients)
	if r.phases[key] == nil {
		r.phases[key] = &Phase{Name: p.name, Kind: p.kind, Clients: p.clients, Wallets: wallets}
		r.Phases = append(r.Phases, r.phases[key])
	}
	return r.phases[key]
}

// at is a phase that has run; one that has not is empty.
func (r *Report) at(name string, clients int) *Phase {
	if p := r.phases[fmt.Sprint(name, clients)]; p != nil {
		return p
	}
	return &Phase{}
}

func (p *Phase) add(result loadResult, wal int64, cpu PerCall) {
	p.Rate.add(result.PerSecond)
	p.P50.add(float64(result.P50))
	p.P99.add(float64(result.P99))
	p.LagP99 = result.LagP99
	p.Errors += result.Errors
	n := max(result.Calls, 1)
	p.WALBytes = wal / n
	p.CPU = PerCall{Generator: result.CPU / n, Middle: cpu.Middle / n, PostgreSQL: cpu.PostgreSQL / n, Upstream: cpu.Upstream / n}
}

// conclude derives latencies and ratios. Each ratio compares medians of the same rounds.
func (r *Report) conclude() {
	at := r.at
	for _, clients := range []int{1, ratioPoint, 512} {
		governed, plain := at(nameHot, clients), at(namePlain, clients)
		r.Latency = append(r.Latency, Latency{
			InFlight: clients, GovernedP50: governed.P50.Median, GovernedP99: governed.P99.Median,
			AddedP50: governed.P50.Median - plain.P50.Median, AddedP99: governed.P99.Median - plain.P99.Median,
		})
	}
	hot := at(nameHot, ratioPoint).Rate.Median
	r.Ratios = Ratios{
		HotOverMany:             hot / at(nameMany, ratioPoint).Rate.Median,
		GovernedOverPgbench:     hot / r.Pgbench.Median,
		ReplayOverGoverned:      at(nameReplay, ratioPoint).Rate.Median / hot,
		AddedLatencyOverCommits: r.Latency[0].AddedP50 / float64(r.TwoCommits),
		GovernedOverPassthrough: hot / at(namePlain, ratioPoint).Rate.Median,
	}
}

// meanBatch reads the mean size of a transaction from the gateway's own metrics.
func meanBatch(metrics string) float64 {
	m := readMetrics(metrics)
	sum, count := m["counterfoil_commit_batch_size_sum"], m["counterfoil_commit_batch_size_count"]
	if count == 0 {
		return 0
	}
	return sum / count
}
