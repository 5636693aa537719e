package bench

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestSeriesKeepsTheMedian(t *testing.T) {
	t.Parallel()
	var s Series
	for _, step := range []struct{ add, median float64 }{{10, 10}, {30, 20}, {20, 20}, {1000, 25}, {15, 20}} {
		s.add(step.add)
		if s.Median != step.median {
			t.Errorf("after %v: median %v, want %v", s.Rounds, s.Median, step.median)
		}
	}
}

func TestMeanBatchReadsTheGatewaysMetrics(t *testing.T) {
	t.Parallel()
	text := "# HELP counterfoil_commit_batch_size Operations in one transaction.\ncounterfoil_commit_batch_size_bucket{le=\"1\"} 2\n" +
		"counterfoil_commit_batch_size_sum 30\ncounterfoil_commit_batch_size_count 4\n"
	if got := meanBatch(text); got != 7.5 {
		t.Errorf("mean batch %v, want 7.5", got)
	}
	if got := meanBatch(""); got != 0 {
		t.Errorf("of nothing: %v, want 0", got)
	}
}

func TestRatiosCompareTheSameRun(t *testing.T) {
	t.Parallel()
	r := &Report{phases: make(map[string]*Phase), TwoCommits: 500}
	for _, p := range plans() {
		rate := map[string]float64{namePlain: 8000, nameHot: 4000, nameMany: 5000, nameReplay: 16000}[p.name]
		p50 := map[string]int64{namePlain: 300, nameHot: 1300}[p.name]
		r.phase(p, 1).add(loadResult{Calls: 1, PerSecond: rate, P50: p50}, 0, PerCall{})
	}
	r.Pgbench.add(2000)
	r.conclude()
	want := Ratios{HotOverMany: 0.8, GovernedOverPgbench: 2, ReplayOverGoverned: 4, AddedLatencyOverCommits: 2, GovernedOverPassthrough: 0.5}
	if r.Ratios != want {
		t.Errorf("ratios %+v, want %+v", r.Ratios, want)
	}
	var out bytes.Buffer
	if err := r.print(&out); err != nil || !strings.Contains(out.String(), "governed / pass-through") {
		t.Errorf("printed %v:\n%s", err, out.String())
	}
}

// A run in which something failed proves nothing, whatever its rates.
func TestAFaultVoidsTheRun(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Report){
		"a second effect": func(r *Report) { r.Duplicates = 1 },
		"a broken row":    func(r *Report) { r.Fsck = "I6 broken" },
		"a failed call":   func(r *Report) { r.Phases = []*Phase{{Name: nameHot, Errors: 1}} },
	} {
		r := &Report{Fsck: "clean"}
		if err := (&run{report: r}).verdict(); err != nil {
			t.Errorf("a sound run: %v", err)
		}
		change(r)
		if err := (&run{report: r}).verdict(); !errors.Is(err, ErrUnsound) {
			t.Errorf("%s: %v, want ErrUnsound", name, err)
		}
	}
}
