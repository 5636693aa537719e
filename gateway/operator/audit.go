package operator

import (
	"time"

	"github.com/labstack/echo/v4"

	"counterfoil/ledger"
)

type eventWire struct {
	ID      string         `json:"id"`
	At      time.Time      `json:"at"`
	Actor   string         `json:"actor"`
	Action  string         `json:"action"`
	Subject string         `json:"subject"`
	Detail  map[string]any `json:"detail"`
}

// eventOf shows an act as it was written, and an outcome as its receipt says it.
func eventOf(e ledger.Event) eventWire {
	w := eventWire{ID: e.ID, At: e.At, Actor: e.Actor, Action: e.Action, Subject: e.Subject, Detail: e.Detail}
	if r := e.Claims; r != nil {
		w.Detail = map[string]any{
			"outcome": string(r.Outcome), "receipt_id": r.ID, "wallet_id": r.Wallet, "permit_id": r.PermitID,
			"tool": r.Tool, "credits_charged": r.Charged,
		}
		if r.Reason != "" {
			w.Detail["reason"] = string(r.Reason)
		}
		if first := r.Reconciles; first != nil {
			w.Detail["resolution"], w.Detail["reconciles"], w.Detail["charged_before"] = first.Resolution, first.ID, first.ChargedBefore
		}
	}
	return w
}

func (a *api) listAudit(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return a.problem(c, err)
	}
	p, err := pageOf(q)
	if err != nil {
		return a.problem(c, err)
	}
	events, err := a.ledger.Events(c.Request().Context(), p.after, p.ask())
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, listOf(p, events, func(e ledger.Event) string { return e.ID }, eventOf))
}
