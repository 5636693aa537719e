package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"counterfoil/ledger"
	"counterfoil/permits"

	"github.com/jackc/pgx/v5"
)

func pooled(o *ledger.Options) { o.OperationKeyPool = true }

// poolKeys are n keys as an operator would load them.
func poolKeys(from, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("acme:operation:v1:%06d", from+i)
	}
	return list
}

func (b *bundle) load(t *testing.T, keys ...string) *ledger.OperationKeys {
	t.Helper()
	var loaded *ledger.OperationKeys
	b.administer(t, func(ctx context.Context, a *ledger.Admin) (err error) {
		loaded, err = a.LoadOperationKeys(ctx, keys)
		return err
	})
	return loaded
}

func (b *bundle) pool(t *testing.T) ledger.OperationKeys {
	t.Helper()
	n, err := b.ledger.OperationKeys(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return *n
}

// Two gateways on one pool that has exactly as many keys as calls are granted: each key goes to one operation, and
// neither a denied call, nor a repeat, nor one that was given up takes any.
func TestEachKeyOfThePoolIsUsedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, pooled)
	second := b.open(t, pooled, func(o *ledger.Options) { o.Shards = 2; o.MaxBatch = 16 })
	const wallets, calls = 6, 240
	list := make([]*permits.Permit, wallets)
	for i := range list {
		wallet, agent := fmt.Sprintf("wal_%d", i), fmt.Sprintf("agt_%d", i)
		b.wallet(t, wallet, 100000)
		b.agent(t, agent, wallet)
		list[i] = b.grant(t, fmt.Sprintf("prm_%d", i), wallet, agent, permits.Limits{
			Credits: 50000, Value: &permits.ValueLimit{Currency: "USD", PerCall: ptr(int64(100))},
		})
	}
	keys := poolKeys(0, calls/4*3)
	if n := b.load(t, keys...); n.Loaded != calls/4*3 || n.Free != n.Loaded {
		t.Fatalf("loaded: %+v", n)
	}
	var mu sync.Mutex
	given, denied := map[string]string{}, 0
	race(2*calls, func(i int) {
		l, n, amount := []*ledger.Ledger{b.ledger, second}[i%2], i/2, int64(10)
		if n%4 == 0 {
			amount = 1000 // above the permit's limit
		}
		ctx, leave := context.WithCancel(context.Background())
		defer leave()
		if i%5 == 4 { // somebody who has left already
			left, gone := context.WithCancel(ctx)
			gone()
			_, _ = l.Claim(left, claim(t, list[n%wallets], fmt.Sprintf("left-%d", i), 10))
		}
		c, err := l.Claim(ctx, claim(t, list[n%wallets], fmt.Sprintf("key-%d", n), amount))
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			t.Errorf("call %d: %v", n, err)
		case c.Denied != nil:
			denied++
		case c.Granted != nil:
			if other, twice := given[c.Granted.OperationKey]; twice {
				t.Errorf("%s and %s have the same key", other, c.Granted.ID)
			}
			given[c.Granted.OperationKey] = c.Granted.ID
		}
	})
	if used := slices.Sorted(maps.Keys(given)); !slices.Equal(used, keys) || denied != calls/4 {
		t.Errorf("%d keys were given of %d, %d calls denied", len(used), len(keys), denied)
	}
	if n := b.pool(t); n.Free != 0 || n.Used != int64(len(keys)) {
		t.Errorf("the pool: %+v", n)
	}
	b.fsck(t)
}

// An empty pool admits no new call, and takes nothing else away: used keys answer, denials are recorded, and
// the same call runs once there are keys again.
func TestAnEmptyPoolRefusesNewCallsOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, pooled)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500, Value: &permits.ValueLimit{Currency: "USD", PerCall: ptr(int64(100))}})
	ctx := context.Background()
	one := poolKeys(0, 1)
	if n := b.load(t, one...); n.Loaded != 1 || n.Known != 0 {
		t.Fatalf("loaded: %+v", n)
	}
	first, err := b.ledger.Claim(ctx, claim(t, p, "first", 10))
	if err != nil || first.Granted == nil || first.Granted.OperationKey != one[0] {
		t.Fatalf("the first: %+v, %v", first, err)
	}
	if _, err := b.ledger.Claim(ctx, claim(t, p, "second", 10)); !errors.Is(err, ledger.ErrNoOperationKeys) || !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("without a key: %v", err)
	}
	if op, err := b.ledger.Lookup(ctx, "wal_ops", "second"); op != nil || err != nil {
		t.Errorf("a refused call is stored: %+v, %v", op, err)
	}
	if again, err := b.ledger.Claim(ctx, claim(t, p, "first", 10)); err != nil || again.Existing == nil {
		t.Errorf("a used key: %+v, %v", again, err)
	}
	if no, err := b.ledger.Claim(ctx, claim(t, p, "third", 1000)); err != nil || no.Denied == nil {
		t.Errorf("a denial: %+v, %v", no, err)
	}
	// A used key is known, and stays used.
	if n := b.load(t, one...); n.Loaded != 0 || n.Known != 1 || n.Free != 0 || n.Used != 1 {
		t.Errorf("loaded again: %+v", n)
	}
	if _, err := b.ledger.Claim(ctx, claim(t, p, "second", 10)); !errors.Is(err, ledger.ErrNoOperationKeys) {
		t.Errorf("the used key was loaded again: %v", err)
	}
	b.load(t, poolKeys(1, 1)...)
	if c, err := b.ledger.Claim(ctx, claim(t, p, "second", 10)); err != nil || c.Granted == nil || c.Granted.OperationKey != poolKeys(1, 1)[0] {
		t.Errorf("the same call, with a key: %+v, %v", c, err)
	}
	w, err := b.ledger.Wallet(ctx, "wal_ops")
	if err != nil || w.Held != 10 {
		t.Errorf("the wallet: %+v, %v", w, err)
	}
	b.fsck(t)
}

// Keys that another transaction has locked are not gone: it may give them back.
func TestKeysInOthersHandsAreWaitedFor(t *testing.T) {
	t.Parallel()
	b := setup(t, pooled)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	b.load(t, poolKeys(0, 1)...)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range []string{"begin", "select key from operation_keys for update"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	type told struct {
		ledger.Claimed
		err error
	}
	answered := make(chan told, 1)
	go func() {
		c, err := b.ledger.Claim(ctx, claim(t, p, "k", 10))
		answered <- told{c, err}
	}()
	select {
	case a := <-answered:
		t.Fatalf("it did not wait: %+v, %v", a.Claimed, a.err)
	case <-time.After(200 * time.Millisecond):
	}
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; a.err != nil || a.Granted == nil {
		t.Errorf("the key came back: %+v, %v", a.Claimed, a.err)
	}
	b.fsck(t)
}
