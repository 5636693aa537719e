package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

// pause waits and reports true, or false as soon as the ledger closes.
func (l *Ledger) pause(d time.Duration) bool {
	if d <= 0 {
		d = time.Millisecond
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.stop:
		return false
	case <-timer.C:
		return true
	}
}

// recoverForever settles what silent instances left, at once and then as often as leases can run out.
func (l *Ledger) recoverForever() {
	unsigned, err := l.succeed()
	for err != nil {
		l.log.Warn("the predecessor will be succeeded", "error", err)
		if !l.pause(time.Second) {
			return
		}
		unsigned, err = l.succeed()
	}
	for {
		if err := l.recover(); err != nil {
			l.log.Warn("recovery will be tried again", "error", err)
		}
		if err := l.abandonRounds(); err != nil {
			l.log.Warn("rounds that nobody has answered will be given up", "error", err)
		}
		l.countUncertain()
		if unsigned != nil {
			// An operation's id is older than its receipt by as long as its call ran.
			if err := l.signLeftovers(unsigned.Add(-24 * time.Hour)); err != nil {
				l.log.Warn("receipts that a crash left unsigned will be signed", "error", err)
			} else {
				unsigned = nil
			}
		}
		if !l.pause(min(l.lease/3, 5*time.Second)) {
			return
		}
	}
}

// succeed ends the lease of earlier processes at this endpoint. Whoever holds the endpoint is the only one
// alive there. It returns since when receipts may have been left unsigned; nil: none were.
func (l *Ledger) succeed() (*time.Time, error) {
	var since *time.Time
	err := l.within(func(ctx context.Context) error {
		return l.pool.QueryRow(ctx, sql.Query("oldest_instance")).Scan(&since)
	})
	if err != nil {
		return nil, fmt.Errorf("find the oldest instance: %w", err)
	}
	if l.endpoint == "" {
		return since, nil
	}
	err = l.within(func(ctx context.Context) error {
		_, err := l.pool.Exec(ctx, sql.Query("expire_predecessors"), l.endpoint, pgUUID(l.instance))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("succeed the predecessor: %w", err)
	}
	return since, nil
}

// within bounds one statement.
func (l *Ledger) within(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.attempt)
	defer cancel()
	return do(ctx)
}

// countUncertain reports what waits for a person.
func (l *Ledger) countUncertain() {
	ctx, cancel := context.WithTimeout(context.Background(), l.attempt)
	defer cancel()
	risk, err := l.AtRisk(ctx, nil)
	if err != nil {
		l.log.Warn("uncertain operations not counted", "error", err)
		return
	}
	l.onUncertain(risk)
}

// recover turns the open holds of silent instances into delivery_uncertain: the call may have been sent,
// nobody will ever know from here, and it is never sent again (I4).
func (l *Ledger) recover() error {
	n, err := l.settleAll(l.interrupted, l.interrupt)
	if n > 0 {
		l.log.Warn("operations of a silent gateway are now uncertain; reconcile them with the tool", "operations", n)
	}
	return err
}

// recoverBatch bounds how many operations one step of a recovery settles.
const recoverBatch = 256

// settleAll settles what a look finds, until it finds nothing more.
func (l *Ledger) settleAll(look func(context.Context) ([]*Granted, error), settle func(*Granted) error) (n int, err error) {
	for {
		var list []*Granted
		err := l.within(func(ctx context.Context) (err error) {
			list, err = look(ctx)
			return err
		})
		if err != nil || len(list) == 0 {
			return n, err
		}
		settled := make(chan error, len(list))
		for _, g := range list {
			go func() { settled <- settle(g) }()
		}
		var failed error
		for range list {
			if err := <-settled; err != nil {
				failed = err
			}
		}
		if failed != nil {
			return n, failed
		}
		n += len(list)
	}
}

func (l *Ledger) interrupt(g *Granted) error {
	s := &Settlement{
		Granted: g, Outcome: receipts.Uncertain, Reason: receipts.ReasonGatewayInterrupted,
		Charged: g.record.authorized, KeepCall: true, KeepValue: true,
	}
	s.Result = l.explain(Ending{Outcome: s.Outcome, Reason: s.Reason, Charged: s.Charged})
	_, err := l.Settle(context.Background(), s)
	if errors.Is(err, ErrSuperseded) {
		return nil // another gateway was faster, or its owner is alive
	}
	if err == nil {
		l.onInterrupted(g.record.tool)
	}
	return err
}

func (l *Ledger) interrupted(ctx context.Context) ([]*Granted, error) {
	rows, err := l.pool.Query(ctx, sql.Query("interrupted"), recoverBatch, pgUUID(l.instance), l.tenure.watched(l.now()).Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("find interrupted operations: %w", err)
	}
	return pgx.CollectRows(rows, scanGranted)
}
