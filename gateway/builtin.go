package gateway

import (
	"context"
	"errors"

	"counterfoil/ledger"
	"counterfoil/receipts"
)

// The functions of this file are what the built-in tools stand on. They read, or send a call again that is stored
// already; ownership is part of each look-up, so that no door can forget it (I8).

// OwnOperation finds an operation of the agent's wallets, and what is stored about it. Somebody else's is refused as
// one that does not exist.
func (g *Gateway) OwnOperation(ctx context.Context, agent *ledger.Agent, id string) (*ledger.OperationRecord, *ledger.Operation, *Refusal) {
	leave, refusal := g.limiter.enter(agent.ID, g.now())
	if refusal != nil {
		return nil, nil, refusal
	}
	defer leave()
	record, err := g.ledger.Operation(ctx, id, agent.Visible())
	if err != nil {
		return nil, nil, g.refuse(err)
	}
	// What is true of the outcome is what a repeat would be answered from.
	stored, err := g.ledger.Lookup(ctx, record.Wallet, record.Key)
	if err == nil && stored == nil {
		err = ledger.ErrNotFound
	}
	if err != nil {
		return nil, nil, g.refuse(err)
	}
	return record, stored, nil
}

// OwnPermit finds a permit that was given to this agent. Somebody else's is refused as one that does not exist.
func (g *Gateway) OwnPermit(ctx context.Context, agent *ledger.Agent, id string) (*ledger.PermitRecord, *Refusal) {
	leave, refusal := g.limiter.enter(agent.ID, g.now())
	if refusal != nil {
		return nil, refusal
	}
	defer leave()
	if !permitName(id) {
		return nil, &Refusal{Reason: receipts.ReasonPermitNotFound}
	}
	record, err := g.ledger.Permit(ctx, id)
	switch {
	case errors.Is(err, ledger.ErrNotFound), err == nil && record.Permit.Agent != agent.ID:
		return nil, &Refusal{Reason: receipts.ReasonPermitNotFound}
	case err != nil:
		return nil, g.refuse(err)
	}
	return record, nil
}

// Resume sends the call of an operation again, in its own words: whatever Govern answers to that is the answer, so
// that another agent of the wallet learns what a repeat under a used key would tell it. r says who asks, and how.
func (g *Gateway) Resume(ctx context.Context, r Request, id string) (Answer, *Refusal) {
	original, refusal := g.original(ctx, r.Agent, id)
	if refusal != nil {
		return Answer{}, refusal
	}
	r.Wallet, r.WalletNamed, r.Permit, r.PermitNamed = original.Wallet, true, original.Permit, true
	r.Key, r.KeySource, r.Tool, r.Arguments = original.Key, original.KeySource, original.Tool, original.Arguments
	r.Stored = true
	return g.Govern(ctx, r)
}

func (g *Gateway) original(ctx context.Context, agent *ledger.Agent, id string) (*ledger.Original, *Refusal) {
	leave, refusal := g.limiter.enter(agent.ID, g.now())
	if refusal != nil {
		return nil, refusal
	}
	defer leave()
	original, err := g.ledger.Original(ctx, id, agent.Visible())
	if err != nil {
		return nil, g.refuse(err)
	}
	return original, nil
}

// Advice is what the caller of an operation may do next, whether or not its answer is still kept; "" after a success.
func Advice(op *ledger.Operation) Retry {
	switch {
	case !op.Finished():
		return RetrySameKey
	case op.Resolution == receipts.NotDelivered:
		return RetryNewKey
	case op.Resolution == receipts.Delivered:
		return RetryNever // it has been done
	case op.Outcome == receipts.Succeeded || op.Reason == "":
		return ""
	}
	return ProblemFor(op.Reason).Retry
}
