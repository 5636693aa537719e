package operator

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"counterfoil/ledger"
)

type walletBody struct {
	ID   *string `json:"id" validate:"omitnil,id"`
	Name string  `json:"name" validate:"required,max=200,plain"`
}

// noteBody says why; it goes to the audit trail.
type noteBody struct {
	Note *string `json:"note" validate:"omitnil,max=1000,plain"`
}

type walletWire struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Balance   int64     `json:"balance"`
	Held      int64     `json:"held"`
	Available int64     `json:"available"`
	Frozen    bool      `json:"frozen"`
	CreatedAt time.Time `json:"created_at"`
}

func walletOf(w *ledger.Wallet) walletWire {
	return walletWire{
		ID: w.ID, Name: w.Name, Balance: w.Balance, Held: w.Held, Available: w.Available, Frozen: w.Frozen, CreatedAt: w.CreatedAt.UTC(),
	}
}

type depositBody struct {
	Credits   *int64 `json:"credits" validate:"required,min=1,max=9007199254740991"`
	Reference string `json:"reference" validate:"required,max=200,plain"`
}

type depositWire struct {
	Transfer  string `json:"transfer_id"`
	Wallet    string `json:"wallet_id"`
	Credits   int64  `json:"credits"`
	Reference string `json:"reference"`
	Balance   int64  `json:"balance"`
	Available int64  `json:"available"`
}

type transferWire struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	Debit     string    `json:"debit"`
	Credit    string    `json:"credit"`
	Credits   int64     `json:"credits"`
	Operation string    `json:"operation_id,omitempty"`
	Reference string    `json:"reference,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

func (a *api) createWallet(c echo.Context) error {
	var b walletBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	return a.administer(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		wallet, err := admin.CreateWallet(ctx, text(b.ID), b.Name)
		if err != nil {
			return ledger.Answer{}, err
		}
		return answer(http.StatusCreated, walletOf(wallet))
	})
}

func (a *api) listWallets(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return a.problem(c, err)
	}
	p, err := pageOf(q)
	if err != nil {
		return a.problem(c, err)
	}
	wallets, err := a.ledger.Wallets(c.Request().Context(), p.after, p.ask())
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, listOf(p, wallets, func(w *ledger.Wallet) string { return w.ID }, walletOf))
}

func (a *api) getWallet(c echo.Context) error {
	wallet, err := a.ledger.Wallet(c.Request().Context(), c.Param("id"))
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, walletOf(wallet))
}

func (a *api) createDeposit(c echo.Context) error {
	var b depositBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	return a.administer(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		d, err := admin.Deposit(ctx, c.Param("id"), b.Reference, *b.Credits)
		if err != nil {
			return ledger.Answer{}, err
		}
		return answer(http.StatusCreated, depositWire{
			Transfer: d.Transfer, Wallet: d.Wallet, Credits: d.Credits, Reference: d.Reference, Balance: d.Balance, Available: d.Available,
		})
	})
}

func (a *api) freezeWallet(c echo.Context) error   { return a.setFrozen(c, true) }
func (a *api) unfreezeWallet(c echo.Context) error { return a.setFrozen(c, false) }

func (a *api) setFrozen(c echo.Context, frozen bool) error {
	var b noteBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	return a.administer(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		wallet, err := admin.SetFrozen(ctx, c.Param("id"), frozen, text(b.Note))
		if err != nil {
			return ledger.Answer{}, err
		}
		return answer(http.StatusOK, walletOf(wallet))
	})
}

func (a *api) listTransfers(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return a.problem(c, err)
	}
	p, err := pageOf(q)
	if err != nil {
		return a.problem(c, err)
	}
	transfers, err := a.ledger.Transfers(c.Request().Context(), c.Param("id"), p.after, p.ask())
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, listOf(p, transfers, func(t ledger.Transfer) string { return t.ID }, func(t ledger.Transfer) transferWire {
		return transferWire{
			ID: t.ID, Kind: t.Kind, Debit: t.Debit, Credit: t.Credit, Credits: t.Amount,
			Operation: t.Operation, Reference: t.Reference, CreatedAt: t.CreatedAt,
		}
	}))
}
