package ledger_test

import (
	"context"
	"fmt"
	"testing"

	"counterfoil/permits"
	"counterfoil/receipts"
)

// The receipts of refusals are written by the claim lane, those of outcomes by the settle lane: both take the
// same chain's head, one after the other (I11).
func TestRefusalsAndOutcomesShareOneChain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wallet(t, "wal_ops", 10_000)
	b.agent(t, "agt_a", "wal_ops")
	open := b.grant(t, "prm_open", "wal_ops", "agt_a", permits.Limits{Credits: 5000})
	shut := b.grant(t, "prm_shut", "wal_ops", "agt_a", permits.Limits{Credits: 0})
	second := b.open(t)
	ctx := context.Background()
	const callers, rounds = 16, 12
	race(callers, func(i int) {
		l := b.ledger
		if i%4 < 2 {
			l = second
		}
		for n := range rounds {
			key := fmt.Sprintf("k-%d-%d", i, n)
			if i%2 == 0 {
				c, err := l.Claim(ctx, claim(t, shut, key, 1))
				if err != nil || c.Denied == nil || c.Denied.Reason != receipts.ReasonCreditsExceeded {
					t.Errorf("a refusal: %+v, %v", c, err)
				}
				continue
			}
			c, err := l.Claim(ctx, claim(t, open, key, 1))
			if err != nil || c.Granted == nil {
				t.Errorf("a claim: %+v, %v", c, err)
				continue
			}
			if _, err := l.Settle(ctx, succeeded(c.Granted)); err != nil {
				t.Errorf("an outcome: %v", err)
			}
		}
	})
	if r := b.fsck(t); r.Receipts != callers*rounds {
		t.Errorf("%d receipts, want %d", r.Receipts, callers*rounds)
	}
}
