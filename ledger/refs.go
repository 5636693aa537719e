package ledger

import (
	"context"
	"errors"

	"counterfoil/permits"
	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// An operation reference names the effect itself, such as the invoice that is paid. While an operation with a
// reference runs, is uncertain or was delivered, no other operation of the same wallet and tool may have it,
// whatever its key. It is free again when the operation turns out not to have been delivered.

type refKey struct{ wallet, tool, reference string }

func (r *record) refKey() refKey { return refKey{r.wallet, r.tool, r.reference} }

func (s *claimState) scanRef(row pgx.CollectableRow) error {
	var k refKey
	var id pgtype.UUID
	err := row.Scan(&k.wallet, &k.tool, &k.reference, &id)
	s.refs[k] = id.Bytes
	return err
}

// refusal is the permit's verdict, or that the reference is in use. Only who may make the call learns of the
// reference; nobody is asked to approve a duplicate.
func (s *claimState) refusal(r *record, no *permits.Denial) *permits.Denial {
	if no != nil && no.Reason != receipts.ReasonApprovalRequired {
		return no
	}
	first, used := s.refs[r.refKey()]
	if r.reference == "" || !used {
		return no
	}
	r.duplicateOf = prefixOperation + first.String()
	return &permits.Denial{Reason: receipts.ReasonOperationRefReused}
}

// undelivered are the finished records that free their reference.
func undelivered(records []*record) []*record {
	var list []*record
	for _, r := range records {
		if r.reference != "" && r.callsKept == 0 {
			list = append(list, r)
		}
	}
	return list
}

func refColumns(records []*record) []any {
	n := len(records)
	wallets, tools, references := make([]string, n), make([]string, n), make([]string, n)
	ids := make([]pgtype.UUID, n)
	for i, r := range records {
		wallets[i], tools[i], references[i], ids[i] = r.wallet, r.tool, r.reference, pgUUID(r.id)
	}
	return []any{wallets, tools, references, ids}
}

// referencesOf is the column of the claims' references, null where there is none.
func referencesOf(jobs []*claimJob) []pgtype.Text {
	list := make([]pgtype.Text, len(jobs))
	for i, j := range jobs {
		list[i] = pgtype.Text{String: j.record.reference, Valid: j.record.reference != ""}
	}
	return list
}

// ReleaseReference lets the reference that an operation holds be used again, and says so in the audit. The
// operation and its key stay what they are. Errors: ErrNotFound; ErrConflict where it holds none.
func (a *Admin) ReleaseReference(ctx context.Context, operation, why string) (*OperationRecord, error) {
	o, err := a.claimed(ctx, operation)
	if err != nil {
		return nil, err
	}
	if _, err := a.tx.Exec(ctx, sql.Query("lock_wallets"), []string{o.wallet}); err != nil {
		return nil, coldError("lock the wallet", err)
	}
	var reference string
	err = a.tx.QueryRow(ctx, sql.Query("release_ref"), o.wallet, o.tool, o.reference, pgUUID(o.id)).Scan(&reference)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrConflict
	}
	if err != nil {
		return nil, coldError("release the reference", err)
	}
	err = a.event(ctx, "operation.reference_released", operation, map[string]any{
		"wallet_id": o.wallet, "tool": o.tool, "reference": reference, "why": why,
	})
	if err != nil {
		return nil, err
	}
	return a.operation(ctx, o.id)
}
