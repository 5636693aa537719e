package ledger

import (
	"context"
	"time"

	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// OperationRecord is an operation as the operator API shows it.
type OperationRecord struct {
	ID, Wallet, Key, KeySource string
	Permit, Agent, Tool        string
	State                      string
	Outcome                    receipts.Outcome // "" while it runs
	Reason                     receipts.Reason
	Authorized, Held, Charged  int64
	ReceiptID                  string // "" while it runs
	Late                       *LateResult
	CreatedAt                  time.Time
	FinishedAt                 *time.Time
}

// LateResult is what an upstream answered after its operation had been settled as uncertain: evidence for a
// reconciliation, never a second outcome.
type LateResult struct {
	Outcome   receipts.Outcome
	Reason    receipts.Reason
	Result    []byte
	ArrivedAt time.Time
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
	rows, err := l.pool.Query(ctx, sql.Query("list_operations"), pgUUID(uid), pgUUID(uuid.Nil), wallets, nil, nil, nil, 1)
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
	if f.State == StateDispatching {
		rows, err = l.pool.Query(ctx, sql.Query("list_open_operations"), pgUUID(from), f.Wallets, nullable(f.Agent), nullable(f.Permit), limit)
	} else {
		rows, err = l.pool.Query(ctx, sql.Query("list_operations"), nil, pgUUID(from), f.Wallets, nullable(f.Agent), nullable(f.Permit), nullable(f.State), limit)
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
	var outcome, reason, lateOutcome, lateReason string
	var late []byte
	var arrived *time.Time
	o := &OperationRecord{State: StateDispatching}
	err := row.Scan(&id, &o.Wallet, &o.Key, &o.KeySource, &o.Permit, &o.Agent, &o.Tool, &o.Authorized, &startedMS,
		&outcome, &reason, &o.Charged, &endedMS, &o.Held, &lateOutcome, &lateReason, &late, &arrived)
	if err != nil {
		return nil, err
	}
	o.ID, o.CreatedAt = prefixOperation+id.String(), time.UnixMilli(startedMS).UTC()
	o.Outcome, o.Reason = receipts.Outcome(outcome), receipts.Reason(reason)
	if outcome != "" {
		ended := time.UnixMilli(endedMS).UTC()
		o.State, o.FinishedAt, o.ReceiptID = StateFinished, &ended, prefixReceipt+id.String()
	}
	if arrived != nil {
		o.Late = &LateResult{Outcome: receipts.Outcome(lateOutcome), Reason: receipts.Reason(lateReason), Result: late, ArrivedAt: arrived.UTC()}
	}
	return o, nil
}
