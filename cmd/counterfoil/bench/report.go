package bench

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"text/tabwriter"

	"counterfoil/internal/embeddedpg"
	"counterfoil/ledger"
)

// Report is what a run has measured. Rates are calls a second, times microseconds.
type Report struct {
	Machine    Machine            `json:"machine"`
	Rounds     int                `json:"rounds"`
	Seconds    float64            `json:"seconds_per_phase"`
	Pgbench    Series             `json:"pgbench_simple_update_tps"`
	TwoCommits int64              `json:"two_commits_us"`
	Phases     []*Phase           `json:"phases"`
	Latency    []Latency          `json:"added_latency"`
	MeanBatch  float64            `json:"mean_batch"` // operations in one transaction
	GatewayRSS int64              `json:"gateway_peak_rss_bytes"`
	Effects    effects            `json:"effects"`
	FsckReport *ledger.FsckReport `json:"fsck_report"`
	Ratios     Ratios             `json:"ratios"`
	Duplicates int64              `json:"duplicate_effects"`
	Fsck       string             `json:"fsck"`
	phases     map[string]*Phase
}

// Machine is where a run was made.
type Machine struct {
	CPUs       int    `json:"cpus"`
	PostgreSQL string `json:"postgresql"`
	Go         string `json:"go"`
}

func machineWith(db *embeddedpg.Server) Machine {
	return Machine{CPUs: runtime.NumCPU(), PostgreSQL: db.Version(), Go: runtime.Version()}
}

// Series is a figure of each round and their median.
type Series struct {
	Median float64   `json:"median"`
	Rounds []float64 `json:"rounds"`
}

func (s *Series) add(v float64) {
	s.Rounds = append(s.Rounds, v)
	sorted := slices.Sorted(slices.Values(s.Rounds))
	if n := len(sorted); n%2 == 1 {
		s.Median = sorted[n/2]
	} else {
		s.Median = (sorted[n/2-1] + sorted[n/2]) / 2
	}
}

// Phase is one kind of load at one concurrency, over all rounds.
type Phase struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind"`
	Clients  int     `json:"clients"`
	Wallets  int     `json:"wallets,omitempty"`
	Rate     Series  `json:"per_second"`
	P50      Series  `json:"p50_us"`
	P99      Series  `json:"p99_us"`
	CPU      PerCall `json:"cpu_us_per_call"`            // of the last round
	LagP99   int64   `json:"start_lag_p99_us,omitempty"` // open loop: how late calls were started
	WALBytes int64   `json:"wal_bytes_per_call"`
	Errors   int64   `json:"errors"`
}

// PerCall is the CPU each process used for one call, in microseconds.
type PerCall struct {
	Generator  int64 `json:"generator"`
	Middle     int64 `json:"middle"` // the gateway, or the pass-through
	PostgreSQL int64 `json:"postgresql"`
	Upstream   int64 `json:"upstream"`
}

// Latency is what the gateway adds to a call at a number in flight.
type Latency struct {
	InFlight    int     `json:"in_flight"`
	GovernedP50 float64 `json:"governed_p50_us"`
	GovernedP99 float64 `json:"governed_p99_us"`
	AddedP50    float64 `json:"added_p50_us"`
	AddedP99    float64 `json:"added_p99_us"`
}

// Ratios are the figures of design section 10, each of one run.
type Ratios struct {
	HotOverMany             float64 `json:"hot_over_many"`
	GovernedOverPgbench     float64 `json:"governed_over_pgbench"`
	ReplayOverGoverned      float64 `json:"replay_over_governed"`
	AddedLatencyOverCommits float64 `json:"added_latency_over_two_commits"`
	GovernedOverPassthrough float64 `json:"governed_over_passthrough"`
}

// lateStart is how late an open loop's calls may start, in microseconds, before the report says so.
const lateStart = 1000

// print writes the report as a person reads it.
func (r *Report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nload\tin flight\tcalls/s\tp50 ms\tp99 ms\tCPU µs/call: generator\tgateway\tPostgreSQL\tupstream\tWAL B/call\t\n")
	for _, p := range r.Phases {
		inFlight := strconv.Itoa(p.Clients)
		if p.Clients == 0 {
			inFlight = "any"
		}
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.2f\t%.2f\t%d\t%d\t%d\t%d\t%d\t\n", p.Name, inFlight, p.Rate.Median,
			p.P50.Median/1000, p.P99.Median/1000, p.CPU.Generator, p.CPU.Middle, p.CPU.PostgreSQL, p.CPU.Upstream, p.WALBytes)
	}
	fmt.Fprintf(w, "pgbench -N\t64\t%.0f\t\t\t\t\t\t\t\t\n", r.Pgbench.Median)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nmedian of %d rounds of %g s a phase; %d CPUs, PostgreSQL %s, %s\n", r.Rounds, r.Seconds, r.Machine.CPUs, r.Machine.PostgreSQL, r.Machine.Go)
	if p := r.at(nameHotOpen, 0); p.LagP99 > lateStart {
		fmt.Fprintf(out, "the generator started open-loop calls late (p99 %.1f ms): their latencies hold that, too\n", float64(p.LagP99)/1000)
	}
	for _, l := range r.Latency {
		fmt.Fprintf(out, "added latency at %3d in flight: p50 %.2f ms, p99 %.2f ms\n", l.InFlight, l.AddedP50/1000, l.AddedP99/1000)
	}
	fmt.Fprintf(out, "two plain durable commits: %.2f ms; mean batch %.1f operations; gateway peak RSS %d MB\n",
		float64(r.TwoCommits)/1000, r.MeanBatch, r.GatewayRSS>>20)
	fmt.Fprintf(out, "effects at the upstream: %d, duplicates: %d; fsck: %s\n\n", r.Effects.Executed, r.Effects.Duplicates, r.Fsck)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "ratio\tmeasured\ttarget\n")
	for _, row := range []struct {
		name   string
		value  float64
		target string
	}{
		{"one hot wallet / many wallets", r.Ratios.HotOverMany, "≥ 0.9"},
		{"governed / pgbench simple-update, 64 clients", r.Ratios.GovernedOverPgbench, "≥ 1.0"},
		{"replays / governed", r.Ratios.ReplayOverGoverned, "≥ 3"},
		{"added latency / two plain commits, one client", r.Ratios.AddedLatencyOverCommits, "≤ 2"},
		{"governed / pass-through", r.Ratios.GovernedOverPassthrough, "≥ 0.6"},
	} {
		fmt.Fprintf(w, "%s\t%.2f\t%s\n", row.name, row.value, row.target)
	}
	return w.Flush()
}
