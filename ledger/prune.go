package ledger

import (
	"context"
	"fmt"
	"time"

	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// prunePage bounds the rows of one step, so that pruning holds nothing up.
	prunePage = 500
	// pruneRest is the pause between two steps while there is more, pruneIdle when there is not.
	pruneRest = 50 * time.Millisecond
	pruneIdle = time.Minute
)

// prune removes response bodies that are older than the retention, in small steps, until the ledger closes.
// Keys, hashes and receipts stay for ever, so that no repeat of a key ever runs again.
func (l *Ledger) prune() {
	if l.retention == 0 {
		return
	}
	wait := min(pruneIdle, max(l.retention/10, pruneRest))
	for rest := wait; l.pause(rest); {
		more, err := l.pruneOnce()
		if err != nil {
			l.log.Warn("pruning will be tried again", "error", err)
		}
		rest = wait
		if more {
			rest = pruneRest
		}
	}
}

// prunable is one page of receipts whose bodies may go.
type prunable struct {
	wallets []string
	ids     []pgtype.UUID
	mark    uuid.UUID
	seen    int
}

// pruneOnce removes one page and moves the mark; it reports whether there is more.
func (l *Ledger) pruneOnce() (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.attempt)
	defer cancel()
	p, err := l.prunePage(ctx)
	if err != nil || p.seen == 0 {
		return false, err
	}
	b := &batch{}
	b.exec("begin")
	b.exec("prune_responses", p.wallets, p.ids)
	b.exec("prune_mark", pgUUID(p.mark))
	b.exec("commit")
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("prune responses: %w", err)
	}
	defer conn.Release()
	if err := conn.SendBatch(ctx, &b.Batch).Close(); err != nil {
		l.rollback(ctx, conn)
		return false, fmt.Errorf("prune responses: %w", err)
	}
	return p.seen == prunePage, nil
}

// prunePage reads the next receipts in the order of their ids. One that ended later than its neighbours holds
// the mark until its own time has come.
func (l *Ledger) prunePage(ctx context.Context) (*prunable, error) {
	before := l.now().Add(-l.retention)
	rows, err := l.pool.Query(ctx, sql.Query("prune_page"), pgUUID(floorID(before)), prunePage)
	if err != nil {
		return nil, fmt.Errorf("find responses to prune: %w", err)
	}
	p := &prunable{}
	held := false
	var wallet string
	var id pgtype.UUID
	var endedMS int64
	var certain bool
	_, err = pgx.ForEachRow(rows, []any{&wallet, &id, &endedMS, &certain}, func() error {
		if held = held || endedMS >= before.UnixMilli(); held {
			return nil
		}
		p.seen++
		p.mark = id.Bytes
		if certain {
			p.wallets, p.ids = append(p.wallets, wallet), append(p.ids, id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find responses to prune: %w", err)
	}
	return p, nil
}
