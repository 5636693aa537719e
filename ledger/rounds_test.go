package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

const question = `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create"}},"requestState":"s1"}`

func stateOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// payer is a wallet with a permit on it.
func (b *bundle) payer(t *testing.T) *permits.Permit {
	t.Helper()
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	return b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500, Value: &permits.ValueLimit{Currency: "USD", Total: ptr(int64(50))}})
}

func granted(t *testing.T, l *ledger.Ledger, c *ledger.Claim) *ledger.Granted {
	t.Helper()
	got, err := l.Claim(context.Background(), c)
	if err != nil || got.Granted == nil {
		t.Fatalf("claim %s: %+v, %v", c.Key, got, err)
	}
	return got.Granted
}

func asked(g *ledger.Granted, state string) *ledger.Asked {
	return &ledger.Asked{Granted: g, Result: []byte(question), State: stateOf(state), TTL: time.Hour}
}

func ask(t *testing.T, l *ledger.Ledger, a *ledger.Asked) *ledger.Operation {
	t.Helper()
	op, err := l.Ask(context.Background(), a)
	if err != nil || op.State != ledger.StateAwaitingInput || op.Finished() {
		t.Fatalf("ask: %+v, %v", op, err)
	}
	return op
}

// Two rounds, then an outcome: one hold, one charge, one receipt; and what was asked is found by key and by state.
func TestRoundsOfOneOperation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.payer(t)
	ctx := context.Background()
	c := claimRef(t, p, "k", "INV-1")
	g := granted(t, b.ledger, c)
	key := g.OperationKey
	for number := int64(1); number <= 2; number++ {
		state := string(rune('a' + number))
		op := ask(t, b.ledger, asked(g, state))
		for what, found := range map[string]func() (*ledger.Operation, error){
			"key": func() (*ledger.Operation, error) { return b.ledger.Lookup(ctx, "wal_ops", "k") },
			"state": func() (*ledger.Operation, error) {
				return b.ledger.RoundByState(ctx, "wal_ops", stateOf(state), c.RequestHash)
			},
			"waiting": func() (*ledger.Operation, error) { return b.ledger.Wait(ctx, "wal_ops", "k") },
		} {
			got, err := found()
			if err != nil || got == nil || got.Round == nil || got.ID != op.ID || got.State != ledger.StateAwaitingInput || got.Key != "k" || got.Wallet != "wal_ops" {
				t.Fatalf("round %d by %s: %+v, %v", number, what, got, err)
			}
			if got.Round.Number != number || string(got.Round.Result) != question || string(got.Round.State) != string(stateOf(state)) || !got.Round.Expires.Equal(op.Round.Expires) {
				t.Fatalf("round %d by %s: %+v, want %+v", number, what, got.Round, op.Round)
			}
		}
		again, err := b.ledger.Claim(ctx, c)
		if err != nil || again.Existing == nil || again.Existing.Round == nil {
			t.Fatalf("a repeat while it waits: %+v, %v", again, err)
		}
		if r := b.fsck(t); r.Open != 0 || r.Awaiting != 1 || r.Receipts != 0 {
			t.Fatalf("while it waits: %+v", r)
		}
		if g, err = b.ledger.Continue(ctx, op); err != nil {
			t.Fatalf("continue round %d: %v", number, err)
		}
		if g.OperationKey != key || g.ID != op.ID || g.Reserved() != payout.Price || !b.ledger.Holds(ctx, g) {
			t.Fatalf("round %d goes on as another operation: %+v", number, g)
		}
		if _, err := b.ledger.Continue(ctx, op); !errors.Is(err, ledger.ErrRoundTaken) {
			t.Fatalf("a second continuation: %v, want ErrRoundTaken", err)
		}
		if got, err := b.ledger.RoundByState(ctx, "wal_ops", stateOf(state), c.RequestHash); err != nil || got != nil {
			t.Fatalf("its state is still found: %+v, %v", got, err)
		}
	}
	op, err := b.ledger.Settle(ctx, succeeded(g))
	if err != nil || op.Outcome != receipts.Succeeded || op.Charged != payout.Price {
		t.Fatalf("settle: %+v, %v", op, err)
	}
	second, err := b.ledger.Claim(ctx, claimRef(t, p, "k2", "INV-1"))
	if err != nil {
		t.Fatal(err)
	}
	checkDuplicate(t, b, second, op.ID)
	if w, err := b.ledger.Wallet(ctx, "wal_ops"); err != nil || w.Balance != 1000-payout.Price || w.Held != 0 {
		t.Errorf("the wallet: %+v, %v", w, err)
	}
	b.fsck(t)
}

// What a rejected call's upstream said is kept with its answer.
func TestAnUpstreamsErrorIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.payer(t)
	ctx := context.Background()
	const rejection = `{"code":-32021,"message":"no","data":{"requiredCapabilities":{"sampling":{}}}}`
	s := unreachable(granted(t, b.ledger, claim(t, p, "k", 1)))
	s.Reason, s.UpstreamError = receipts.ReasonUpstreamRejected, []byte(rejection)
	op, err := b.ledger.Settle(ctx, s)
	if err != nil || string(op.UpstreamError) != rejection {
		t.Fatalf("settle: %+v, %v", op, err)
	}
	again, err := b.ledger.Lookup(ctx, "wal_ops", "k")
	if err != nil || string(again.UpstreamError) != rejection || again.Receipt != op.Receipt {
		t.Errorf("read again: %+v, %v", again, err)
	}
	plain := granted(t, b.ledger, claim(t, p, "k2", 1))
	if _, err := b.ledger.Settle(ctx, succeeded(plain)); err != nil {
		t.Fatal(err)
	}
	if again, err = b.ledger.Lookup(ctx, "wal_ops", "k2"); err != nil || again.UpstreamError != nil {
		t.Errorf("an answer without an error: %+v, %v", again, err)
	}
	b.fsck(t)
}
