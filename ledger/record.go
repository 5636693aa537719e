package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"counterfoil/permits"
	"counterfoil/receipts"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// record is one operation on its way to its receipt. It holds what T1 wrote and T2 needs, so that T2
// reads nothing back.
type record struct {
	id           uuid.UUID
	wallet, key  string
	keySource    string
	agent        string
	permit       string
	permitSHA256 string
	tool         string
	toolSHA256   string
	requestHash  [32]byte
	arguments    []byte
	authorized   int64
	value        *permits.Value
	reference    string // "" where the tool has none
	counted      int64  // of value: what is held against the permit's value limit, 0 where it has none
	startedMS    int64
	// Whose the hold is, and in which round of the operation: what T2 must still find. The zero instance is nobody.
	instance uuid.UUID
	round    int64

	outcome receipts.Outcome
	reason  receipts.Reason
	detail  *permits.Detail
	charged int64
	// duplicateOf is the operation that holds the reference, where that is why this one is denied.
	duplicateOf string
	// What stays taken of the permit's call count and value limit.
	callsKept int16
	valueKept int64
	result    []byte
	rejection []byte // the upstream's error object, or nil
	scrubbed  bool
	endedMS   int64

	seq          int64
	signingInput string
}

// claims fills the receipt of a finished record at its place in the chain.
func (r *record) claims(issuer, prev string) *receipts.Claims {
	id := r.id.String()
	c := &receipts.Claims{
		Issuer: issuer, IssuedAt: r.endedMS / 1000, ID: prefixReceipt + id, Wallet: r.wallet, Agent: r.agent,
		PermitID: r.permit, PermitSHA256: r.permitSHA256,
		Operation: prefixOperation + id, Tool: r.tool, ToolSHA256: r.toolSHA256, KeySource: r.keySource,
		StartedMS: r.startedMS, EndedMS: r.endedMS,
		Outcome: r.outcome, Reason: r.reason, Authorized: r.authorized, Charged: r.charged,
		Detail: r.detail, DuplicateOf: r.duplicateOf, Value: r.value, AuditEvent: prefixEvent + id,
		ArgumentsSHA256: hexSHA256(r.arguments), RequestHash: hex.EncodeToString(r.requestHash[:]),
		Result: &receipts.Result{SHA256: hexSHA256(r.result), Bytes: int64(len(r.result)), Scrubbed: r.scrubbed},
		Seq:    r.seq, Prev: prev,
	}
	if r.charged > 0 {
		c.LedgerEntry = prefixTransfer + id
	}
	return c
}

// operation is the record as a reader sees it; the receipt is added when it is signed.
func (r *record) operation() *Operation {
	op := r.unfinished(StateFinished)
	op.Outcome, op.Reason, op.Charged, op.EndedMS = r.outcome, r.reason, r.charged, r.endedMS
	op.Result, op.UpstreamError = r.result, r.rejection
	op.ReceiptID = prefixReceipt + r.id.String()
	return op
}

// unfinished is what is known of an operation without an outcome.
func (r *record) unfinished(state string) *Operation {
	return &Operation{
		ID: prefixOperation + r.id.String(), Wallet: r.wallet, Key: r.key, KeySource: r.keySource,
		Agent: r.agent, Permit: r.permit, Tool: r.tool, RequestHash: r.requestHash,
		State: state, Authorized: r.authorized, StartedMS: r.startedMS,
	}
}

// ending is the record's outcome as it is put into words.
func (r *record) ending() Ending {
	return Ending{Outcome: r.outcome, Reason: r.reason, Detail: r.detail, Charged: r.charged, DuplicateOf: r.duplicateOf}
}

// chainHead is a locked row of chains.
type chainHead struct {
	seq  int64
	head string
}

// chainUp gives each record its number and signing input, in order, and moves the heads. Nothing leaves
// the process before the transaction commits, so a batch that fails is simply chained anew.
func (l *Ledger) chainUp(records []*record, heads map[string]*chainHead, nowMS int64) error {
	for _, r := range records {
		head, ok := heads[r.wallet]
		if !ok {
			return fmt.Errorf("wallet %s has no chain head: %w", r.wallet, ErrNotFound)
		}
		// The clock may step back; a call does not end before it began.
		r.endedMS = max(nowMS, r.startedMS)
		r.seq = head.seq + 1
		input, err := receipts.SigningInput(l.signer.KeyID(), r.claims(l.issuer, head.head))
		if err != nil {
			return fmt.Errorf("write receipt of %s%s: %w", prefixOperation, r.id, err)
		}
		r.signingInput = input
		head.seq, head.head = r.seq, receipts.ChainHash(input)
	}
	return nil
}

// writeRecords queues the rows of finished records: receipts, charges, responses and chain heads.
func writeRecords(b *batch, records []*record, heads map[string]*chainHead) {
	n := len(records)
	wallets, ids := make([]string, n), make([]pgtype.UUID, n)
	seqs, charged, ended := make([]int64, n), make([]int64, n), make([]int64, n)
	outcomes, reasons, inputs := make([]string, n), make([]string, n), make([]string, n)
	calls, values := make([]int16, n), make([]int64, n)
	results, rejections := make([][]byte, n), make([][]byte, n)
	for i, r := range records {
		wallets[i], ids[i], seqs[i], charged[i], ended[i] = r.wallet, pgUUID(r.id), r.seq, r.charged, r.endedMS
		outcomes[i], reasons[i], inputs[i], results[i] = string(r.outcome), string(r.reason), r.signingInput, r.result
		rejections[i] = r.rejection
		calls[i], values[i] = r.callsKept, r.valueKept
	}
	columns := []any{wallets, seqs, ids, outcomes, reasons, charged, calls, values, ended, inputs, results}
	b.exec("record_write", append(append(columns, chainColumns(heads)...), rejections)...)
}

func chainColumns(heads map[string]*chainHead) []any {
	names := make([]string, 0, len(heads))
	seqs, hashes := make([]int64, 0, len(heads)), make([]string, 0, len(heads))
	for name, head := range heads {
		names, seqs, hashes = append(names, name), append(seqs, head.seq), append(hashes, head.head)
	}
	return []any{names, seqs, hashes}
}

func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func pgUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }
