package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/ledger"
	"counterfoil/receipts"
)

type decisionBody struct {
	Resolution        string `json:"resolution" validate:"required,oneof=delivered not_delivered"`
	Evidence          string `json:"evidence" validate:"required,max=16384,prose"`
	ProviderReference string `json:"provider_reference" validate:"omitempty,max=256,plain"`
	Charged           *int64 `json:"credits_charged" validate:"omitnil,min=0,max=9007199254740991"`
}

// decisionWire is the operation as the decision leaves it, with the decision's own receipt.
type decisionWire struct {
	operationWire
	JWS string `json:"receipt"`
}

func (a *api) reconcileOperation(c echo.Context) error {
	var b decisionBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	if b.Resolution == receipts.Delivered && b.ProviderReference == "" {
		return a.problem(c, invalid("provider_reference is required where the resolution is delivered: what the provider calls this action."))
	}
	wanted := ledger.Reconciliation{
		Operation: c.Param("id"), Resolution: b.Resolution, Evidence: b.Evidence, ProviderReference: b.ProviderReference, Charged: b.Charged,
	}
	viewer := gateway.PrincipalOf(c)
	done, err := a.act(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		decision, err := admin.Reconcile(ctx, wanted)
		if err != nil {
			return ledger.Answer{}, err
		}
		out, err := answer(http.StatusOK, decisionWire{operationOf(decision.Operation, viewer), decision.Receipt})
		out.Replayed = decision.Replayed
		return out, err
	})
	if err != nil {
		return a.problem(c, a.undecided(c.Request().Context(), &wanted, err))
	}
	return reply(c, done)
}

// undecided says why an operation was not decided so, in words that help with the next step.
func (a *api) undecided(ctx context.Context, wanted *ledger.Reconciliation, err error) error {
	decided, certain, price := errors.Is(err, ledger.ErrDecided), errors.Is(err, ledger.ErrNotUncertain), errors.Is(err, ledger.ErrOverCharge)
	if !decided && !certain && !price {
		return err
	}
	op, err := a.ledger.Operation(ctx, wanted.Operation, nil)
	if err != nil {
		return err
	}
	switch r := op.Reconciliation; {
	case decided && r != nil:
		return conflict("The operation was decided before, and otherwise: %s, %d of %d credits charged, by %s at %s, receipt %s. A decision is never changed.",
			r.Resolution, op.Charged, r.ChargedBefore, r.Actor, r.DecidedAt.Format(time.RFC3339), op.ReceiptID)
	case certain && op.State == ledger.StateDispatching:
		return conflict("The operation is still running: wait for its outcome.")
	case certain && op.State == ledger.StateAwaitingInput:
		return conflict("There is nothing to decide: the tool asked for input before it acted, and waits for it until %s.", op.Round.ExpiresAt.Format(time.RFC3339))
	case certain && op.Outcome == receipts.Uncertain:
		return conflict("The operation was still running, and became uncertain just now: ask again.")
	case certain:
		return conflict("There is nothing to decide: the operation is not uncertain, its outcome is %s.", op.Outcome)
	case wanted.Resolution == receipts.NotDelivered:
		return invalid("credits_charged must be 0 or absent: what was not delivered costs nothing.")
	}
	before := op.Charged
	if op.Reconciliation != nil {
		before = op.Reconciliation.ChargedBefore
	}
	return invalid("credits_charged must be at most the %d credits that were charged.", before)
}

func conflict(format string, args ...any) error {
	return &refusal{receipts.ReasonConflict, fmt.Sprintf(format, args...)}
}

type releaseBody struct {
	Why string `json:"why" validate:"required,max=1000,plain"`
}

func (a *api) releaseOperationReference(c echo.Context) error {
	var b releaseBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	viewer := gateway.PrincipalOf(c)
	done, err := a.act(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		op, err := admin.ReleaseReference(ctx, c.Param("id"), b.Why)
		if err != nil {
			return ledger.Answer{}, err
		}
		return answer(http.StatusOK, operationOf(op, viewer))
	})
	if errors.Is(err, ledger.ErrConflict) {
		err = conflict("The operation holds no reference: it names none, it was not delivered, or it was released before.")
	}
	if err != nil {
		return a.problem(c, err)
	}
	return reply(c, done)
}
