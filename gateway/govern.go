package gateway

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"counterfoil/gateway/upstream"
	"counterfoil/ledger"
	"counterfoil/receipts"
)

// Request is one decoded call. What it names was named by the caller; what it
// leaves out is the agent's default.
type Request struct {
	Agent       *ledger.Agent
	Wallet      string
	WalletNamed bool
	Permit      string
	PermitNamed bool
	Key         string // verbatim, or made by HarnessKey; "" only where the state of a round stands for it
	KeySource   string // "context", "header", or the platform that HarnessKey was given
	Tool        string
	Arguments   []byte        // canonical (RFC 8785): these bytes are hashed, and these go upstream
	Wait        time.Duration // how long to wait for the same key's running call
	Trace       map[string]string
	// Modern says that the caller speaks the revision in which a tool can ask for input.
	Modern       bool
	Capabilities []byte          // JSON object: what the caller declared; nil: nothing
	Input        *upstream.Input // what it answers to a round, or gives with a first call; nil: nothing
	// Progress, where set, is told what the tool says while it works. It must not
	// block; the bytes are valid only until it returns.
	Progress func(params []byte)
	Stored   bool // the call is one that was made before: it is answered from the record, or not at all
}

// Answer is a governed outcome, or what a tool asks before it has one: what is
// stored about the operation.
type Answer struct {
	Operation *ledger.Operation
	Replayed  bool
}

// Refusal is a call that became no governed outcome. It has no receipt.
type Refusal struct {
	Reason receipts.Reason
	Detail string // more than the table's sentence, or ""
	// Params says that MCP has a code of its own for it: the params are not valid.
	Params bool
}

// Problem is the refusal's row of the reason table.
func (r *Refusal) Problem() Problem { return ProblemFor(r.Reason) }

// Message is what the caller reads.
func (r *Refusal) Message() string {
	if r.Detail != "" {
		return r.Detail
	}
	return r.Problem().Message
}

// Govern takes one call through its whole order; every front door calls it. The
// caller is authenticated and the call strictly decoded before (step 1).
func (g *Gateway) Govern(ctx context.Context, r Request) (Answer, *Refusal) {
	began := g.now()

	// Who hammers takes nobody else's place, not even with repeats.
	leave, refusal := g.limiter.enter(r.Agent.ID, began)
	if refusal != nil {
		return Answer{}, refusal
	}
	defer leave()

	// Ownership comes before any look-up, so that a refusal is no oracle (I8).
	if refusal := chooseWallet(&r); refusal != nil {
		return Answer{}, refusal
	}

	// Steps 2 and 3: a used key is answered from what is stored, before catalogue,
	// permit, charge and dispatch (I2).
	stored, refusal := g.lookUp(ctx, r)
	if refusal != nil {
		return Answer{}, refusal
	}
	if stored != nil {
		return g.repeat(ctx, r, stored, began)
	}
	if r.Stored {
		return Answer{}, &Refusal{Reason: receipts.ReasonNotFound}
	}

	// Step 4: a new key. One durable transaction claims it, decides, reserves and
	// writes the checkpoint, or stores the denial with its receipt (I1, I3).
	place, refusal := g.limiter.admit(r.Agent.ID, g.catalogue.upstreamOf(r.Tool), began)
	if refusal != nil {
		return Answer{}, refusal
	}
	defer place.leave()
	tool, claim, refusal := g.prepare(ctx, r)
	if refusal != nil {
		return Answer{}, refusal
	}
	claimed, err := g.ledger.Claim(ctx, claim)
	switch {
	case err != nil:
		return Answer{}, g.refuse(err)
	case claimed.Existing != nil: // another caller was first
		place.leave()
		return g.repeat(ctx, r, claimed.Existing, began)
	case claimed.Denied != nil:
		g.metrics.finished(tool, claimed.Denied, g.now().Sub(began), 0)
		return Answer{Operation: claimed.Denied}, nil
	}
	return g.carryOut(r, place, tool, claimed.Granted, began)
}

// repeat answers a used key: with its outcome, that it runs, or with what its tool
// asks. Only the answer to that sends anything: the next round of the same operation.
func (g *Gateway) repeat(ctx context.Context, r Request, stored *ledger.Operation, began time.Time) (Answer, *Refusal) {
	stored, refusal := g.same(ctx, r, stored)
	switch {
	case refusal != nil:
		return Answer{}, refusal
	case stored.Finished():
		g.metrics.replayed(stored.Tool)
		return Answer{Operation: stored, Replayed: true}, nil
	case stored.Round == nil, !r.Modern: // who cannot be asked learns no more than that it runs
		return Answer{}, &Refusal{Reason: receipts.ReasonIdempotencyInProgress}
	case r.Input == nil:
		return Answer{Operation: stored}, nil
	case !bytes.Equal(stateDigest(r), stored.Round.State):
		return Answer{}, unknownState()
	}

	// Step 4 of a round: what is held stays held. Whether the permit still stands is
	// asked again, and of all who answer the round one is granted it (I1, I3).
	place, refusal := g.limiter.admit(r.Agent.ID, g.catalogue.upstreamOf(r.Tool), began)
	if refusal != nil {
		return Answer{}, refusal
	}
	defer place.leave()
	tool, _, refusal := g.callable(r.Tool)
	if refusal != nil {
		return Answer{}, refusal
	}
	r.Key = stored.Key
	granted, err := g.ledger.Continue(ctx, stored)
	switch {
	case errors.Is(err, ledger.ErrRoundTaken):
		return g.taken(ctx, r)
	case err != nil:
		return Answer{}, g.refuseRound(err)
	}
	return g.carryOut(r, place, tool, granted, began)
}

// carryOut does what was granted. From here on the call runs to its record,
// whatever its caller does.
func (g *Gateway) carryOut(r Request, place *place, tool *entry, granted *ledger.Granted, began time.Time) (Answer, *Refusal) {
	g.metrics.inFlight.Inc()
	defer g.metrics.inFlight.Dec()

	// Step 5: one attempt, never a second (I1).
	place.sent = true
	sent := g.now()
	said := g.dispatch(tool, granted, r)
	upstreamTime := g.now().Sub(sent)

	// Step 6: outcome, response, money and receipt in one durable transaction (I5); or
	// what the tool asks, which is no outcome.
	operation, refusal := g.record(r, tool, granted, said)
	if refusal != nil {
		return Answer{}, refusal
	}

	// Step 7.
	if operation.Finished() {
		g.metrics.finished(tool, operation, g.now().Sub(began), upstreamTime)
	} else {
		g.metrics.asked(tool)
	}
	return Answer{Operation: operation}, nil
}

// chooseWallet lets only a wallet of the agent's pass. One that does not exist
// is refused as one of somebody else's.
func chooseWallet(r *Request) *Refusal {
	if !r.WalletNamed {
		r.Wallet = r.Agent.DefaultWallet
		if r.Wallet == "" {
			return &Refusal{Reason: receipts.ReasonContextMissing}
		}
	}
	if !slices.Contains(r.Agent.Wallets, r.Wallet) {
		return &Refusal{Reason: receipts.ReasonWalletForbidden}
	}
	return nil
}
