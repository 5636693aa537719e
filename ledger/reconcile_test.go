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

// reconcile decides an operation as the reconciler would.
func (b *bundle) reconcile(r ledger.Reconciliation) (*ledger.Decision, error) {
	var d *ledger.Decision
	_, err := b.ledger.Administer(context.Background(), ledger.Act{Actor: "reconciler"}, func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
		var err error
		d, err = a.Reconcile(ctx, r)
		return ledger.Answer{Status: 200, Body: []byte("{}")}, err
	})
	return d, err
}

// uncertain makes a call whose answer was lost, for 5 credits and a value of 70.
func (b *bundle) uncertain(t *testing.T, key string) (*permits.Permit, *ledger.Granted) {
	t.Helper()
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500, Value: &permits.ValueLimit{Currency: "USD", Total: ptr(int64(1000))}})
	return p, b.lose(t, p, key)
}

func (b *bundle) lose(t *testing.T, p *permits.Permit, key string) *ledger.Granted {
	t.Helper()
	ctx := context.Background()
	c, err := b.ledger.Claim(ctx, claim(t, p, key, 70))
	if err != nil || c.Granted == nil {
		t.Fatalf("claim: %+v, %v", c, err)
	}
	_, err = b.ledger.Settle(ctx, &ledger.Settlement{
		Granted: c.Granted, Outcome: receipts.Uncertain, Reason: receipts.ReasonNoResponse, Charged: payout.Price,
		KeepCall: true, KeepValue: true, Result: []byte(`{"isError":true}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.Granted
}

func (b *bundle) usage(t *testing.T) ledger.Usage {
	t.Helper()
	p, err := b.ledger.Permit(context.Background(), "prm_q4")
	if err != nil {
		t.Fatal(err)
	}
	return p.Usage
}

// What was not delivered gives back credits, call and value, once; what was delivered keeps them.
func TestAReconciliationGivesBackOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		resolution          string
		charged             *int64
		balance, calls, val int64
	}{
		"delivered":               {receipts.Delivered, nil, 995, 1, 70},
		"delivered for less":      {receipts.Delivered, ptr(int64(2)), 998, 1, 70},
		"delivered for nothing":   {receipts.Delivered, ptr(int64(0)), 1000, 1, 70},
		"not delivered":           {receipts.NotDelivered, nil, 1000, 0, 0},
		"not delivered, said so":  {receipts.NotDelivered, ptr(int64(0)), 1000, 0, 0},
		"delivered, as was taken": {receipts.Delivered, ptr(int64(5)), 995, 1, 70},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, g := b.uncertain(t, "k")
			if risk, err := b.ledger.AtRisk(context.Background(), nil); err != nil || risk.Count != 1 || risk.Credits != 5 || risk.Values[0].Amount != 70 {
				t.Errorf("at risk: %+v, %v", risk, err)
			}
			r := ledger.Reconciliation{Operation: g.ID, Resolution: tt.resolution, Evidence: "the bank's list of 3 May", ProviderReference: "po_1", Charged: tt.charged}
			first, err := b.reconcile(r)
			if err != nil || first.Replayed || first.Operation.State != ledger.StateReconciled || first.Operation.Outcome != receipts.Reconciled {
				t.Fatalf("reconcile: %+v, %v", first, err)
			}
			again, err := b.reconcile(r)
			if err != nil || !again.Replayed || again.Receipt != first.Receipt {
				t.Errorf("the same decision again: %+v, %v", again, err)
			}
			for what, other := range map[string]ledger.Reconciliation{
				"another evidence":  {Operation: g.ID, Resolution: tt.resolution, Evidence: "a rumour", ProviderReference: "po_1", Charged: tt.charged},
				"another reference": {Operation: g.ID, Resolution: tt.resolution, Evidence: r.Evidence, ProviderReference: "po_2", Charged: tt.charged},
			} {
				if _, err := b.reconcile(other); !errors.Is(err, ledger.ErrDecided) {
					t.Errorf("%s: %v, want ErrDecided", what, err)
				}
			}
			claims, _, err := receipts.Parse(first.Receipt, b.keys)
			if err != nil {
				t.Fatal(err)
			}
			if claims.Reconciles.Resolution != tt.resolution || claims.Reconciles.ChargedBefore != 5 || claims.Seq != 2 || claims.Operation != g.ID {
				t.Errorf("the receipt says %+v", claims)
			}
			w, err := b.ledger.Wallet(context.Background(), "wal_ops")
			if err != nil {
				t.Fatal(err)
			}
			u := b.usage(t)
			if w.Balance != tt.balance || w.Available != tt.balance || u.CallsTotal != tt.calls || u.ValueSpent != tt.val || u.CreditsSpent != 1000-tt.balance {
				t.Errorf("afterwards: %+v, %+v", w, u)
			}
			found, err := b.ledger.Lookup(context.Background(), "wal_ops", "k")
			if err != nil || found.Outcome != receipts.Reconciled || found.Resolution != tt.resolution || found.Receipt != first.Receipt || found.Charged != 1000-tt.balance {
				t.Errorf("a repeat of the key reads %+v, %v", found, err)
			}
			if risk, err := b.ledger.AtRisk(context.Background(), nil); err != nil || risk.Count != 0 {
				t.Errorf("still at risk: %+v, %v", risk, err)
			}
			b.fsck(t)
		})
	}
}

// Twenty reconcilers that disagree: one decision, given back once.
func TestReconcilersRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, g := b.uncertain(t, "k")
	second := b.open(t)
	var decided [20]error
	race(len(decided), func(i int) {
		l := b.ledger
		if i%2 == 1 {
			l = second
		}
		resolution := []string{receipts.Delivered, receipts.NotDelivered}[i/2%2]
		_, decided[i] = l.Administer(context.Background(), ledger.Act{Actor: "reconciler"}, func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
			_, err := a.Reconcile(ctx, ledger.Reconciliation{Operation: g.ID, Resolution: resolution, Evidence: fmt.Sprint(i)})
			return ledger.Answer{Status: 200, Body: []byte("{}")}, err
		})
	})
	won := 0
	for _, err := range decided {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ledger.ErrDecided):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d decisions", won)
	}
	if r := b.fsck(t); r.Receipts != 2 {
		t.Errorf("%+v", r)
	}
	if c, err := b.ledger.Claim(context.Background(), claim(t, p, "k", 70)); err != nil || c.Existing == nil || c.Existing.Outcome != receipts.Reconciled {
		t.Errorf("the key may be used again: %+v, %v", c, err)
	}
}

// Only what is uncertain can be reconciled, and never for more than was charged.
func TestWhatCannotBeReconciled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, g := b.uncertain(t, "k")
	ctx := context.Background()
	running, err := b.ledger.Claim(ctx, claim(t, p, "running", 1))
	if err != nil {
		t.Fatal(err)
	}
	done, err := b.ledger.Claim(ctx, claim(t, p, "done", 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.ledger.Settle(ctx, succeeded(done.Granted)); err != nil {
		t.Fatal(err)
	}
	for what, tt := range map[string]struct {
		r    ledger.Reconciliation
		want error
	}{
		"one that runs":              {ledger.Reconciliation{Operation: running.Granted.ID, Resolution: receipts.Delivered, Evidence: "e"}, ledger.ErrNotUncertain},
		"one that succeeded":         {ledger.Reconciliation{Operation: done.Granted.ID, Resolution: receipts.NotDelivered, Evidence: "e"}, ledger.ErrNotUncertain},
		"one that is not":            {ledger.Reconciliation{Operation: "op_00000000-0000-7000-8000-000000000000", Resolution: receipts.Delivered, Evidence: "e"}, ledger.ErrNotFound},
		"more than was charged":      {ledger.Reconciliation{Operation: g.ID, Resolution: receipts.Delivered, Evidence: "e", Charged: ptr(int64(6))}, ledger.ErrOverCharge},
		"less than nothing":          {ledger.Reconciliation{Operation: g.ID, Resolution: receipts.Delivered, Evidence: "e", Charged: ptr(int64(-1))}, ledger.ErrOverCharge},
		"a price for what was not":   {ledger.Reconciliation{Operation: g.ID, Resolution: receipts.NotDelivered, Evidence: "e", Charged: ptr(int64(1))}, ledger.ErrOverCharge},
		"no such resolution at all":  {ledger.Reconciliation{Operation: g.ID, Resolution: "perhaps", Evidence: "e"}, ledger.ErrReference},
		"an id that is no operation": {ledger.Reconciliation{Operation: "rcp_1", Resolution: receipts.Delivered, Evidence: "e"}, ledger.ErrNotFound},
	} {
		if _, err := b.reconcile(tt.r); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", what, err, tt.want)
		}
	}
	if r := b.fsck(t); r.Receipts != 2 {
		t.Errorf("something was written: %+v", r)
	}
}
