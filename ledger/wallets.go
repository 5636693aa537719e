package ledger

import (
	"context"
	"time"

	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const prefixWallet = "wal_"

// Wallet is an account of credits. Balance is what is neither spent nor paid out; Available is what of it is
// not held for running calls.
type Wallet struct {
	ID, Name                 string
	Frozen                   bool
	Balance, Held, Available int64
	CreatedAt                time.Time
}

// Transfer is one double entry: Amount went from Debit to Credit. A charge has its operation's UUID.
type Transfer struct {
	ID            string
	Kind          string
	Debit, Credit string
	Amount        int64
	CreatedAt     time.Time
	Reference     string // of a deposit
	Operation     string // of a charge or a reversal
}

// Wallet returns one wallet.
func (l *Ledger) Wallet(ctx context.Context, id string) (*Wallet, error) {
	rows, err := l.pool.Query(ctx, sql.Query("wallet"), id)
	if err != nil {
		return nil, coldError("read wallet", err)
	}
	wallet, err := pgx.CollectExactlyOneRow(rows, scanWallet)
	return wallet, coldError("read wallet", err)
}

// Wallets lists wallets after an id, in the order of their ids.
func (l *Ledger) Wallets(ctx context.Context, after string, limit int) ([]*Wallet, error) {
	rows, err := l.pool.Query(ctx, sql.Query("list_wallets"), after, limit)
	if err != nil {
		return nil, coldError("list wallets", err)
	}
	wallets, err := pgx.CollectRows(rows, scanWallet)
	return wallets, coldError("list wallets", err)
}

func scanWallet(row pgx.CollectableRow) (*Wallet, error) {
	var w Wallet
	var deposited, committed int64
	if err := row.Scan(&w.ID, &w.Name, &w.Frozen, &deposited, &committed, &w.CreatedAt, &w.Held); err != nil {
		return nil, err
	}
	w.Available = deposited - committed
	w.Balance = w.Available + w.Held
	return &w, nil
}

// Transfers lists a wallet's transfers after an id, in the order of their ids.
func (l *Ledger) Transfers(ctx context.Context, wallet, after string, limit int) ([]Transfer, error) {
	from, err := afterID(prefixTransfer, after)
	if err != nil {
		return nil, err
	}
	rows, err := l.pool.Query(ctx, sql.Query("list_transfers"), wallet, pgUUID(from), limit)
	if err != nil {
		return nil, coldError("list transfers", err)
	}
	transfers, err := pgx.CollectRows(rows, scanTransfer)
	if err == nil && len(transfers) == 0 {
		_, err = l.Wallet(ctx, wallet)
		return nil, err
	}
	return transfers, coldError("list transfers", err)
}

func scanTransfer(row pgx.CollectableRow) (Transfer, error) {
	var t Transfer
	var id uuid.UUID
	var operation pgtype.UUID
	var createdMS int64
	if err := row.Scan(&id, &t.Kind, &t.Debit, &t.Credit, &t.Amount, &createdMS, &t.Reference, &operation); err != nil {
		return Transfer{}, err
	}
	t.ID, t.CreatedAt = prefixTransfer+id.String(), time.UnixMilli(createdMS).UTC()
	if operation.Valid {
		t.Operation = prefixOperation + uuid.UUID(operation.Bytes).String()
	}
	return t, nil
}

// CreateWallet makes an empty wallet and starts its receipt chain; an empty id is given one.
func (a *Admin) CreateWallet(ctx context.Context, id, name string) (*Wallet, error) {
	if id == "" {
		made, err := newID()
		if err != nil {
			return nil, err
		}
		id = prefixWallet + made.String()
	}
	if _, err := a.tx.Exec(ctx, sql.Query("insert_wallet"), id, name); err != nil {
		return nil, coldError("create wallet "+id, err)
	}
	if _, err := a.tx.Exec(ctx, sql.Query("insert_chain"), id); err != nil {
		return nil, coldError("start the chain of "+id, err)
	}
	if err := a.event(ctx, "wallet.created", id, map[string]any{"name": name}); err != nil {
		return nil, err
	}
	return a.wallet(ctx, id)
}

// SetFrozen freezes or unfreezes a wallet. A frozen wallet admits no new call; calls that run are settled,
// and deposits are taken. Doing it again changes nothing and is no event.
func (a *Admin) SetFrozen(ctx context.Context, id string, frozen bool, note string) (*Wallet, error) {
	if err := a.lockWallet(ctx, id); err != nil {
		return nil, err
	}
	tag, err := a.tx.Exec(ctx, sql.Query("set_frozen"), id, frozen)
	if err != nil {
		return nil, coldError("freeze wallet", err)
	}
	if tag.RowsAffected() > 0 {
		action := "wallet.unfrozen"
		if frozen {
			action = "wallet.frozen"
		}
		if err := a.event(ctx, action, id, noted(note)); err != nil {
			return nil, err
		}
	}
	return a.wallet(ctx, id)
}

func noted(note string) map[string]any {
	if note == "" {
		return nil
	}
	return map[string]any{"note": note}
}

// lockWallet takes the wallet's row before anything of it is read, so that changes of it are serial.
func (a *Admin) lockWallet(ctx context.Context, id string) error {
	tag, err := a.tx.Exec(ctx, sql.Query("lock_wallets"), []string{id})
	if err != nil {
		return coldError("lock wallet", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrNotFound
	}
	return nil
}

func (a *Admin) wallet(ctx context.Context, id string) (*Wallet, error) {
	rows, err := a.tx.Query(ctx, sql.Query("wallet"), id)
	if err != nil {
		return nil, coldError("read wallet", err)
	}
	wallet, err := pgx.CollectExactlyOneRow(rows, scanWallet)
	return wallet, coldError("read wallet", err)
}
