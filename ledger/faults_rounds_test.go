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

// roundLanes are the courses of a tool that asks for input.
func roundLanes() []lane {
	lost := func(r *row, repeated ...string) []chaosproxy.Strike {
		skip := 0
		for _, name := range repeated {
			if r.statement == name {
				skip = 1 // that of the first try
			}
		}
		return []chaosproxy.Strike{{Match: textOf("commit"), Fault: chaosproxy.AnswerLost}, r.strikeAt(r.statement, skip)}
	}
	return []lane{
		{
			name:       "round",
			statements: []string{"begin", "lock_chains", "park", "commit"},
			run:        func(r *row) error { return r.struckRound(r.strikeAt(r.statement, 0)) },
		},
		{
			name:       "round, commit executed, tried again",
			statements: []string{"begin", "lock_chains", "park", "parked", "heartbeat", "commit"},
			run:        func(r *row) error { return r.struckRound(lost(r, "begin", "lock_chains", "park")...) },
			options:    quiet,
		},
		{
			name:       "round, read",
			statements: []string{"lookup", "lookup_rounds"},
			run:        (*row).struckLook,
			options:    quiet,
			answers:    lateReadsAreUnavailable,
		},
		{
			name:       "continuation",
			statements: []string{"begin", "claim_lock", "continue_lock", "clock", "continue_write", "commit"},
			run:        func(r *row) error { return r.struckContinuation(r.strikeAt(r.statement, 0)) },
		},
		{
			name:       "continuation, commit executed, read back",
			statements: []string{"begin", "lock_wallets", "continued", "heartbeat", "commit"},
			run:        func(r *row) error { return r.struckContinuation(lost(r, "begin")...) },
			options:    quiet,
		},
		{
			name: "round, given up",
			statements: []string{
				"expired_rounds", "begin", "claim_lock", "settle_take", "record_write", "give_back", "free_refs", "close_rounds", "commit",
			},
			run:     (*row).struckEnd,
			options: func(o *ledger.Options) { o.Lease = time.Second }, // looks every 333 ms; nobody else does here
			alone:   true,
		},
	}
}

// park brings a call to the point where it waits for input.
func (r *row) park() (string, *ledger.Operation, error) {
	key, g, err := r.grant()
	if err != nil {
		return key, nil, err
	}
	if _, err := r.through.Ask(context.Background(), asked(g, "s")); err != nil && !notSaid(err) {
		return key, nil, err
	}
	op, err := r.waiting(key)
	return key, op, err
}

// waiting reads a call once it waits for input.
func (r *row) waiting(key string) (op *ledger.Operation, err error) {
	err = r.until(key+" waits for input", func() (bool, error) {
		op, err = r.direct.Lookup(context.Background(), r.permit.Wallet, key)
		return err == nil && op.Round != nil, nil
	})
	if err == nil && (op.Round.Number != 1 || string(op.Round.Result) != question) {
		err = fmt.Errorf("%s waits in %+v", key, op.Round)
	}
	return op, err
}

// struckRound strikes how it is written down that a tool asks.
func (r *row) struckRound(strikes ...chaosproxy.Strike) error {
	key, g, err := r.grant()
	if err != nil {
		return err
	}
	r.proxy.Arm(strikes...)
	_, err = r.through.Ask(context.Background(), asked(g, "s"))
	if err := errors.Join(r.caller(err), r.struck(len(strikes))); err != nil {
		return err
	}
	r.proxy.Release()
	op, err := r.waiting(key)
	if err != nil {
		return err
	}
	return r.goOn(key, op)
}

// struckLook strikes the look at what a tool has asked.
func (r *row) struckLook() error {
	key, op, err := r.park()
	if err != nil {
		return err
	}
	r.arm()
	seen, err := r.through.Lookup(context.Background(), r.permit.Wallet, key)
	if err == nil && (seen.Round == nil || seen.State != ledger.StateAwaitingInput) {
		return fmt.Errorf("it waits for input, and is read as %+v", seen)
	}
	if err := errors.Join(r.caller(err), r.struck(1)); err != nil {
		return err
	}
	r.proxy.Release()
	return r.goOn(key, op)
}

// struckContinuation strikes how one goes on. What is granted is durable; of what nobody was told, either nothing is, or it
// is settled as never sent.
func (r *row) struckContinuation(strikes ...chaosproxy.Strike) error {
	key, op, err := r.park()
	if err != nil {
		return err
	}
	r.proxy.Arm(strikes...)
	g, err := r.through.Continue(context.Background(), op)
	if err := errors.Join(r.caller(err), r.struck(len(strikes))); err != nil {
		return err
	}
	r.proxy.Release()
	if err == nil {
		stored, err := r.direct.Lookup(context.Background(), r.permit.Wallet, key)
		if err != nil || stored.State != ledger.StateDispatching {
			return fmt.Errorf("it is dispatched again, and that is not durable: %+v, %w", stored, err)
		}
		if err := r.settle(key, succeeded(g)); !notSaid(err) {
			return err
		}
		return nil
	}
	if errors.Is(err, ledger.ErrUnavailable) {
		return r.goOn(key, op)
	}
	err = r.goOn(key, op)
	if !errors.Is(err, ledger.ErrRoundTaken) {
		return err
	}
	ended, err := r.finished(key)
	if err == nil && (ended.Outcome != receipts.Failed || ended.Reason != receipts.ReasonNotDispatched) {
		err = fmt.Errorf("nobody was told, and it is stored as %s %s", ended.Outcome, ended.Reason)
	}
	return err
}

// goOn answers the tool, beside the proxy, and ends the call.
func (r *row) goOn(key string, op *ledger.Operation) error {
	ctx := context.Background()
	g, err := r.direct.Continue(ctx, op)
	if err != nil {
		return err
	}
	if g.ID != op.ID {
		return fmt.Errorf("%s goes on as %s", op.ID, g.ID)
	}
	ended, err := r.direct.Settle(ctx, succeeded(g))
	if err == nil {
		r.entry(key).answered = ended
	}
	return err
}

// struckEnd strikes how a round is given up that nobody has answered.
func (r *row) struckEnd() error {
	key, _, err := r.park()
	if err != nil {
		return err
	}
	r.arm()
	if err := r.ask("update rounds set expires_ms = asked_ms where wallet_id = $1", nil, r.permit.Wallet); err != nil {
		return err
	}
	if err := r.ends(); err != nil {
		return err
	}
	var op *ledger.Operation
	err = r.until(key+" is given up", func() (bool, error) {
		op, err = r.direct.Lookup(context.Background(), r.permit.Wallet, key)
		return err == nil && op.Finished(), nil
	})
	if err == nil && (op.Outcome != receipts.Failed || op.Reason != receipts.ReasonInputAbandoned || op.Charged != 0) {
		err = fmt.Errorf("nobody answered, and it is stored as %s %s", op.Outcome, op.Reason)
	}
	return err
}
