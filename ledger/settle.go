package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"counterfoil/receipts"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// settleJob is one outcome in a batch.
type settleJob struct {
	record     record
	superseded bool
	tried      []string // signing inputs that earlier tries wrote and may have committed
}

// ErrOverCharge means that a settlement asks for more than was reserved, or for less than nothing.
var ErrOverCharge = errors.New("a settlement must charge between zero and what was reserved")

// Settle writes an operation's outcome (T2): receipt, response, charge, and what is given back, in one
// durable transaction. It is tried until it is committed or the ledger closes; a caller that waits longer
// than ctx or the ledger's patience gets ErrUnknown while the tries go on. ErrSuperseded: a takeover settled it
// before; the result is kept as a late result.
func (l *Ledger) Settle(ctx context.Context, s *Settlement) (*Operation, error) {
	r := s.Granted.record
	if s.Charged < 0 || s.Charged > r.authorized {
		return nil, fmt.Errorf("settle %s: %w", s.Granted.ID, ErrOverCharge)
	}
	r.outcome, r.reason, r.charged, r.result, r.scrubbed = s.Outcome, s.Reason, s.Charged, s.Result, s.Scrubbed
	r.rejection = s.UpstreamError
	if s.KeepCall {
		r.callsKept = 1
	}
	if s.KeepValue {
		r.valueKept = r.counted
	}
	job := &settleJob{record: r}
	if err := l.shard(r.wallet).settles.submit(ctx, job, len(s.Result)+len(s.UpstreamError)); err != nil {
		return nil, err
	}
	if job.superseded {
		return nil, fmt.Errorf("settle %s: %w", s.Granted.ID, ErrSuperseded)
	}
	return l.signed(&job.record)
}

// runSettles commits one batch, for as long as it takes or until the ledger closes. A try whose COMMIT
// went unanswered needs no look-up of its own: the next try finds the holds gone and its own receipts.
func (l *Ledger) runSettles(tickets []*ticket[*settleJob]) {
	for try := 0; ; try++ {
		began := l.now()
		err := l.settleBatch(tickets)
		if err == nil {
			l.onCommit("settle", len(tickets), l.now().Sub(began))
			for _, t := range tickets {
				l.waiters.close(t.job.record.id)
				t.answer(nil)
			}
			return
		}
		kind := kindOf(err)
		if kind == storeData {
			l.splitSettles(tickets, err)
			return
		}
		l.log.Warn("settlements not committed yet", "settlements", len(tickets), "try", try+1, "error", err)
		if kind != storeRetry && !l.pause(min(time.Duration(try)*100*time.Millisecond, 2*time.Second)) {
			for _, t := range tickets {
				t.answer(ErrUnknown)
			}
			return
		}
	}
}

func (l *Ledger) splitSettles(tickets []*ticket[*settleJob], err error) {
	if len(tickets) == 1 {
		l.log.Error("a settlement cannot be stored", "operation", tickets[0].job.record.id, "error", err)
		tickets[0].answer(fmt.Errorf("store settlement: %w", err))
		return
	}
	half := len(tickets) / 2
	l.runSettles(tickets[:half])
	l.runSettles(tickets[half:])
}

// settleState is everything T2 decides on.
type settleState struct {
	counters
	jobs    []*settleJob
	heads   chainHeads
	owned   map[uuid.UUID]bool // holds that this transaction deleted
	nowMS   int64
	refunds []*settleJob
}

// settleBatch is T2: lock, take the holds, chain the receipts, write, commit.
func (l *Ledger) settleBatch(tickets []*ticket[*settleJob]) error {
	s := &settleState{counters: newCounters(), heads: make(chainHeads), owned: make(map[uuid.UUID]bool)}
	for _, t := range tickets {
		s.jobs = append(s.jobs, t.job)
		if t.job.givesBack() {
			s.refunds = append(s.refunds, t.job)
		}
	}
	return l.transact(s.lock, func(ctx context.Context, conn *pgxpool.Conn, b *batch) error {
		mine, gone := s.divide()
		if err := l.markGone(ctx, conn, b, gone); err != nil {
			return err
		}
		if len(mine) == 0 {
			return nil
		}
		records := make([]*record, len(mine))
		for i, j := range mine {
			records[i] = &j.record
		}
		if err := l.chainUp(records, s.heads, s.nowMS); err != nil {
			return err
		}
		for _, j := range mine {
			j.tried = append(j.tried, j.record.signingInput)
			s.giveBack(j)
		}
		writeRecords(b, records, s.heads)
		if uncertain := outcomes(records, receipts.Uncertain); len(uncertain) > 0 {
			b.exec("insert_uncertain", uncertainColumns(uncertain)...)
		}
		if len(s.refunds) > 0 {
			b.exec("give_back", s.counters.columns()...)
		}
		if free := undelivered(records); len(free) > 0 {
			b.exec("free_refs", refColumns(free)...)
		}
		if parked := parked(records); len(parked) > 0 {
			b.exec("close_rounds", holdersOf(parked).numbered()...)
		}
		return nil
	})
}

// givesBack reports whether the settlement moves a counter. At the reserved price it moves none: the
// escrow counter already says "committed", so the wallet's row stays unlocked.
func (j *settleJob) givesBack() bool {
	credits, calls, value := j.returns()
	return credits != 0 || calls != 0 || value != 0
}

func (j *settleJob) returns() (credits, calls, value int64) {
	r := &j.record
	return r.authorized - r.charged, 1 - int64(r.callsKept), r.counted - r.valueKept
}

func (s *settleState) giveBack(j *settleJob) {
	credits, calls, value := j.returns()
	s.move(&j.record, -credits, -calls, -value)
}

func (s *settleState) lock(b *batch) {
	if len(s.refunds) > 0 {
		var wallets, permitIDs []string
		for _, j := range s.refunds {
			wallets, permitIDs = append(wallets, j.record.wallet), append(permitIDs, j.record.permit)
		}
		s.counters.lock(b, wallets, wallets, permitIDs)
	}
	records := make([]*record, len(s.jobs))
	for i, j := range s.jobs {
		records[i] = &j.record
	}
	b.query("settle_take", func(row pgx.CollectableRow) error {
		var wallet, hash pgtype.Text
		var seq pgtype.Int8
		var id pgtype.UUID
		err := row.Scan(&s.nowMS, &wallet, &seq, &hash, &id)
		if id.Valid {
			s.owned[id.Bytes] = true
		}
		if wallet.Valid {
			s.heads[wallet.String] = &chainHead{seq: seq.Int64, head: hash.String}
		}
		return err
	}, holdersOf(records).columns()...)
}

// divide tells the jobs whose holds this transaction took from those somebody settled before. A hold
// serves one job: a second settlement of the same operation in the same batch has come too late.
func (s *settleState) divide() (mine, gone []*settleJob) {
	for _, j := range s.jobs {
		if s.owned[j.record.id] {
			delete(s.owned, j.record.id)
			mine = append(mine, j)
			continue
		}
		gone = append(gone, j)
	}
	return mine, gone
}
