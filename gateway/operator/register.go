// Package operator is the administration of a gateway over HTTP: what changes something changes it together
// with its audit event, and a repeat of an idempotency key changes nothing.
//
// One handler is one operation of openapi.yaml and has its operationId.
package operator

import (
	"context"
	"net/http"

	"github.com/go-playground/validator/v10"
	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/ledger"
)

type api struct {
	g      *gateway.Gateway
	ledger *ledger.Ledger
	check  *validator.Validate
}

// route is one operation: its handler and whose credential it takes.
type route struct {
	method, path string
	handler      echo.HandlerFunc
	may          echo.MiddlewareFunc
}

// Register adds the routes of the operator API.
func Register(g *gateway.Gateway) {
	a := &api{g: g, ledger: g.Ledger(), check: newValidator()}
	for _, r := range a.routes() {
		before := []echo.MiddlewareFunc{r.may, a.plausible}
		if r.path != exportPath {
			before = append(before, a.limitWait)
		}
		g.Echo().Add(r.method, r.path, r.handler, before...)
	}
}

// exportPath is the one route whose answer has no bound of its own.
const exportPath = "/v1/receipts/export"

// waits is how many times the wait for one commit a whole request may take: it asks the store for several things.
const waits = 3

// limitWait gives up on a store that does not answer. What it was asked for has not happened, or is not known.
func (a *api) limitWait(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		ctx, cancel := context.WithTimeout(r.Context(), waits*a.g.Config().SettleDeadline)
		defer cancel()
		c.SetRequest(r.WithContext(ctx))
		return next(c)
	}
}

// plausible answers a path whose parameters cannot be ids before the store is asked.
func (a *api) plausible(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		for i, name := range c.ParamNames() {
			pattern := idPattern
			if name == "hash" {
				pattern = hashPattern
			}
			if !pattern.MatchString(c.ParamValues()[i]) {
				return a.problem(c, ledger.ErrNotFound)
			}
		}
		return next(c)
	}
}

func (a *api) routes() []route {
	// Administration is the operator's alone. An agent may read the records of its own wallets.
	operator, reader := a.g.RequireOperator(), a.g.RequireReader()
	// The queue tells a reconciler what there is to decide, so that its token needs to open nothing else.
	queue := a.g.Require(gateway.RoleOperator, gateway.RoleReconciler)
	return []route{
		{http.MethodPost, "/v1/agents", a.createAgent, operator},
		{http.MethodGet, "/v1/agents", a.listAgents, operator},
		{http.MethodGet, "/v1/agents/:id", a.getAgent, operator},
		{http.MethodPatch, "/v1/agents/:id", a.updateAgent, operator},
		{http.MethodPost, "/v1/agents/:id/keys", a.createAgentKey, operator},
		{http.MethodDelete, "/v1/agents/:id/keys/:key_id", a.deleteAgentKey, operator},

		{http.MethodPost, "/v1/wallets", a.createWallet, operator},
		{http.MethodGet, "/v1/wallets", a.listWallets, operator},
		{http.MethodGet, "/v1/wallets/:id", a.getWallet, operator},
		{http.MethodPost, "/v1/wallets/:id/deposits", a.createDeposit, operator},
		{http.MethodPost, "/v1/wallets/:id/freeze", a.freezeWallet, operator},
		{http.MethodPost, "/v1/wallets/:id/unfreeze", a.unfreezeWallet, operator},
		{http.MethodGet, "/v1/wallets/:id/transfers", a.listTransfers, operator},
		{http.MethodGet, "/v1/wallets/:id/statement", a.getStatement, operator},

		{http.MethodPost, "/v1/permits", a.createPermit, operator},
		{http.MethodGet, "/v1/permits", a.listPermits, operator},
		{http.MethodPost, "/v1/permits/import", a.importPermit, operator},
		{http.MethodGet, "/v1/permits/:id", a.getPermit, operator},
		{http.MethodPost, "/v1/permits/:id/revoke", a.revokePermit, operator},

		{http.MethodGet, "/v1/issuers", a.listIssuers, operator},
		{http.MethodPost, "/v1/issuers", a.registerIssuer, operator},
		{http.MethodGet, "/v1/tools", a.listTools, operator},
		{http.MethodGet, "/v1/tools/definitions/:hash", a.getToolDefinition, operator},

		{http.MethodPost, "/v1/operation-keys", a.loadOperationKeys, operator},
		{http.MethodGet, "/v1/operation-keys", a.countOperationKeys, operator},
		{http.MethodGet, "/v1/operations", a.listOperations, reader},
		{http.MethodGet, "/v1/operations/:id", a.getOperation, reader},
		{http.MethodPost, "/v1/operations/:id/reconcile", a.reconcileOperation, a.g.RequireReconciler()},
		{http.MethodPost, "/v1/operations/:id/release-reference", a.releaseOperationReference, operator},
		{http.MethodGet, "/v1/reconciliations", a.listReconciliations, queue},
		{http.MethodGet, "/v1/approvals", a.listApprovals, a.g.RequireApprover()},
		{http.MethodPost, "/v1/approvals/:id/resolve", a.resolveApproval, a.g.RequireApprover()},

		{http.MethodGet, "/v1/receipts", a.listReceipts, reader},
		{http.MethodGet, exportPath, a.exportReceipts, reader},
		{http.MethodGet, "/v1/receipts/:id", a.getReceipt, reader},
		{http.MethodGet, "/v1/receipts/:id/bundle", a.getReceiptBundle, reader},
		{http.MethodGet, "/v1/audit", a.listAudit, operator},
	}
}
