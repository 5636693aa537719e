package operator

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"counterfoil/ledger"
)

// poolBody is keys by which tools will know calls. They are secrets: no answer, log or event shows one.
type poolBody struct {
	Keys []string `json:"keys" validate:"required,min=1,max=10000,unique,dive,poolkey"`
}

// poolWire counts the pool. InUse says whether this gateway takes keys from it.
type poolWire struct {
	Free  int64 `json:"free"`
	Used  int64 `json:"used"`
	InUse bool  `json:"in_use"`
}

type loadedWire struct {
	Loaded int64 `json:"loaded"`
	Known  int64 `json:"known"`
	poolWire
}

func (a *api) poolOf(n *ledger.OperationKeys) poolWire {
	return poolWire{Free: n.Free, Used: n.Used, InUse: a.ledger.UsesOperationKeyPool()}
}

func (a *api) loadOperationKeys(c echo.Context) error {
	var b poolBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	return a.administer(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		n, err := admin.LoadOperationKeys(ctx, b.Keys)
		if err != nil {
			return ledger.Answer{}, err
		}
		return answer(http.StatusOK, loadedWire{Loaded: n.Loaded, Known: n.Known, poolWire: a.poolOf(n)})
	})
}

func (a *api) countOperationKeys(c echo.Context) error {
	n, err := a.ledger.OperationKeys(c.Request().Context())
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, a.poolOf(n))
}
