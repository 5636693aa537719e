package ledger

import (
	"context"
	"time"

	"counterfoil/permits"
	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// OperationRecord is an operation as the operator API shows it.
type OperationRecord struct {
	ID, Wallet, Key, KeySource string
	OperationKey               string // by which the upstream knows the call; not for agents
	Permit, Agent, Tool        string
	State                      string
	Outcome                    receipts.Outcome // "" while it runs
	Reason                     receipts.Reason
	Authorized, Held, Charged  int64
	Value                      *permits.Value
	Reference                  string // the operation reference, "" where the tool has none
	HoldsReference             bool   // no other operation may have the reference
	ReceiptID                  string // the latest; "" while it runs
	Reconciliation             *ReconciliationRecord
	Late                       *LateResult
	Round                      *RoundRecord // only while it awaits input
	CreatedAt                  time.Time
	FinishedAt                 *time.Time
}

// RoundRecord is an open round as the operator API shows it.
type RoundRecord struct {
	Number           int64
	Asked, ExpiresAt time.Time
}

// LateResult is what an upstream answered after its operation had been settled as uncertain: evidence for a
// reconciliation, never a second outcome.
type LateResult struct {
	Outcome   receipts.Outcome
	Reason    receipts.Reason
	Result    []byte
	ArrivedAt time.Time
}

// ReconciliationRecord is what was decided about an uncertain operation.
type ReconciliationRecord struct {
	Resolution, Evidence, ProviderReference string
	ChargedBefore                           int64
	Actor                                   string
	FirstReceiptID                          string // of the uncertain outcome
	DecidedAt                               time.Time
}

// OperationFilter picks operations; an empty member picks all. Wallets, where not nil, are those that may be
// seen: an operation of another wallet does not exist.
type OperationFilter struct {
	Wallets              []string
	Agent, Permit, State string
}

// Operation returns one operation of the wallets that may be seen; nil is every wallet.
func (l *Ledger) Operation(ctx context.Context, id string, wallets []string) (*OperationRecord, error) {
	uid, ok := parseID(prefixOperation, id)
	if !ok {
		return nil, ErrNotFound
	}
	return operationBy(ctx, l.pool, uid, wallets)
}

// operation reads an operation as this transaction leaves it.
func (a *Admin) operation(ctx context.Context, id uuid.UUID) (*OperationRecord, error) {
	return operationBy(ctx, a.tx, id, nil)
}

// reader is a pool or a transaction.
type reader interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func operationBy(ctx context.Context, from reader, id uuid.UUID, wallets []string) (*OperationRecord, error) {
	rows, err := from.Query(ctx, sql.Query("operation"), pgUUID(id), wallets)
	if err != nil {
		return nil, coldError("read operation", err)
	}
	op, err := pgx.CollectExactlyOneRow(rows, scanOperation)
	return op, coldError("read operation", err)
}

// Operations lists operations after an id, oldest first.
func (l *Ledger) Operations(ctx context.Context, f OperationFilter, after string, limit int) ([]*OperationRecord, error) {
	from, err := afterID(prefixOperation, after)
	if err != nil {
		return nil, err
	}
	var rows pgx.Rows
	if f.State == StateDispatching || f.State == StateAwaitingInput {
		rows, err = l.pool.Query(ctx, sql.Query("list_open_operations"), pgUUID(from), f.Wallets, nullable(f.Agent), nullable(f.Permit), f.State, limit)
	} else {
		rows, err = l.pool.Query(ctx, sql.Query("list_operations"), pgUUID(from), f.Wallets, nullable(f.Agent), nullable(f.Permit), nullable(f.State), limit)
	}
	if err != nil {
		return nil, coldError("list operations", err)
	}
	ops, err := pgx.CollectRows(rows, scanOperation)
	return ops, coldError("list operations", err)
}

func scanOperation(row pgx.CollectableRow) (*OperationRecord, error) {
	var id uuid.UUID
	var startedMS, endedMS int64
	var number, askedMS, expiresMS pgtype.Int8
	var outcome, reason, lateOutcome, lateReason string
	var currency pgtype.Text
	var amount pgtype.Int8
	var receipt pgtype.UUID
	var d ReconciliationRecord
	var decidedMS int64
	var late []byte
	var arrived *time.Time
	o := &OperationRecord{State: StateDispatching}
	err := row.Scan(&id, &o.Wallet, &o.Key, &o.KeySource, &o.OperationKey, &o.Permit, &o.Agent, &o.Tool, &o.Authorized, &startedMS, &currency, &amount,
		&o.Reference, &o.HoldsReference, &receipt, &outcome, &reason, &o.Charged, &endedMS, &o.Held, &lateOutcome, &lateReason, &late, &arrived,
		&d.Resolution, &d.Evidence, &d.ProviderReference, &d.ChargedBefore, &d.Actor, &decidedMS,
		&number, &askedMS, &expiresMS)
	if err != nil {
		return nil, err
	}
	o.ID, o.CreatedAt = prefixOperation+id.String(), time.UnixMilli(startedMS).UTC()
	o.Value = valueOf(currency, amount)
	o.Outcome, o.Reason = receipts.Outcome(outcome), receipts.Reason(reason)
	if outcome != "" {
		ended := time.UnixMilli(endedMS).UTC()
		o.State, o.FinishedAt, o.ReceiptID = StateFinished, &ended, prefixReceipt+uuid.UUID(receipt.Bytes).String()
	}
	if number.Valid {
		o.State = StateAwaitingInput
		o.Round = &RoundRecord{Number: number.Int64, Asked: time.UnixMilli(askedMS.Int64).UTC(), ExpiresAt: time.UnixMilli(expiresMS.Int64).UTC()}
	}
	if d.Resolution != "" {
		d.FirstReceiptID, d.DecidedAt = prefixReceipt+id.String(), time.UnixMilli(decidedMS).UTC()
		o.State, o.Reconciliation = StateReconciled, &d
	}
	if arrived != nil {
		o.Late = &LateResult{Outcome: receipts.Outcome(lateOutcome), Reason: receipts.Reason(lateReason), Result: late, ArrivedAt: arrived.UTC()}
	}
	return o, nil
}
