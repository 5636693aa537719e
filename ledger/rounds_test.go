package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync/atomic"
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

// only is the request's hash under whatever permit.
func only(c *ledger.Claim) func(string) [32]byte {
	return func(string) [32]byte { return c.RequestHash }
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
				return b.ledger.RoundByState(ctx, "wal_ops", stateOf(state), only(c))
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
		if got, err := b.ledger.RoundByState(ctx, "wal_ops", stateOf(state), only(c)); err != nil || got != nil {
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

// Operations may wait under one state, of several permits and requests: each caller finds his own, the newest.
func TestARoundIsFoundUnderItsOwnPermit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	under := map[string]*permits.Permit{"prm_q4": b.payer(t)}
	under["prm_new"] = b.grant(t, "prm_new", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	hash := func(permit string) [32]byte { return sha256.Sum256([]byte(permit)) }
	var newest string
	for _, permit := range []string{"prm_new", "prm_q4", "prm_q4"} {
		newest += "k"
		c := claim(t, under[permit], newest, 1)
		c.RequestHash = hash(permit)
		ask(t, b.ledger, asked(granted(t, b.ledger, c), "s"))
	}
	for name, tt := range map[string]struct {
		hash func(string) [32]byte
		want string
	}{
		"no permit named":  {hash, newest},
		"another request":  {func(string) [32]byte { return hash("other") }, ""},
		"its permit named": {func(string) [32]byte { return hash("prm_new") }, "k"},
	} {
		op, err := b.ledger.RoundByState(ctx, "wal_ops", stateOf("s"), tt.hash)
		if err != nil || (op == nil) != (tt.want == "") || op != nil && op.Key != tt.want {
			t.Errorf("%s: %+v, %v, want %q", name, op, err, tt.want)
		}
	}
	if op, err := b.ledger.RoundByState(ctx, "wal_ops", stateOf("other"), hash); err != nil || op != nil {
		t.Errorf("another state: %+v, %v", op, err)
	}
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

// What may not be sent now stays open until it expires, with all that it holds.
func TestARoundThatMayNotGoOn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stop, start string
		want        error
	}{
		"permit revoked": {"update permit_usage set revoked_at = now()", "update permit_usage set revoked_at = null", ledger.ErrPermitRevoked},
		"permit expired": {"update permits set expires_at = now()", "update permits set expires_at = now() + interval '1 hour'", ledger.ErrPermitExpired},
		"wallet frozen":  {"update wallets set frozen = true", "update wallets set frozen = false", ledger.ErrWalletFrozen},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(o *ledger.Options) { o.Lease = time.Second })
			p := b.payer(t)
			ctx := context.Background()
			op := ask(t, b.ledger, asked(granted(t, b.ledger, claim(t, p, "k", 1)), "s"))
			other := ask(t, b.ledger, asked(granted(t, b.ledger, claim(t, p, "k2", 1)), "s"))
			b.exec(t, tt.stop)
			if _, err := b.ledger.Continue(ctx, op); !errors.Is(err, tt.want) {
				t.Fatalf("continue: %v, want %v", err, tt.want)
			}
			found, err := b.ledger.Lookup(ctx, "wal_ops", "k")
			if err != nil || found.Round == nil || found.Round.Number != 1 {
				t.Fatalf("afterwards: %+v, %v", found, err)
			}
			b.exec(t, "update rounds set expires_ms = asked_ms where operation_id = '"+other.ID[len("op_"):]+"'")
			await(t, "the other one is given up all the same", func() bool {
				op, err := b.ledger.Lookup(ctx, "wal_ops", "k2")
				return err == nil && op.Reason == receipts.ReasonInputAbandoned && op.Charged == 0
			})
			b.exec(t, tt.start)
			g, err := b.ledger.Continue(ctx, op)
			if err != nil {
				t.Fatalf("continue once it may: %v", err)
			}
			if _, err := b.ledger.Settle(ctx, succeeded(g)); err != nil {
				t.Error(err)
			}
		})
	}
}

// What waits for input is nobody's: it outlives the gateway that asked, and whoever goes on with it and dies leaves it
// uncertain.
func TestARoundOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.payer(t)
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	gone := func() *ledger.Ledger {
		l, err := ledger.Open(ctx, b.options())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := gone()
	var rounds []*ledger.Operation
	for _, key := range []string{"k1", "k2"} {
		rounds = append(rounds, ask(t, first, asked(granted(t, first, claimRef(t, p, key, "of "+key)), key)))
	}
	running := granted(t, first, claim(t, p, "k3", 1))
	if err := first.Close(ctx); err != nil {
		t.Fatal(err)
	}
	second := gone() // settles what the first one was dispatching
	if op, err := second.Wait(ctx, "wal_ops", "k3"); err != nil || op.ID != running.ID || op.Outcome != receipts.Uncertain {
		t.Fatalf("what it ran: %+v, %v", op, err)
	}
	if r := b.fsck(t); r.Awaiting != 2 || r.Open != 0 {
		t.Fatalf("after the takeover: %+v", r)
	}
	duplicate, err := second.Claim(ctx, claimRef(t, p, "k4", "of k2"))
	if err != nil {
		t.Fatal(err)
	}
	checkDuplicate(t, b, duplicate, rounds[1].ID)
	if _, err := second.Continue(ctx, rounds[0]); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(ctx); err != nil {
		t.Fatal(err)
	}
	third := b.open(t)
	op, err := third.Wait(ctx, "wal_ops", "k1")
	if err != nil || op.Outcome != receipts.Uncertain || op.Reason != receipts.ReasonGatewayInterrupted || op.Charged != payout.Price {
		t.Fatalf("what died after it had gone on: %+v, %v", op, err)
	}
	if _, err := third.Continue(ctx, rounds[0]); !errors.Is(err, ledger.ErrRoundTaken) {
		t.Errorf("going on with what is uncertain: %v, want ErrRoundTaken", err)
	}
	b.exec(t, "update rounds set expires_ms = asked_ms")
	if _, err := third.Continue(ctx, rounds[1]); !errors.Is(err, ledger.ErrRoundTaken) {
		t.Errorf("going on too late: %v, want ErrRoundTaken", err)
	}
	late, err := third.Lookup(ctx, "wal_ops", "k2")
	if err != nil || late.Outcome != receipts.Failed || late.Reason != receipts.ReasonInputAbandoned || late.Charged != 0 {
		t.Errorf("once that was said: %+v, %v", late, err)
	}
	free, err := third.Claim(ctx, claimRef(t, p, "k5", "of k2"))
	if err != nil || free.Granted == nil {
		t.Errorf("the reference of what was given up: %+v, %v", free, err)
	}
	b.fsck(t)
}

// A gateway that was away for longer than its lease asks whether the round it went on with is still its own.
func TestAContinuedGrantIsAskedForAgainAfterTheLease(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"still its own": false, "taken over": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.payer(t)
			var away atomic.Int64
			l := b.open(t, func(o *ledger.Options) {
				o.Lease = time.Hour // no heartbeat comes between
				o.Now = func() time.Time { return time.Now().Add(time.Duration(away.Load())) }
			})
			ctx := context.Background()
			first := granted(t, b.ledger, claim(t, p, "k", 1))
			g, err := l.Continue(ctx, ask(t, b.ledger, asked(first, "s")))
			if err != nil || !l.Holds(ctx, g) {
				t.Fatalf("continue: %+v, %v", g, err)
			}
			if taken {
				b.takeOver(t)
			}
			away.Store(int64(2 * time.Hour))
			if held := l.Holds(ctx, g); held == taken {
				t.Errorf("after the lease: may send %v", held)
			}
			// A grant of an earlier round is no right to anything any more.
			away.Store(int64(4 * time.Hour))
			if l.Holds(ctx, first) {
				t.Error("the grant of the first call is said to hold")
			}
			b.fsck(t)
		})
	}
}
