package verify_test

import (
	"fmt"
	"strings"
	"testing"

	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"
	"counterfoil/verify"
)

const evidence, reference = "Bank statement of 2026-11-30, line 14: booked with a discount.", "PAY-88213"

// decided makes the receipts of an uncertain call and of a decision about it, as the
// ledger writes them: ids, times, result, transfer and place in the chain are the
// decision's own, everything else is the call's.
func (w *world) decided(resolution string, charged int64) (first, later *receipts.Bundle) {
	w.t.Helper()
	var call *receipts.Claims
	first = w.bundle(func(c *receipts.Claims) { uncertain(c); call = c })
	return first, w.decide(first, call, resolution, charged)
}

// decide adds a decision about a call to the chain, and joins the two bundles.
func (w *world) decide(first *receipts.Bundle, call *receipts.Claims, resolution string, charged int64) *receipts.Bundle {
	w.t.Helper()
	later := w.bundle(func(c *receipts.Claims) {
		c.Operation, c.StartedMS, c.Outcome, c.Reason = call.Operation, call.StartedMS, receipts.Reconciled, call.Reason
		c.Charged, c.Value = charged, call.Value
		if charged == call.Charged {
			c.LedgerEntry = ""
		}
		c.Reconciles = &receipts.Reconciles{
			ID: call.ID, Resolution: resolution, ChargedBefore: call.Charged,
			EvidenceSHA256: receipts.EvidenceSHA256(evidence, reference),
		}
	})
	first.Related, later.Related = []string{later.Receipt}, []string{first.Receipt}
	return later
}

// bare leaves the two receipts without each other, as lines of an export may be.
func bare(bundles ...*receipts.Bundle) [][]byte {
	var out [][]byte
	for _, b := range bundles {
		alone := *b
		alone.Related = nil
		out = append(out, alone.JSON())
	}
	return out
}

func TestAnUncertainReceiptBesideItsDecision(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, resolution string
		charged          int64
	}{
		{"not delivered", receipts.NotDelivered, 0},
		{"delivered", receipts.Delivered, 5},
		{"delivered for less", receipts.Delivered, 3},
		{"delivered for nothing", receipts.Delivered, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first, later := w.decided(tc.resolution, tc.charged)
			verdicts, sum := w.judge(first.JSON(), later.JSON())
			if sum.Exit != 0 {
				t.Fatalf("exit %d: %v %v %v", sum.Exit, verdicts[0].Checks, verdicts[1].Checks, sum.Set)
			}
			by := verdicts[0].SupersededBy
			if by == nil || by.ID != "rcp_2" || by.Reconciles.Resolution != tc.resolution || by.Charged != tc.charged {
				t.Errorf("superseded by %+v", by)
			}
			says := fmt.Sprintf("rcp_2: %s, %d of 5 credits charged", tc.resolution, tc.charged)
			if c := check(t, verdicts[0].Checks, verify.CheckReconciliation); c.Code != verify.Superseded || c.Detail != "by "+says {
				t.Errorf("the first receipt's check is %s %q", c.Code, c.Detail)
			}
			if c := check(t, verdicts[1].Checks, verify.CheckReconciliation); c.Status != verify.Pass || c.Code != verify.OK || verdicts[1].SupersededBy != nil {
				t.Errorf("the decision's check is %s %s", c.Status, c.Code)
			}
			if c := check(t, sum.Set, verify.CheckReconciliations); c.Status != verify.Pass || c.Detail != "E_SUPERSEDED rcp_1 by "+says {
				t.Errorf("the set says %s %q", c.Status, c.Detail)
			}
		})
	}
}

// Between call and decision a gateway may have changed its key.
func TestADecisionUnderAnotherKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var call *receipts.Claims
	first := w.bundle(func(c *receipts.Claims) { uncertain(c); call = c })
	old := w.keys
	w.receiptKey = signer(t, 4)
	w.keys = old.Merge(keySet(t, jws.Key{Public: w.receiptKey.Public(), Purpose: jws.PurposeReceipt, NotBefore: 1789000000}))
	later := w.decide(first, call, receipts.NotDelivered, 0)
	first.Keys = w.keys.JWKS()
	for _, b := range []*receipts.Bundle{first, later} {
		if verdicts, sum := w.judge(b.JSON()); sum.Exit != 0 {
			t.Errorf("exit %d: %v", sum.Exit, verdicts[0].Checks)
		}
	}
	w.keys = old
	if _, sum := w.judge(first.JSON()); sum.Exit != 3 {
		t.Errorf("beside a decision of an unknown key: exit %d, want 3", sum.Exit)
	}
}

// In an export the receipts lie side by side, with the other one in related or not.
func TestDecisionsInASet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		texts  func(w *world) [][]byte
		exit   int
		status verify.Status
		code   verify.Code
		says   string
	}{
		{"both, each with the other", func(w *world) [][]byte {
			first, later := w.decided(receipts.NotDelivered, 0)
			return [][]byte{first.JSON(), later.JSON()}
		}, 0, verify.Pass, verify.OK, "rcp_1 by rcp_2: not_delivered"},
		{"both, alone", func(w *world) [][]byte { return bare(w.decided(receipts.NotDelivered, 0)) }, 0, verify.Pass, verify.OK, "rcp_1 by rcp_2: not_delivered"},
		{"both, backwards", func(w *world) [][]byte {
			first, later := w.decided(receipts.Delivered, 5)
			return bare(later, first)
		}, 0, verify.Pass, verify.OK, "rcp_1 by rcp_2: delivered, 5 of 5"},
		{"bare receipts", func(w *world) [][]byte {
			first, later := w.decided(receipts.Delivered, 5)
			return [][]byte{[]byte(first.Receipt), []byte(later.Receipt)}
		}, 0, verify.Pass, verify.OK, "rcp_1 by rcp_2"},
		{"the call only", func(w *world) [][]byte { first, _ := w.decided(receipts.NotDelivered, 0); return bare(first) }, 0, verify.Pass, verify.OK, ""},
		{"the decision only", func(w *world) [][]byte {
			_, later := w.decided(receipts.NotDelivered, 0)
			return bare(later)
		}, 0, verify.NotSupplied, verify.RelatedMissing, "rcp_2 resolves rcp_1"},
		{"the decision only, with the call beside it", func(w *world) [][]byte {
			_, later := w.decided(receipts.NotDelivered, 0)
			return [][]byte{later.JSON()}
		}, 0, verify.Pass, verify.OK, ""},
		{"another decision later", func(w *world) [][]byte { return twice(w, false) }, 4, verify.Fail, verify.Reconciles, "rcp_1 was resolved already, by rcp_2"},
		{"another decision later, bundled", func(w *world) [][]byte { return twice(w, true) }, 4, verify.Fail, verify.Reconciles, "rcp_1 was resolved already, by rcp_2"},
		{"another decision than the one beside the call", func(w *world) [][]byte {
			t := twice(w, true)
			return [][]byte{t[0], t[2]}
		}, 4, verify.Fail, verify.Reconciles, "rcp_1 was resolved already, by rcp_2"},
		{"another decision than the one beside the call, backwards", func(w *world) [][]byte {
			t := twice(w, true)
			return [][]byte{t[2], t[0]}
		}, 4, verify.Fail, verify.Reconciles, "rcp_1 was resolved already, by rcp_2"},
		{"of another operation", func(w *world) [][]byte {
			return altered(w, func(c *receipts.Claims) { c.Operation = "op_9" })
		}, 4, verify.Fail, verify.Reconciles, "another call.id than rcp_1"},
		{"of another value", func(w *world) [][]byte {
			return altered(w, func(c *receipts.Claims) { c.Value = &permits.Value{Currency: "USD", Amount: 1} })
		}, 4, verify.Fail, verify.Reconciles, "another value than rcp_1"},
		{"without the value", func(w *world) [][]byte {
			w.grant(func(p *permits.Permit) { p.Grant.Limits.Value = nil })
			return altered(w, func(c *receipts.Claims) { c.Value = nil })
		}, 4, verify.Fail, verify.Reconciles, "another value than rcp_1"},
		{"of another tool", func(w *world) [][]byte {
			return altered(w, func(c *receipts.Claims) { c.ToolSHA256 = strings.Repeat("7", 64) })
		}, 4, verify.Fail, verify.Reconciles, "another call.tool than rcp_1"},
		{"of other arguments", func(w *world) [][]byte {
			return altered(w, func(c *receipts.Claims) { c.RequestHash = strings.Repeat("7", 64) })
		}, 4, verify.Fail, verify.Reconciles, "another req than rcp_1"},
		{"from another charge", func(w *world) [][]byte {
			return altered(w, func(c *receipts.Claims) { c.Reconciles.ChargedBefore = 4 })
		}, 4, verify.Fail, verify.Reconciles, "it starts from other credits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			verdicts, sum := func() ([]*verify.Verdict, verify.Summary) {
				w := newWorld(t)
				return w.judge(tc.texts(w)...)
			}()
			c := check(t, sum.Set, verify.CheckReconciliations)
			if sum.Exit != tc.exit || c.Status != tc.status || c.Code != tc.code || !strings.Contains(c.Detail, tc.says) || tc.says == "" && c.Detail != "" {
				t.Errorf("exit %d, %s %s %q; want %d, %s %s %q", sum.Exit, c.Status, c.Code, c.Detail, tc.exit, tc.status, tc.code, tc.says)
				for _, d := range verdicts {
					t.Log(d.State, d.Checks)
				}
			}
		})
	}
}

// twice makes a call, a decision about it, and another one.
func twice(w *world, bundled bool) [][]byte {
	w.t.Helper()
	var call *receipts.Claims
	first := w.bundle(func(c *receipts.Claims) { uncertain(c); call = c })
	later := w.decide(first, call, receipts.NotDelivered, 0)
	related := first.Related
	again := w.decide(first, call, receipts.Delivered, 5)
	first.Related = related
	if !bundled {
		return bare(first, later, again)
	}
	return [][]byte{first.JSON(), later.JSON(), again.JSON()}
}

// altered makes a call and a decision that is not quite about it.
func altered(w *world, edit func(*receipts.Claims)) [][]byte {
	w.t.Helper()
	return bare(w.pair(edit))
}

// Of a call and its decision the decision counts, once; a second one counts for nothing.
func TestTotalsCountTheDecision(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		resolution string
		charged    int64
		more       int // further calls, at 5 credits each
		over       string
	}{
		{"given back, spent again", receipts.NotDelivered, 0, 2, ""},
		{"given back, spent and more", receipts.NotDelivered, 0, 3, "15 credits of 10; 3 calls of 2; 3600 USD of 2400"},
		{"kept, spent", receipts.Delivered, 5, 1, ""},
		{"kept, spent and more", receipts.Delivered, 5, 2, "15 credits of 10; 3 calls of 2; 3600 USD of 2400"},
		{"kept in part: the call and its value are kept whole", receipts.Delivered, 0, 2, "3 calls of 2; 3600 USD of 2400"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.grant(func(p *permits.Permit) {
				p.Grant.Limits.Credits, p.Grant.Limits.Value.Total, p.Grant.Limits.CallsTotal = 10, ptr(2400), ptr(2)
			})
			first, later := w.decided(tc.resolution, tc.charged)
			texts := append(bare(first, later), w.chain(tc.more)...)
			for range 2 {
				_, sum := w.judge(texts...)
				c := check(t, sum.Set, verify.CheckTotals)
				var says []string
				for _, f := range strings.Split(c.Detail, "; ") {
					_, said, _ := strings.Cut(f, "…: ")
					says = append(says, said)
				}
				if got := strings.Join(says, "; "); got != tc.over {
					t.Errorf("over: %q, want %q", got, tc.over)
				}
				texts[0], texts[1] = texts[1], texts[0]
			}
		})
	}
}

func TestASecondDecisionAddsNothingToTheTotals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grant(func(p *permits.Permit) { p.Grant.Limits.Credits = 5 })
	_, sum := w.judge(append(twice(w, false), w.chain(1)...)...)
	if c := check(t, sum.Set, verify.CheckTotals); c.Status != verify.Pass {
		t.Errorf("totals are %s: %s", c.Status, c.Detail)
	}
}

// A bundle can hold no more receipts of one operation than there are.
func TestTwoReceiptsBesideOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, later := w.decided(receipts.NotDelivered, 0)
	for name, related := range map[string][]string{"one twice": {later.Receipt, later.Receipt}, "itself, too": {later.Receipt, first.Receipt}} {
		first.Related = related
		verdicts, sum := w.judge(first.JSON())
		c := check(t, verdicts[0].Checks, verify.CheckReconciliation)
		if sum.Exit != 1 || c.Status != verify.Fail || verdicts[0].SupersededBy != nil {
			t.Errorf("%s: exit %d, %s %s", name, sum.Exit, c.Status, c.Code)
		}
	}
}

// A denial for a reference is valid by itself: what it names need not be there.
func TestADenialThatNamesTheFirstOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	verdicts, sum := w.judge(w.bundle(plain).JSON(), w.bundle(duplicate).JSON())
	if sum.Exit != 0 || verdicts[1].Claims.DuplicateOf != "op_1" {
		t.Errorf("exit %d, names %q", sum.Exit, verdicts[1].Claims.DuplicateOf)
	}
}

func duplicate(c *receipts.Claims) {
	denied(c)
	c.Reason, c.DuplicateOf = receipts.ReasonOperationRefReused, "op_1"
}
