package ledger

import (
	"context"
	"errors"
	"fmt"

	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Deposit is the first answer to a deposit's reference. Balance and Available are those of that moment.
type Deposit struct {
	Transfer           string
	Wallet, Reference  string
	Credits            int64
	Balance, Available int64
}

// Deposit pays credits into a wallet, once for each reference: the same reference again answers the first
// answer, with other credits it is a conflict.
func (a *Admin) Deposit(ctx context.Context, wallet, reference string, credits int64) (*Deposit, error) {
	if err := a.lockWallet(ctx, wallet); err != nil {
		return nil, err
	}
	first, err := a.deposited(ctx, wallet, reference)
	if err == nil && first.Credits != credits {
		return nil, fmt.Errorf("%w: reference %q was used for a deposit of %d credits", ErrConflict, reference, first.Credits)
	}
	if !errors.Is(err, ErrNotFound) {
		return first, err
	}
	tag, err := a.tx.Exec(ctx, sql.Query("add_deposit"), wallet, credits)
	if err != nil {
		return nil, coldError("deposit", err)
	}
	if tag.RowsAffected() == 0 {
		return nil, fmt.Errorf("%w: the wallet's deposits would pass 2^53-1 credits", ErrConflict)
	}
	return a.recordDeposit(ctx, wallet, reference, credits)
}

func (a *Admin) deposited(ctx context.Context, wallet, reference string) (*Deposit, error) {
	var id uuid.UUID
	d := &Deposit{Wallet: wallet, Reference: reference}
	err := a.tx.QueryRow(ctx, sql.Query("deposit"), wallet, reference).Scan(&id, &d.Credits, &d.Balance, &d.Available)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	d.Transfer = prefixTransfer + id.String()
	return d, coldError("read deposit", err)
}

func (a *Admin) recordDeposit(ctx context.Context, wallet, reference string, credits int64) (*Deposit, error) {
	id, err := newID()
	if err != nil {
		return nil, err
	}
	if _, err := a.tx.Exec(ctx, sql.Query("insert_deposit_transfer"), wallet, pgUUID(id), credits, a.nowMS, reference); err != nil {
		return nil, coldError("write transfer", err)
	}
	w, err := a.wallet(ctx, wallet)
	if err != nil {
		return nil, err
	}
	d := &Deposit{
		Transfer: prefixTransfer + id.String(), Wallet: wallet, Reference: reference,
		Credits: credits, Balance: w.Balance, Available: w.Available,
	}
	if _, err := a.tx.Exec(ctx, sql.Query("insert_deposit"), wallet, reference, pgUUID(id), credits, d.Balance, d.Available); err != nil {
		return nil, coldError("keep deposit", err)
	}
	detail := map[string]any{"credits": credits, "reference": reference, "transfer_id": d.Transfer}
	return d, a.event(ctx, "wallet.deposited", wallet, detail)
}
