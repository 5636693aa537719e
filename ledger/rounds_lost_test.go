package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/ledger"
	"counterfoil/receipts"
)

// A COMMIT whose answer is lost is unknown, of a round too: it is asked once, and gone on with once.
func TestALostAnswerToARound(t *testing.T) {
	t.Parallel()
	faults := map[string]chaosproxy.Fault{"not executed": chaosproxy.NotExecuted, "executed, answer lost": chaosproxy.AnswerLost}
	// The commits in order: T1, the round, the continuation, T2.
	commits := map[string]int{"of the round": 1, "of the continuation": 2, "of its settlement": 3}
	for step, skip := range commits {
		for name, fault := range faults {
			t.Run(step+", "+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				p := b.payer(t)
				proxy, url := chaosproxy.Start(t, b.url)
				through := b.open(t, func(o *ledger.Options) { o.URL = url })
				proxy.Arm(chaosproxy.Strike{Match: "\ncommit", Skip: skip, Fault: fault})
				ctx := context.Background()
				op := ask(t, through, asked(granted(t, through, claim(t, p, "k", 1)), "s"))
				found, err := b.ledger.Lookup(ctx, "wal_ops", "k")
				if err != nil || found.Round == nil || found.Round.Number != 1 || !found.Round.Expires.Equal(op.Round.Expires) {
					t.Fatalf("the stored round is not what was answered: %+v, %v", found, err)
				}
				g, err := through.Continue(ctx, op)
				if err != nil {
					t.Fatalf("continue: %v", err)
				}
				if r := b.fsck(t); r.Open != 1 || r.Awaiting != 0 {
					t.Fatalf("gone on with, and stored as %+v", r)
				}
				if _, err := b.ledger.Continue(ctx, op); !errors.Is(err, ledger.ErrRoundTaken) {
					t.Errorf("another one goes on too: %v", err)
				}
				if op, err := through.Settle(ctx, succeeded(g)); err != nil || op.Outcome != receipts.Succeeded {
					t.Fatalf("settle: %+v, %v", op, err)
				}
				if proxy.Struck() != 1 {
					t.Fatalf("%d cuts, want 1: the fault did not strike", proxy.Struck())
				}
				if r := b.fsck(t); r.Receipts != 1 || r.Open != 0 {
					t.Errorf("afterwards: %+v", r)
				}
			})
		}
	}
}

// A round may be seen, and answered, before who asked knows that its COMMIT was made. The try that follows then must not
// park the operation again, whoever goes on with it: the same gateway, or another one.
func TestARoundAnsweredBeforeItsCommitIsKnown(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		t.Run(map[bool]string{true: "by the same gateway", false: "by another gateway"}[same], func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.payer(t)
			proxy, url := chaosproxy.Start(t, b.url)
			through := b.open(t, func(o *ledger.Options) { o.URL, o.Lease, o.Attempt, o.Patience = url, time.Hour, soon, 2*soon })
			goer := b.ledger
			if same {
				goer = through
			}
			ctx := context.Background()
			first := granted(t, through, claim(t, p, "k", 1))
			proxy.Arm(chaosproxy.Strike{Match: "\ncommit", Fault: chaosproxy.AnswerHeld})
			asking := begin(func() (*ledger.Operation, error) { return through.Ask(ctx, asked(first, "s")) })
			var op *ledger.Operation
			await(t, "the round is there", func() bool {
				var err error
				op, err = b.ledger.Lookup(ctx, "wal_ops", "k")
				return err == nil && op.Round != nil
			})
			g, err := goer.Continue(ctx, op)
			if err != nil {
				t.Fatalf("continue: %v", err)
			}
			proxy.Down()
			proxy.Up()
			if op, err := end(t, asking); !errors.Is(err, ledger.ErrSuperseded) {
				t.Errorf("who asked was told %+v, %v, want ErrSuperseded", op, err)
			}
			if r := b.fsck(t); r.Open != 1 || r.Awaiting != 0 {
				t.Errorf("it goes on, and is stored as %+v", r)
			}
			if _, err := goer.Settle(ctx, succeeded(g)); err != nil {
				t.Errorf("settle: %v", err)
			}
			if record, err := b.ledger.Operation(ctx, op.ID, nil); err != nil || record.Late != nil {
				t.Errorf("a round that was answered is no late result: %+v, %v", record.Late, err)
			}
			b.fsck(t)
		})
	}
}

// That a tool had only asked is evidence where a takeover has settled its operation meanwhile.
func TestAQuestionThatComesTooLateIsEvidence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.payer(t)
	proxy, url := chaosproxy.Start(t, b.url)
	through := b.open(t, func(o *ledger.Options) { o.URL, o.Lease, o.Patience = url, time.Hour, 2*soon })
	ctx := context.Background()
	g := granted(t, through, claim(t, p, "k", 1))
	proxy.Down()
	asking := begin(func() (*ledger.Operation, error) { return through.Ask(ctx, asked(g, "s")) })
	b.takeOver(t)
	proxy.Up()
	if op, err := end(t, asking); !errors.Is(err, ledger.ErrSuperseded) {
		t.Fatalf("asking too late: %+v, %v, want ErrSuperseded", op, err)
	}
	record, err := b.ledger.Operation(ctx, g.ID, nil)
	if err != nil || record.Outcome != receipts.Uncertain || record.Late == nil {
		t.Fatalf("afterwards: %+v, %v", record, err)
	}
	if l := record.Late; l.Outcome != receipts.Failed || l.Reason != receipts.ReasonInputAbandoned || string(l.Result) != question {
		t.Errorf("the evidence: %+v", l)
	}
	b.fsck(t)
}

// Who goes on and leaves: before a batch took his wish the round stays, and so it does where nothing was committed;
// what was committed is settled as never sent.
func TestAContinuationWhoseCallerLeaves(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault chaosproxy.Fault
		cut   bool
		open  bool
	}{
		"committed":            {fault: chaosproxy.AnswerHeld},
		"not committed":        {fault: chaosproxy.Held, cut: true, open: true},
		"committed in the end": {fault: chaosproxy.Held},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.payer(t)
			proxy, url := chaosproxy.Start(t, b.url)
			through := b.open(t, func(o *ledger.Options) { o.URL, o.Lease, o.Attempt, o.Patience = url, time.Hour, soon, time.Second })
			ctx := context.Background()
			op := ask(t, b.ledger, asked(granted(t, b.ledger, claimRef(t, p, "k", "INV-1")), "s"))
			left, leave := context.WithCancel(ctx)
			leave()
			if _, err := through.Continue(left, op); !errors.Is(err, context.Canceled) {
				t.Fatalf("a caller that left before: %v", err)
			}
			proxy.Arm(chaosproxy.Strike{Match: textOf("continue_write"), Fault: tt.fault})
			if g, err := through.Continue(ctx, op); !errors.Is(err, ledger.ErrUnknown) {
				t.Fatalf("a caller whose patience ended: %+v, %v, want ErrUnknown", g, err)
			}
			if tt.cut {
				proxy.Down()
				proxy.Up()
			}
			proxy.Release()
			if tt.open {
				g, err := b.ledger.Continue(ctx, op)
				if err != nil {
					t.Fatalf("nothing was committed, and the round is gone: %v", err)
				}
				if _, err := b.ledger.Settle(ctx, succeeded(g)); err != nil {
					t.Error(err)
				}
				b.fsck(t)
				return
			}
			await(t, "the settlement", func() bool {
				op, err := b.ledger.Lookup(ctx, "wal_ops", "k")
				return err == nil && op.Outcome == receipts.Failed && op.Reason == receipts.ReasonNotDispatched && op.Charged == 0
			})
			if free, err := b.ledger.Claim(ctx, claimRef(t, p, "k2", "INV-1")); err != nil || free.Granted == nil {
				t.Errorf("the reference of what was never sent: %+v, %v", free, err)
			}
			if _, err := b.ledger.Continue(ctx, op); !errors.Is(err, ledger.ErrRoundTaken) {
				t.Errorf("going on with it: %v, want ErrRoundTaken", err)
			}
			b.fsck(t)
		})
	}
}
