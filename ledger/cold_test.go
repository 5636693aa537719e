package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"counterfoil/ledger"
)

// TestAnActAndItsEventAreOneTransaction: an act that is refused after it has written leaves neither.
func TestAnActAndItsEventAreOneTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	refusal := errors.New("refused")
	act := ledger.Act{Actor: "operator", Key: "k", SHA256: [32]byte{1}}
	do := func(after error) (ledger.Answer, error) {
		return b.ledger.Administer(ctx, act, func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
			_, err := a.CreateWallet(ctx, "wal_one", "One")
			return ledger.Answer{Status: 201, Body: []byte("made")}, errors.Join(err, after)
		})
	}
	if _, err := do(refusal); !errors.Is(err, refusal) {
		t.Fatalf("got %v", err)
	}
	if _, err := b.ledger.Wallet(ctx, "wal_one"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a refused act left its wallet: %v", err)
	}
	if events, err := b.ledger.Events(ctx, "", 10); err != nil || len(events) != 0 {
		t.Errorf("a refused act left events: %v, %v", events, err)
	}
	if _, err := do(nil); err != nil {
		t.Fatal(err)
	}
	if a, err := do(refusal); err != nil || !a.Replayed || string(a.Body) != "made" {
		t.Errorf("a repeat was answered %+v, %v", a, err)
	}
	act.SHA256[0] = 2
	if _, err := do(nil); !errors.Is(err, ledger.ErrRequestReused) {
		t.Errorf("the key with another request: %v", err)
	}
	events, err := b.ledger.Events(ctx, "", 10)
	if err != nil || len(events) != 1 || events[0].Action != "wallet.created" || events[0].Actor != "operator" {
		t.Errorf("events %+v, %v", events, err)
	}
}

// TestSecondGatewaySeesADeletedKey: what another process changed is kept for a moment only.
func TestSecondGatewaySeesADeletedKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	b.wallet(t, "wal_one", 0)
	b.agent(t, "agt_one", "wal_one")
	sum := [32]byte{7}
	var key *ledger.AgentKey
	b.administer(t, func(ctx context.Context, a *ledger.Admin) (err error) {
		key, err = a.CreateAgentKey(ctx, "agt_one", sum, nil, nil)
		return err
	})
	other := b.open(t)
	if who, err := other.AgentByKey(ctx, sum); err != nil || who.ID != "agt_one" {
		t.Fatalf("%+v, %v", who, err)
	}
	b.administer(t, func(ctx context.Context, a *ledger.Admin) error { return a.DeleteAgentKey(ctx, "agt_one", key.ID) })
	if _, err := b.ledger.AgentByKey(ctx, sum); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("here: %v", err)
	}
	deadline := time.After(10 * time.Second)
	for {
		if _, err := other.AgentByKey(ctx, sum); errors.Is(err, ledger.ErrNotFound) {
			return
		}
		select {
		case <-deadline:
			t.Fatal("another gateway still honours a deleted key")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
