package ledger

import (
	"context"
	"fmt"
	"sync"
	"time"

	"counterfoil/sql"
)

// tenure is what this process knows of its own lease. A term ends when the lease ran out before it was renewed: what
// was granted in an earlier term may have been taken over.
type tenure struct {
	mu      sync.Mutex
	renewed time.Time // when the last heartbeat that was written was sent
	steady  time.Time // since when each heartbeat got through
	failing bool
	term    int64
}

// renew records a heartbeat that was sent at one moment, and heard to be written at another. It was written between
// the two: the lease counts from the first, and has run out before, unless the second lies within the one before.
func (t *tenure) renew(sent, heard time.Time, lease time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	late := heard.Sub(t.renewed) > lease
	if late {
		t.term++
	}
	if late || t.failing {
		t.steady, t.failing = sent, false
	}
	t.renewed = sent
}

// miss records a heartbeat that is not known to be written.
func (t *tenure) miss() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failing = true
}

// watched is how long this process has been able to hear from others. Who was cut off from the store itself
// cannot tell a dead gateway from an absent store.
func (t *tenure) watched(at time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failing {
		return 0
	}
	return at.Sub(t.steady)
}

// now is the current term, and whether the lease holds.
func (t *tenure) now(at time.Time, lease time.Duration) (term int64, holds bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.term, at.Sub(t.renewed) <= lease
}

// beat renews this instance's lease until the ledger closes. A third of the lease passes between two
// heartbeats; one that fails is tried again soon, so that a single one that stalls costs nobody his operation.
func (l *Ledger) beat() {
	wait := l.lease / 3
	for l.pause(wait) {
		wait = l.lease / 3
		if err := l.heartbeat(); err != nil {
			l.log.Warn("heartbeat not written", "error", err)
			wait = min(l.lease/10, time.Second)
		}
	}
}

func (l *Ledger) heartbeat() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.lease/6)
	defer cancel()
	sent := l.now()
	if err := l.confirm(ctx, l.pool); err != nil {
		l.tenure.miss()
		return fmt.Errorf("renew the lease: %w", err)
	}
	l.tenure.renew(sent, l.now(), l.lease)
	return nil
}

// Holds reports whether a grant may be sent now. A process that was away for longer than its lease (stopped,
// or cut off from the store) may have lost the operation to a takeover, and a person may have decided since that the tool
// did not act: then the answer is false, and nothing may be sent. Within the lease it costs nothing.
func (l *Ledger) Holds(ctx context.Context, g *Granted) bool {
	if term, holds := l.tenure.now(l.now(), l.lease); holds && term == g.term {
		return true
	}
	// Renewed first, so that no takeover begins after the look.
	if err := l.heartbeat(); err != nil {
		l.log.Warn("a call is not sent: the lease cannot be renewed", "operation", g.ID, "error", err)
		return false
	}
	var held bool
	err := l.pool.QueryRow(ctx, sql.Query("held"), g.record.wallet, pgUUID(g.record.id), pgUUID(g.record.instance), g.record.round).Scan(&held)
	if err != nil {
		l.log.Warn("a call is not sent: nobody knows whose it is", "operation", g.ID, "error", err)
		return false
	}
	return held
}
