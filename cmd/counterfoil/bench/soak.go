package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"counterfoil/internal/jws"
)

// SoakOptions is how a soak is made.
type SoakOptions struct {
	Program  string // this program, to run the parts
	Dir      string // an empty directory that the database's user can reach; kept
	Duration time.Duration
	Seed     uint64 // of the faults and of the load: the same order, though never the same moments
	Log      func(string, ...any)
	Keyring  func(dir string) (*jws.Keyring, error)
}

// RandomSeed is a seed for a soak that is given none.
func RandomSeed() uint64 { return rand.Uint64() >> 11 } // what every JSON reader can hold

// soak is one run: two gateways on one database under load, while all of them are broken at random.
type soak struct {
	SoakOptions
	fleet     *fleet
	accounts  []account // of record.wallet
	client    *http.Client
	book      *book
	incidents incidents
	cases     cases
	counts    counts
	began     time.Time // of the load
	took      time.Duration

	samples []sample      // of watch's goroutine while the load runs
	oldest  time.Duration // that an operation was seen dispatching; likewise

	mu    sync.Mutex
	found []violation
}

// Soak runs until its duration is over or ctx ends, and judges what was done either way. The error is ErrUnsound where
// the product, and not the soak, is at fault.
func Soak(ctx context.Context, o SoakOptions, out io.Writer) (*SoakReport, error) {
	s := &soak{
		SoakOptions: o, fleet: &fleet{crew: crew{program: o.Program, dir: o.Dir}},
		client: newClient(0), book: newBook(),
	}
	s.cases.journal = func(offset int64) ([]effect, int64, error) { return readJournalFrom(s.fleet.journal, offset) }
	defer s.fleet.stop()
	defer s.client.CloseIdleConnections()
	s.Log("soak of %s, seed %d: starting a database, an upstream and two gateways in %s", o.Duration, o.Seed, o.Dir)
	if err := s.fleet.launch(ctx); err != nil {
		return nil, err
	}
	if err := s.openAccounts(ctx); err != nil {
		return nil, err
	}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	// A run that was cut short is judged like any other.
	report, err := s.conclude(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	report.Soak.Interrupted = ctx.Err() != nil
	if out != nil {
		if err := report.print(out); err != nil {
			return nil, err
		}
	}
	return report, report.verdict()
}

// tightCredits is what the permit allows that is soon spent: ten calls.
const tightCredits = 50

func (s *soak) openAccounts(ctx context.Context) error {
	o := operator{base: s.fleet.nodes[0].base, token: s.fleet.token}
	wide, err := openAccounts(ctx, o, "wide", soakWallets, allowance{tools: []string{toolPayout, toolFlaky}, credits: funds})
	if err != nil {
		return err
	}
	tight, err := openAccounts(ctx, o, "tight", 1, allowance{tools: []string{toolPayout}, credits: tightCredits})
	s.accounts = append(wide, tight...)
	return err
}

// drainTime is how long calls may take to get their answers once the faults have ended.
const drainTime = time.Minute

// run is the load with its faults. It returns when each call has its answer.
func (s *soak) run(ctx context.Context) error {
	s.began = time.Now()
	load, end := context.WithTimeout(ctx, s.Duration)
	defer end()
	wait, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	url := s.fleet.db.URL()
	var watching, driving sync.WaitGroup
	watching.Go(func() { s.watch(load, url) })
	driving.Go(func() { s.drive(load, wait) })
	err := s.sabotage(load, rand.New(rand.NewPCG(s.Seed, 1<<32)))
	end() // where the soak itself has failed, before its time
	s.took = time.Since(s.began)
	timer := time.AfterFunc(drainTime, giveUp)
	defer timer.Stop()
	driving.Wait()
	watching.Wait()
	return err
}

const (
	sampleEvery   = 2 * time.Second
	progressEvery = 10 * time.Second
	// openTime is how long an operation may be dispatching: until its call or its gateway's lease has run out, and
	// through the recovery of a database on a busy machine.
	openTime = soakLease + soakTimeout + time.Minute
)

// watch samples a gateway and the oldest open operation, and says how it goes.
func (s *soak) watch(ctx context.Context, url string) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	said := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.observe(ctx, url)
		if time.Since(said) >= progressEvery {
			said = time.Now()
			s.progress()
		}
	}
}

// observe takes what it can get: in the middle of a fault that may be nothing.
func (s *soak) observe(ctx context.Context, url string) {
	if v, err := takeSample(ctx, s.fleet.nodes[1-mortal].base); err == nil {
		v.at = time.Since(s.began)
		s.samples = append(s.samples, v)
	}
	_, age, err := s.holds(ctx, url)
	if err != nil {
		return
	}
	if age > openTime && s.oldest <= openTime {
		s.report(foundOpen, fmt.Sprintf("an operation is dispatching since %s", age.Round(time.Second)))
	}
	s.oldest = max(s.oldest, age)
}

func (s *soak) progress() {
	tally := s.book.tally()
	var faults []string
	byKind := s.incidents.byKind()
	for _, kind := range faultKinds() {
		faults = append(faults, fmt.Sprintf("%d %s", byKind[kind], kind))
	}
	var uncertain int64
	for verdict, n := range tally {
		if strings.HasPrefix(verdict, outcomeUncertain) || strings.HasPrefix(verdict, outcomeReconciled) {
			uncertain += n
		}
	}
	s.Log("%.0f s: %d calls, %d repeats, %d uncertain, %d of them reconciled; broken promises: %d; %s", time.Since(s.began).Seconds(), s.counts.calls.Load(),
		s.counts.repeats.Load(), uncertain, s.counts.decided.Load(), s.violations(), strings.Join(faults, ", "))
}

// report writes a broken promise down. It belongs to the latest incident.
func (s *soak) report(class, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = append(s.found, violation{class: class, incident: s.incidents.current(), what: what})
	if len(s.found) <= shownViolations {
		s.Log("FOUND: %s: %s", class, what)
	}
}

func (s *soak) violations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.found)
}

// odd writes down an answer that no client could understand.
func (s *soak) odd(r response) {
	s.report(foundUnexpected, fmt.Sprintf("HTTP %d: %.300s", r.status, r.body))
}

func (s *soak) name(n int) string { return fmt.Sprint(keyPrefix, n) }

// conclude waits until nothing runs any more, asks once more for what was answered, and judges.
func (s *soak) conclude(ctx context.Context) (*SoakReport, error) {
	s.Log("the load has ended after %.0f s; waiting for what is in flight", s.took.Seconds())
	settled := s.settled(ctx)
	s.Log("asking again for up to %d answers", min(replaySample, s.book.len()))
	replayed := s.replayAll(ctx)
	e, err := s.gather(ctx)
	if err != nil {
		return nil, err
	}
	s.Log("comparing %d keys, %d operations and %d effects", s.book.len(), len(e.operations), len(e.effects))
	s.found = append(s.found, judge(e)...)
	report := s.summary(e, replayed, settled)
	s.Log("checking the whole database (fsck)")
	return report, report.check(ctx, s)
}

// settled waits until no operation is dispatching any more, as long as it takes to take one over, and says how long
// after the end of the load that was.
func (s *soak) settled(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	for {
		open, _, err := s.holds(ctx, s.fleet.db.URL())
		if err == nil && open == 0 || !rest(ctx, 100*time.Millisecond) {
			return time.Since(s.began) - s.took // what is still open then, the judge finds
		}
	}
}

func (r *SoakReport) check(ctx context.Context, s *soak) error {
	keys, err := s.Keyring(filepath.Join(s.Dir, "keys"))
	if err != nil {
		return err
	}
	r.FsckReport, r.Fsck, err = prove(ctx, s.fleet.db.URL(), keys, s.Log)
	return err
}

// verdict is why a run is no proof, or nil.
func (r *SoakReport) verdict() error {
	var faults []error
	if n := r.Soak.Violations; n > 0 {
		faults = append(faults, fmt.Errorf("%d promises broken, first: %s", n, r.Soak.Found[0]))
	}
	if r.Fsck != "clean" {
		faults = append(faults, errors.New(r.Fsck))
	}
	if i := slices.IndexFunc(r.Soak.Vitals, func(g Growth) bool { return !g.Flat }); i >= 0 {
		g := r.Soak.Vitals[i]
		faults = append(faults, fmt.Errorf("%s grew from %.0f to %.0f", g.title(), g.Second, g.Last))
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnsound, errors.Join(faults...))
}
