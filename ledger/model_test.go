package ledger_test

import (
	"maps"
	"slices"

	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// model is what contract and invariants say about one wallet, small enough to be read: no batch, no lock, no
// database. Where it and the ledger disagree, one of them is wrong.
type model struct {
	deposited int64
	frozen    bool
	permits   map[string]*modelPermit
	ops       map[string]*modelOp // by key
	refs      map[string]*modelOp // references that may not be used
}

type modelPermit struct {
	limits  permits.Limits
	revoked bool
}

// modelOp is one operation. What it holds or has spent follows from its outcome.
type modelOp struct {
	key, permit, ref string
	amount           int64
	outcome          receipts.Outcome // "" while it runs
	reason           receipts.Reason
	resolution       string
	charged          int64
	late             bool
	waits            bool  // for input
	round            int64 // how often its tool has asked
}

func newModel() *model {
	return &model{permits: map[string]*modelPermit{}, ops: map[string]*modelOp{}, refs: map[string]*modelOp{}}
}

// delivered says whether the call counts: it ran, or may have run.
func (o *modelOp) delivered() bool {
	switch o.outcome {
	case receipts.Succeeded, receipts.Uncertain, "":
		return true
	case receipts.Failed:
		return o.reason == receipts.ReasonToolError
	case receipts.Reconciled:
		return o.resolution == receipts.Delivered
	case receipts.Denied:
	}
	return false
}

// valued says whether the call's value counts. A tool's error does not keep it, unless it is charged for.
func (o *modelOp) valued() bool { return o.delivered() && o.reason != receipts.ReasonToolError }

func (o *modelOp) held() int64 {
	if o.outcome == "" {
		return payout.Price
	}
	return 0
}

// sums are what the operations of a permit, or of all ("" ), add up to.
type sums struct{ spent, held, calls, valueSpent, valueHeld int64 }

func (m *model) sums(permit string) sums {
	var s sums
	for _, o := range m.ops {
		if permit != "" && o.permit != permit {
			continue
		}
		s.spent += o.charged
		s.held += o.held()
		if o.delivered() {
			s.calls++
		}
		switch {
		case !o.valued():
		case o.outcome == "":
			s.valueHeld += o.amount
		default:
			s.valueSpent += o.amount
		}
	}
	return s
}

// verdict is the reason for which a new call is refused, in the contract's order; "" grants it.
func (m *model) verdict(permit, ref string, amount int64) receipts.Reason {
	p, used, all := m.permits[permit], m.sums(permit), m.sums("")
	limits := p.limits
	_, taken := m.refs[ref]
	switch {
	case p.revoked:
		return receipts.ReasonRevoked
	case limits.CallsTotal != nil && used.calls+1 > *limits.CallsTotal:
		return receipts.ReasonCallsExceeded
	case limits.Value != nil && used.valueSpent+used.valueHeld+amount > *limits.Value.Total:
		return receipts.ReasonValueExceeded
	case used.spent+used.held+payout.Price > limits.Credits:
		return receipts.ReasonCreditsExceeded
	case m.frozen:
		return receipts.ReasonWalletFrozen
	case m.deposited-all.spent-all.held < payout.Price:
		return receipts.ReasonWalletCreditsInsufficient
	case ref != "" && taken:
		return receipts.ReasonOperationRefReused
	}
	return ""
}

// call makes a new operation.
func (m *model) call(key, permit, ref string, amount int64) *modelOp {
	o := &modelOp{key: key, permit: permit, ref: ref, amount: amount}
	if o.reason = m.verdict(permit, ref, amount); o.reason != "" {
		o.outcome = receipts.Denied
	} else if ref != "" {
		m.refs[ref] = o
	}
	m.ops[key] = o
	return o
}

// end gives an operation its outcome; one that was not delivered frees its reference.
func (m *model) end(o *modelOp, outcome receipts.Outcome, reason receipts.Reason, charged int64) {
	o.outcome, o.reason, o.charged = outcome, reason, charged
	if !o.delivered() && m.refs[o.ref] == o {
		delete(m.refs, o.ref)
	}
}

func (m *model) reconcile(o *modelOp, resolution string, charged int64) {
	o.resolution = resolution
	m.end(o, receipts.Reconciled, o.reason, charged)
}

// running are the keys of the operations that are with their tool, in order, so that a history can be repeated.
func (m *model) running() []string {
	return slices.DeleteFunc(m.keysWith(""), func(key string) bool { return m.ops[key].waits })
}

// waiting are the keys of the operations whose tool has asked for input.
func (m *model) waiting() []string {
	return slices.DeleteFunc(m.keysWith(""), func(key string) bool { return !m.ops[key].waits })
}

// stops is why a round may not be gone on with now.
func (m *model) stops(o *modelOp) error {
	switch {
	case m.permits[o.permit].revoked:
		return ledger.ErrPermitRevoked
	case m.frozen:
		return ledger.ErrWalletFrozen
	}
	return nil
}

func (m *model) keysWith(outcome receipts.Outcome) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(m.ops)) {
		if m.ops[key].outcome == outcome {
			keys = append(keys, key)
		}
	}
	return keys
}
