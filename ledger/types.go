package ledger

import (
	"errors"

	"counterfoil/permits"
	"counterfoil/receipts"

	"github.com/google/uuid"
)

var (
	// ErrUnavailable means that the store did not take the request: nothing happened, the same key is safe.
	ErrUnavailable = errors.New("the store is not available")
	// ErrQueueFull means that too many requests wait: nothing happened, the same key is safe.
	ErrQueueFull = errors.New("too many calls are waiting for the store")
	// ErrUnknown means that the store did not answer in time: what was asked may or may not be recorded.
	// The same key is safe.
	ErrUnknown = errors.New("the store did not answer in time")
	// ErrSuperseded means that another gateway settled the operation while this one was away. The stored
	// outcome stands; what this one brought is kept as a late result.
	ErrSuperseded = errors.New("the operation was settled by a takeover")
	// ErrNotFound means that there is no such record, or none that the caller may see.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that a record with this id or key exists and differs.
	ErrConflict = errors.New("conflict")
	// ErrNotUncertain means that there is nothing to reconcile: the operation runs, or its outcome is certain.
	ErrNotUncertain = errors.New("the operation is not uncertain")
	// ErrDecided means that the operation was reconciled before, and otherwise.
	ErrDecided = errors.New("the operation was reconciled otherwise")
	// ErrPermitUnknown means that the permit has no usage row for this wallet.
	ErrPermitUnknown = errors.New("the permit is not known to this wallet")
	// ErrRoundTaken means that the round is no longer open: somebody else goes on with it, or it was given up.
	ErrRoundTaken = errors.New("the round is no longer open")
	// ErrPermitRevoked means that an open round may not be gone on with. Nothing was sent, and the round stays open
	// until it expires.
	ErrPermitRevoked = errors.New("the permit is revoked")
	// ErrPermitExpired means the same as ErrPermitRevoked, for another cause.
	ErrPermitExpired = errors.New("the permit has expired")
	// ErrWalletFrozen means the same as ErrPermitRevoked, and may pass.
	ErrWalletFrozen = errors.New("the wallet is frozen")
)

// States of an operation, as the contract names them.
const (
	StateDispatching   = "dispatching"
	StateAwaitingInput = "awaiting_input"
	StateFinished      = "finished"
	StateReconciled    = "reconciled"
)

// Claim is the wish to run one operation: everything T1 needs to decide and record it.
type Claim struct {
	Wallet, Key string
	KeySource   string // "context", "header", "codex", …
	Agent       string
	Permit      *permits.Permit
	Tool        string
	ToolSHA256  string // lower-case hex of the canonical tool definition in force
	RequestHash [32]byte
	Arguments   []byte // canonical
	Fit         permits.Fit
	Price       int64 // credits to reserve
	// Ref is the operation reference: one effect for each (wallet, tool, reference), whatever the key. "" is none.
	Ref string
}

// Ending is an outcome for which no upstream result exists, as Options.Explain puts it into words.
type Ending struct {
	Outcome     receipts.Outcome
	Reason      receipts.Reason
	Detail      *permits.Detail
	Charged     int64
	DuplicateOf string // the operation that holds the reference, op_…
	Resolution  string // of a reconciliation
}

// Claimed is what became of a Claim: exactly one member is set.
type Claimed struct {
	Existing *Operation // the key is used: nothing was done
	Denied   *Operation // refused, with a receipt: nothing was reserved
	Granted  *Granted   // reserved and recorded as dispatching: durable before this is returned
}

// Granted is the right, and the duty, to dispatch one operation once and settle it.
type Granted struct {
	ID           string // op_…
	OperationKey string // private: only for the upstream

	record record
	term   int64 // of the lease under which it was asked for
}

// Reserved is how many credits are held for the operation, which may differ from what its tool costs by now.
func (g *Granted) Reserved() int64 { return g.record.authorized }

// Settlement is the outcome of one granted operation.
type Settlement struct {
	Granted   *Granted
	Outcome   receipts.Outcome
	Reason    receipts.Reason
	Charged   int64 // credits, at most what was reserved; the rest is released
	KeepCall  bool  // the call count stays taken: the call was delivered, or may have been
	KeepValue bool  // the value stays taken
	Result    []byte
	Scrubbed  bool
	// UpstreamError is the JSON-RPC error object with which the upstream rejected the call; nil where it did not.
	UpstreamError []byte
}

// Operation is the stored record of one operation.
type Operation struct {
	ID, Wallet, Key, KeySource string
	Agent, Permit, Tool        string
	RequestHash                [32]byte
	State                      string
	Outcome                    receipts.Outcome
	Reason                     receipts.Reason
	Resolution                 string // once reconciled
	Authorized, Charged        int64  // credits
	Result                     []byte // as answered, before our `_meta`; nil once it is pruned
	ReceiptID                  string
	Receipt                    string // compact JWS
	StartedMS, EndedMS         int64
	UpstreamError              []byte // as it was settled with; nil once the answer is pruned
	Round                      *Round // what its tool asks for; only while it awaits input
}

// Finished reports whether the operation has its outcome.
func (o *Operation) Finished() bool { return o.State == StateFinished || o.State == StateReconciled }

// Pruned reports whether the operation has its outcome, and its answer is no longer kept.
func (o *Operation) Pruned() bool { return o.Finished() && o.Result == nil }

// Id prefixes of contract section 1. One UUID names an operation and its record: its terminal receipt,
// its transfer and its audit event differ in prefix only.
const (
	prefixOperation = "op_"
	prefixReceipt   = "rcp_"
	prefixTransfer  = "txn_"
	prefixEvent     = "evt_"
)

// newID makes a UUIDv7: time-ordered, so that indexes grow at one end.
func newID() (uuid.UUID, error) { return uuid.NewV7() }

// parseID reads an id with its prefix; false for anything that is not exactly one.
func parseID(prefix, text string) (uuid.UUID, bool) {
	if len(text) != len(prefix)+36 || text[:len(prefix)] != prefix {
		return uuid.Nil, false
	}
	id, err := uuid.Parse(text[len(prefix):])
	if err != nil || prefix+id.String() != text {
		return uuid.Nil, false
	}
	return id, true
}
