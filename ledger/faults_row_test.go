package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

// soon bounds what must come after a fault, on a machine that is busy with other things.
const soon = time.Minute

// opening is what each row's wallet has in the beginning, in credits.
const opening = 1000

// row is one line of the fault table: a fault that befalls a statement of a lane, and what the test knows
// outside of the database.
type row struct {
	t         *testing.T
	lane      *lane
	statement string
	fault     fault
	permit    *permits.Permit
	*station

	verdict chan error
	before  int   // strikes at its proxy before this row
	price   int64 // of the next claim; 0: as usual
	names   int

	mu      sync.Mutex
	journal map[string]*entry // by key
}

// entry is what the outside saw of one key.
type entry struct {
	dispatched []string          // operations that were sent to the tool
	answered   *ledger.Operation // the outcome as it was acknowledged
	nothing    bool              // the caller was told that nothing is stored
	unsure     bool              // a caller was told that this is not known
	ending     *ledger.Settlement
}

func (r *row) name() string { return r.statement + ", " + r.fault.name }

// strikeAt is a strike of the row's fault at a statement.
func (r *row) strikeAt(statement string, skip int) chaosproxy.Strike {
	return chaosproxy.Strike{Match: textOf(statement), Skip: skip, Fault: r.fault.fault, Hold: r.fault.hold}
}

// textOf is a text that only this statement has.
func textOf(statement string) string {
	if text, ok := strings.CutPrefix(statement, "tx "); ok {
		return text + "\x00" // as the driver sends it: without a comment, and ended
	}
	return sql.Query(statement)
}

// arm lets the row's fault strike the next statement of its name.
func (r *row) arm() { r.proxy.Arm(r.strikeAt(r.statement, 0)) }

// struck waits until so many faults have struck. A caller may have left before.
func (r *row) struck(n int) error {
	return r.until(fmt.Sprintf("fault %d strikes", n), func() (bool, error) { return r.proxy.Struck()-r.before >= n, nil })
}

func (r *row) entry(key string) *entry {
	if r.journal == nil {
		r.journal = make(map[string]*entry)
	}
	if r.journal[key] == nil {
		r.journal[key] = &entry{}
	}
	return r.journal[key]
}

// claim asks for a key and writes down what became of it. What is granted is dispatched at once: the journal
// has it, and the claim must be durable by then.
func (r *row) claim(key string) (*ledger.Granted, error) {
	ctx := context.Background()
	c := claim(r.t, r.permit, key, 1)
	c.Ref = "invoice of " + key
	if r.price > 0 {
		c.Price = r.price
	}
	got, err := r.through.Claim(ctx, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(key)
	e.unsure = e.unsure || errors.Is(err, ledger.ErrUnknown)
	e.nothing = errors.Is(err, ledger.ErrUnavailable) && e.answered == nil && len(e.dispatched) == 0 && !e.unsure
	if err != nil {
		return nil, err
	}
	switch {
	case got.Denied != nil:
		e.answered = got.Denied
	case got.Existing != nil && got.Existing.Finished():
		return nil, r.same(key, got.Existing)
	case got.Granted != nil:
		e.dispatched = append(e.dispatched, got.Granted.ID)
		stored, err := r.direct.Lookup(ctx, r.permit.Wallet, key)
		if err != nil {
			return nil, err
		}
		if stored == nil || stored.ID != got.Granted.ID {
			return nil, fmt.Errorf("%s is dispatched, and its claim is not durable: %+v", key, stored)
		}
	}
	return got.Granted, nil
}

// settle writes an outcome and what was acknowledged.
func (r *row) settle(key string, s *ledger.Settlement) error {
	op, err := r.through.Settle(context.Background(), s)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(key)
	e.ending = s
	if err != nil {
		return err
	}
	e.answered = op
	return nil
}

// grant brings a call to the point where its outcome is to be written. A slow machine may need more than one
// try where the row's patience is short.
func (r *row) grant() (string, *ledger.Granted, error) {
	deadline := time.Now().Add(soon)
	for {
		r.names++
		key := fmt.Sprintf("key-%d", r.names)
		g, err := r.claim(key)
		if g != nil || (err != nil && !notSaid(err)) || time.Now().After(deadline) {
			return key, g, err
		}
	}
}

// notSaid reports the errors of a store that did not answer in time.
func notSaid(err error) bool {
	return errors.Is(err, ledger.ErrUnknown) || errors.Is(err, ledger.ErrUnavailable)
}

// call is one whole call.
func (r *row) call() error {
	key, g, err := r.grant()
	if err != nil {
		return err
	}
	err = r.settle(key, succeeded(g))
	if notSaid(err) || r.lane.short && errors.Is(err, ledger.ErrSuperseded) {
		return nil // the oracle judges what is stored
	}
	return err
}

// same compares an operation with what was acknowledged under its key.
func (r *row) same(key string, op *ledger.Operation) error {
	a := r.entry(key).answered
	if a == nil {
		return nil
	}
	body := bytes.Equal(op.Result, a.Result) || r.lane.prunes && op.Pruned()
	if op.ID != a.ID || op.Receipt != a.Receipt || op.Outcome != a.Outcome || op.Charged != a.Charged || !body {
		return fmt.Errorf("%s was answered %s %s, and is stored as %s %s", key, a.ID, a.Outcome, op.ID, op.Outcome)
	}
	return nil
}

// finished reads the operation of a key once it has its outcome.
func (r *row) finished(key string) (*ledger.Operation, error) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	op, err := r.direct.Wait(ctx, r.permit.Wallet, key)
	if err != nil || op == nil || op.Finished() {
		return op, err
	}
	return nil, fmt.Errorf("%s still runs %v later", key, soon)
}

// caller is what the caller of the struck call must have been told.
func (r *row) caller(err error) error {
	if r.lane.answers != nil {
		return r.lane.answers(r, err)
	}
	switch {
	case err == nil && !r.fault.outwaits:
		return nil
	case err == nil && r.statement == "heartbeat":
		return nil // whoever signs what others left unsigned writes one too: theirs may have been struck
	case errors.Is(err, ledger.ErrUnknown) && r.fault.outwaits:
		return nil
	case notSaid(err) && r.fault.brief:
		return nil // all tries were too slow, which a busy machine can do; the oracle sees what is stored
	case err == nil:
		return errors.New("the caller was answered before the fault was over")
	}
	return fmt.Errorf("the caller was told: %w", err)
}

// check is the oracle of every row: what the outside saw against what is stored.
func (r *row) check() error {
	r.proxy.Release()
	// The lanes work in order: once the next call is through, all that the fault left behind has been tried.
	if err := r.call(); err != nil {
		return fmt.Errorf("the next call: %w", err)
	}
	for key, e := range r.journal {
		if err := r.checkKey(key, e); err != nil {
			return err
		}
	}
	return r.checkMoney()
}

func (r *row) checkKey(key string, e *entry) error {
	op, err := r.finished(key)
	switch {
	case err != nil:
		return err
	case len(e.dispatched) > 1:
		return fmt.Errorf("%s was dispatched %d times", key, len(e.dispatched))
	case op == nil && (len(e.dispatched) > 0 || e.answered != nil):
		return fmt.Errorf("%s is lost", key)
	case op != nil && e.nothing:
		return fmt.Errorf("%s is stored as %s, and its caller was told that nothing is", key, op.Outcome)
	case op != nil && len(e.dispatched) == 0 && e.answered == nil && op.Reason != receipts.ReasonNotDispatched && op.Outcome != receipts.Denied:
		return fmt.Errorf("%s was never sent, and is stored as %s %s", key, op.Outcome, op.Reason)
	}
	if op == nil {
		return nil
	}
	if len(e.dispatched) > 0 && e.dispatched[0] != op.ID {
		return fmt.Errorf("%s was dispatched as %s and is stored as %s", key, e.dispatched[0], op.ID)
	}
	if e.ending != nil && e.answered == nil && op.Reason != receipts.ReasonGatewayInterrupted && op.Outcome != e.ending.Outcome {
		return fmt.Errorf("%s ended as %s and is stored as %s", key, e.ending.Outcome, op.Outcome)
	}
	if _, _, err := receipts.Parse(op.Receipt, r.bundle.keys); err != nil {
		return fmt.Errorf("the receipt of %s: %w", key, err)
	}
	if err := r.same(key, op); err != nil {
		return err
	}
	return r.repeat(key)
}

// repeat asks for a used key again: it must never be granted.
func (r *row) repeat(key string) error {
	for deadline := time.Now().Add(soon); ; {
		g, err := r.claim(key)
		switch {
		case g != nil:
			return fmt.Errorf("a repeat of %s was granted", key)
		case err == nil:
			return nil
		case !notSaid(err) || time.Now().After(deadline):
			return fmt.Errorf("a repeat of %s: %w", key, err)
		}
	}
}

// checkMoney compares the wallet with the stored outcomes: nothing was taken twice, nothing is still held.
func (r *row) checkMoney() error {
	ctx := context.Background()
	want := int64(opening)
	for key := range r.journal {
		op, err := r.direct.Lookup(ctx, r.permit.Wallet, key)
		if err != nil {
			return err
		}
		if op != nil {
			want -= op.Charged
		}
	}
	w, err := r.direct.Wallet(ctx, r.permit.Wallet)
	if err != nil {
		return err
	}
	if w.Balance != want || w.Held != 0 {
		return fmt.Errorf("the wallet has %d credits, %d held; want %d and none", w.Balance, w.Held, want)
	}
	return nil
}

// ask runs a statement of the test's own.
func (r *row) ask(statement string, into []any, args ...any) error {
	ctx := context.Background()
	if r.clerk == nil {
		conn, err := pgx.Connect(ctx, r.bundle.url)
		if err != nil {
			return err
		}
		r.clerk = conn
	}
	if into == nil {
		_, err := r.clerk.Exec(ctx, statement, args...)
		return err
	}
	return r.clerk.QueryRow(ctx, statement, args...).Scan(into...)
}

// until asks again and again until the answer is yes.
func (r *row) until(what string, holds func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(soon)
	for {
		yes, err := holds()
		if yes || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("%s: not within %v", what, soon)
		}
	}
}
