package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// continueJob is one round to go on with in a batch, and what was decided about it.
type continueJob struct {
	wallet, permit string
	id             uuid.UUID
	round, term    int64
	granted        *Granted // or
	refused        error
	expired        *Granted // what nobody has answered in time
}

// Continue takes the open round of an operation: of all who ask, one gets the grant for it, durable before this returns. He
// must dispatch it, and Settle or Ask again. Until a batch takes it, the caller may leave by ctx and the round stays. Errors:
// ErrRoundTaken, of one that has expired too: it is given up by then; ErrPermitRevoked, ErrPermitExpired, ErrWalletFrozen: nothing may be sent now, the round stays open;
// ErrUnavailable and ErrQueueFull: nothing happened; ErrUnknown: a round that turns out taken is settled as not dispatched.
func (l *Ledger) Continue(ctx context.Context, op *Operation) (*Granted, error) {
	id, ok := parseID(prefixOperation, op.ID)
	if !ok || op.Round == nil {
		return nil, fmt.Errorf("continue %s: %w", op.ID, ErrRoundTaken)
	}
	job := &continueJob{wallet: op.Wallet, permit: op.Permit, id: id, round: op.Round.Number}
	job.term, _ = l.tenure.now(l.now(), l.lease)
	lanes := l.shard(op.Wallet)
	if lanes.settles.full() {
		return nil, ErrQueueFull // as in Claim
	}
	if err := lanes.continues.submit(ctx, job, 0); err != nil {
		return nil, err
	}
	if job.expired != nil {
		if err := l.abandon(job.expired); err != nil {
			return nil, err
		}
	}
	if job.refused != nil {
		return nil, fmt.Errorf("continue %s: %w", op.ID, job.refused)
	}
	l.waiters.add(id)
	return job.granted, nil
}

// runContinues commits one batch, as runClaims does: nobody sends before the COMMIT is known.
func (l *Ledger) runContinues(tickets []*ticket[*continueJob]) {
	for try := 0; ; try++ {
		began := l.now()
		err := l.continueBatch(tickets)
		if err == nil {
			l.onCommit("continue", len(tickets), l.now().Sub(began))
			l.answerContinues(tickets, nil)
			return
		}
		switch kindOf(err) {
		case storeRetry, storeUnavailable:
			if try < 3 {
				continue
			}
			l.log.Warn("rounds not continued: the store is not available", "rounds", len(tickets), "error", err)
			l.answerContinues(tickets, ErrUnavailable)
		case storeUnknown:
			l.log.Warn("the answer to a commit was lost; reading back", "rounds", len(tickets), "error", err)
			l.resolveContinues(tickets)
		default:
			l.log.Error("rounds cannot be continued", "rounds", len(tickets), "error", err)
			l.answerContinues(tickets, fmt.Errorf("continue rounds: %w", err))
		}
		return
	}
}

// answerContinues tells the waiters. A grant whose waiter has left will never be sent, and is settled so.
func (l *Ledger) answerContinues(tickets []*ticket[*continueJob], err error) {
	for _, t := range tickets {
		if t.answer(err) || err != nil || t.job.granted == nil {
			continue
		}
		g := t.job.granted
		l.background.Go(func() { l.giveUp(g) })
	}
}

// resolveContinues finds out which rounds of a batch were taken, as resolveClaims does. No other batch of this
// instance runs meanwhile, so that a hold that is its own in this round was taken by this batch.
func (l *Ledger) resolveContinues(tickets []*ticket[*continueJob]) {
	for {
		found, err := l.continued(tickets)
		if err == nil {
			var lost, kept []*ticket[*continueJob]
			for _, t := range tickets {
				if t.job.granted != nil && !found[t.job.id] {
					lost = append(lost, t)
					continue
				}
				kept = append(kept, t)
			}
			l.answerContinues(kept, nil)
			if lost = awaited(lost); len(lost) > 0 {
				l.runContinues(lost)
			}
			return
		}
		if !l.pause(200 * time.Millisecond) {
			return
		}
	}
}

func (l *Ledger) continued(tickets []*ticket[*continueJob]) (map[uuid.UUID]bool, error) {
	found := make(map[uuid.UUID]bool)
	s := newContinueState(tickets)
	err := l.transact(func(b *batch) {
		b.exec("lock_wallets", s.asked.wallets)
		b.query("continued", func(row pgx.CollectableRow) error {
			var id pgtype.UUID
			err := row.Scan(&id)
			found[id.Bytes] = true
			return err
		}, append(s.asked.numbered(), pgUUID(l.instance))...)
	}, func(_ context.Context, _ *pgxpool.Conn, b *batch) error {
		l.barrier(b)
		return nil
	})
	return found, err
}

// openRound is a parked operation under its locks.
type openRound struct {
	record       *record
	operationKey string
	expiresMS    int64
	permitEndsMS int64
}

// continueState is everything that is decided on.
type continueState struct {
	counters
	asked   holders
	permits []string
	open    map[uuid.UUID]*openRound
	nowMS   int64
	taken   []*record
}

func newContinueState(tickets []*ticket[*continueJob]) *continueState {
	s := &continueState{counters: newCounters(), open: make(map[uuid.UUID]*openRound)}
	for _, t := range tickets {
		j := t.job
		s.asked.wallets, s.asked.ids = append(s.asked.wallets, j.wallet), append(s.asked.ids, pgUUID(j.id))
		s.asked.rounds, s.permits = append(s.asked.rounds, j.round), append(s.permits, j.permit)
	}
	return s
}

// continueBatch locks, decides in order of arrival, takes the rounds and commits.
func (l *Ledger) continueBatch(tickets []*ticket[*continueJob]) error {
	s := newContinueState(tickets)
	return l.transact(s.lock, func(_ context.Context, _ *pgxpool.Conn, b *batch) error {
		for _, t := range tickets {
			s.decide(t.job, l.instance)
		}
		if len(s.taken) > 0 {
			b.exec("continue_write", append(holdersOf(s.taken).numbered(), pgUUID(l.instance))...)
		}
		return nil
	})
}

func (s *continueState) lock(b *batch) {
	s.counters.lock(b, s.asked.wallets, s.asked.wallets, s.permits)
	b.query("continue_lock", func(row pgx.CollectableRow) error {
		var o openRound
		var err error
		o.record, err = scanHeld(row, &o.operationKey, &o.expiresMS, &o.permitEndsMS)
		if err == nil {
			s.open[o.record.id] = &o
		}
		return err
	}, s.asked.numbered()...)
	b.query("clock", func(row pgx.CollectableRow) error { return row.Scan(&s.nowMS) })
}

// decide gives a round to the first who asks. What the permit allowed is reserved; only whether anything may be sent at
// all is asked again.
func (s *continueState) decide(j *continueJob, instance uuid.UUID) {
	j.granted, j.expired = nil, nil
	o := s.open[j.id]
	if o == nil {
		j.refused = ErrRoundTaken
		return
	}
	if s.nowMS >= o.expiresMS {
		j.refused, j.expired = ErrRoundTaken, grantOf(o.record)
		return
	}
	if j.refused = s.refusal(o); j.refused != nil {
		return
	}
	delete(s.open, j.id)
	s.taken = append(s.taken, o.record)
	j.granted = grantOf(o.record)
	j.granted.OperationKey, j.granted.record.instance, j.granted.term = o.operationKey, instance, j.term
}

func (s *continueState) refusal(o *openRound) error {
	u, w := s.usage[pair{o.record.wallet, o.record.permit}], s.wallets[o.record.wallet]
	switch {
	case u == nil:
		return ErrPermitUnknown
	case u.revoked:
		return ErrPermitRevoked
	case s.nowMS >= o.permitEndsMS:
		return ErrPermitExpired
	case w.frozen:
		return ErrWalletFrozen
	}
	return nil
}
