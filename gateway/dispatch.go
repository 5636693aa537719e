package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"unicode"

	"counterfoil/gateway/upstream"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// lookUp finds the operation of a call: by its key or, where that is unused or was not
// named, by the state of the round that it answers. A state that nobody was given is
// refused, and nothing is stored.
func (g *Gateway) lookUp(ctx context.Context, r Request) (*ledger.Operation, *Refusal) {
	var stored *ledger.Operation
	var err error
	if r.Key != "" {
		stored, err = g.ledger.Lookup(ctx, r.Wallet, r.Key)
	}
	if err == nil && stored == nil && r.Input != nil && r.Input.State != nil {
		under := func(permit string) [32]byte { // as in same
			if r.PermitNamed {
				permit = r.Permit
			}
			return requestHash(r, permit)
		}
		if stored, err = g.ledger.RoundByState(ctx, r.Wallet, stateDigest(r), under); err == nil && stored == nil {
			return nil, unknownState()
		}
	}
	if err != nil {
		return nil, g.refuse(err)
	}
	return stored, nil
}

// same lets only the same request have what is stored, and waits for it where the
// caller wishes. It compares before it tells anything: under another request's key
// nothing is learned but that the key is used.
func (g *Gateway) same(ctx context.Context, r Request, stored *ledger.Operation) (*ledger.Operation, *Refusal) {
	permit := stored.Permit // a new default permit breaks no retry
	if r.PermitNamed {
		permit = r.Permit
	}
	if requestHash(r, permit) != stored.RequestHash {
		return nil, &Refusal{Reason: receipts.ReasonIdempotencyKeyReused}
	}
	if stored.State != ledger.StateDispatching || r.Wait <= 0 {
		return stored, nil
	}
	waiting, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	later, err := g.ledger.Wait(waiting, stored.Wallet, stored.Key)
	switch {
	case err != nil && waiting.Err() == nil:
		return nil, g.refuse(err)
	case err != nil, later == nil:
		return stored, nil // it has not finished in time
	}
	return later, nil
}

// prepare gathers all that T1 decides on, and refuses what can have no receipt:
// an unknown tool, identity in the arguments, a permit that is none of ours, no reference where there must be one.
func (g *Gateway) prepare(ctx context.Context, r Request) (*entry, *ledger.Claim, *Refusal) {
	tool, def, refusal := g.callable(r.Tool)
	if refusal != nil {
		return nil, nil, refusal
	}
	if name := identityName(r.Arguments, def.properties); name != "" {
		return nil, nil, &Refusal{
			Reason: receipts.ReasonIdentityInArguments,
			Detail: fmt.Sprintf("The arguments carry %q, which names a call's identity and is no property of the tool's input schema. It belongs in mcpContext, or nowhere.", name),
		}
	}
	permit, refusal := g.permitOf(ctx, r)
	if refusal != nil {
		return nil, nil, refusal
	}
	reference, refusal := tool.reference(r.Arguments)
	if refusal != nil {
		return nil, nil, refusal
	}
	return tool, &ledger.Claim{
		Wallet: r.Wallet, Key: r.Key, KeySource: r.KeySource, Agent: r.Agent.ID,
		Permit: permit, Tool: tool.Name, ToolSHA256: def.sha256,
		RequestHash: requestHash(r, permit.ID), Arguments: r.Arguments,
		Fit: permit.Fit(tool.policy, r.Arguments), Price: tool.Price, Ref: reference,
	}, nil
}

// callable finds a tool that something may be sent to now, and its definition in force.
func (g *Gateway) callable(name string) (*entry, *definition, *Refusal) {
	tool, ok := g.catalogue.byName[name]
	if !ok {
		return nil, nil, &Refusal{Reason: receipts.ReasonToolUnknown}
	}
	def := tool.def.Load()
	if def.withheld != "" { // a pinned definition that has changed, above all
		return nil, nil, &Refusal{Reason: receipts.ReasonToolUnknown, Detail: def.withheld}
	}
	return tool, def, nil
}

// permitOf finds the permit that the call is made under. Whose it is counts
// before what it says.
func (g *Gateway) permitOf(ctx context.Context, r Request) (*permits.Permit, *Refusal) {
	id := r.Permit
	if !r.PermitNamed {
		if id = r.Agent.DefaultPermit; id == "" {
			return nil, &Refusal{Reason: receipts.ReasonPermitRequired}
		}
	}
	if !permitName(id) {
		return nil, &Refusal{Reason: receipts.ReasonPermitNotFound}
	}
	permit, err := g.permitByID(ctx, id)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return nil, &Refusal{Reason: receipts.ReasonPermitNotFound}
	case errors.Is(err, permits.ErrInvalid):
		return nil, &Refusal{Reason: receipts.ReasonPermitInvalid}
	case err != nil:
		return nil, g.refuse(err)
	case permit.Wallet != r.Wallet:
		return nil, &Refusal{Reason: receipts.ReasonPermitWalletMismatch}
	case permit.Agent != r.Agent.ID:
		return nil, &Refusal{Reason: receipts.ReasonPermitAgentMismatch}
	}
	return permit, nil
}

// permitName keeps from the store what can be no id.
func permitName(id string) bool {
	return id != "" && len(id) <= maxPermitName && strings.IndexFunc(id, unicode.IsControl) < 0
}

const maxPermitName = 256 // bytes

// dispatch sends the call once and says what became of it, in the terms of
// contract 3.4.
func (g *Gateway) dispatch(t *entry, granted *ledger.Granted, r Request) upstream.Answer {
	ctx, cancel := context.WithTimeout(g.base, t.timeout)
	defer cancel()
	a := upstream.Answer{Outcome: receipts.Failed, Reason: receipts.ReasonNotDispatched, Note: "the gateway is stopping"}
	switch {
	case ctx.Err() != nil:
	case !g.ledger.Holds(ctx, granted):
		a.Note = "the gateway was away for longer than its lease"
	default:
		a = g.callOnce(ctx, t, granted, r)
	}
	if a.Outcome != receipts.Succeeded && a.Round == nil {
		level := slog.LevelInfo
		if a.Outcome == receipts.Uncertain {
			level = slog.LevelWarn // a person will have to look
		}
		g.log.Log(ctx, level, "a call did not succeed", "operation", granted.ID, "tool", t.Name, "outcome", a.Outcome, "reason", a.Reason, "note", a.Note)
	}
	return a
}

// callOnce turns a fault of ours after the sending into what it is for the
// operation: not known.
func (g *Gateway) callOnce(ctx context.Context, t *entry, granted *ledger.Granted, r Request) (a upstream.Answer) {
	defer func() {
		if v := recover(); v != nil {
			g.log.Error("a call panicked", "operation", granted.ID, "tool", t.Name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			a = upstream.Answer{Outcome: receipts.Uncertain, Reason: receipts.ReasonGatewayInterrupted}
		}
	}()
	return t.client.Call(ctx, upstream.Call{
		Tool: t.UpstreamTool, Arguments: r.Arguments, OperationKey: granted.OperationKey, Handle: granted.ID,
		Trace: r.Trace, MaxResponseBytes: t.MaxResponseBytes, Actual: t.ActualPointer,
		MayAsk: r.Modern, Capabilities: r.Capabilities, Input: r.Input, Progress: r.Progress,
	})
}

// settlementOf is the money of contract 3.4. The price is what was reserved, whatever
// the tool costs by the time a round of it is answered.
func settlementOf(t *entry, granted *ledger.Granted, price int64, a upstream.Answer) *ledger.Settlement {
	s := &ledger.Settlement{Granted: granted, Outcome: a.Outcome, Reason: a.Reason, Scrubbed: a.Scrubbed}
	said := ""
	switch {
	case a.Outcome == receipts.Succeeded:
		s.Charged, s.KeepCall, s.KeepValue = price, true, true
		if a.Actual != nil && *a.Actual >= 0 && *a.Actual < price {
			s.Charged = *a.Actual
		}
		s.Result = a.Result
		return s
	case a.Outcome == receipts.Uncertain:
		s.Charged, s.KeepCall, s.KeepValue = price, true, true
	case a.Reason == receipts.ReasonToolError:
		// The tool answered, so it was called; whether that costs is its owner's to say.
		s.KeepCall, s.KeepValue = true, t.ChargeOnToolError
		if t.ChargeOnToolError {
			s.Charged = price
		}
		if IsObject(a.Result) {
			s.Result = withText(a.Result, plainWords(ledger.Ending{Outcome: a.Outcome, Reason: a.Reason, Charged: s.Charged}))
			return s
		}
	case a.Reason == receipts.ReasonUpstreamRejected:
		s.UpstreamError, said = a.Error, quotation(a.Error)
	}
	s.Result = explained(plainWords(ledger.Ending{Outcome: a.Outcome, Reason: a.Reason, Charged: s.Charged}) + said)
	return s
}

// record waits until the outcome, or what the tool asks, is recorded. After its deadline it says that it does
// not know: the ledger goes on trying, the same key is safe to repeat, and nothing is sent again.
func (g *Gateway) record(r Request, t *entry, granted *ledger.Granted, a upstream.Answer) (*ledger.Operation, *Refusal) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.base), g.cfg.SettleDeadline)
	defer cancel()
	var op *ledger.Operation
	var err error
	if a.Round != nil {
		r.Input = &upstream.Input{State: a.Round.State} // what the caller has to bring back
		op, err = g.ledger.Ask(ctx, &ledger.Asked{Granted: granted, Result: a.Round.Result, State: stateDigest(r), TTL: g.cfg.Limits.InputTTL})
	} else {
		op, err = g.ledger.Settle(ctx, settlementOf(t, granted, granted.Reserved(), a))
	}
	if errors.Is(err, ledger.ErrSuperseded) {
		// A takeover settled it while this process was away. What it wrote stands.
		op, err = g.ledger.Lookup(ctx, r.Wallet, r.Key)
	}
	if err == nil && op != nil && (op.Finished() || op.Round != nil) {
		return op, nil
	}
	g.log.Error("an outcome is not known to be recorded", "operation", granted.ID, "outcome", a.Outcome, "reason", a.Reason, "error", err)
	return nil, &Refusal{Reason: receipts.ReasonOutcomeUnknown}
}
