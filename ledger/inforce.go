package ledger

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"counterfoil/permits"
	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

// maxInForce bounds the permits of one agent that are looked through for what it may do.
const maxInForce = 1000

// PermitsInForce returns the permits that an agent can use now: signed by whom it must, begun, not ended and not
// revoked, by the database's clock. id names one of them, "" means all; of more than a thousand those that end
// last. What they have used up does not count.
func (l *Ledger) PermitsInForce(ctx context.Context, agent, id string, t PermitTrust) ([]*permits.Permit, error) {
	rows, err := l.pool.Query(ctx, sql.Query("permits_in_force"), agent, nullable(id), maxInForce)
	if err != nil {
		return nil, coldError("list permits in force", err)
	}
	type stored struct {
		id  string
		row permitRow
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (stored, error) {
		var s stored
		var sum []byte
		err := row.Scan(&s.id, &s.row.token, &s.row.wallet, &s.row.agent, &s.row.issuer, &sum)
		s.row.sha256 = hex.EncodeToString(sum)
		return s, err
	})
	if err != nil {
		return nil, coldError("list permits in force", err)
	}
	var list []*permits.Permit
	for _, s := range found {
		permit, err := l.permits.get(ctx, l.now(), s.id, func(ctx context.Context) (*permits.Permit, time.Duration, error) {
			return l.trusted(ctx, s.id, s.row, t)
		})
		if errors.Is(err, permits.ErrInvalid) {
			continue // its key has been revoked since
		}
		if err != nil {
			return nil, err
		}
		list = append(list, permit)
	}
	return list, nil
}
