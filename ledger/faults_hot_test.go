package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/ledger"
	"counterfoil/receipts"
)

// claimLanes are the courses of T1 and of the look-ups around it.
func claimLanes() []lane {
	return []lane{
		{
			name:       "T1, granted",
			statements: []string{"begin", "claim_lock", "claim_read", "claim_refs", "claim_write", "insert_refs", "commit"},
			run: func(r *row) error {
				r.arm()
				return r.struckClaim(true, 1)
			},
		},
		{
			name:       "T1, granted, with a pool of operation keys",
			statements: []string{"begin", "pick_operation_keys", "claim_write", "use_operation_keys", "commit"},
			run: func(r *row) error {
				r.arm()
				return r.struckClaim(true, 1)
			},
			options: pooled,
		},
		{
			name:       "T1, denied",
			statements: []string{"begin", "claim_lock", "claim_read", "claim_refs", "lock_chains", "claim_write", "record_write", "commit"},
			run: func(r *row) error {
				r.arm()
				r.price = opening
				defer func() { r.price = 0 }()
				return r.struckClaim(false, 1)
			},
		},
		{
			name:       "T1, key used",
			statements: []string{"begin", "claim_lock", "claim_read", "commit", "lookup"},
			run: func(r *row) error {
				return r.struckRepeat(func(key string) error { _, err := r.claim(key); return err })
			},
			answers: lateReadsAreUnavailable,
		},
		{
			name:       "replay",
			statements: []string{"lookup"},
			run: func(r *row) error {
				return r.struckRepeat(func(key string) error {
					op, err := r.through.Lookup(context.Background(), r.permit.Wallet, key)
					if err != nil {
						return err
					}
					return r.same(key, op)
				})
			},
			answers: lateReadsAreUnavailable,
		},
		readBack("T1, commit not executed, read back", chaosproxy.NotExecuted),
		readBack("T1, commit executed, read back", chaosproxy.AnswerLost),
	}
}

// readBack strikes the look at what became of a claim whose commit was not answered.
func readBack(name string, first chaosproxy.Fault) lane {
	return lane{
		name:       name,
		statements: []string{"begin", "lock_wallets", "claimed_ids", "heartbeat", "commit"},
		run: func(r *row) error {
			skip := 0
			if r.statement == "begin" {
				skip = 1 // that of the claim itself
			}
			r.proxy.Arm(chaosproxy.Strike{Match: textOf("commit"), Fault: first}, r.strikeAt(r.statement, skip))
			return r.struckClaim(true, 2)
		},
		options: quiet,
	}
}

// quiet keeps an instance's own heartbeats away from its row.
func quiet(o *ledger.Options) { o.Lease = time.Hour }

// struckClaim is a call whose claim is struck so often, and which is granted or denied in the end.
func (r *row) struckClaim(granted bool, strikes int) error {
	key, g, err := r.firstClaim()
	if told := r.caller(err); told != nil || notSaid(err) {
		return told
	}
	if (g != nil) != granted || (r.entry(key).answered != nil) == granted {
		return fmt.Errorf("granted: %v, answered %+v", g != nil, r.entry(key).answered)
	}
	if err := r.struck(strikes); err != nil || !granted {
		return err
	}
	if err := r.settle(key, succeeded(g)); !notSaid(err) {
		return err
	}
	return nil
}

// firstClaim claims, and again where a busy machine let the claim's patience end before it was begun.
func (r *row) firstClaim() (string, *ledger.Granted, error) {
	deadline := time.Now().Add(soon)
	for {
		r.names++
		key := fmt.Sprintf("key-%d", r.names)
		g, err := r.claim(key)
		begun := r.proxy.Struck() > r.before
		if begun || !errors.Is(err, ledger.ErrUnavailable) || time.Now().After(deadline) {
			return key, g, err
		}
	}
}

// struckRepeat strikes what asks for a call that is finished.
func (r *row) struckRepeat(ask func(key string) error) error {
	key, g, err := r.grant()
	if err != nil {
		return err
	}
	if err := r.settle(key, succeeded(g)); err != nil {
		return err
	}
	r.arm()
	return errors.Join(r.caller(ask(key)), r.struck(1))
}

// lateReadsAreUnavailable: a read that is late has done nothing, and says so.
func lateReadsAreUnavailable(r *row, err error) error {
	if r.fault.outwaits && notSaid(err) || !r.fault.outwaits && err == nil || r.fault.brief && errors.Is(err, ledger.ErrUnavailable) {
		return nil
	}
	return fmt.Errorf("the caller was told: %w", err)
}

// settleLanes are the courses of T2.
func settleLanes() []lane {
	return []lane{
		{
			name:       "T2, at the price",
			statements: []string{"begin", "settle_take", "record_write", "commit"},
			run:        func(r *row) error { return r.struckSettlement(succeeded) },
		},
		{
			name:       "T2, giving back",
			statements: []string{"begin", "claim_lock", "settle_take", "record_write", "give_back", "free_refs", "commit"},
			run:        func(r *row) error { return r.struckSettlement(unreachable) },
		},
		{
			name:       "T2, uncertain",
			statements: []string{"begin", "settle_take", "record_write", "insert_uncertain", "commit"},
			run:        func(r *row) error { return r.struckSettlement(unanswered) },
		},
		{
			name:       "T2, commit executed, tried again",
			statements: []string{"begin", "settle_take", "settled", "heartbeat", "commit"},
			run: func(r *row) error {
				skip := 0
				if r.statement == "begin" || r.statement == "settle_take" {
					skip = 1 // those of the first try
				}
				lost := chaosproxy.Strike{Match: textOf("commit"), Fault: chaosproxy.AnswerLost}
				return r.struckSettlement(succeeded, lost, r.strikeAt(r.statement, skip))
			},
			options: quiet,
		},
		{
			name:       "T2, after a takeover",
			statements: []string{"begin", "settle_take", "settled", "insert_late_results", "commit"},
			run:        (*row).lateSettlement,
			options:    quiet,
			answers: func(r *row, err error) error {
				if r.fault.outwaits && errors.Is(err, ledger.ErrUnknown) || !r.fault.outwaits && errors.Is(err, ledger.ErrSuperseded) {
					return nil
				}
				return fmt.Errorf("the late one was told: %w", err)
			},
		},
	}
}

func unreachable(g *ledger.Granted) *ledger.Settlement {
	return &ledger.Settlement{Granted: g, Outcome: receipts.Failed, Reason: receipts.ReasonUpstreamUnreachable, Result: []byte(`{"isError":true}`)}
}

func unanswered(g *ledger.Granted) *ledger.Settlement {
	s := succeeded(g)
	s.Outcome, s.Reason = receipts.Uncertain, receipts.ReasonNoResponse
	return s
}

// struckSettlement strikes how a call ends.
func (r *row) struckSettlement(end func(*ledger.Granted) *ledger.Settlement, strikes ...chaosproxy.Strike) error {
	key, g, err := r.grant()
	if err != nil {
		return err
	}
	if len(strikes) == 0 {
		strikes = append(strikes, r.strikeAt(r.statement, 0))
	}
	r.proxy.Arm(strikes...)
	if err := errors.Join(r.caller(r.settle(key, end(g))), r.struck(len(strikes))); err != nil {
		return err
	}
	r.proxy.Release()
	op, err := r.finished(key)
	if err != nil {
		return err
	}
	if want := end(g); op.Outcome != want.Outcome || op.Reason != want.Reason {
		return fmt.Errorf("stored as %s %s, want %s %s", op.Outcome, op.Reason, want.Outcome, want.Reason)
	}
	return nil
}

// lateSettlement strikes how the result of a call is kept that another gateway has settled as interrupted.
func (r *row) lateSettlement() error {
	key, g, err := r.grant()
	if err != nil {
		return err
	}
	var instance string
	if err := r.ask("select instance_id::text from holds where wallet_id = $1", []any{&instance}, r.permit.Wallet); err != nil {
		return err
	}
	// Again and again: what the row's ledger still writes for an earlier row is a sign of life.
	err = r.until("the takeover", func() (bool, error) {
		if err := r.ask("update instances set heartbeat_at = 'epoch' where id = $1::uuid", nil, instance); err != nil {
			return false, err
		}
		op, err := r.direct.Lookup(context.Background(), r.permit.Wallet, key)
		return err == nil && op.Finished(), err
	})
	if err != nil {
		return err
	}
	taken, err := r.interrupted(key)
	if err != nil {
		return err
	}
	// It is back.
	if err := r.ask("update instances set heartbeat_at = now() where id = $1::uuid", nil, instance); err != nil {
		return err
	}
	r.arm()
	if err := errors.Join(r.caller(r.settle(key, succeeded(g))), r.struck(1)); err != nil {
		return err
	}
	r.proxy.Release()
	if err := r.call(); err != nil { // behind it, the lane has done with the late one
		return err
	}
	again, err := r.finished(key)
	if err != nil {
		return err
	}
	if again.Receipt != taken.Receipt {
		return fmt.Errorf("the late result changed the outcome: %+v", again)
	}
	return r.until("the late result is kept", func() (bool, error) {
		var n int
		err := r.ask("select count(*) from late_results where wallet_id = $1 and outcome = 'succeeded'", []any{&n}, r.permit.Wallet)
		return n == 1, err
	})
}

// interrupted reads a call that a takeover has settled.
func (r *row) interrupted(key string) (*ledger.Operation, error) {
	op, err := r.finished(key)
	if err == nil && (op.Outcome != receipts.Uncertain || op.Reason != receipts.ReasonGatewayInterrupted) {
		err = fmt.Errorf("the takeover left %+v", op)
	}
	return op, err
}
