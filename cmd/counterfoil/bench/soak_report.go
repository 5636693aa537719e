package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"counterfoil/ledger"
)

// SoakReport is what a soak has found.
type SoakReport struct {
	Machine    Machine            `json:"machine"`
	Soak       SoakResult         `json:"soak"`
	FsckReport *ledger.FsckReport `json:"fsck_report"`
	Duplicates int64              `json:"duplicate_effects"`
	Fsck       string             `json:"fsck"`
}

// SoakResult is the soak's own part.
type SoakResult struct {
	Seed        uint64           `json:"seed"`
	Seconds     float64          `json:"seconds"`
	Interrupted bool             `json:"interrupted"`
	Requests    int64            `json:"requests"`
	Unanswered  int64            `json:"requests_without_answer"` // the caller asked again
	Calls       int64            `json:"calls"`                   // under new keys
	Twins       int64            `json:"calls_at_both_gateways"`  // at once
	Repeats     int64            `json:"repeats"`
	Changed     int64            `json:"changed_repeats"`
	Believed    int64            `json:"calls_left_at_nothing_happened"`
	Outcomes    map[string]int64 `json:"outcomes"`
	Operations  int64            `json:"operations"`
	Effects     int64            `json:"effects"`
	Uncertain   int64            `json:"uncertain"`
	Reconciled  int64            `json:"reconciled"` // of those
	Replayed    int64            `json:"answers_compared_at_the_end"`
	Lost        int64            `json:"answers_lost"`
	Twice       int64            `json:"sent_twice"`
	Violations  int64            `json:"violations"`
	Found       []string         `json:"found,omitempty"` // the first of them
	Faults      []FaultRow       `json:"faults"`
	OldestOpen  float64          `json:"longest_dispatching_seconds"`
	Settled     float64          `json:"settled_after_load_seconds"`
	Vitals      []Growth         `json:"gateway"`
}

// FaultRow is one kind of fault over the run.
type FaultRow struct {
	Kind      faultKind `json:"kind"`
	Tried     int       `json:"tried"`
	Lost      int64     `json:"answers_lost"`
	Twice     int64     `json:"sent_twice"`
	Uncertain int64     `json:"became_uncertain"`
	NextMS    int64     `json:"longest_until_next_success_ms"`
	SlowestMS int64     `json:"slowest_answer_ms"`
}

// shownViolations bounds how many are told one by one.
const shownViolations = 20

// noFault is the row of what happened before the first fault.
const noFault = "none yet" // no faultKind that can be made

func (s *soak) summary(e *evidence, replayed int64, settled time.Duration) *SoakReport {
	r := &SoakReport{Machine: machineWith(s.fleet.db)}
	incidents := s.incidents.all()
	r.Soak = SoakResult{
		Seed: s.Seed, Seconds: s.took.Seconds(), Requests: s.counts.attempts.Load(), Unanswered: s.counts.broken.Load(),
		Calls: s.counts.calls.Load(), Twins: s.counts.twins.Load(), Repeats: s.counts.repeats.Load(), Changed: s.counts.changed.Load(),
		Believed: s.counts.dropped.Load(), Outcomes: s.book.tally(), Operations: int64(len(e.operations)), Effects: int64(len(e.effects)),
		Replayed: replayed, Violations: int64(len(s.found)), Faults: faultRows(incidents, s.found),
		OldestOpen: s.oldest.Seconds(), Settled: settled.Seconds(), Vitals: growths(s.samples),
	}
	for i := range e.operations {
		if e.operations[i].outcome == outcomeUncertain {
			r.Soak.Uncertain++
		}
		if e.operations[i].resolution != "" {
			r.Soak.Reconciled++
		}
	}
	for _, v := range s.found {
		switch v.class {
		case foundLost:
			r.Soak.Lost++
		case foundTwice:
			r.Soak.Twice++
		}
		if len(r.Soak.Found) < shownViolations {
			r.Soak.Found = append(r.Soak.Found, v.class+": "+v.what)
		}
	}
	r.Duplicates = r.Soak.Twice
	return r
}

// faultRows adds up the incidents of each kind, and what is put down to them.
func faultRows(incidents []incident, found []violation) []FaultRow {
	rows := make(map[faultKind]*FaultRow)
	for _, kind := range append(faultKinds(), noFault) {
		rows[kind] = &FaultRow{Kind: kind}
	}
	for _, i := range incidents {
		row := rows[i.kind]
		row.Tried++
		row.Uncertain += i.uncertain
		row.NextMS = max(row.NextMS, i.next.Milliseconds())
		row.SlowestMS = max(row.SlowestMS, i.slowest.Milliseconds())
	}
	for _, v := range found {
		kind := faultKind(noFault)
		if v.incident > 0 {
			kind = incidents[v.incident-1].kind
		}
		switch v.class {
		case foundLost:
			rows[kind].Lost++
		case foundTwice:
			rows[kind].Twice++
		}
	}
	var list []FaultRow
	for _, kind := range faultKinds() {
		list = append(list, *rows[kind])
	}
	if before := rows[noFault]; before.Lost+before.Twice > 0 {
		list = append(list, *before)
	}
	return list
}

// print writes the report as a person reads it.
func (r *SoakReport) print(out io.Writer) error {
	s := r.Soak
	fmt.Fprintf(out, "\nsoak of %.0f s, seed %d; %d CPUs, PostgreSQL %s, %s\n", s.Seconds, s.Seed, r.Machine.CPUs, r.Machine.PostgreSQL, r.Machine.Go)
	if s.Interrupted {
		fmt.Fprintln(out, "it was ended early; what was done until then is judged")
	}
	fmt.Fprintf(out, "%d calls under new keys (%d at both gateways at once), %d repeats, %d changed repeats; %d requests, %d of them unanswered\n\n",
		s.Calls, s.Twins, s.Repeats, s.Changed, s.Requests, s.Unanswered)
	faults := [][]string{{"fault", "tried", "answers lost", "sent twice", "became uncertain", "longest until the next success, s", "slowest answer, s"}}
	for _, f := range s.Faults {
		faults = append(faults, []string{
			string(f.Kind), strconv.Itoa(f.Tried), strconv.FormatInt(f.Lost, 10), strconv.FormatInt(f.Twice, 10), strconv.FormatInt(f.Uncertain, 10),
			fmt.Sprintf("%.2f", float64(f.NextMS)/1000), fmt.Sprintf("%.2f", float64(f.SlowestMS)/1000),
		})
	}
	vitals := [][]string{{"gateway that is never killed, medians", "first quarter", "second", "last", "last may be", "per minute"}}
	for _, g := range s.Vitals {
		row := []string{g.title()}
		for _, v := range []float64{g.First, g.Second, g.Last, g.Bound} {
			row = append(row, strconv.FormatFloat(v, 'f', 0, 64))
		}
		vitals = append(vitals, append(row, fmt.Sprintf("%+.1f", g.PerMin)))
	}
	answers := [][]string{{"answer", "keys"}}
	for _, verdict := range slices.Sorted(maps.Keys(s.Outcomes)) {
		answers = append(answers, []string{verdict, strconv.FormatInt(s.Outcomes[verdict], 10)})
	}
	for _, rows := range [][][]string{faults, vitals, answers} {
		if err := printTable(out, rows); err != nil {
			return err
		}
	}
	return r.printVerdict(out)
}

// printTable writes rows under their headings: what they are about to the left, figures to the right.
func printTable(out io.Writer, rows [][]string) error {
	first := 0
	for _, row := range rows {
		first = max(first, utf8.RuneCountInString(row[0]))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintf(w, "%-*s\t%s\t\n", first, row[0], strings.Join(row[1:], "\t"))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

func (r *SoakReport) printVerdict(out io.Writer) error {
	s := r.Soak
	fmt.Fprintf(out, "asked again at the end: %d answers, byte for byte; %d calls were left at \"nothing happened\"\n", s.Replayed, s.Believed)
	fmt.Fprintf(out, "operations: %d, effects at the upstream: %d, uncertain: %d, reconciled: %d; longest seen dispatching: %.1f s, none left %.1f s after the load\n",
		s.Operations, s.Effects, s.Uncertain, s.Reconciled, s.OldestOpen, s.Settled)
	for _, found := range s.Found {
		fmt.Fprintf(out, "FOUND: %s\n", found)
	}
	_, err := fmt.Fprintf(out, "answers lost: %d, sent twice: %d, other broken promises: %d; fsck: %s\n", s.Lost, s.Twice, s.Violations-s.Lost-s.Twice, r.Fsck)
	return err
}
