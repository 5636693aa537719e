package ledger

import (
	"context"
	"fmt"
	"slices"

	"counterfoil/receipts"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// markGone finds out who has the holds that these jobs did not find: nobody any more, after an earlier try of ours
// whose COMMIT went unanswered, or after a takeover, in which case what we bring is kept as a late result; or somebody
// else, who goes on with the operation.
func (l *Ledger) markGone(ctx context.Context, conn *pgxpool.Conn, b *batch, gone []*settleJob) error {
	if len(gone) == 0 {
		return nil
	}
	ids, wallets := make([]pgtype.UUID, len(gone)), make([]string, len(gone))
	for i, j := range gone {
		ids[i], wallets[i] = pgUUID(j.record.id), j.record.wallet
	}
	stored := make(map[uuid.UUID]string)
	err := more(ctx, conn, func(b *batch) {
		b.query("settled", func(row pgx.CollectableRow) error {
			var id pgtype.UUID
			var input string
			err := row.Scan(&id, &input)
			stored[id.Bytes] = input
			return err
		}, ids, wallets)
	})
	if err != nil {
		return err
	}
	var late []*record
	ours := false
	for _, j := range gone {
		input, ok := stored[j.record.id]
		switch {
		case !ok:
			return fmt.Errorf("operation %s has neither hold nor receipt: %w", j.record.id, ErrNotFound)
		case slices.Contains(j.tried, input):
			j.record.signingInput = input
			ours = true
			continue
		case input != "":
			late = append(late, &j.record)
		}
		j.superseded = true
	}
	if ours {
		// Where a standby confirms commits, what is seen of the earlier try need not have reached it.
		l.barrier(b)
	}
	keepLate(b, late)
	return nil
}

// keepLate keeps what tools have answered to operations that have their outcome already.
func keepLate(b *batch, records []*record) {
	var wallets, outcomes, reasons []string
	var ids []pgtype.UUID
	var results [][]byte
	var scrubbed []bool
	for _, r := range records {
		if r.reason == receipts.ReasonGatewayInterrupted || r.instance == uuid.Nil {
			continue // a recovery, or the end of an abandoned round, brings nothing of an upstream
		}
		wallets, ids = append(wallets, r.wallet), append(ids, pgUUID(r.id))
		outcomes, reasons = append(outcomes, string(r.outcome)), append(reasons, string(r.reason))
		results, scrubbed = append(results, r.result), append(scrubbed, r.scrubbed)
	}
	if len(wallets) > 0 {
		b.exec("insert_late_results", wallets, ids, outcomes, reasons, results, scrubbed)
	}
}
