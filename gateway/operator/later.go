package operator

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/receipts"
)

// These operations are named by the contract and not in this version. They are refused in words, so that
// nobody takes silence for an answer.

func (*api) listApprovals(c echo.Context) error {
	return notYet(c, "Approvals are not in this version. No permit that asks for one can be issued.")
}

func (*api) resolveApproval(c echo.Context) error {
	return notYet(c, "Approvals are not in this version. There is none to resolve.")
}

func notYet(c echo.Context, detail string) error {
	return gateway.WriteProblemStatus(c, receipts.ReasonInvalidRequest, http.StatusNotImplemented, detail)
}
