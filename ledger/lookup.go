package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

type lookupJob struct {
	wallet, key string
	found       *storedRow
	round       *Round
}

// storedRow is an operation as one row of queries/lookup.sql.
type storedRow struct {
	id                             pgtype.UUID
	agent, permit, tool, keySource string
	requestHash                    []byte
	authorized, startedMS          int64
	receiptID                      pgtype.UUID
	outcome, reason                pgtype.Text
	charged, endedMS               pgtype.Int8
	signingInput                   pgtype.Text
	signature, result, rejection   []byte
	resolution                     pgtype.Text
}

// Lookup reads the operation of a key, nil where the key is unused. Reads are batched, take no lock, and
// see what was committed when they run. Errors: ErrUnavailable, ErrQueueFull, ErrUnknown, ctx.Err().
func (l *Ledger) Lookup(ctx context.Context, wallet, key string) (*Operation, error) {
	job := &lookupJob{wallet: wallet, key: key}
	if err := l.lookups.submit(ctx, job, 0); err != nil {
		if errors.Is(err, ErrUnknown) {
			return nil, ErrUnavailable // a read that is late has done nothing
		}
		return nil, err
	}
	if job.found == nil {
		return nil, nil
	}
	return l.operationOf(job)
}

func (l *Ledger) operationOf(job *lookupJob) (*Operation, error) {
	row := job.found
	id := uuid.UUID(row.id.Bytes).String()
	op := &Operation{
		ID: prefixOperation + id, Wallet: job.wallet, Key: job.key, KeySource: row.keySource,
		Agent: row.agent, Permit: row.permit, Tool: row.tool, RequestHash: [32]byte(row.requestHash),
		State: StateDispatching, Authorized: row.authorized, StartedMS: row.startedMS,
	}
	if job.round != nil {
		op.State, op.Round = StateAwaitingInput, job.round
		return op, nil
	}
	if !row.receiptID.Valid {
		return op, nil
	}
	op.State = StateFinished
	if row.resolution.Valid {
		op.State, op.Resolution = StateReconciled, row.resolution.String
	}
	op.Outcome, op.Reason = receipts.Outcome(row.outcome.String), receipts.Reason(row.reason.String)
	op.Charged, op.EndedMS, op.Result = row.charged.Int64, row.endedMS.Int64, row.result
	op.UpstreamError = row.rejection
	op.ReceiptID = prefixReceipt + uuid.UUID(row.receiptID.Bytes).String()
	var made signatures
	var err error
	op.Receipt, err = l.token(row.receiptID.Bytes, job.wallet, row.signingInput.String, row.signature, &made)
	l.keeper.add(made)
	return op, err
}

// unheard reports a receipt or a round that may not have been acknowledged yet. Of a round it is never known.
func (j *lookupJob) unheard() bool {
	return j.round != nil || j.found != nil && j.found.receiptID.Valid && j.found.signature == nil
}

// open reports an operation without an outcome.
func (j *lookupJob) open() bool { return j.found != nil && !j.found.receiptID.Valid }

func (l *Ledger) runLookups(tickets []*ticket[*lookupJob]) {
	wallets, keys := make([]string, len(tickets)), make([]string, len(tickets))
	for i, t := range tickets {
		wallets[i], keys[i] = t.job.wallet, t.job.key
	}
	var err error
	for range 3 {
		if err = l.readOperations(tickets, wallets, keys); err == nil {
			err = l.readRounds(tickets)
		}
		if err == nil {
			break
		}
	}
	if err == nil && slices.ContainsFunc(tickets, func(t *ticket[*lookupJob]) bool { return t.job.unheard() }) {
		err = l.confirm(context.Background(), l.hot) // once for the whole batch; see vouch
	}
	if err != nil {
		l.log.Warn("look-ups failed", "lookups", len(tickets), "error", err)
		err = ErrUnavailable
	}
	for _, t := range tickets {
		t.answer(err)
	}
}

func (l *Ledger) readOperations(tickets []*ticket[*lookupJob], wallets, keys []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.attempt)
	defer cancel()
	rows, err := l.hot.Query(ctx, sql.Query("lookup"), wallets, keys)
	if err != nil {
		return translate(err, false)
	}
	defer rows.Close()
	for rows.Next() {
		n, row, err := scanStored(rows)
		if err != nil {
			return translate(err, false)
		}
		tickets[n-1].job.found = row
	}
	if err := rows.Err(); err != nil {
		return translate(err, false)
	}
	return nil
}

// readRounds reads what the tools of open operations have asked for. Where there are none it costs nothing.
func (l *Ledger) readRounds(tickets []*ticket[*lookupJob]) error {
	var wallets []string
	var ids []pgtype.UUID
	var jobs []*lookupJob
	for _, t := range tickets {
		if t.job.round = nil; t.job.open() {
			wallets, ids, jobs = append(wallets, t.job.wallet), append(ids, t.job.found.id), append(jobs, t.job)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.attempt)
	defer cancel()
	rows, err := l.hot.Query(ctx, sql.Query("lookup_rounds"), wallets, ids)
	if err != nil {
		return translate(err, false)
	}
	var n, expiresMS int64
	var r Round
	_, err = pgx.ForEachRow(rows, []any{&n, &r.Number, &r.State, &r.Result, &expiresMS}, func() error {
		round := r
		round.Expires = time.UnixMilli(expiresMS).UTC()
		jobs[n-1].round = &round
		return nil
	})
	if err != nil {
		return translate(err, false)
	}
	return nil
}

func scanStored(rows pgx.Rows) (int64, *storedRow, error) {
	var n int64
	r := &storedRow{}
	err := rows.Scan(&n, &r.id, &r.agent, &r.permit, &r.tool, &r.keySource, &r.requestHash, &r.authorized, &r.startedMS,
		&r.receiptID, &r.outcome, &r.reason, &r.charged, &r.endedMS, &r.signingInput, &r.signature, &r.result, &r.rejection, &r.resolution)
	if err != nil {
		return 0, nil, fmt.Errorf("read operation: %w", err)
	}
	return n, r, nil
}

// waiters tells callers of this process that an operation has its outcome.
type waiters struct {
	mu   sync.Mutex
	open map[uuid.UUID]chan struct{}
}

// waitPoll is how often Wait looks for an outcome that another process may write.
const waitPoll = 250 * time.Millisecond

// Wait reads the operation of a key until it is finished, awaits input, or ctx ends; then it returns what it saw last.
func (l *Ledger) Wait(ctx context.Context, wallet, key string) (*Operation, error) {
	poll := time.NewTicker(waitPoll)
	defer poll.Stop()
	for {
		op, err := l.Lookup(context.WithoutCancel(ctx), wallet, key)
		if err != nil || op == nil || op.Finished() || op.Round != nil {
			return op, err
		}
		id, _ := parseID(prefixOperation, op.ID)
		select {
		case <-l.waiters.done(id):
		case <-poll.C:
		case <-ctx.Done():
			return op, nil
		}
	}
}
