package receipts

import (
	"errors"
	"fmt"
	"slices"
)

// ErrInconsistent says that a receipt's members contradict each other.
var ErrInconsistent = errors.New("receipt contradicts itself")

// Consistent reports the first contradiction between the members: money that
// does not follow from the outcome, a reason of another outcome, a transfer
// without a charge. It is the table of the contract's section on outcomes, read
// from the receipt's side.
func (c *Claims) Consistent() error {
	for _, rule := range []struct {
		holds bool
		says  string
	}{
		{c.EndedMS >= c.StartedMS, "the call ended before it started"},
		{c.Charged <= c.Authorized, "more was charged than authorized"},
		{(c.Outcome == Reconciled) == (c.Reconciles != nil), "reconciles and the outcome reconciled come together"},
		{c.Detail == nil || c.Outcome == Denied, "only a denial has a detail"},
		{(c.DuplicateOf != "") == (c.Reason == ReasonOperationRefReused), "a first operation and operation_ref_reused come together"},
		{c.DuplicateOf == "" || c.Detail == nil, "a detail has one shape"},
		{c.DuplicateOf == "" || c.DuplicateOf != c.Operation, "it is its own first operation"},
	} {
		if !rule.holds {
			return fmt.Errorf("%w: %s", ErrInconsistent, rule.says)
		}
	}
	if says := c.contradiction(); says != "" {
		return fmt.Errorf("%w: outcome %s: %s", ErrInconsistent, c.Outcome, says)
	}
	return nil
}

func (c *Claims) contradiction() string {
	switch c.Outcome {
	case Succeeded:
		return c.succeeded()
	case Denied:
		return c.denied()
	case Failed:
		return c.failed()
	case Uncertain:
		return c.uncertain()
	case Reconciled:
		return c.reconciled()
	}
	return "not an outcome"
}

func (c *Claims) succeeded() string {
	switch {
	case c.Reason != "":
		return "a success has no reason"
	case c.Result == nil:
		return "a success has a result"
	}
	return c.transfer()
}

func (c *Claims) denied() string {
	switch {
	case !slices.Contains(denials(), c.Reason):
		return "the reason is not one of a denial"
	case c.Charged != 0:
		return "a denial charges nothing"
	}
	return c.transfer()
}

func (c *Claims) failed() string {
	switch {
	case !slices.Contains(failures(), c.Reason):
		return "the reason is not one of a failure"
	case c.Reason == ReasonToolError && c.Charged != 0 && c.Charged != c.Authorized:
		return "a tool's error charges nothing or the price"
	case c.Reason != ReasonToolError && c.Charged != 0:
		return "what did not run charges nothing"
	}
	return c.transfer()
}

func (c *Claims) uncertain() string {
	switch {
	case !slices.Contains(uncertainties(), c.Reason):
		return "the reason is not one of an uncertain delivery"
	case c.Charged != c.Authorized:
		return "an uncertain delivery keeps its price"
	}
	return c.transfer()
}

func (c *Claims) reconciled() string {
	r := c.Reconciles
	switch {
	case c.Reason != "" && !slices.Contains(uncertainties(), c.Reason):
		return "the reason is not one of an uncertain delivery"
	case r.ID == c.ID:
		return "it reconciles itself"
	case r.ChargedBefore > c.Authorized:
		return "more was charged before than authorized"
	case c.Charged > r.ChargedBefore:
		return "a decision never charges more"
	case r.Resolution == NotDelivered && c.Charged != 0:
		return "what was not delivered charges nothing"
	case c.Charged != r.ChargedBefore && c.LedgerEntry == "":
		return "money moved without a transfer"
	case c.Charged == r.ChargedBefore && c.LedgerEntry != "":
		return "a transfer of nothing"
	}
	return ""
}

// transfer holds for terminal outcomes: a charge and its transfer come together.
func (c *Claims) transfer() string {
	switch {
	case c.Charged > 0 && c.LedgerEntry == "":
		return "money moved without a transfer"
	case c.Charged == 0 && c.LedgerEntry != "":
		return "a transfer of nothing"
	}
	return ""
}

func denials() []Reason {
	return []Reason{
		ReasonRevoked, ReasonNotYetValid, ReasonExpired, ReasonToolNotAllowed, ReasonScopeMissing,
		ReasonArgumentForbidden, ReasonRecipientNotAllowed, ReasonCallsExceeded, ReasonValueMissing,
		ReasonValueExceeded, ReasonCreditsExceeded, ReasonWalletFrozen, ReasonWalletCreditsInsufficient,
		ReasonApprovalRequired, ReasonApprovalDenied, ReasonApprovalExpired, ReasonOperationRefReused,
	}
}

func failures() []Reason {
	return []Reason{
		ReasonUpstreamUnreachable, ReasonUpstreamRejected, ReasonToolError, ReasonInputAbandoned, ReasonNotDispatched,
	}
}

func uncertainties() []Reason {
	return []Reason{ReasonUpstreamError, ReasonNoResponse, ReasonResponseRejected, ReasonGatewayInterrupted}
}
