package operator

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// These operations are named by the contract and not in this version. They are refused in words, so that
// nobody takes silence for an answer.

func (a *api) reconcileOperation(c echo.Context) error {
	return a.notYet(c, "Reconciliation is not in this version. The operation's outcome and charge stay as they are.")
}

func (a *api) listApprovals(c echo.Context) error {
	return a.notYet(c, "Approvals are not in this version. No permit that asks for one can be issued.")
}

func (a *api) resolveApproval(c echo.Context) error {
	return a.notYet(c, "Approvals are not in this version. There is none to resolve.")
}

type problemWire struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Reason string `json:"reason"`
	Retry  string `json:"retry"`
}

func (a *api) notYet(c echo.Context, detail string) error {
	body, err := encode(problemWire{
		Type: "about:blank", Title: http.StatusText(http.StatusNotImplemented), Status: http.StatusNotImplemented,
		Detail: detail, Reason: "invalid_request", Retry: "never",
	})
	if err != nil {
		return a.problem(c, err)
	}
	return c.Blob(http.StatusNotImplemented, "application/problem+json", body)
}
