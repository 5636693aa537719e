package ledger_test

import (
	"context"
	"errors"
	"maps"
	"slices"

	"counterfoil/ledger"
	"counterfoil/receipts"

	"pgregory.net/rapid"
)

// ask lets a tool ask for input; that too may come to a gateway that has lost the call.
func (h *history) ask(rt *rapid.T) {
	o := h.draw(rt, slices.Sorted(maps.Keys(h.grants)), "call that was sent")
	got, err := h.ledgers[h.owner[o.key]].Ask(context.Background(), asked(h.grants[o.key], o.key))
	delete(h.grants, o.key)
	if o.outcome != "" {
		if !errors.Is(err, ledger.ErrSuperseded) {
			rt.Fatalf("a late question of %s: %v, want ErrSuperseded", o.key, err)
		}
		o.late = true
		return
	}
	if err != nil {
		rt.Fatalf("ask for %s: %v", o.key, err)
	}
	o.waits = true
	o.round++
	h.rounds[o.key] = got
	h.same(rt, o, got)
}

// goOn answers a tool at whatever gateway, in the round that is open or in one that was.
func (h *history) goOn(rt *rapid.T) {
	o := h.draw(rt, slices.Sorted(maps.Keys(h.rounds)), "call whose tool has asked")
	round := h.rounds[o.key]
	g := h.gateway(rt)
	got, err := h.ledgers[g].Continue(context.Background(), round)
	want := h.m.stops(o)
	if !o.waits {
		want = ledger.ErrRoundTaken
	}
	if !errors.Is(err, want) {
		rt.Fatalf("going on with %s: %v, want %v", o.key, err, want)
	}
	if err != nil {
		return
	}
	o.waits = false
	h.grants[o.key], h.owner[o.key] = got, g
}

// abandon lets a round expire, and whoever comes then find out.
func (h *history) abandon(rt *rapid.T) {
	o := h.draw(rt, h.m.waiting(), "call that waits for input")
	h.b.exec(h.t, "update rounds set expires_ms = asked_ms where operation_id = '"+h.rounds[o.key].ID[len("op_"):]+"'")
	if _, err := h.ledgers[h.gateway(rt)].Continue(context.Background(), h.rounds[o.key]); !errors.Is(err, ledger.ErrRoundTaken) {
		rt.Fatalf("going on with %s, which has expired: %v, want ErrRoundTaken", o.key, err)
	}
	o.waits = false
	h.m.end(o, receipts.Failed, receipts.ReasonInputAbandoned, 0)
}
