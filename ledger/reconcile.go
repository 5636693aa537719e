package ledger

import (
	"context"
	"fmt"

	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Reconciliation says what became of an uncertain operation, and how that is known.
type Reconciliation struct {
	Operation         string // op_…
	Resolution        string // receipts.Delivered or receipts.NotDelivered
	Evidence          string
	ProviderReference string
	Charged           *int64 // the final total in credits; nil: what was charged where delivered, else 0
}

// Decision is a reconciliation as it is recorded.
type Decision struct {
	Operation *OperationRecord
	Receipt   string // compact JWS
	Replayed  bool   // it had been decided so before
}

// total is what the operation costs in the end.
func (r *Reconciliation) total(before int64) (int64, error) {
	switch {
	case r.Resolution == receipts.NotDelivered && (r.Charged == nil || *r.Charged == 0):
		return 0, nil
	case r.Resolution == receipts.NotDelivered:
		return 0, ErrOverCharge // what was not delivered costs nothing
	case r.Charged == nil:
		return before, nil
	case *r.Charged < 0 || *r.Charged > before:
		return 0, ErrOverCharge
	}
	return *r.Charged, nil
}

// dispute is all that is known of an operation, under the locks of its wallet, permit and chain.
type dispute struct {
	counters
	heads     chainHeads
	claimed   *claimed
	nowMS     int64
	first     pgtype.Text // signing input of the terminal receipt
	callsKept pgtype.Int2
	valueKept pgtype.Int8

	receiptID                       pgtype.UUID // of an earlier decision
	resolution, evidence, reference pgtype.Text

	lateOutcome  pgtype.Text
	late         []byte
	lateScrubbed pgtype.Bool
}

// Reconcile decides an uncertain operation, once: a receipt of its own, linked to the first; what was not
// delivered gives back its credits, its call count and its value, and frees its reference. A repeat that says the same is answered
// the stored decision. Nothing is sent. Errors: ErrNotFound, ErrNotUncertain, ErrDecided, ErrOverCharge.
func (a *Admin) Reconcile(ctx context.Context, r Reconciliation) (*Decision, error) {
	if r.Resolution != receipts.Delivered && r.Resolution != receipts.NotDelivered {
		return nil, fmt.Errorf("%w: no resolution %q", ErrReference, r.Resolution)
	}
	d, err := a.dispute(ctx, r.Operation)
	if err != nil {
		return nil, err
	}
	if !d.first.Valid {
		return nil, fmt.Errorf("%w: it is still running", ErrNotUncertain)
	}
	first, err := claimsOf(d.first.String)
	if err != nil {
		return nil, err
	}
	if first.Outcome != receipts.Uncertain {
		return nil, fmt.Errorf("%w: its outcome is %s", ErrNotUncertain, first.Outcome)
	}
	total, err := r.total(first.Charged)
	if err != nil {
		return nil, err
	}
	if d.receiptID.Valid {
		return a.decidedBefore(ctx, d, r, total)
	}
	return a.decide(ctx, d, r, first, total)
}

// dispute locks wallet, permit usage and chain head, in this order, and reads what is known.
func (a *Admin) dispute(ctx context.Context, operation string) (*dispute, error) {
	o, err := a.claimed(ctx, operation)
	if err != nil {
		return nil, err
	}
	d := &dispute{counters: newCounters(), heads: make(chainHeads), claimed: o}
	b := &batch{}
	d.counters.lock(b, []string{o.wallet}, []string{o.wallet}, []string{o.permit})
	b.query("lock_chains", d.heads.scan, []string{o.wallet})
	b.query("clock", func(row pgx.CollectableRow) error { return row.Scan(&d.nowMS) })
	b.query("disputed", func(row pgx.CollectableRow) error {
		return row.Scan(&d.first, &d.callsKept, &d.valueKept, &d.receiptID, &d.resolution, &d.evidence, &d.reference,
			&d.lateOutcome, &d.late, &d.lateScrubbed)
	}, pgUUID(o.id), o.wallet)
	if err := a.tx.SendBatch(ctx, &b.Batch).Close(); err != nil {
		return nil, coldError("lock the operation", err)
	}
	if d.heads[o.wallet] == nil || d.counters.wallets[o.wallet] == nil {
		return nil, fmt.Errorf("wallet %s: %w", o.wallet, ErrNotFound)
	}
	return d, nil
}

// decidedBefore answers a repeat of the decision with what is stored.
func (a *Admin) decidedBefore(ctx context.Context, d *dispute, r Reconciliation, total int64) (*Decision, error) {
	op, err := a.operation(ctx, d.claimed.id)
	if err != nil {
		return nil, err
	}
	if d.resolution.String != r.Resolution || d.evidence.String != r.Evidence || d.reference.String != r.ProviderReference || op.Charged != total {
		return nil, fmt.Errorf("%w: %s", ErrDecided, d.resolution.String)
	}
	evidence, made, err := a.ledger.evidenceBy(ctx, a.tx, uuid.UUID(d.receiptID.Bytes), nil)
	if err != nil {
		return nil, err
	}
	a.onCommit = append(a.onCommit, func() { a.ledger.keeper.add(made) }) // the locks make this commit one that is waited for
	return &Decision{Operation: op, Receipt: evidence.Token, Replayed: true}, nil
}

// decide writes the decision and what it gives back.
func (a *Admin) decide(ctx context.Context, d *dispute, r Reconciliation, first *receipts.Claims, total int64) (*Decision, error) {
	id, err := newID()
	if err != nil {
		return nil, fmt.Errorf("make receipt id: %w", err)
	}
	back := &record{wallet: d.claimed.wallet, permit: d.claimed.permit, tool: d.claimed.tool, reference: d.claimed.reference, id: d.claimed.id}
	calls, value := d.callsKept.Int16, d.valueKept.Int64
	if r.Resolution == receipts.NotDelivered {
		calls, value = 0, 0
	}
	claims, result := a.ledger.reconciled(d, r, first, total, id)
	input, err := receipts.SigningInput(a.ledger.signer.KeyID(), claims)
	if err != nil {
		return nil, fmt.Errorf("write the receipt of a reconciliation: %w", err)
	}
	b := &batch{}
	b.exec("reconcile_write", back.wallet, pgUUID(back.id), pgUUID(id), r.Resolution, r.Evidence, r.ProviderReference,
		first.Charged, a.actor, claims.EndedMS, claims.Seq, string(claims.Reason), total, calls, value, input, result,
		receipts.ChainHash(input))
	if total != first.Charged || calls != d.callsKept.Int16 || value != d.valueKept.Int64 {
		d.move(back, total-first.Charged, int64(calls-d.callsKept.Int16), value-d.valueKept.Int64)
		b.exec("give_back", d.counters.columns()...)
	}
	if back.reference != "" && r.Resolution == receipts.NotDelivered {
		b.exec("free_refs", refColumns([]*record{back})...)
	}
	if err := a.tx.SendBatch(ctx, &b.Batch).Close(); err != nil {
		return nil, coldError("write the reconciliation", err)
	}
	token, err := a.sign(id, back.wallet, input)
	if err != nil {
		return nil, err
	}
	err = a.event(ctx, "operation.reconciled", r.Operation, map[string]any{
		"resolution": r.Resolution, "provider_reference": r.ProviderReference, "credits_charged": total,
		"charged_before": first.Charged, "receipt_id": claims.ID,
	})
	if err != nil {
		return nil, err
	}
	op, err := a.operation(ctx, back.id)
	return &Decision{Operation: op, Receipt: token}, err
}

// reconciled is the receipt of a decision, and the result that a repeat of the call is answered from now on:
// the tool's own answer where that came late and says that it succeeded, else plain words.
func (l *Ledger) reconciled(d *dispute, r Reconciliation, first *receipts.Claims, total int64, id uuid.UUID) (*receipts.Claims, []byte) {
	head := d.heads[d.claimed.wallet]
	c := *first
	c.ID, c.AuditEvent, c.LedgerEntry = prefixReceipt+id.String(), prefixEvent+id.String(), ""
	c.EndedMS = max(d.nowMS, first.EndedMS)
	c.IssuedAt = c.EndedMS / 1000
	c.Outcome, c.Charged = receipts.Reconciled, total
	if total != first.Charged {
		c.LedgerEntry = prefixTransfer + id.String()
	}
	c.Seq, c.Prev = head.seq+1, head.head
	c.Reconciles = &receipts.Reconciles{
		ID: first.ID, Resolution: r.Resolution, ChargedBefore: first.Charged,
		EvidenceSHA256: receipts.EvidenceSHA256(r.Evidence, r.ProviderReference),
	}
	result, scrubbed := d.late, d.lateScrubbed.Bool
	if r.Resolution != receipts.Delivered || receipts.Outcome(d.lateOutcome.String) != receipts.Succeeded {
		result, scrubbed = l.explain(Ending{Outcome: c.Outcome, Reason: c.Reason, Charged: total, Resolution: r.Resolution}), false
	}
	c.Result = &receipts.Result{SHA256: hexSHA256(result), Bytes: int64(len(result)), Scrubbed: scrubbed}
	return &c, result
}

// claimed is what an operation's row says for ever.
type claimed struct {
	id                   uuid.UUID
	wallet, permit, tool string
	reference            string
}

// claimed reads what was claimed.
func (a *Admin) claimed(ctx context.Context, operation string) (*claimed, error) {
	id, ok := parseID(prefixOperation, operation)
	if !ok {
		return nil, ErrNotFound
	}
	o := &claimed{id: id}
	err := a.tx.QueryRow(ctx, sql.Query("claimed_operation"), pgUUID(id)).Scan(&o.wallet, &o.permit, &o.tool, &o.reference)
	if err != nil {
		return nil, coldError("find the operation", err)
	}
	return o, nil
}
