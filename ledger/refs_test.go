package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

func claimRef(t *testing.T, p *permits.Permit, key, ref string) *ledger.Claim {
	t.Helper()
	c := claim(t, p, key, 1)
	c.Ref = ref
	return c
}

// While an operation with a reference runs, is uncertain or was delivered, no other key has the same one; what was not
// delivered frees it.
func TestAReferenceIsHeldByWhatMayHaveActed(t *testing.T) {
	t.Parallel()
	failed := func(reason receipts.Reason, call bool) func(*ledger.Granted) *ledger.Settlement {
		return func(g *ledger.Granted) *ledger.Settlement {
			return &ledger.Settlement{Granted: g, Outcome: receipts.Failed, Reason: reason, KeepCall: call, Result: []byte(`{"isError":true}`)}
		}
	}
	for name, tt := range map[string]struct {
		settle func(*ledger.Granted) *ledger.Settlement
		free   bool
	}{
		"running":   {nil, false},
		"succeeded": {succeeded, false},
		"uncertain": {func(g *ledger.Granted) *ledger.Settlement {
			return &ledger.Settlement{Granted: g, Outcome: receipts.Uncertain, Reason: receipts.ReasonNoResponse, Charged: payout.Price, KeepCall: true, KeepValue: true, Result: []byte(`{}`)}
		}, false},
		"unreachable":     {failed(receipts.ReasonUpstreamUnreachable, false), true},
		"refused":         {failed(receipts.ReasonUpstreamRejected, false), true},
		"not sent":        {failed(receipts.ReasonNotDispatched, false), true},
		"the tool failed": {failed(receipts.ReasonToolError, true), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.wallet(t, "wal_ops", 1000)
			b.wallet(t, "wal_other", 1000)
			b.agent(t, "agt_a", "wal_ops", "wal_other")
			p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
			other := b.grant(t, "prm_other", "wal_other", "agt_a", permits.Limits{Credits: 500})
			ctx := context.Background()
			first, err := b.ledger.Claim(ctx, claimRef(t, p, "k1", "INV-1"))
			if err != nil || first.Granted == nil {
				t.Fatalf("claim: %+v, %v", first, err)
			}
			if tt.settle != nil {
				if _, err := b.ledger.Settle(ctx, tt.settle(first.Granted)); err != nil {
					t.Fatal(err)
				}
			}
			second, err := b.ledger.Claim(ctx, claimRef(t, p, "k2", "INV-1"))
			switch {
			case err != nil:
				t.Fatal(err)
			case tt.free && second.Granted == nil:
				t.Errorf("not free: %+v", second.Denied)
			case !tt.free:
				checkDuplicate(t, b, second, first.Granted.ID)
			}
			for what, c := range map[string]*ledger.Claim{
				"another reference": claimRef(t, p, "k3", "INV-2"), "another wallet": claimRef(t, other, "k4", "INV-1"), "no reference": claim(t, p, "k5", 1),
			} {
				if got, err := b.ledger.Claim(ctx, c); err != nil || got.Granted == nil {
					t.Errorf("%s: %+v, %v", what, got, err)
				}
			}
			b.fsck(t)
		})
	}
}

func checkDuplicate(t *testing.T, b *bundle, c ledger.Claimed, first string) {
	t.Helper()
	if c.Denied == nil || c.Denied.Reason != receipts.ReasonOperationRefReused {
		t.Fatalf("not denied: %+v", c)
	}
	claims, _, err := receipts.Parse(c.Denied.Receipt, b.keys)
	if err != nil || claims.DuplicateOf != first {
		t.Errorf("the receipt names %q, %v; the first is %s", claims.DuplicateOf, err, first)
	}
}

// Forty keys with one reference, over two gateways, at once: one of them is granted.
func TestKeysRaceForAReference(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	ledgers := []*ledger.Ledger{b.ledger, b.open(t)}
	var got [40]ledger.Claimed
	race(len(got), func(i int) {
		var err error
		if got[i], err = ledgers[i%2].Claim(context.Background(), claimRef(t, p, fmt.Sprint("k", i), "INV-1")); err != nil {
			t.Error(err)
		}
	})
	var winner string
	for _, c := range got {
		if c.Granted == nil {
			continue
		}
		if winner != "" {
			t.Errorf("granted twice: %s and %s", winner, c.Granted.ID)
		}
		winner = c.Granted.ID
	}
	for _, c := range got {
		if c.Granted == nil {
			checkDuplicate(t, b, c, winner)
		}
	}
	b.fsck(t)
}

// A reconciliation to not delivered frees the reference; to delivered it does not; an operator can release it.
func TestAReferenceIsFreedByADecision(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	ctx := context.Background()
	lose := func(key string) string {
		t.Helper()
		c, err := b.ledger.Claim(ctx, claimRef(t, p, key, "INV-1"))
		if err != nil || c.Granted == nil {
			t.Fatalf("claim %s: %+v, %v", key, c, err)
		}
		s := succeeded(c.Granted)
		s.Outcome, s.Reason = receipts.Uncertain, receipts.ReasonNoResponse
		if _, err := b.ledger.Settle(ctx, s); err != nil {
			t.Fatal(err)
		}
		return c.Granted.ID
	}
	first := lose("k1")
	if _, err := b.reconcile(ledger.Reconciliation{Operation: first, Resolution: receipts.NotDelivered, Evidence: "e"}); err != nil {
		t.Fatal(err)
	}
	second := lose("k2")
	if _, err := b.reconcile(ledger.Reconciliation{Operation: second, Resolution: receipts.Delivered, Evidence: "e"}); err != nil {
		t.Fatal(err)
	}
	c, err := b.ledger.Claim(ctx, claimRef(t, p, "k3", "INV-1"))
	if err != nil {
		t.Fatal(err)
	}
	checkDuplicate(t, b, c, second)
	release := func(id string) error {
		_, err := b.ledger.Administer(ctx, ledger.Act{Actor: "operator"}, func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
			op, err := a.ReleaseReference(ctx, id, "the invoice is paid in two parts")
			if err == nil && op.HoldsReference {
				t.Errorf("released: %+v", op)
			}
			return ledger.Answer{Status: 200, Body: []byte("{}")}, err
		})
		return err
	}
	if err := release(first); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("released by one that does not hold it: %v", err)
	}
	b.fsck(t)
	if err := release(second); err != nil {
		t.Fatal(err)
	}
	if op, err := b.ledger.Operation(ctx, second, nil); err != nil || op.Reference != "INV-1" || op.HoldsReference {
		t.Errorf("after the release: %+v, %v", op, err)
	}
	lose("k4")
	b.fsck(t)
}
