package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/internal/embeddedpg"
	"counterfoil/internal/testdb"
)

// outage is how long the database is away: a minute with COUNTERFOIL_LONG=1.
func outage() time.Duration {
	if os.Getenv("COUNTERFOIL_LONG") != "" {
		return time.Minute
	}
	return 4 * time.Second
}

// told is what callers were told.
type told struct {
	mu     sync.Mutex
	last   map[string]answer // by key; guarded by mu
	counts map[string]int    // by outcome or reason; guarded by mu
}

func (m *told) add(key string, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[key] = a
	what := a.meta.Outcome
	if a.refusal != nil {
		what = a.reason()
	}
	m.counts[what]++
}

func (m *told) count(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[what]
}

// callOn makes new calls until it is stopped. One that was refused is made again, under its key.
func (x tenant) callOn(t *testing.T, m *told, workers int, over <-chan struct{}) (wait func()) {
	t.Helper()
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := 0; ; i++ {
				c := x.payout(fmt.Sprintf("%s-%d-%d", x.wallet, worker, i))
				for again := true; again; {
					select {
					case <-over:
						return
					default:
					}
					a, err := x.try(x.s.url, c)
					if err != nil {
						t.Errorf("a call was not answered: %v", err)
						return
					}
					m.add(c.key, a)
					again = a.refusal != nil
				}
			}
		})
	}
	return wg.Wait
}

// TestDatabaseAway: under load, with calls at the tool, the database goes away for a while. New calls are refused,
// and nothing happens; those at the tool are told that their outcome is not known, and get it under their keys;
// nothing grows meanwhile, and everything goes on by itself.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	server := testdb.NewDurable(t)
	var back *embeddedpg.Server
	t.Cleanup(func() {
		if back != nil {
			_ = back.Stop()
		}
	})
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", server.URL()), "limits: {lease: 3s, timeouts: {store: 1s}}")
	// A call may take longer than the outage.
	writeFile(t, s.config, strings.Replace(string(readFile(t, s.config)), "timeout: 60s", "timeout: 5m", 1))
	s.restart(t)
	x, y, z := s.newTenant(t, 900_000, anything()), s.newTenant(t, 1000, anything()), s.newTenant(t, 1000, anything())
	m := &told{last: map[string]answer{}, counts: map[string]int{}}
	const workers, kept = 24, 8
	over := make(chan struct{})
	x.callOn(t, m, workers, over)
	eventually(t, "some calls", func() bool { return m.count("succeeded") > 200 })
	close(over)
	eventually(t, "the end of the warm-up", func() bool { return x.open(t) == 0 })
	before := s.rest(t, s.url)

	over = make(chan struct{})
	wait := x.callOn(t, m, workers, over)
	answers, release := y.keptAtTheTool(t, kept)
	longAnswers, releaseLong := z.keptAtTheTool(t, kept)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	release()
	for range kept {
		if a := receive(t, answers, "the answer to a kept call"); a.reason() != "outcome_unknown" || a.refusal == nil || a.refusal.Code != -31503 || a.refusal.Data.Retry != "same_key" || a.header.Get("Retry-After") == "" {
			t.Errorf("a call whose outcome cannot be recorded: %s", a)
		}
	}
	highest := s.highest(t, gone.Add(outage()))
	if m.count("store_unavailable") < workers {
		t.Errorf("what callers were told without a database: %v", m.counts)
	}
	// A caller, its connection, its look-up, and the tool's side: a few for each, however long it takes.
	if highest.goroutines > before.goroutines+10*workers || highest.heap > before.heap+64e6 {
		t.Errorf("before: %s; without a database at most: %s", before, highest)
	}
	var err error
	if back, err = embeddedpg.Start(t.Context(), embeddedpg.Options{Dir: server.Dir()}); err != nil {
		t.Fatal(err)
	}
	returned := time.Now()
	succeeded := m.count("succeeded")
	eventually(t, "calls that succeed again", func() bool { return m.count("succeeded") > succeeded+100 })
	t.Logf("away for %v, %d refusals, at most %s; the first hundred calls after it took %v",
		returned.Sub(gone).Round(time.Second), m.count("store_unavailable"), highest, time.Since(returned).Round(10*time.Millisecond))
	close(over)
	wait()

	// Their gateway was silent for longer than its lease, and so was the store: nobody took it for dead.
	releaseLong()
	for range kept {
		if a := receive(t, longAnswers, "the answer to a long call"); a.meta.Outcome != "succeeded" || a.replayed() {
			t.Errorf("a call that outlasted the outage: %s", a)
		}
	}
	for i := range kept {
		var a answer
		eventually(t, "the record of a kept call", func() bool {
			a = y.do(t, y.payout(fmt.Sprintf("kept-%d", i)))
			return a.refusal == nil
		})
		if a.meta.Outcome != "succeeded" || !a.replayed() {
			t.Errorf("a kept call: %s", a)
		}
	}
	m.settled(t, x)
	for _, tenant := range []tenant{y, z} {
		if st := tenant.state(t); st.Effects != kept || st.Operations != kept || st.Held != 0 || st.Balance != 1000-kept*payoutPrice {
			t.Errorf("after all: %+v", st)
		}
	}
	if status, _ := s.ask(t, s.url, "", http.MethodGet, "/readyz", nil); status != http.StatusOK {
		t.Errorf("readyz: status %d", status)
	}
	s.restored(t, s.url, before)
}

// keptAtTheTool makes calls that have acted, and whose answers are kept until they are released.
func (x tenant) keptAtTheTool(t *testing.T, n int) (answers <-chan answer, release func()) {
	t.Helper()
	release = x.s.tool.keep(x.marker())
	all := make(chan answer, n)
	for i := range n {
		go func() {
			a, err := x.try(x.s.url, x.payout(fmt.Sprintf("kept-%d", i)))
			if err != nil {
				t.Error(err)
			}
			all <- a
		}()
	}
	eventually(t, "the calls at the tool", func() bool { return len(x.s.tool.effects(t, x.marker())) == n })
	return all, release
}

// settled asks for each key again: what was answered is answered so again, and what was not is made now.
func (m *told) settled(t *testing.T, x tenant) {
	t.Helper()
	notSent := 0
	for keys := range slices.Chunk(slices.Collect(maps.Keys(m.last)), 64) {
		for i, again := range x.s.together(t, len(keys), func(i int) (answer, error) { return x.try(x.s.url, x.payout(keys[i])) }) {
			a := m.last[keys[i]]
			if again.meta.Reason == "not_dispatched" {
				notSent++ // its claim was committed without an answer, and nobody waited for it any more
			} else if again.meta.Outcome != "succeeded" {
				t.Errorf("%s was answered\n%s\nand now\n%s", keys[i], a, again)
			}
			if a.refusal == nil && string(again.result) != string(a.result) {
				t.Errorf("%s was answered\n%s\nand now\n%s", keys[i], a, again)
			}
		}
	}
	st := x.state(t)
	if st.Operations != len(m.last) || st.Held != 0 || st.Open != 0 || st.Effects != st.Charges || st.Effects != len(m.last)-notSent {
		t.Errorf("%d keys, of which %d were not sent: %+v", len(m.last), notSent, st)
	}
}

// highest watches a gateway until a moment, and gives the most it came to.
func (s *system) highest(t *testing.T, until time.Time) vitals {
	t.Helper()
	var most vitals
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(until) || most.goroutines == 0 {
		if v, ok := s.vitals(s.url); ok {
			most.goroutines, most.files, most.heap = max(most.goroutines, v.goroutines), max(most.files, v.files), max(most.heap, v.heap)
		}
		<-tick.C
	}
	return most
}
