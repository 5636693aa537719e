package gateway

import (
	"context"
	"slices"
	"time"

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
	Key         string // verbatim, or made by HarnessKey
	KeySource   string // "context", "header", or the platform that HarnessKey was given
	Tool        string
	Arguments   []byte        // canonical (RFC 8785): these bytes are hashed, and these go upstream
	Wait        time.Duration // how long to wait for the same key's running call
	Trace       map[string]string
	// Progress, where set, is told what the tool says while it works. It must not
	// block; the bytes are valid only until it returns.
	Progress func(params []byte)
	Stored   bool // the call is one that was made before: it is answered from the record, or not at all
}

// Answer is a governed outcome: what is stored about the operation.
type Answer struct {
	Operation *ledger.Operation
	Replayed  bool
}

// Refusal is a call that became no governed outcome. It has no receipt.
type Refusal struct {
	Reason receipts.Reason
	Detail string // more than the table's sentence, or ""
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
	stored, err := g.ledger.Lookup(ctx, r.Wallet, r.Key)
	if err != nil {
		return Answer{}, g.refuse(err)
	}
	if stored != nil {
		return g.replay(ctx, r, stored)
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
		return g.replay(ctx, r, claimed.Existing)
	case claimed.Denied != nil:
		g.metrics.finished(tool, claimed.Denied, g.now().Sub(began), 0)
		return Answer{Operation: claimed.Denied}, nil
	}

	// From here on the call runs to its record, whatever the caller does: ctx is
	// not used again.
	g.metrics.inFlight.Inc()
	defer g.metrics.inFlight.Dec()

	// Step 5: one attempt, never a second (I1).
	place.sent = true
	sent := g.now()
	settlement := g.dispatch(tool, claimed.Granted, r)
	upstreamTime := g.now().Sub(sent)

	// Step 6: outcome, response, money and receipt in one durable transaction (I5).
	operation, refusal := g.settle(r, settlement)
	if refusal != nil {
		return Answer{}, refusal
	}

	// Step 7.
	g.metrics.finished(tool, operation, g.now().Sub(began), upstreamTime)
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
