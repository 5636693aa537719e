package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"counterfoil/permits"
	"counterfoil/receipts"
)

// totals is what the receipts of one permit add up to. It is a lower bound: what
// the set does not hold is not counted, and nothing is counted that may have been
// given back.
type totals struct {
	limits  *permits.Limits // nil until a bundle brings the permit
	credits sum
	calls   sum
	byTool  map[string]*sum
	value   sum // in the currency of the limit
}

// sum cannot overflow: far above every limit it stays where it is.
type sum struct {
	n    int64
	over bool
}

func (s *sum) add(n int64) {
	s.n += n
	if s.n > 1<<62 {
		s.over = true
		s.n = 1 << 62
	}
}

func (s *sum) exceeds(limit int64) bool { return s.over || s.n > limit }

// count adds a receipt to its permit's totals. other is the receipt of the same
// operation that was counted before, if there is one: of the two, the
// reconciliation counts.
func (s *Set) count(w *wallet, d *Verdict, other *receipts.Claims) {
	c := d.Claims
	t := w.permits[c.PermitSHA256]
	if t == nil {
		t = &totals{byTool: map[string]*sum{}}
		w.permits[strings.Clone(c.PermitSHA256)] = t
	}
	if t.limits == nil && d.Permit != nil {
		t.limits = &d.Permit.Grant.Limits
	}
	if other != nil {
		if c.Outcome != receipts.Reconciled {
			return
		}
		t.add(other, -1)
	}
	t.add(c, 1)
}

func (t *totals) add(c *receipts.Claims, sign int64) {
	t.credits.add(sign * c.Charged)
	if !delivered(c) {
		return
	}
	t.calls.add(sign)
	if t.byTool[c.Tool] == nil {
		t.byTool[strings.Clone(c.Tool)] = &sum{}
	}
	t.byTool[c.Tool].add(sign)
	if c.Value != nil {
		t.value.add(sign * c.Value.Amount)
	}
}

// delivered says whether a call's count and value are kept for certain.
func delivered(c *receipts.Claims) bool {
	switch c.Outcome {
	case receipts.Succeeded, receipts.Uncertain:
		return true
	case receipts.Reconciled:
		return c.Reconciles.Resolution == receipts.Delivered
	case receipts.Denied, receipts.Failed:
	}
	return false
}

// exceeded compares the totals with the limits. Where the wallet's chain has a
// gap, a reconciliation that gave something back may be missing, so that the
// comparison would prove nothing. The same holds where some were forgotten.
func (s *Set) exceeded(w *wallet) {
	if len(w.runs) > 1 || s.chainFull || s.openFull {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(w.permits)) {
		t := w.permits[id]
		if t.limits == nil {
			continue
		}
		for _, says := range t.above() {
			s.permitTotals.add(Totals, fmt.Sprintf("%s, permit %.8s…: %s", w.id, id, says))
		}
	}
}

func (t *totals) above() []string {
	var out []string
	l := t.limits
	if t.credits.exceeds(l.Credits) {
		out = append(out, fmt.Sprintf("%d credits of %d", t.credits.n, l.Credits))
	}
	if l.CallsTotal != nil && t.calls.exceeds(*l.CallsTotal) {
		out = append(out, fmt.Sprintf("%d calls of %d", t.calls.n, *l.CallsTotal))
	}
	for _, tool := range slices.Sorted(maps.Keys(l.Calls)) {
		limit := l.Calls[tool]
		if n := t.byTool[tool]; n != nil && n.exceeds(limit) {
			out = append(out, fmt.Sprintf("%d calls of %s of %d", n.n, tool, limit))
		}
	}
	if v := l.Value; v != nil && v.Total != nil && t.value.exceeds(*v.Total) {
		out = append(out, fmt.Sprintf("%d %s of %d", t.value.n, v.Currency, *v.Total))
	}
	return out
}
