package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"counterfoil/ledger"
	"counterfoil/receipts"

	"pgregory.net/rapid"
)

func (h *history) gateway(rt *rapid.T) int { return rapid.IntRange(0, 1).Draw(rt, "gateway") }

func (h *history) draw(rt *rapid.T, keys []string, what string) *modelOp {
	if len(keys) == 0 {
		rt.Skip("there is no " + what)
	}
	return h.m.ops[rapid.SampledFrom(keys).Draw(rt, what)]
}

func (h *history) claim(o *modelOp) *ledger.Claim {
	c := claim(h.t, h.permits[o.permit], o.key, o.amount)
	c.Ref = o.ref
	return c
}

func (h *history) call(rt *rapid.T) {
	h.n++
	key, permit := "k"+strconv.Itoa(h.n), rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "permit")
	ref := rapid.SampledFrom([]string{"", "INV-1", "INV-2"}).Draw(rt, "reference")
	o := h.m.call(key, permit, ref, rapid.Int64Range(0, 12).Draw(rt, "amount"))
	g := h.gateway(rt)
	got, err := h.ledgers[g].Claim(context.Background(), h.claim(o))
	switch {
	case err != nil:
		rt.Fatalf("call %s: %v", key, err)
	case o.outcome == "" && got.Granted == nil:
		rt.Fatalf("call %s is not granted: %+v", key, got.Denied)
	case o.outcome == receipts.Denied && (got.Denied == nil || got.Denied.Reason != o.reason):
		rt.Fatalf("call %s: %+v, want the denial %s", key, got.Denied, o.reason)
	case o.outcome == receipts.Denied:
		h.answers[key] = got.Denied
	default:
		h.grants[key], h.owner[key] = got.Granted, g
	}
}

// repeat asks again for a key, at whatever gateway: the stored answer, byte for byte, and nothing new.
func (h *history) repeat(rt *rapid.T) {
	o := h.draw(rt, slices.Sorted(maps.Keys(h.m.ops)), "key to repeat")
	got, err := h.ledgers[h.gateway(rt)].Claim(context.Background(), h.claim(o))
	if err != nil || got.Existing == nil {
		rt.Fatalf("repeat of %s: %+v, %v", o.key, got, err)
	}
	h.same(rt, o, got.Existing)
}

func (h *history) changedRepeat(rt *rapid.T) {
	o := h.draw(rt, slices.Sorted(maps.Keys(h.m.ops)), "key to reuse")
	c := h.claim(o)
	c.RequestHash = sha256.Sum256([]byte("another request"))
	got, err := h.ledgers[h.gateway(rt)].Claim(context.Background(), c)
	if err != nil || got.Existing == nil || got.Existing.RequestHash == c.RequestHash {
		rt.Fatalf("changed repeat of %s: %+v, %v", o.key, got, err)
	}
}

// same compares what is stored with the model, and with what was acknowledged.
func (h *history) same(rt *rapid.T, o *modelOp, got *ledger.Operation) {
	if got.Outcome != o.outcome || got.Reason != o.reason || got.Resolution != o.resolution || got.Charged != o.charged {
		rt.Fatalf("%s is %s %s %s charged %d, want %s %s %s %d", o.key, got.Outcome, got.Reason, got.Resolution, got.Charged,
			o.outcome, o.reason, o.resolution, o.charged)
	}
	if waits := got.Round != nil; waits != o.waits || waits && got.Round.Number != o.round {
		rt.Fatalf("%s waits in %+v, want %v in round %d", o.key, got.Round, o.waits, o.round)
	}
	before := h.answers[o.key]
	if before != nil && (before.Receipt != got.Receipt || string(before.Result) != string(got.Result)) {
		rt.Fatalf("%s was answered otherwise before", o.key)
	}
	if got.Finished() {
		h.answers[o.key] = got
	}
}

// settle ends a running call; the tool's answer may come to a gateway that has lost the call.
func (h *history) settle(rt *rapid.T) {
	o := h.draw(rt, slices.Sorted(maps.Keys(h.grants)), "call that was sent")
	s := rapid.SampledFrom([]ledger.Settlement{
		{Outcome: receipts.Succeeded, Charged: payout.Price, KeepCall: true, KeepValue: true},
		{Outcome: receipts.Succeeded, Charged: 2, KeepCall: true, KeepValue: true},
		{Outcome: receipts.Uncertain, Reason: receipts.ReasonNoResponse, Charged: payout.Price, KeepCall: true, KeepValue: true},
		{Outcome: receipts.Uncertain, Reason: receipts.ReasonUpstreamError, Charged: payout.Price, KeepCall: true, KeepValue: true},
		{Outcome: receipts.Failed, Reason: receipts.ReasonUpstreamUnreachable},
		{Outcome: receipts.Failed, Reason: receipts.ReasonToolError, KeepCall: true},
	}).Draw(rt, "answer")
	s.Granted, s.Result = h.grants[o.key], fmt.Appendf(nil, `{"answer":%q}`, o.key)
	got, err := h.ledgers[h.owner[o.key]].Settle(context.Background(), &s)
	delete(h.grants, o.key)
	if o.outcome != "" {
		if !errors.Is(err, ledger.ErrSuperseded) {
			rt.Fatalf("a late answer to %s: %v, want ErrSuperseded", o.key, err)
		}
		o.late = true
		return
	}
	if err != nil {
		rt.Fatalf("settle %s: %v", o.key, err)
	}
	h.m.end(o, s.Outcome, s.Reason, s.Charged)
	h.same(rt, o, got)
}

// operate is one act of an operator; those that end a history's money are rare, or nothing else would be seen.
func (h *history) operate(rt *rapid.T) {
	acts := map[string]func(*rapid.T){"deposit": h.deposit, "release": h.release, "freeze": h.freeze, "revoke": h.revoke}
	name := rapid.SampledFrom([]string{"deposit", "deposit", "release", "release", "freeze", "revoke"}).Draw(rt, "act")
	if h.m.frozen {
		name = "freeze" // thaws
	}
	acts[name](rt)
}

func (h *history) interrupt(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "one gateway crashes") {
		h.crash(rt)
		return
	}
	h.takeover(rt)
}

func (h *history) deposit(rt *rapid.T) {
	h.n++
	credits, reference := rapid.SampledFrom([]int64{50, 7, 200}).Draw(rt, "credits"), strconv.Itoa(h.n)
	for range 2 { // the same reference again is no second deposit
		h.administer(rt, func(ctx context.Context, a *ledger.Admin) error {
			_, err := a.Deposit(ctx, h.wallet, reference, credits)
			return err
		})
	}
	h.m.deposited += credits
}

func (h *history) freeze(rt *rapid.T) {
	h.m.frozen = !h.m.frozen
	h.administer(rt, func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.SetFrozen(ctx, h.wallet, h.m.frozen, "")
		return err
	})
}

func (h *history) revoke(rt *rapid.T) {
	letter := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "permit")
	h.m.permits[letter].revoked = true
	h.administer(rt, func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.RevokePermit(ctx, h.permits[letter].ID, "")
		return err
	})
}

func (h *history) administer(rt *rapid.T, do func(context.Context, *ledger.Admin) error) {
	if err := h.try(rt, do); err != nil {
		rt.Fatal(err)
	}
}

func (h *history) try(rt *rapid.T, do func(context.Context, *ledger.Admin) error) error {
	_, err := h.ledgers[h.gateway(rt)].Administer(context.Background(), ledger.Act{Actor: "operator"},
		func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
			return ledger.Answer{Status: 200, Body: []byte("{}")}, do(ctx, a)
		})
	return err
}

// reconcile decides what is uncertain.
func (h *history) reconcile(rt *rapid.T) {
	h.decide(rt, h.draw(rt, h.m.keysWith(receipts.Uncertain), "uncertain operation"))
}

// reconcileAny tries it with any operation; only one that is uncertain can be decided.
func (h *history) reconcileAny(rt *rapid.T) {
	h.decide(rt, h.draw(rt, slices.Sorted(maps.Keys(h.m.ops)), "operation to reconcile"))
}

func (h *history) decide(rt *rapid.T, o *modelOp) {
	resolution := rapid.SampledFrom([]string{receipts.Delivered, receipts.NotDelivered}).Draw(rt, "resolution")
	charged := rapid.SampledFrom([]int64{0, 3, payout.Price}).Draw(rt, "final charge")
	if resolution == receipts.NotDelivered {
		charged = 0
	}
	err := h.try(rt, func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.Reconcile(ctx, ledger.Reconciliation{Operation: h.id(rt, o), Resolution: resolution, Evidence: "e", Charged: &charged})
		return err
	})
	switch {
	case o.outcome == receipts.Uncertain:
		h.m.reconcile(o, resolution, charged)
		delete(h.answers, o.key)
	case o.outcome == receipts.Reconciled && o.resolution == resolution && o.charged == charged:
	case o.outcome == receipts.Reconciled:
		if !errors.Is(err, ledger.ErrDecided) {
			rt.Fatalf("another decision about %s: %v, want ErrDecided", o.key, err)
		}
		return
	default:
		if !errors.Is(err, ledger.ErrNotUncertain) {
			rt.Fatalf("reconcile %s, which is %q: %v, want ErrNotUncertain", o.key, o.outcome, err)
		}
		return
	}
	if err != nil {
		rt.Fatalf("reconcile %s: %v", o.key, err)
	}
}

func (h *history) id(rt *rapid.T, o *modelOp) string {
	op, err := h.b.ledger.Lookup(context.Background(), h.wallet, o.key)
	if err != nil || op == nil {
		rt.Fatalf("look up %s: %+v, %v", o.key, op, err)
	}
	return op.ID
}

func (h *history) release(rt *rapid.T) {
	o := h.draw(rt, slices.Sorted(maps.Keys(h.m.ops)), "operation to release")
	err := h.try(rt, func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.ReleaseReference(ctx, h.id(rt, o), "why not")
		return err
	})
	if o.ref == "" || h.m.refs[o.ref] != o {
		if !errors.Is(err, ledger.ErrConflict) {
			rt.Fatalf("release by %s, which holds none: %v, want ErrConflict", o.key, err)
		}
		return
	}
	if err != nil {
		rt.Fatalf("release by %s: %v", o.key, err)
	}
	delete(h.m.refs, o.ref)
}

// crash ends one gateway as kill -9 would, for the record: nothing of what it ran is settled. Another one finds
// its calls; the tool's answers still come, to nobody who may write them.
func (h *history) crash(rt *rapid.T) {
	g := h.gateway(rt)
	dead := h.ledgers[g]
	h.ledgers[g] = nil
	if err := dead.Close(context.Background()); err != nil {
		rt.Fatal(err)
	}
	h.open(rt, g)
	h.lost(rt, func(key string) bool { return h.owner[key] == g }, func() {})
}

// takeover makes both gateways look silent for longer than their lease, and lets a third find what they run.
func (h *history) takeover(rt *rapid.T) {
	silent := func() { h.b.exec(h.t, "update instances set heartbeat_at = 'epoch'") }
	silent()
	third, err := ledger.Open(context.Background(), h.b.options())
	if err != nil {
		rt.Fatal(err)
	}
	h.lost(rt, func(string) bool { return true }, silent)
	h.b.exec(h.t, "update instances set heartbeat_at = now()") // they are heard of again
	if err := third.Close(context.Background()); err != nil {
		rt.Fatal(err)
	}
}

// lost waits until the running calls that were lost are uncertain. again makes their gateways silent once more: a
// heartbeat may have come between.
func (h *history) lost(rt *rapid.T, which func(key string) bool, again func()) {
	deadline := time.Now().Add(time.Minute)
	for _, key := range h.m.running() {
		if !which(key) {
			continue
		}
		op := h.waitFor(rt, key)
		for !op.Finished() && time.Now().Before(deadline) {
			again()
			op = h.waitFor(rt, key)
		}
		if !op.Finished() {
			rt.Fatalf("nobody settles %s: %+v", key, op)
		}
		h.m.end(h.m.ops[key], receipts.Uncertain, receipts.ReasonGatewayInterrupted, payout.Price)
		h.same(rt, h.m.ops[key], op)
	}
}

func (h *history) waitFor(rt *rapid.T, key string) *ledger.Operation {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	op, err := h.b.ledger.Wait(ctx, h.wallet, key)
	if err != nil || op == nil {
		rt.Fatalf("wait for %s: %+v, %v", key, op, err)
	}
	return op
}
