package ledger_test

import (
	"context"
	"flag"
	"os"
	"strconv"
	"testing"

	"counterfoil/ledger"
	"counterfoil/permits"

	"pgregory.net/rapid"
)

// TestHistories plays random histories against the ledger and the model beside it: calls, repeats, changed
// repeats, outcomes, deposits, freezes, revocations, reconciliations, releases, rounds, crashes and takeovers. A
// failing one shrinks to the shortest that still fails, and reads as a list of what was done.
// COUNTERFOIL_HISTORIES plays more than the usual number.
func TestHistories(t *testing.T) {
	t.Parallel()
	histories := "10"
	if n := os.Getenv("COUNTERFOIL_HISTORIES"); n != "" {
		histories = n
	}
	for name, value := range map[string]string{"rapid.checks": histories, "rapid.steps": "50"} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	stage := &stage{t: t}
	rapid.Check(t, stage.play)
}

// stage lends histories a database; a fresh one after some, and after one that failed.
type stage struct {
	t      *testing.T
	b      *bundle
	played int
	failed bool
}

func (s *stage) play(rt *rapid.T) {
	if s.b == nil || s.failed || s.played%20 == 0 {
		s.b = setup(s.t)
	}
	s.played++
	s.failed = true
	h := s.begin(rt)
	defer h.close()
	rt.Repeat(map[string]func(*rapid.T){
		"":              h.check,
		"call":          h.call,
		"anotherCall":   h.call, // named twice, so that most of a history is calls
		"repeat":        h.repeat,
		"changedRepeat": h.changedRepeat,
		"settle":        h.settle,
		"settleAnother": h.settle,
		"operate":       h.operate,
		"reconcile":     h.reconcile,
		"reconcileAny":  h.reconcileAny,
		"interrupt":     h.interrupt,
		"ask":           h.ask,
		"goOn":          h.goOn,
		"abandon":       h.abandon,
	})
	h.prove(rt)
	s.failed = false
}

// history is one wallet's story.
type history struct {
	t       *testing.T
	b       *bundle
	m       *model
	wallet  string
	ledgers [2]*ledger.Ledger
	grants  map[string]*ledger.Granted
	owner   map[string]int
	permits map[string]*permits.Permit
	rounds  map[string]*ledger.Operation // the last that was asked of each key
	answers map[string]*ledger.Operation // what was acknowledged, and must be read again as it was
	n       int
}

func (s *stage) begin(rt *rapid.T) *history {
	name := strconv.Itoa(s.played)
	h := &history{
		t: s.t, b: s.b, m: newModel(), wallet: "wal_" + name, grants: map[string]*ledger.Granted{}, owner: map[string]int{},
		permits: map[string]*permits.Permit{}, answers: map[string]*ledger.Operation{}, rounds: map[string]*ledger.Operation{},
	}
	s.b.wallet(s.t, h.wallet, 0)
	s.b.agent(s.t, "agt_"+name, h.wallet)
	for _, letter := range []string{"a", "b"} {
		limits := permits.Limits{Credits: rapid.SampledFrom([]int64{60, 200, 9}).Draw(rt, "credits of permit "+letter)}
		if rapid.Bool().Draw(rt, "permit "+letter+" limits calls") {
			limits.CallsTotal = ptr(rapid.SampledFrom([]int64{8, 3, 1}).Draw(rt, "calls"))
		}
		if rapid.Bool().Draw(rt, "permit "+letter+" limits values") {
			limits.Value = &permits.ValueLimit{Currency: "USD", Total: ptr(rapid.SampledFrom([]int64{40, 12}).Draw(rt, "value"))}
		}
		h.permits[letter] = s.b.grant(s.t, "prm_"+letter+name, h.wallet, "agt_"+name, limits)
		h.m.permits[letter] = &modelPermit{limits: limits}
	}
	h.open(rt, 0)
	h.open(rt, 1)
	h.deposit(rt)
	return h
}

func (h *history) open(rt *rapid.T, i int) {
	o := h.b.options()
	l, err := ledger.Open(context.Background(), o)
	if err != nil {
		rt.Fatal(err)
	}
	h.ledgers[i] = l
}

func (h *history) close() {
	for _, l := range h.ledgers {
		if l != nil {
			_ = l.Close(context.Background())
		}
	}
}

// check compares the money after each step.
func (h *history) check(rt *rapid.T) {
	ctx := context.Background()
	w, err := h.b.ledger.Wallet(ctx, h.wallet)
	if err != nil {
		rt.Fatal(err)
	}
	all := h.m.sums("")
	if w.Balance != h.m.deposited-all.spent || w.Held != all.held || w.Available != w.Balance-w.Held || w.Available < 0 {
		rt.Fatalf("wallet: %+v, want deposited %d, %+v", w, h.m.deposited, all)
	}
	for letter, p := range h.permits {
		record, err := h.b.ledger.Permit(ctx, p.ID)
		if err != nil {
			rt.Fatal(err)
		}
		u := record.Usage
		if got := (sums{u.CreditsSpent, u.CreditsHeld, u.CallsTotal, u.ValueSpent, u.ValueHeld}); got != h.countable(letter) {
			rt.Fatalf("permit %s: %+v, want %+v", letter, got, h.countable(letter))
		}
	}
}

// countable is the permit's sums; a value counts only under a value limit.
func (h *history) countable(letter string) sums {
	s := h.m.sums(letter)
	if h.m.permits[letter].limits.Value == nil {
		s.valueSpent, s.valueHeld = 0, 0
	}
	return s
}

// prove checks every operation, the late answers, and the database as a whole.
func (h *history) prove(rt *rapid.T) {
	for key, o := range h.m.ops {
		op, err := h.b.ledger.Lookup(context.Background(), h.wallet, key)
		if err != nil || op == nil {
			rt.Fatalf("look up %s: %v", key, err)
		}
		h.same(rt, o, op)
		record, err := h.b.ledger.Operation(context.Background(), op.ID, nil)
		if err != nil {
			rt.Fatal(err)
		}
		if (record.Late != nil) != o.late || record.HoldsReference != (o.ref != "" && h.m.refs[o.ref] == o) {
			rt.Fatalf("%s: late answer %v, holds its reference %v; want %+v", key, record.Late, record.HoldsReference, o)
		}
	}
	report, err := ledger.Fsck(context.Background(), h.b.url, h.b.keys, nil)
	if err != nil {
		rt.Fatal(err)
	}
	if report.FirstFault != nil {
		rt.Fatal(report.FirstFault)
	}
}
