package ledger

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// holders are the columns that name holds: of which operation, whose, and in which round.
type holders struct {
	wallets        []string
	ids, instances []pgtype.UUID
	rounds         []int64
}

func holdersOf(records []*record) holders {
	var h holders
	for _, r := range records {
		h.wallets, h.ids = append(h.wallets, r.wallet), append(h.ids, pgUUID(r.id))
		h.instances, h.rounds = append(h.instances, pgUUID(r.instance)), append(h.rounds, r.round)
	}
	return h
}

func (h holders) columns() []any { return []any{h.wallets, h.ids, h.instances, h.rounds} }

// numbered leaves out whose they are.
func (h holders) numbered() []any { return []any{h.wallets, h.ids, h.rounds} }

// parked are the records whose tool waits for an answer.
func parked(records []*record) []*record {
	var list []*record
	for _, r := range records {
		if r.instance == uuid.Nil {
			list = append(list, r)
		}
	}
	return list
}

// scanHeld reads an operation with its hold: all that T2 needs.
func scanHeld(row pgx.CollectableRow, more ...any) (*record, error) {
	var id, instance pgtype.UUID
	var toolHash, requestHash []byte
	var currency pgtype.Text
	var amount pgtype.Int8
	r := &record{}
	columns := []any{
		&r.wallet, &id, &r.permit, &r.tool, &r.authorized, &r.counted, &r.key, &r.agent, &r.keySource,
		&toolHash, &requestHash, &r.arguments, &currency, &amount, &r.startedMS, &r.permitSHA256,
		&r.reference, &instance, &r.round,
	}
	if err := row.Scan(append(columns, more...)...); err != nil {
		return nil, fmt.Errorf("read a held operation: %w", err)
	}
	r.id, r.instance = uuid.UUID(id.Bytes), uuid.UUID(instance.Bytes)
	r.toolSHA256 = fmt.Sprintf("%x", toolHash)
	r.requestHash = [32]byte(requestHash)
	r.value = valueOf(currency, amount)
	return r, nil
}

func scanGranted(row pgx.CollectableRow) (*Granted, error) {
	r, err := scanHeld(row)
	if err != nil {
		return nil, err
	}
	return grantOf(r), nil
}

func grantOf(r *record) *Granted { return &Granted{ID: prefixOperation + r.id.String(), record: *r} }
