package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/ledger"
	"counterfoil/receipts"
)

// recoveryLanes are what a ledger does on its own account.
func recoveryLanes() []lane {
	return []lane{
		{
			name: "takeover",
			statements: []string{
				"oldest_instance", "expire_predecessors", "interrupted", "begin", "settle_take", "record_write", "insert_uncertain", "commit",
				"unsigned_receipts", "insert_signatures",
			},
			run:     (*row).takeover,
			options: func(o *ledger.Options) { o.Endpoint = "host|a" },
			alone:   true,
		},
		{
			name:       "lease",
			statements: []string{"heartbeat"},
			run:        (*row).keepLease,
			options:    func(o *ledger.Options) { o.Lease = 6 * time.Second },
		},
		{
			name:       "lease, lost",
			statements: []string{"heartbeat", "held"},
			run:        (*row).loseLease,
			options:    func(o *ledger.Options) { o.Lease = time.Second },
			short:      true,
		},
		{
			name:       "pruning",
			statements: []string{"prune_page", "begin", "prune_responses", "prune_mark", "commit"},
			run:        (*row).pruned,
			options:    func(o *ledger.Options) { o.Retention = time.Millisecond },
			alone:      true,
			prunes:     true,
		},
	}
}

// ends waits for the row's fault, and for its end where nobody else ends it.
func (r *row) ends() error {
	err := r.struck(1)
	if r.fault.outwaits {
		<-time.After(1500 * time.Millisecond)
		r.proxy.Release()
	}
	return err
}

// count waits until a statement about the row's wallet counts so many.
func (r *row) count(statement string, want int) error {
	return r.until(fmt.Sprintf("%d × %s", want, statement), func() (bool, error) {
		var n int
		err := r.ask(statement, []any{&n}, r.permit.Wallet)
		return n == want, err
	})
}

// takeover strikes a successor that finds what a dead process left: a call that ran, and a receipt without
// its signature.
func (r *row) takeover() error {
	if err := r.call(); err != nil {
		return err
	}
	running, _, err := r.grant()
	if err != nil {
		return err
	}
	if err := r.station.close(); err != nil {
		return err
	}
	for _, statement := range []string{
		"delete from signatures where wallet_id = $1",
		"update instances set heartbeat_at = now() - interval '1 hour' where id in (select instance_id from holds where wallet_id = $1)",
	} {
		if err := r.ask(statement, nil, r.permit.Wallet); err != nil {
			return err
		}
	}
	r.arm()
	if err := r.station.open(r.lane, &r.fault); err != nil {
		return err
	}
	r.direct = r.through
	if err := r.ends(); err != nil {
		return err
	}
	if err := r.count("select count(*) from receipts where wallet_id = $1", 2); err != nil {
		return err
	}
	// What a process that died left unsigned is signed by its successor. A signature that could not be stored
	// is made again when it is asked for, and so is one for which nobody waited.
	if r.statement != "insert_signatures" {
		const signed = "select count(*) from signatures s join receipts r on r.id = s.receipt_id where s.wallet_id = $1 and r.outcome = 'succeeded'"
		if err := r.count(signed, 1); err != nil {
			return err
		}
	}
	_, err = r.interrupted(running)
	return err
}

// keepLease strikes one heartbeat: a process that lives must not lose its lease by it.
func (r *row) keepLease() error {
	key, g, err := r.grant()
	if err != nil {
		return err
	}
	r.arm()
	if err := r.ends(); err != nil {
		return err
	}
	const text = `select i.heartbeat_at, i.heartbeat_at < now() - i.lease_ms * interval '1 millisecond'
		from instances i join holds h on h.instance_id = i.id where h.wallet_id = $1`
	var before, at time.Time
	var over bool
	if err := r.ask(text, []any{&before, &over}, r.permit.Wallet); err != nil {
		return err
	}
	err = r.until("the next heartbeat", func() (bool, error) {
		err := r.ask(text, []any{&at, &over}, r.permit.Wallet)
		if over {
			err = errors.Join(err, errors.New("one heartbeat was lost, and the lease with it"))
		}
		return at.After(before), err
	})
	if err != nil {
		return err
	}
	return r.settle(key, succeeded(g))
}

// loseLease strikes the look at a grant that may have been taken over: unless it is sure, nothing is sent.
func (r *row) loseLease() error {
	key, g, err := r.grant()
	if err != nil {
		return err
	}
	for range 50 {
		r.proxy.Arm(chaosproxy.Strike{Match: textOf("heartbeat"), Fault: chaosproxy.NotExecuted})
	}
	if _, err := r.interrupted(key); err != nil {
		return err
	}
	r.proxy.Disarm()
	r.before = r.proxy.Struck()
	r.arm()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if r.through.Holds(ctx, g) {
		return errors.New("the grant is said to hold, and was taken over")
	}
	if r.statement == "heartbeat" {
		if err := r.struck(1); err != nil {
			return err
		}
	}
	return nil
}

// pruned strikes the removal of a response body: it goes in the end, and its key is used for ever.
func (r *row) pruned() error {
	skip := 0
	if r.statement == "begin" || r.statement == "commit" {
		skip = 2 // those of T1 and T2
	}
	r.proxy.Arm(r.strikeAt(r.statement, skip))
	if err := r.call(); err != nil {
		return err
	}
	if err := r.ends(); err != nil {
		return err
	}
	if err := r.count("select count(*) from responses where wallet_id = $1", 0); err != nil {
		return err
	}
	for key, e := range r.journal {
		op, err := r.finished(key)
		if err != nil {
			return err
		}
		if !op.Pruned() || (e.answered != nil && op.Receipt != e.answered.Receipt) {
			return fmt.Errorf("afterwards: %+v", op)
		}
	}
	return nil
}

// decisionLane strikes an operator's transaction.
func decisionLane() lane {
	return lane{
		name: "decision",
		statements: []string{
			"request", "tx begin isolation level read committed", "clock", "claimed_operation", "claim_lock", "lock_chains", "disputed",
			"reconcile_write", "give_back", "free_refs", "insert_audit", "insert_request", "tx commit",
		},
		run: (*row).decision,
	}
}

// decision strikes a reconciliation, which its caller then repeats with the same key.
func (r *row) decision() error {
	key, g, err := r.grant()
	if err != nil {
		return err
	}
	if err := r.settle(key, unanswered(g)); err != nil {
		return err
	}
	r.arm()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var told string
	answered := make(chan error, 1)
	go func() {
		var err error
		told, err = r.decide(ctx, g.ID)
		answered <- err
	}()
	select {
	case err = <-answered:
	case <-time.After(soon):
		return fmt.Errorf("the operator is not answered within %v", soon)
	}
	if err != nil && !notSaid(err) {
		return fmt.Errorf("the operator was told: %w", err)
	}
	acknowledged := err == nil
	r.proxy.Release()
	var receipt string
	err = r.until("the decision is repeated", func() (bool, error) {
		var err error
		ctx, cancel := context.WithTimeout(context.Background(), soon/4)
		defer cancel()
		receipt, err = r.decide(ctx, g.ID)
		if notSaid(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if acknowledged && told != receipt {
		return errors.New("the decision that was acknowledged is not the one that is stored")
	}
	op, err := r.finished(key)
	if err != nil {
		return err
	}
	if op.Outcome != receipts.Reconciled || op.Resolution != receipts.NotDelivered || op.Receipt != receipt || op.Charged != 0 {
		return fmt.Errorf("decided, and stored as %+v", op)
	}
	r.entry(key).answered, r.entry(key).ending = op, nil
	return r.count("select count(*) from receipts where wallet_id = $1", 2)
}

func (r *row) decide(ctx context.Context, operation string) (receipt string, err error) {
	act := ledger.Act{Actor: "reconciler", Key: operation, SHA256: sha256.Sum256([]byte(operation))}
	answer, err := r.through.Administer(ctx, act, func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
		d, err := a.Reconcile(ctx, ledger.Reconciliation{Operation: operation, Resolution: receipts.NotDelivered, Evidence: "the bank says so"})
		if err != nil {
			return ledger.Answer{}, err
		}
		return ledger.Answer{Status: 200, Body: []byte(d.Receipt)}, nil
	})
	return string(answer.Body), err
}
