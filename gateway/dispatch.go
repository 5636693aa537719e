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

// replay answers a used key. It compares before it tells anything: under
// another request's key nothing is learned but that the key is used.
func (g *Gateway) replay(ctx context.Context, r Request, stored *ledger.Operation) (Answer, *Refusal) {
	permit := stored.Permit // a new default permit breaks no retry
	if r.PermitNamed {
		permit = r.Permit
	}
	if requestHash(r, permit) != stored.RequestHash {
		return Answer{}, &Refusal{Reason: receipts.ReasonIdempotencyKeyReused}
	}
	if !stored.Finished() && r.Wait > 0 {
		finished, refusal := g.await(ctx, r)
		if refusal != nil {
			return Answer{}, refusal
		}
		stored = finished
	}
	if stored == nil || !stored.Finished() {
		return Answer{}, &Refusal{Reason: receipts.ReasonIdempotencyInProgress}
	}
	g.metrics.replayed(stored.Tool)
	return Answer{Operation: stored, Replayed: true}, nil
}

// await waits for the running call of this key; nil when it did not finish in time.
func (g *Gateway) await(ctx context.Context, r Request) (*ledger.Operation, *Refusal) {
	waiting, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	op, err := g.ledger.Wait(waiting, r.Wallet, r.Key)
	if err != nil && waiting.Err() == nil {
		return nil, g.refuse(err)
	}
	return op, nil
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
	return tool, tool.def.Load(), nil
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
func (g *Gateway) dispatch(t *entry, granted *ledger.Granted, r Request) *ledger.Settlement {
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
	if a.Outcome != receipts.Succeeded {
		level := slog.LevelInfo
		if a.Outcome == receipts.Uncertain {
			level = slog.LevelWarn // a person will have to look
		}
		g.log.Log(ctx, level, "a call did not succeed", "operation", granted.ID, "tool", t.Name, "outcome", a.Outcome, "reason", a.Reason, "note", a.Note)
	}
	return settlementOf(t, granted, a)
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
		Trace: r.Trace, Progress: r.Progress, MaxResponseBytes: t.MaxResponseBytes, Actual: t.ActualPointer,
	})
}

// settlementOf is the money of contract 3.4.
func settlementOf(t *entry, granted *ledger.Granted, a upstream.Answer) *ledger.Settlement {
	s := &ledger.Settlement{Granted: granted, Outcome: a.Outcome, Reason: a.Reason, Scrubbed: a.Scrubbed}
	switch {
	case a.Outcome == receipts.Succeeded:
		s.Charged, s.KeepCall, s.KeepValue = t.Price, true, true
		if a.Actual != nil && *a.Actual >= 0 && *a.Actual < t.Price {
			s.Charged = *a.Actual
		}
		s.Result = a.Result
		return s
	case a.Outcome == receipts.Uncertain:
		s.Charged, s.KeepCall, s.KeepValue = t.Price, true, true
	case a.Reason == receipts.ReasonToolError:
		// The tool answered, so it was called; whether that costs is its owner's to say.
		s.KeepCall, s.KeepValue = true, t.ChargeOnToolError
		if t.ChargeOnToolError {
			s.Charged = t.Price
		}
		if IsObject(a.Result) {
			s.Result = withText(a.Result, plainWords(ledger.Ending{Outcome: a.Outcome, Reason: a.Reason, Charged: s.Charged}))
			return s
		}
	}
	s.Result = Explain(ledger.Ending{Outcome: a.Outcome, Reason: a.Reason, Charged: s.Charged})
	return s
}

// settle waits until the outcome is recorded. After its deadline it says that it does not know: the ledger
// goes on trying, the same key is safe to repeat, and nothing is sent again.
func (g *Gateway) settle(r Request, s *ledger.Settlement) (*ledger.Operation, *Refusal) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.base), g.cfg.SettleDeadline)
	defer cancel()
	op, err := g.ledger.Settle(ctx, s)
	if errors.Is(err, ledger.ErrSuperseded) {
		// A takeover settled it while this process was away. What it wrote stands.
		op, err = g.ledger.Lookup(ctx, r.Wallet, r.Key)
	}
	if err == nil && op != nil && op.Finished() {
		return op, nil
	}
	g.log.Error("an outcome is not known to be recorded", "operation", s.Granted.ID, "outcome", s.Outcome, "reason", s.Reason, "error", err)
	return nil, &Refusal{Reason: receipts.ReasonOutcomeUnknown}
}
