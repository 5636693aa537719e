package gateway

import (
	"context"
	"crypto/sha256"
	"errors"

	"counterfoil/ledger"
	"counterfoil/receipts"
)

// stateDigest binds the state that a request brings back to whom it was told, and
// about which tool; nil where it brings none. The ledger knows no more of it.
func stateDigest(r Request) []byte {
	if r.Input == nil || r.Input.State == nil {
		return nil
	}
	state, _ := String(r.Input.State)
	b := make([]byte, 0, len(r.Agent.ID)+len(r.Tool)+len(state)+2)
	b = append(append(b, r.Agent.ID...), 0)
	b = append(append(b, r.Tool...), 0)
	sum := sha256.Sum256(append(b, state...))
	return sum[:]
}

// unknownState refuses an answer to what was not asked. Whose it is, if anybody's, is
// not told.
func unknownState() *Refusal {
	return &Refusal{
		Reason: receipts.ReasonArgumentsInvalid, Params: true,
		Detail: "No call of this tool waits for input under this requestState: it must be the last one that was answered for this call, to the letter, " +
			"and each is good for one continuation. Nothing was sent. The same idempotency key without inputResponses and requestState tells where the call stands.",
	}
}

// taken answers who came too late with its answer to a round.
func (g *Gateway) taken(ctx context.Context, r Request) (Answer, *Refusal) {
	op, err := g.ledger.Lookup(ctx, r.Wallet, r.Key)
	switch {
	case err != nil:
		return Answer{}, g.refuse(err)
	case op != nil && op.Finished():
		g.metrics.replayed(op.Tool)
		return Answer{Operation: op, Replayed: true}, nil
	}
	return Answer{}, &Refusal{Reason: receipts.ReasonIdempotencyInProgress}
}

// refuseRound says why a round cannot be gone on with now. It stays open for as long
// as it would.
func (g *Gateway) refuseRound(err error) *Refusal {
	refusal := g.refuse(err)
	for _, no := range []error{ledger.ErrPermitRevoked, ledger.ErrPermitExpired, ledger.ErrWalletFrozen} {
		if errors.Is(err, no) {
			refusal.Detail = refusal.Problem().Message + " Nothing was sent. The call still waits for its input; what it holds comes back when nobody answers in time."
		}
	}
	return refusal
}

// codeCapability is MCP's for a client that lacks what a tool needs of it.
const codeCapability = "-32021"

// MissingCapability returns the error of an upstream that rejected a call because its
// caller lacks a capability, as it came; nil for every other operation.
func MissingCapability(op *ledger.Operation) []byte {
	if op.UpstreamError == nil || op.Reason != receipts.ReasonUpstreamRejected {
		return nil
	}
	missing, worded := false, false
	Members(op.UpstreamError, func(name, value []byte) bool {
		switch string(name) {
		case "code":
			missing = string(value) == codeCapability
		case "message":
			_, worded = String(value)
		}
		return true
	})
	if !missing || !worded {
		return nil
	}
	return op.UpstreamError
}
