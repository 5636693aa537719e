package receipts_test

import (
	"errors"
	"testing"

	"counterfoil/permits"
	"counterfoil/receipts"
)

func denied(c *receipts.Claims) {
	c.Outcome, c.Reason = receipts.Denied, receipts.ReasonCreditsExceeded
	c.Charged, c.LedgerEntry = 0, ""
	c.Detail = &permits.Detail{Limit: 10, Needed: 5, Remaining: 1}
}

func duplicate(c *receipts.Claims) {
	denied(c)
	c.Reason, c.Detail, c.DuplicateOf = receipts.ReasonOperationRefReused, nil, "op_00"
}

func failed(c *receipts.Claims) {
	c.Outcome, c.Reason = receipts.Failed, receipts.ReasonToolError
	c.Charged, c.LedgerEntry = 0, ""
}

func uncertain(c *receipts.Claims) {
	c.Outcome, c.Reason = receipts.Uncertain, receipts.ReasonNoResponse
}

func reconciled(c *receipts.Claims) {
	c.Outcome, c.Reason = receipts.Reconciled, ""
	c.Charged = 0
	c.Reconciles = &receipts.Reconciles{
		ID: "rcp_00", Resolution: receipts.NotDelivered, EvidenceSHA256: hash("1"), ChargedBefore: 5,
	}
}

func TestConsistent(t *testing.T) {
	t.Parallel()
	type edit = func(*receipts.Claims)
	nothing := func(*receipts.Claims) {}
	for _, tc := range []struct {
		name string
		kind edit
		edit edit
		ok   bool
	}{
		{"succeeded", nothing, nothing, true},
		{"succeeded for less", nothing, func(c *receipts.Claims) { c.Charged = 4 }, true},
		{"succeeded for nothing", nothing, func(c *receipts.Claims) { c.Charged, c.LedgerEntry = 0, "" }, true},
		{"succeeded for more", nothing, func(c *receipts.Claims) { c.Charged = 6 }, false},
		{"succeeded with a reason", nothing, func(c *receipts.Claims) { c.Reason = receipts.ReasonToolError }, false},
		{"succeeded without a result", nothing, func(c *receipts.Claims) { c.Result = nil }, false},
		{"succeeded without a transfer", nothing, func(c *receipts.Claims) { c.LedgerEntry = "" }, false},
		{"succeeded with a detail", nothing, func(c *receipts.Claims) { c.Detail = &permits.Detail{} }, false},
		{"succeeded and reconciles", nothing, func(c *receipts.Claims) { c.Reconciles = &receipts.Reconciles{} }, false},
		{"ended first", nothing, func(c *receipts.Claims) { c.EndedMS = c.StartedMS - 1 }, false},
		{"denied", denied, nothing, true},
		{"denied without detail", denied, func(c *receipts.Claims) { c.Detail = nil }, true},
		{"denied, charged", denied, func(c *receipts.Claims) { c.Charged, c.LedgerEntry = 5, "txn_1" }, false},
		{"denied with a transfer", denied, func(c *receipts.Claims) { c.LedgerEntry = "txn_1" }, false},
		{"denied without a reason", denied, func(c *receipts.Claims) { c.Reason = "" }, false},
		{"denied, tool's error", denied, func(c *receipts.Claims) { c.Reason = receipts.ReasonToolError }, false},
		{"duplicate", duplicate, nothing, true},
		{"duplicate of nothing", duplicate, func(c *receipts.Claims) { c.DuplicateOf = "" }, false},
		{"duplicate of itself", duplicate, func(c *receipts.Claims) { c.DuplicateOf = c.Operation }, false},
		{"duplicate with numbers", duplicate, func(c *receipts.Claims) { c.Detail = &permits.Detail{} }, false},
		{"duplicate, charged", duplicate, func(c *receipts.Claims) { c.Charged, c.LedgerEntry = 5, "txn_1" }, false},
		{"duplicate for another reason", duplicate, func(c *receipts.Claims) { c.Reason = receipts.ReasonRevoked }, false},
		{"failed as a duplicate", failed, func(c *receipts.Claims) {
			c.Reason, c.DuplicateOf = receipts.ReasonOperationRefReused, "op_00"
		}, false},
		{"failed", failed, nothing, true},
		{"failed, charged", failed, func(c *receipts.Claims) { c.Charged, c.LedgerEntry = 5, "txn_1" }, true},
		{"failed, charged in part", failed, func(c *receipts.Claims) { c.Charged, c.LedgerEntry = 4, "txn_1" }, false},
		{"unreachable, charged", failed, func(c *receipts.Claims) {
			c.Reason, c.Charged, c.LedgerEntry = receipts.ReasonUpstreamUnreachable, 5, "txn_1"
		}, false},
		{"failed, no response", failed, func(c *receipts.Claims) { c.Reason = receipts.ReasonNoResponse }, false},
		{"uncertain", uncertain, nothing, true},
		{"uncertain, refunded", uncertain, func(c *receipts.Claims) { c.Charged, c.LedgerEntry = 0, "" }, false},
		{"uncertain, rejected", uncertain, func(c *receipts.Claims) { c.Reason = receipts.ReasonUpstreamRejected }, false},
		{"reconciled", reconciled, nothing, true},
		{"reconciled, delivered", reconciled, func(c *receipts.Claims) {
			c.Reconciles.Resolution, c.Charged, c.LedgerEntry = receipts.Delivered, 5, ""
		}, true},
		{"reconciled, delivered for less", reconciled, func(c *receipts.Claims) {
			c.Reconciles.Resolution, c.Charged = receipts.Delivered, 3
		}, true},
		{"reconciled, delivered for nothing", reconciled, func(c *receipts.Claims) { c.Reconciles.Resolution = receipts.Delivered }, true},
		{"reconciled, delivered for more", reconciled, func(c *receipts.Claims) {
			c.Reconciles.Resolution, c.Reconciles.ChargedBefore, c.Charged = receipts.Delivered, 3, 4
		}, false},
		{"reconciled, delivered for less without a transfer", reconciled, func(c *receipts.Claims) {
			c.Reconciles.Resolution, c.Charged, c.LedgerEntry = receipts.Delivered, 3, ""
		}, false},
		{"reconciled, nothing moved with a transfer", reconciled, func(c *receipts.Claims) {
			c.Reconciles.Resolution, c.Charged = receipts.Delivered, 5
		}, false},
		{"reconciled what was free", reconciled, func(c *receipts.Claims) {
			c.Authorized, c.Reconciles.ChargedBefore, c.LedgerEntry = 0, 0, ""
		}, true},
		{"reconciled what was free with a transfer", reconciled, func(c *receipts.Claims) {
			c.Authorized, c.Reconciles.ChargedBefore = 0, 0
		}, false},
		{"reconciled, says why it was uncertain", reconciled, func(c *receipts.Claims) { c.Reason = receipts.ReasonGatewayInterrupted }, true},
		{"reconciled, tool's error", reconciled, func(c *receipts.Claims) { c.Reason = receipts.ReasonToolError }, false},
		{"reconciled with a detail", reconciled, func(c *receipts.Claims) { c.Detail = &permits.Detail{} }, false},
		{"reconciled, not delivered, charged", reconciled, func(c *receipts.Claims) { c.Charged = 5 }, false},
		{"reconciled, moved without a transfer", reconciled, func(c *receipts.Claims) { c.LedgerEntry = "" }, false},
		{"reconciled, reconciles nothing", reconciled, func(c *receipts.Claims) { c.Reconciles = nil }, false},
		{"reconciled itself", reconciled, func(c *receipts.Claims) { c.Reconciles.ID = c.ID }, false},
		{"reconciled from more", reconciled, func(c *receipts.Claims) { c.Reconciles.ChargedBefore = 6 }, false},
		{"no outcome", nothing, func(c *receipts.Claims) { c.Outcome = "" }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := sample()
			tc.kind(c)
			tc.edit(c)
			err := c.Consistent()
			if (err == nil) != tc.ok || err != nil && !errors.Is(err, receipts.ErrInconsistent) {
				t.Errorf("Consistent = %v, want ok %v", err, tc.ok)
			}
		})
	}
}
