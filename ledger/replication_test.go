//go:build unix && !aix && !solaris

package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/internal/testdb"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"

	"github.com/jackc/pgx/v5"
)

// replicated is a bundle on two servers, the second of which has whatever the first one acknowledges.
type replicated struct {
	*bundle
	pair    *testdb.Pair
	payer   *permits.Permit // of wal_ops and agt_a
	primary *pgx.Conn
	standby *pgx.Conn
}

func setupReplicated(t *testing.T) *replicated {
	t.Helper()
	pair := testdb.NewPair(t)
	// No heartbeat may be among the waits that a test cancels, and no caller may leave before it is told to.
	log := &logged{}
	r := &replicated{pair: pair, bundle: setupOn(t, pair.URL(), func(o *ledger.Options) { o.Lease, o.Patience = time.Hour, 2*away }, log.keep)}
	if !log.has("the database has standbys, but no commit waits for one") {
		t.Error("a ledger that a fail-over would cut short does not say so")
	}
	r.wallet(t, "wal_ops", 1000)
	r.agent(t, "agt_a", "wal_ops")
	r.payer = r.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{Credits: 500})
	pair.Synchronise(t)
	r.primary, r.standby = dial(t, pair.Primary.URL()), dial(t, pair.Standby.URL())
	// A ledger could not close while its commits wait. This runs before it is closed.
	t.Cleanup(func() { pair.Rejoin(t) })
	return r
}

// logged is what a ledger has logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logged) keep(o *ledger.Options) { o.Logger = slog.New(slog.NewTextHandler(l, nil)) }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// How an operator ends a wait for the standby. The row is on the primary then, and visible there.
const (
	cancelled  = "pg_cancel_backend"    // COMMIT succeeds, with a warning
	terminated = "pg_terminate_backend" // the connection ends
)

// interrupts ends the ledger's waits for the standby one after another. What the ledger reads back after one
// is no more replicated than before, so it may not answer: it must come to wait again.
func interrupts[T any](t *testing.T, r *replicated, how string, answers <-chan answered[T]) {
	t.Helper()
	const waits = 3
	seen := map[string]bool{}
	for n := range waits {
		pid := r.nextWait(t, seen, func() {
			select {
			case a := <-answers:
				t.Fatalf("answered after %d ended waits, while the standby has nothing of it: %T, %v", n, a.value, a.err)
			default:
			}
		})
		if n < waits-1 {
			r.interrupt(t, how, pid)
		}
	}
}

// nextWait is the backend of the next transaction of the ledger that waits for the standby.
func (r *replicated) nextWait(t *testing.T, seen map[string]bool, meanwhile func()) (pid int) {
	t.Helper()
	const waiting = "select pid, pid || ' ' || xact_start from pg_stat_activity where application_name = 'counterfoil' and wait_event = 'SyncRep'"
	await(t, "a commit that waits for the standby", func() bool {
		meanwhile()
		rows, err := r.primary.Query(t.Context(), waiting)
		if err != nil {
			t.Fatal(err)
		}
		var backend int
		var transaction string
		_, err = pgx.ForEachRow(rows, []any{&backend, &transaction}, func() error {
			if pid == 0 && !seen[transaction] {
				seen[transaction], pid = true, backend
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return pid != 0
	})
	return pid
}

func (r *replicated) interrupt(t *testing.T, how string, pid int) {
	t.Helper()
	if _, err := r.primary.Exec(t.Context(), "select "+how+"($1)", pid); err != nil {
		t.Fatal(err)
	}
}

// whileAway runs an act while the standby is away, and cancels its waits until it answers.
func whileAway[T any](t *testing.T, r *replicated, act func() (T, error)) error {
	t.Helper()
	answers := begin(act)
	var err error
	await(t, "an answer", func() bool {
		select {
		case a := <-answers:
			err = a.err
			return true
		default:
		}
		_, fault := r.primary.Exec(t.Context(), "select pg_cancel_backend(pid) from pg_stat_activity where application_name = 'counterfoil' and wait_event = 'SyncRep'")
		if fault != nil {
			t.Fatal(fault)
		}
		return false
	})
	return err
}

// onStandby waits until the standby shows a row; what is acknowledged is on its disk, and shown soon after.
func (r *replicated) onStandby(t *testing.T, what, query string, args ...any) {
	t.Helper()
	await(t, what+" on the standby", func() bool {
		n := 0
		if err := r.standby.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
}

func (r *replicated) granted(t *testing.T, key string) *ledger.Granted {
	t.Helper()
	c, err := r.ledger.Claim(context.Background(), claim(t, r.payer, key, 1))
	if err != nil || c.Granted == nil {
		t.Fatalf("claim %s: %+v, %v", key, c, err)
	}
	return c.Granted
}

// Design 5: what a fail-over could lose is not acknowledged. A wait for the standby that somebody ends leaves
// the row on the primary alone, and PostgreSQL says success with a warning: that is unknown, as if the answer
// to the COMMIT were lost, and so is whatever is read back before the standby has it.
func TestAnEndedWaitForTheStandbyIsUnknown(t *testing.T) {
	t.Parallel()
	r := setupReplicated(t)
	t.Run("opening", r.opensOnlyWhereCommitsWait)
	for name, check := range map[string]func(*testing.T, *replicated){
		"claim, cancelled":            func(t *testing.T, r *replicated) { claimWaits(t, r, cancelled) },
		"claim, terminated":           func(t *testing.T, r *replicated) { claimWaits(t, r, terminated) },
		"denial":                      denialWaits,
		"settlement, cancelled":       func(t *testing.T, r *replicated) { settlementWaits(t, r, cancelled) },
		"settlement, terminated":      func(t *testing.T, r *replicated) { settlementWaits(t, r, terminated) },
		"deposit, cancelled":          func(t *testing.T, r *replicated) { depositWaits(t, r, cancelled) },
		"deposit, terminated":         func(t *testing.T, r *replicated) { depositWaits(t, r, terminated) },
		"claim whose caller has left": claimIsGivenUp,
		"replay":                      replayWaits,
		"round, cancelled":            func(t *testing.T, r *replicated) { roundWaits(t, r, cancelled) },
		"round, terminated":           func(t *testing.T, r *replicated) { roundWaits(t, r, terminated) },
	} {
		t.Run(name, func(t *testing.T) { // one after another: they share the standby that goes away
			t.Cleanup(func() { r.pair.Rejoin(t) })
			check(t, r)
			r.fsck(t)
		})
	}
}

// A ledger says nothing where commits wait for a standby, and does not open where it alone would not.
func (r *replicated) opensOnlyWhereCommitsWait(t *testing.T) {
	log := &logged{}
	r.open(t, log.keep)
	if log.has("standbys") {
		t.Error("a ledger whose commits are replicated complains")
	}
	l, err := ledger.Open(t.Context(), r.options(func(o *ledger.Options) { o.URL += "&synchronous_commit=local" }))
	if err == nil {
		_ = l.Close(context.Background())
		t.Error("a ledger opened whose commits would wait for no standby")
	}
}

func claimWaits(t *testing.T, r *replicated, how string) {
	r.pair.Cut(t)
	answers := begin(func() (ledger.Claimed, error) {
		return r.ledger.Claim(context.Background(), claim(t, r.payer, how, 1))
	})
	interrupts(t, r, how, answers)
	r.pair.Rejoin(t)
	c, err := end(t, answers)
	if err != nil || c.Granted == nil {
		t.Fatalf("with the standby back: %+v, %v", c, err)
	}
	id := strings.TrimPrefix(c.Granted.ID, "op_")
	r.onStandby(t, "the operation", "select count(*) from operations where id = $1", id)
	if _, err := r.ledger.Settle(context.Background(), succeeded(c.Granted)); err != nil {
		t.Error(err)
	}
}

func denialWaits(t *testing.T, r *replicated) {
	poor := r.grant(t, "prm_poor", "wal_ops", "agt_a", permits.Limits{Credits: 1})
	r.pair.Cut(t)
	answers := begin(func() (ledger.Claimed, error) {
		return r.ledger.Claim(context.Background(), claim(t, poor, "denied", 1))
	})
	interrupts(t, r, cancelled, answers)
	r.pair.Rejoin(t)
	c, err := end(t, answers)
	if err != nil || c.Denied == nil {
		t.Fatalf("with the standby back: %+v, %v", c, err)
	}
	r.receiptOnStandby(t, c.Denied)
}

func (r *replicated) receiptOnStandby(t *testing.T, op *ledger.Operation) {
	t.Helper()
	signed := op.Receipt[:strings.LastIndex(op.Receipt, ".")]
	r.onStandby(t, "the receipt", "select count(*) from receipts where signing_input = $1", signed)
}

func settlementWaits(t *testing.T, r *replicated, how string) {
	g := r.granted(t, "settled, "+how)
	r.pair.Cut(t)
	answers := begin(func() (*ledger.Operation, error) { return r.ledger.Settle(context.Background(), succeeded(g)) })
	interrupts(t, r, how, answers)
	r.pair.Rejoin(t)
	op, err := end(t, answers)
	if err != nil || op.Outcome != receipts.Succeeded {
		t.Fatalf("with the standby back: %+v, %v", op, err)
	}
	r.receiptOnStandby(t, op)
}

// The administrator is told that nothing is known. The same request again answers the first answer, but not
// before the standby has it, and so does another one with the same reference.
func depositWaits(t *testing.T, r *replicated, how string) {
	deposit := func(key string) (ledger.Answer, error) {
		act := ledger.Act{Actor: "operator", Key: key + how, SHA256: [32]byte{1}}
		return r.ledger.Administer(context.Background(), act, func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
			d, err := a.Deposit(ctx, "wal_ops", how, 70)
			if err != nil {
				return ledger.Answer{}, err
			}
			return ledger.Answer{Status: 201, Body: fmt.Appendf(nil, "%+v", *d)}, nil
		})
	}
	r.pair.Cut(t)
	answers := begin(func() (ledger.Answer, error) { return deposit("first") })
	r.interrupt(t, how, r.nextWait(t, map[string]bool{}, func() {}))
	if a, err := end(t, answers); !errors.Is(err, ledger.ErrUnknown) {
		t.Fatalf("a deposit that is on the primary alone: status %d, %v, want ErrUnknown", a.Status, err)
	}
	if err := whileAway(t, r, func() (ledger.Answer, error) { return deposit("first") }); !errors.Is(err, ledger.ErrUnknown) {
		t.Errorf("a repeat of it: %v, want ErrUnknown", err)
	}
	r.pair.Rejoin(t)
	first, err := deposit("first")
	if err != nil || !first.Replayed || first.Status != 201 {
		t.Fatalf("the same request again: %+v, %v", first, err)
	}
	second, err := deposit("second")
	if err != nil || string(second.Body) != string(first.Body) {
		t.Errorf("the same reference again: %s, %v, was %s", second.Body, err, first.Body)
	}
	r.onStandby(t, "the deposit", "select count(*) from deposits where reference = $1", how)
}

// Whoever waits for the store is told in time that nothing is known. What turns out granted then is settled
// as never sent, since nobody will send it.
func claimIsGivenUp(t *testing.T, r *replicated) {
	hasty := r.open(t, func(o *ledger.Options) { o.Lease, o.Patience = time.Hour, time.Second })
	t.Cleanup(func() { r.pair.Rejoin(t) })
	r.pair.Cut(t)
	seen := map[string]bool{}
	answers := begin(func() (ledger.Claimed, error) {
		return hasty.Claim(context.Background(), claim(t, r.payer, "left", 1))
	})
	r.interrupt(t, cancelled, r.nextWait(t, seen, func() {}))
	if c, err := end(t, answers); !errors.Is(err, ledger.ErrUnknown) {
		t.Fatalf("a claim that is on the primary alone: %+v, %v, want ErrUnknown", c, err)
	}
	r.pair.Rejoin(t)
	await(t, "the settlement", func() bool {
		op, err := hasty.Lookup(context.Background(), "wal_ops", "left")
		if err != nil || op == nil {
			t.Fatalf("look-up: %+v, %v", op, err)
		}
		return op.Finished() && op.Outcome == receipts.Failed && op.Reason == receipts.ReasonNotDispatched
	})
}

// A repeat is an acknowledgement too, and so is a receipt that is handed out: what is on the primary alone is
// not shown.
func replayWaits(t *testing.T, r *replicated) {
	g := r.granted(t, "replayed")
	r.pair.Cut(t)
	settled := begin(func() (*ledger.Operation, error) { return r.ledger.Settle(context.Background(), succeeded(g)) })
	interrupts(t, r, cancelled, settled)
	ctx, receipt := context.Background(), "rcp_"+strings.TrimPrefix(g.ID, "op_")
	for what, read := range map[string]func() (any, error){
		"replay":   func() (any, error) { return r.ledger.Lookup(ctx, "wal_ops", "replayed") },
		"evidence": func() (any, error) { return r.ledger.Evidence(ctx, receipt, nil) },
		"list":     func() (any, error) { return r.ledger.Receipts(ctx, ledger.ReceiptFilter{}, "", 500) },
		"export": func() (any, error) {
			return nil, r.ledger.Export(ctx, ledger.ReceiptFilter{}, func(*ledger.Evidence) error { return nil })
		},
	} {
		if err := whileAway(t, r, read); !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("%s of what the standby has not got: %v, want ErrUnavailable", what, err)
		}
	}
	r.pair.Rejoin(t)
	op, err := end(t, settled)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.ledger.Lookup(context.Background(), "wal_ops", "replayed")
	if err != nil || again.Receipt != op.Receipt {
		t.Errorf("the replay with the standby back: %+v, %v", again, err)
	}
}

// A round is shown, and gone on with, only once the standby has it.
func roundWaits(t *testing.T, r *replicated, how string) {
	key := "asked, " + how
	g := r.granted(t, key)
	ctx, id := context.Background(), strings.TrimPrefix(g.ID, "op_")
	r.pair.Cut(t)
	asking := begin(func() (*ledger.Operation, error) { return r.ledger.Ask(ctx, asked(g, how)) })
	interrupts(t, r, how, asking)
	for what, read := range map[string]func() (any, error){
		"key": func() (any, error) { return r.ledger.Lookup(ctx, "wal_ops", key) },
		"state": func() (any, error) {
			return r.ledger.RoundByState(ctx, "wal_ops", stateOf(how), only(claim(t, r.payer, key, 1)))
		},
	} {
		if err := whileAway(t, r, read); !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("a round that the standby has not got, by its %s: %v, want ErrUnavailable", what, err)
		}
	}
	r.pair.Rejoin(t)
	op, err := end(t, asking)
	if err != nil || op.Round == nil {
		t.Fatalf("with the standby back: %+v, %v", op, err)
	}
	r.onStandby(t, "the round", "select count(*) from rounds where operation_id = $1", id)
	r.pair.Cut(t)
	going := begin(func() (*ledger.Granted, error) { return r.ledger.Continue(ctx, op) })
	interrupts(t, r, how, going)
	r.pair.Rejoin(t)
	again, err := end(t, going)
	if err != nil {
		t.Fatalf("going on, with the standby back: %v", err)
	}
	r.onStandby(t, "that it goes on", "select count(*) from holds where operation_id = $1 and round = 1 and instance_id <> '00000000-0000-0000-0000-000000000000'", id)
	if _, err := r.ledger.Settle(ctx, succeeded(again)); err != nil {
		t.Error(err)
	}
}
