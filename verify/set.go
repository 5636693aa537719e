package verify

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"counterfoil/receipts"
)

const (
	// maxRecent bounds the receipts whose hashes are kept to tell a repeated receipt
	// from a fork; maxRuns the stretches of numbers that are not joined yet; maxOpen
	// the uncertain receipts without their reconciliation, and the reconciliations.
	maxRecent = 1 << 16
	maxRuns   = 1 << 16
	maxOpen   = 1 << 14
	// maxFindings bounds the list; the count goes on.
	maxFindings = 20
)

// Set judges receipts as members of one set: chain, reconciliations, totals. What
// it remembers grows with wallets and permits, not with receipts; the maxima above
// bound the rest. They can be added in any order, best in that of their numbers.
type Set struct {
	wallets map[walletKey]*wallet
	order   []*wallet // as they first appeared
	recent  recent
	runs    int
	open    int

	chainFull, openFull bool // a maximum was reached, so that the check is off

	counts                               Counts
	chain, reconciliations, permitTotals findings
	superseded                           findings
}

// Counts is how many receipts ended in each state.
type Counts struct{ Total, Valid, Invalid, Undecided int }

type walletKey struct{ issuer, wallet string }

// wallet is what is remembered of one wallet's receipts.
type wallet struct {
	id      string
	runs    []run
	permits map[string]*totals // by the hash of the permit
	// uncertain receipts by id, until they are reconciled; and reconciliations by the
	// id of the receipt that each resolves.
	uncertain map[string]*unresolved
	resolved  map[string]*resolution
}

// unresolved is an uncertain receipt, and the id of the reconciliation that was beside
// it in its bundle, "" where there was none.
type unresolved struct {
	claims *receipts.Claims
	beside string
}

// resolution is a reconciliation, and whether the receipt that it resolves was seen:
// in the set, or beside it in its bundle.
type resolution struct {
	claims *receipts.Claims
	seen   bool
}

// NewSet returns an empty set.
func NewSet() *Set {
	return &Set{wallets: map[walletKey]*wallet{}, recent: recent{hashes: map[seqKey][sha256.Size]byte{}}}
}

// Counts says how many receipts were added.
func (s *Set) Counts() Counts { return s.counts }

// Add takes the next verdict. Only what is valid by itself takes part.
func (s *Set) Add(d *Verdict) {
	s.counts.Total++
	switch d.State {
	case Valid:
		s.counts.Valid++
	case Invalid:
		s.counts.Invalid++
		return
	case Undecided:
		s.counts.Undecided++
		return
	}
	c := d.Claims
	w := s.wallet(walletKey{c.Issuer, c.Wallet})
	if !s.link(w, c, d.head) {
		return
	}
	first, again := s.pair(w, d)
	if !again {
		s.count(w, d, first)
	}
}

func (s *Set) wallet(key walletKey) *wallet {
	w := s.wallets[key]
	if w == nil {
		key = walletKey{strings.Clone(key.issuer), strings.Clone(key.wallet)}
		w = &wallet{
			id: key.wallet, permits: map[string]*totals{},
			uncertain: map[string]*unresolved{}, resolved: map[string]*resolution{},
		}
		s.wallets[key] = w
		s.order = append(s.order, w)
	}
	return w
}

// pair joins an uncertain receipt and its reconciliation, whichever comes first,
// and returns the other one if it is in the set. A second reconciliation of one
// receipt comes again: it is a fault, and it counts for nothing.
func (s *Set) pair(w *wallet, d *Verdict) (other *receipts.Claims, again bool) {
	c := d.Claims
	switch c.Outcome {
	case receipts.Uncertain:
		first := &unresolved{claims: c}
		if d.SupersededBy != nil {
			first.beside = d.SupersededBy.ID
		}
		if later := w.resolved[c.ID]; later != nil {
			later.seen = true
			s.checkPair(first, later.claims)
			return later.claims, false
		}
		if s.room() {
			w.uncertain[c.ID] = first
		}
	case receipts.Reconciled:
		return s.resolve(w, d)
	case receipts.Succeeded, receipts.Denied, receipts.Failed:
	}
	return nil, false
}

func (s *Set) resolve(w *wallet, d *Verdict) (first *receipts.Claims, again bool) {
	c := d.Claims
	if known := w.resolved[c.Reconciles.ID]; known != nil {
		s.reconciliations.add(Reconciles, fmt.Sprintf("%s: %s was resolved already, by %s", c.ID, c.Reconciles.ID, known.claims.ID))
		return nil, true
	}
	if open := w.uncertain[c.Reconciles.ID]; open != nil {
		first = open.claims
		delete(w.uncertain, first.ID)
		s.open--
		s.checkPair(open, c)
	}
	if s.room() {
		beside, _ := d.find(CheckReconciliation)
		w.resolved[c.Reconciles.ID] = &resolution{claims: c, seen: first != nil || beside.Status == Pass}
	}
	return first, false
}

func (s *Set) checkPair(open *unresolved, later *receipts.Claims) {
	first := open.claims
	says := misfit(first, later)
	if field := otherCall(first, later); field != "" {
		says = "it has another " + field + " than " + first.ID
	}
	if open.beside != "" && open.beside != later.ID {
		says = first.ID + " was resolved already, by " + open.beside
	}
	if says != "" {
		s.reconciliations.add(Reconciles, later.ID+": "+says)
		return
	}
	s.superseded.add(Superseded, first.ID+" by "+decision(later))
}

// room takes one of the places for what is remembered of pairs.
func (s *Set) room() bool {
	if s.open >= maxOpen {
		s.openFull = true
		return false
	}
	s.open++
	return true
}

// Checks are the set's own. Where an entry could not be judged, a missing number
// may be its, so that a gap proves nothing.
func (s *Set) Checks() []Check {
	for _, w := range s.order {
		s.gaps(w)
		s.exceeded(w)
	}
	checks := []Check{
		s.chain.check(CheckChain, s.extent()),
		s.pairs(),
		s.permitTotals.check(CheckTotals, ""),
	}
	for i := range checks {
		c := &checks[i]
		full := c.Name == CheckChain && s.chainFull || c.Name != CheckChain && s.openFull
		switch {
		case c.Status == Pass && s.counts.Valid == 0:
			*c = Check{Name: c.Name, Status: NotChecked, Code: NotReached}
		case c.Status != Fail && full:
			*c = Check{Name: c.Name, Status: NotChecked, Code: Bound}
		case c.Code == SeqGap && s.counts.Valid < s.counts.Total:
			c.Status = NotChecked
		}
	}
	return checks
}

// pairs says which receipts are superseded, and which reconciliations stand alone: a
// set may begin or end between the two.
func (s *Set) pairs() Check {
	var alone findings
	for _, w := range s.order {
		for _, id := range slices.Sorted(maps.Keys(w.resolved)) {
			if r := w.resolved[id]; !r.seen {
				alone.add(RelatedMissing, r.claims.ID+" resolves "+id)
			}
		}
	}
	c := s.reconciliations.check(CheckReconciliations, s.superseded.list())
	if c.Status == Pass && alone.count > 0 {
		return Check{Name: CheckReconciliations, Status: NotSupplied, Code: RelatedMissing, Detail: alone.list()}
	}
	return c
}

// extent says in which numbers a chain without a gap was seen.
func (s *Set) extent() string {
	if len(s.order) != 1 || len(s.order[0].runs) != 1 {
		return fmt.Sprintf("%d wallets", len(s.order))
	}
	r := s.order[0].runs[0]
	return fmt.Sprintf("%s, numbers %d to %d", s.order[0].id, r.from, r.to)
}

// Summary is the verdict on all that was given.
type Summary struct {
	Counts Counts
	Set    []Check
	// Exit is the contract's status: 1 before 4 before 3 before 0.
	Exit int
}

// Summary sums up; require lists checks of the set, by name, that must pass.
func (s *Set) Summary(require []string) Summary {
	sum := Summary{Counts: s.counts, Set: s.Checks()}
	undecided := s.counts.Undecided > 0 || s.counts.Total == 0
	failed := false
	for _, c := range sum.Set {
		failed = failed || c.Status == Fail
		undecided = undecided || c.Status == NotChecked && c.Code.undecided()
		for _, name := range require {
			undecided = undecided || name == c.Name && c.Status != Pass
		}
	}
	switch {
	case s.counts.Invalid > 0:
		sum.Exit = 1
	case failed:
		sum.Exit = 4
	case undecided:
		sum.Exit = 3
	}
	return sum
}
