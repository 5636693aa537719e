package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A tool that asks for input has not acted: the operation waits, with all that is held for it, until its caller answers
// or the round expires. Its hold is parked then: it is nobody's. Whoever takes the round away may go on, once.

// Round is what a tool has asked for.
type Round struct {
	Number  int64
	Result  []byte // the tool's answer that asks, as it goes to the caller
	State   []byte // SHA-256 of the state that the caller must bring back; nil: none was given
	Expires time.Time
}

// Asked is an operation whose tool asks for input.
type Asked struct {
	Granted *Granted
	Result  []byte
	State   []byte        // SHA-256, or nil
	TTL     time.Duration // how long an answer is waited for
}

// askJob is one round to open in a batch.
type askJob struct {
	record     record // in the round before
	asked      *Asked
	expiresMS  int64
	parked     bool // by this try
	tried      bool // by an earlier try, which may have been committed
	superseded bool
}

func (j *askJob) number() int64 { return j.record.round + 1 }

// Ask records that the tool asked for input: what is held stays held, nobody dispatches, and the round is durable when
// this returns. Like Settle it is tried until it is committed. Errors: ErrUnknown while the tries go on; ErrSuperseded where
// the operation is not this grant's any more: a takeover has settled it, or somebody has answered the round before its COMMIT was.
func (l *Ledger) Ask(ctx context.Context, a *Asked) (*Operation, error) {
	job := &askJob{record: a.Granted.record, asked: a}
	if err := l.shard(job.record.wallet).asks.submit(ctx, job, len(a.Result)); err != nil {
		return nil, err
	}
	if job.superseded {
		return nil, fmt.Errorf("ask for input of %s: %w", a.Granted.ID, ErrSuperseded)
	}
	op := job.record.unfinished(StateAwaitingInput)
	op.Round = &Round{Number: job.number(), Result: a.Result, State: a.State, Expires: time.UnixMilli(job.expiresMS).UTC()}
	return op, nil
}

// runAsks commits one batch, for as long as it takes or until the ledger closes, as runSettles does.
func (l *Ledger) runAsks(tickets []*ticket[*askJob]) {
	for try := 0; ; try++ {
		began := l.now()
		err := l.askBatch(tickets)
		if err == nil {
			l.onCommit("ask", len(tickets), l.now().Sub(began))
			for _, t := range tickets {
				l.waiters.close(t.job.record.id)
				t.answer(nil)
			}
			return
		}
		kind := kindOf(err)
		if kind == storeData {
			l.splitAsks(tickets, err)
			return
		}
		for _, t := range tickets {
			t.job.tried = t.job.tried || (kind == storeUnknown && t.job.parked)
		}
		l.log.Warn("rounds not committed yet", "rounds", len(tickets), "try", try+1, "error", err)
		if kind != storeRetry && !l.pause(min(time.Duration(try)*100*time.Millisecond, 2*time.Second)) {
			for _, t := range tickets {
				t.answer(ErrUnknown)
			}
			return
		}
	}
}

func (l *Ledger) splitAsks(tickets []*ticket[*askJob], err error) {
	if len(tickets) == 1 {
		l.log.Error("a round cannot be stored", "operation", tickets[0].job.record.id, "error", err)
		tickets[0].answer(fmt.Errorf("store round: %w", err))
		return
	}
	half := len(tickets) / 2
	l.runAsks(tickets[:half])
	l.runAsks(tickets[half:])
}

// askBatch locks the chain heads, so that nobody settles meanwhile, and parks the holds that are still there.
func (l *Ledger) askBatch(tickets []*ticket[*askJob]) error {
	jobs := make(map[uuid.UUID]*askJob, len(tickets))
	records := make([]*record, len(tickets))
	for i, t := range tickets {
		t.job.parked, t.job.superseded = false, false
		jobs[t.job.record.id], records[i] = t.job, &t.job.record
	}
	lock := func(b *batch) {
		b.query("lock_chains", make(chainHeads).scan, walletsOf(records))
		b.query("park", func(row pgx.CollectableRow) error {
			var id pgtype.UUID
			var number, expiresMS int64
			if err := row.Scan(&id, &number, &expiresMS); err != nil {
				return err
			}
			jobs[id.Bytes].parked, jobs[id.Bytes].expiresMS = true, expiresMS
			return nil
		}, askColumns(tickets, l.instance)...)
	}
	return l.transact(lock, func(ctx context.Context, conn *pgxpool.Conn, b *batch) error {
		var gone []*askJob
		for _, t := range tickets {
			if !t.job.parked {
				gone = append(gone, t.job)
			}
		}
		return l.markUnasked(ctx, conn, b, gone)
	})
}

func askColumns(tickets []*ticket[*askJob], instance uuid.UUID) []any {
	n := len(tickets)
	wallets, ids, numbers := make([]string, n), make([]pgtype.UUID, n), make([]int64, n)
	states, results, ttls := make([][]byte, n), make([][]byte, n), make([]int64, n)
	for i, t := range tickets {
		j := t.job
		wallets[i], ids[i], numbers[i] = j.record.wallet, pgUUID(j.record.id), j.number()
		states[i], results[i], ttls[i] = j.asked.State, j.asked.Result, j.asked.TTL.Milliseconds()
	}
	return []any{wallets, ids, numbers, states, results, ttls, pgUUID(instance)}
}

// unasked is what is stored of an operation that could not be parked.
type unasked struct {
	number, expiresMS, held pgtype.Int8
	settled                 bool
}

// markUnasked finds out why these could not be parked: an earlier try of ours has, whose COMMIT went unanswered; or
// they are no longer ours. That its tool has only asked is then evidence that it had not acted, unless somebody may have
// gone on from our round.
func (l *Ledger) markUnasked(ctx context.Context, conn *pgxpool.Conn, b *batch, gone []*askJob) error {
	if len(gone) == 0 {
		return nil
	}
	found, err := readUnasked(ctx, conn, gone)
	if err != nil {
		return err
	}
	var late []*record
	ours := false
	for _, j := range gone {
		u := found[j.record.id]
		switch {
		case j.tried && u.number.Int64 == j.number():
			j.expiresMS = u.expiresMS.Int64
			ours = true
			continue
		case u.settled && !j.tried:
			j.record.outcome, j.record.reason, j.record.result = receipts.Failed, receipts.ReasonInputAbandoned, j.asked.Result
			late = append(late, &j.record)
		case !u.settled && !u.held.Valid:
			return fmt.Errorf("operation %s has neither hold nor receipt: %w", j.record.id, ErrNotFound)
		}
		j.superseded = true
	}
	if ours {
		l.barrier(b) // as in markGone
	}
	keepLate(b, late)
	return nil
}

func readUnasked(ctx context.Context, conn *pgxpool.Conn, jobs []*askJob) (map[uuid.UUID]unasked, error) {
	records := make([]*record, len(jobs))
	for i, j := range jobs {
		records[i] = &j.record
	}
	h := holdersOf(records)
	found := make(map[uuid.UUID]unasked, len(jobs))
	err := more(ctx, conn, func(b *batch) {
		b.query("parked", func(row pgx.CollectableRow) error {
			var id pgtype.UUID
			var u unasked
			err := row.Scan(&id, &u.number, &u.expiresMS, &u.held, &u.settled)
			found[id.Bytes] = u
			return err
		}, h.wallets, h.ids)
	})
	return found, err
}

// RoundByState finds the newest operation of a wallet that waits for input under this state, and is of this request; nil
// where there is none. hash is the request's under a permit: a caller that names none is in the round under
// the permit with which he began.
func (l *Ledger) RoundByState(ctx context.Context, wallet string, state []byte, hash func(permit string) [32]byte) (*Operation, error) {
	rows, err := l.pool.Query(ctx, sql.Query("round_permits"), wallet, state)
	if err != nil {
		return nil, coldError("find a round", err)
	}
	permits, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(permits) == 0 {
		return nil, coldError("find a round", err)
	}
	hashes := make([][]byte, len(permits))
	for i, permit := range permits {
		sum := hash(permit)
		hashes[i] = sum[:]
	}
	var key string
	err = l.pool.QueryRow(ctx, sql.Query("round_by_state"), wallet, state, hashes).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, coldError("find a round", err)
	}
	op, err := l.Lookup(ctx, wallet, key)
	if err != nil || op == nil || op.Round == nil || string(op.Round.State) != string(state) {
		return nil, err // somebody was faster
	}
	return op, nil
}

// abandonRounds gives up the rounds that nobody has answered in time: the tool had not acted, nothing is charged.
func (l *Ledger) abandonRounds() error {
	n, err := l.settleAll(l.expiredRounds, l.abandon)
	if n > 0 {
		l.log.Info("rounds were given up: nobody answered what the tool had asked", "operations", n)
	}
	return err
}

func (l *Ledger) expiredRounds(ctx context.Context) ([]*Granted, error) {
	rows, err := l.pool.Query(ctx, sql.Query("expired_rounds"), recoverBatch)
	if err != nil {
		return nil, fmt.Errorf("find rounds that have expired: %w", err)
	}
	return pgx.CollectRows(rows, scanGranted)
}

// abandon settles a parked operation. Its hold is nobody's, and so whoever goes on with the round first has it.
func (l *Ledger) abandon(g *Granted) error {
	s := &Settlement{Granted: g, Outcome: receipts.Failed, Reason: receipts.ReasonInputAbandoned}
	s.Result = l.explain(Ending{Outcome: s.Outcome, Reason: s.Reason})
	_, err := l.Settle(context.Background(), s)
	if errors.Is(err, ErrSuperseded) {
		return nil // it was answered after all, or another gateway was faster
	}
	if err == nil {
		l.onAbandoned(g.record.tool)
	}
	return err
}
