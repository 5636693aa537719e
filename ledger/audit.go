package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Event is one entry of the audit trail: an administrative act, or the outcome of a call. Claims is set for
// an outcome, which is read from its receipt; Detail for an act.
type Event struct {
	ID      string
	At      time.Time
	Actor   string
	Action  string
	Subject string
	Detail  map[string]any
	Claims  *receipts.Claims
}

// event appends an audit event to the transaction. detail never holds a secret.
func (a *Admin) event(ctx context.Context, action, subject string, detail map[string]any) error {
	if detail == nil {
		detail = map[string]any{}
	}
	text, err := json.Marshal(detail)
	if err != nil {
		return fmt.Errorf("write audit event %s: %w", action, err)
	}
	id, err := newID()
	if err != nil {
		return err
	}
	_, err = a.tx.Exec(ctx, sql.Query("insert_audit"), pgUUID(id), a.actor, action, subject, string(text))
	return coldError("append audit event", err)
}

// Events lists the audit trail after an event, in the order of its ids. An id is made when an act or a call
// begins and shows up when it commits, so whoever follows the trail reads the last minutes again.
func (l *Ledger) Events(ctx context.Context, after string, limit int) ([]Event, error) {
	from, err := afterID(prefixEvent, after)
	if err != nil {
		return nil, err
	}
	rows, err := l.pool.Query(ctx, sql.Query("list_audit"), pgUUID(from), limit)
	if err != nil {
		return nil, coldError("list audit", err)
	}
	events, err := pgx.CollectRows(rows, scanEvent)
	return events, coldError("list audit", err)
}

func scanEvent(row pgx.CollectableRow) (Event, error) {
	var id uuid.UUID
	var at *time.Time
	var actor, action, subject, detail, input *string
	if err := row.Scan(&id, &at, &actor, &action, &subject, &detail, &input); err != nil {
		return Event{}, err
	}
	e := Event{ID: prefixEvent + id.String()}
	if input != nil {
		claims, err := claimsOf(*input)
		if err != nil {
			return Event{}, err
		}
		e.Claims, e.At, e.Actor = claims, time.UnixMilli(claims.EndedMS).UTC(), claims.Agent
		e.Action, e.Subject = "call."+string(claims.Outcome), claims.Operation
		return e, nil
	}
	e.At, e.Actor, e.Action, e.Subject = at.UTC(), *actor, *action, *subject
	return e, json.Unmarshal([]byte(*detail), &e.Detail)
}

// afterID reads the cursor of a list that is ordered by time-ordered ids; "" is the beginning.
func afterID(prefix, after string) (uuid.UUID, error) {
	if after == "" {
		return uuid.Nil, nil
	}
	id, ok := parseID(prefix, after)
	if !ok {
		return uuid.Nil, fmt.Errorf("%w: after is no %s… id", ErrReference, prefix)
	}
	return id, nil
}
