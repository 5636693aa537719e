package verify_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"counterfoil/permits"
	"counterfoil/receipts"
	"counterfoil/verify"
)

// chain makes n bundles of one wallet.
func (w *world) chain(n int) [][]byte {
	w.t.Helper()
	var out [][]byte
	for range n {
		out = append(out, w.bundle(plain).JSON())
	}
	return out
}

func TestSet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		texts func(w *world) [][]byte
		exit  int
		check string
		code  verify.Code
	}{
		{"whole", func(w *world) [][]byte { return w.chain(5) }, 0, verify.CheckChain, verify.OK},
		{"from the middle", func(w *world) [][]byte { return w.chain(5)[2:] }, 0, verify.CheckChain, verify.OK},
		{"backwards", func(w *world) [][]byte { c := w.chain(5); slices.Reverse(c); return c }, 0, verify.CheckChain, verify.OK},
		{"one dropped", func(w *world) [][]byte { return slices.Delete(w.chain(5), 2, 3) }, 4, verify.CheckChain, verify.SeqGap},
		{"one twice", func(w *world) [][]byte { c := w.chain(3); return append(c, c[1]) }, 4, verify.CheckChain, verify.Duplicate},
		{"one exchanged", func(w *world) [][]byte {
			c := w.chain(2)
			w.prev = strings.Repeat("0", 64)
			return append(c, w.chain(1)...)
		}, 4, verify.CheckChain, verify.Prev},
		{"exchanged, backwards", func(w *world) [][]byte {
			c := w.chain(2)
			w.prev = strings.Repeat("0", 64)
			return append(w.chain(1), c[1], c[0])
		}, 4, verify.CheckChain, verify.Prev},
		{"two histories", func(w *world) [][]byte {
			c := w.chain(2)
			prev := w.prev
			c = append(c, w.chain(1)...)
			w.seq, w.prev = 2, prev
			return append(c, w.bundle(func(c *receipts.Claims) { c.ID = "rcp_other" }).JSON())
		}, 4, verify.CheckChain, verify.Fork},
		{"two wallets", func(w *world) [][]byte {
			c := w.chain(2)
			w.seq, w.prev = 0, ""
			other := func(c *receipts.Claims) { c.Wallet = "wal_b" }
			return append(c, []byte(w.receipt(other)), []byte(w.receipt(other)))
		}, 0, verify.CheckChain, verify.OK},
		{"credits", func(w *world) [][]byte {
			w.grant(func(p *permits.Permit) { p.Grant.Limits.Credits = 14 })
			return w.chain(3)
		}, 4, verify.CheckTotals, verify.Totals},
		{"calls", func(w *world) [][]byte {
			w.grant(func(p *permits.Permit) { p.Grant.Limits.CallsTotal = ptr(2) })
			return w.chain(3)
		}, 4, verify.CheckTotals, verify.Totals},
		{"calls of the tool", func(w *world) [][]byte {
			w.grant(func(p *permits.Permit) { p.Grant.Limits.Calls["payout"] = 2 })
			return w.chain(3)
		}, 4, verify.CheckTotals, verify.Totals},
		{"value", func(w *world) [][]byte {
			w.grant(func(p *permits.Permit) { p.Grant.Limits.Value.Total = ptr(3599) })
			return w.chain(3)
		}, 4, verify.CheckTotals, verify.Totals},
		{"all spent", func(w *world) [][]byte {
			w.grant(func(p *permits.Permit) {
				p.Grant.Limits.Credits, p.Grant.Limits.Value.Total, p.Grant.Limits.CallsTotal = 15, ptr(3600), ptr(3)
			})
			return append(w.chain(3), w.bundle(denied).JSON())
		}, 0, verify.CheckTotals, verify.OK},
		{"spent, given back, spent", func(w *world) [][]byte {
			w.grant(func(p *permits.Permit) {
				p.Grant.Limits.Credits, p.Grant.Limits.Value.Total, p.Grant.Limits.CallsTotal = 5, ptr(1200), ptr(1)
			})
			first, later := w.pair(plain)
			return append([][]byte{later.JSON(), first.JSON()}, w.chain(1)...)
		}, 0, verify.CheckTotals, verify.OK},
		{"spent, given back, spent, in order", func(w *world) [][]byte {
			w.grant(func(p *permits.Permit) {
				p.Grant.Limits.Credits, p.Grant.Limits.Value.Total, p.Grant.Limits.CallsTotal = 5, ptr(1200), ptr(1)
			})
			first, later := w.pair(plain)
			return append([][]byte{first.JSON(), later.JSON()}, w.chain(1)...)
		}, 0, verify.CheckTotals, verify.OK},
		{"spent, delivered after all, spent", func(w *world) [][]byte {
			w.grant(func(p *permits.Permit) { p.Grant.Limits.Credits = 5 })
			first, later := w.pair(func(c *receipts.Claims) {
				c.Charged, c.LedgerEntry, c.Reconciles.Resolution = 5, "", receipts.Delivered
			})
			return append([][]byte{first.JSON(), later.JSON()}, w.chain(1)...)
		}, 4, verify.CheckTotals, verify.Totals},
		{"the reconciliation alone", func(w *world) [][]byte {
			_, later := w.pair(plain)
			later.Related = nil
			return [][]byte{later.JSON()}
		}, 0, verify.CheckTotals, verify.OK},
		{"reconciled from other credits", func(w *world) [][]byte {
			first, later := w.pair(func(c *receipts.Claims) { c.Reconciles.ChargedBefore = 4 })
			first.Related, later.Related = nil, nil
			return [][]byte{first.JSON(), later.JSON()}
		}, 4, verify.CheckReconciliations, verify.Reconciles},
		{"reconciled twice", func(w *world) [][]byte {
			first, later := w.pair(plain)
			again := w.bundle(func(c *receipts.Claims) {
				c.Operation, c.Outcome, c.Charged = "op_1", receipts.Reconciled, 0
				c.Reconciles = &receipts.Reconciles{
					ID: "rcp_1", Resolution: receipts.NotDelivered, EvidenceSHA256: strings.Repeat("1", 64), ChargedBefore: 5,
				}
			})
			return [][]byte{first.JSON(), later.JSON(), again.JSON()}
		}, 4, verify.CheckReconciliations, verify.Reconciles},
		{"invalid before gap", func(w *world) [][]byte {
			c := w.chain(3)
			return [][]byte{c[0], c[2], w.bundle(func(c *receipts.Claims) { c.Charged = 6 }).JSON()}
		}, 1, verify.CheckChain, verify.SeqGap},
		{"invalid before twice", func(w *world) [][]byte {
			c := w.chain(2)
			return [][]byte{c[0], c[1], c[1], w.bundle(func(c *receipts.Claims) { c.Charged = 6 }).JSON()}
		}, 1, verify.CheckChain, verify.Duplicate},
		{"twice before undecided", func(w *world) [][]byte {
			c := w.chain(2)
			return [][]byte{c[0], c[1], c[1], []byte("x")}
		}, 4, verify.CheckChain, verify.Duplicate},
		{"a gap where something was unreadable", func(w *world) [][]byte {
			c := w.chain(3)
			return [][]byte{c[0], []byte("x"), c[2]}
		}, 3, verify.CheckChain, verify.SeqGap},
		{"40 nothing", func(*world) [][]byte { return nil }, 3, verify.CheckChain, verify.NotReached},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			verdicts, sum := w.judge(tc.texts(w)...)
			c := check(t, sum.Set, tc.check)
			if sum.Exit != tc.exit || c.Code != tc.code {
				t.Errorf("exit %d, %s %s; want %d, %s", sum.Exit, c.Code, c.Detail, tc.exit, tc.code)
				for _, d := range verdicts {
					t.Log(d.State, d.Checks)
				}
			}
		})
	}
}

func TestReconciliationSupersedes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, later := w.pair(plain)
	verdicts, sum := w.judge(first.JSON(), later.JSON())
	if sum.Exit != 0 {
		t.Fatalf("exit %d: %v %v", sum.Exit, verdicts[0].Checks, verdicts[1].Checks)
	}
	if got := verdicts[0].SupersededBy; got == nil || got.ID != "rcp_2" {
		t.Errorf("uncertain receipt superseded by %v, want rcp_2", got)
	}
	if c := check(t, verdicts[0].Checks, verify.CheckReconciliation); c.Code != verify.Superseded {
		t.Errorf("reconciliation is %s, want E_SUPERSEDED", c.Code)
	}
	if got := verdicts[1].SupersededBy; got != nil {
		t.Errorf("the reconciliation is superseded by %v", got)
	}
	if c := check(t, sum.Set, verify.CheckReconciliations); !strings.Contains(c.Detail, "rcp_1 by rcp_2") {
		t.Errorf("the set says %q", c.Detail)
	}
}

func TestUnfitReconciliations(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*receipts.Claims){
		"of another receipt":  func(c *receipts.Claims) { c.Reconciles.ID = "rcp_9" },
		"from other credits":  func(c *receipts.Claims) { c.Reconciles.ChargedBefore = 4 },
		"for another price":   func(c *receipts.Claims) { c.Authorized = 4; c.Reconciles.ChargedBefore = 4 },
		"two terminal":        func(c *receipts.Claims) { uncertain(c); c.Charged, c.Reconciles = 5, nil },
		"of another request":  func(c *receipts.Claims) { c.RequestHash = strings.Repeat("2", 64) },
		"of another agent":    func(c *receipts.Claims) { c.Agent = "agt_2" },
		"older than what was": func(c *receipts.Claims) { c.Seq, c.Prev = 1, "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if strings.HasPrefix(name, "older") {
				w.receipt(plain)
			}
			first, later := w.pair(edit)
			for _, b := range []*receipts.Bundle{first, later} {
				if _, sum := w.judge(b.JSON()); sum.Exit != 1 {
					t.Errorf("exit %d, want 1", sum.Exit)
				}
			}
		})
	}
}

// Whatever the order, a whole chain passes, and any drop but at its ends is a gap.
func TestChainInAnyOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grant(func(p *permits.Permit) {
		p.Grant.Limits = permits.Limits{Credits: 1000}
	})
	const n = 12
	v := w.verifier(func(*verify.Options) {})
	var verdicts []*verify.Verdict
	for _, text := range w.chain(n) {
		verdicts = append(verdicts, v.Judge(verify.Entry{Data: text}))
	}
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.Permutation(verdicts).Draw(t, "order")
		dropped := rapid.IntRange(-1, n-1).Draw(t, "dropped")
		set := verify.NewSet()
		for _, d := range order {
			if d.Claims.Seq != int64(dropped+1) {
				set.Add(d)
			}
		}
		want := 0
		if dropped > 0 && dropped < n-1 {
			want = 4
		}
		if sum := set.Summary(nil); sum.Exit != want {
			t.Fatalf("dropped %d: exit %d, want %d: %v", dropped, sum.Exit, want, sum.Set)
		}
	})
}

func TestEachKeepsTheOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	texts := w.chain(9)
	r := rand.New(rand.NewPCG(1, 2))
	const n = 500
	var want []string
	entries := func(yield func(verify.Entry) bool) {
		for i := range n {
			data := texts[r.IntN(len(texts))]
			if i%7 == 0 {
				data = []byte("broken")
			}
			if !yield(verify.Entry{File: fmt.Sprint(i), Data: data}) {
				return
			}
		}
	}
	for i := range n {
		want = append(want, fmt.Sprint(i))
	}
	var got []string
	err := w.verifier(func(*verify.Options) {}).Each(entries, 8, func(d *verify.Verdict) error {
		got = append(got, d.File)
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("order %v, error %v", got, err)
	}
}

func TestEachStopsAtAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	endless := func(yield func(verify.Entry) bool) {
		for yield(verify.Entry{Data: []byte("x")}) {
		}
	}
	n := 0
	err := w.verifier(func(*verify.Options) {}).Each(endless, 4, func(*verify.Verdict) error {
		if n++; n == 10 {
			return fmt.Errorf("disk full")
		}
		return nil
	})
	if err == nil || n != 10 {
		t.Errorf("after %d: %v", n, err)
	}
}
