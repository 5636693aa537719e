package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/internal/apitest"
	"counterfoil/receipts"
)

// The contract's list, copied from its section 7: the table must say neither
// more nor less.
var contractReasons = []receipts.Reason{
	"context_conflict", "context_missing", "wallet_forbidden", "tool_unknown", "arguments_invalid", "identity_in_arguments",
	"identity_ambiguous", "idempotency_key_required", "idempotency_key_invalid",
	"idempotency_key_conflict", "idempotency_key_reused", "idempotency_in_progress", "operation_ref_reused",
	"permit_required", "permit_not_found", "permit_invalid", "permit_wallet_mismatch", "permit_agent_mismatch",
	"permit_revoked", "permit_not_yet_valid", "permit_expired", "permit_tool_not_allowed", "permit_scope_missing",
	"permit_argument_forbidden", "permit_recipient_not_allowed", "permit_calls_exceeded", "permit_value_exceeded",
	"permit_credits_exceeded", "permit_value_missing", "wallet_frozen", "wallet_credits_insufficient", "approval_required", "approval_denied",
	"approval_expired", "upstream_unreachable", "upstream_rejected", "upstream_error", "tool_error", "no_response",
	"response_rejected", "response_pruned", "input_abandoned", "gateway_interrupted", "not_dispatched", "rate_limited", "request_too_large", "store_unavailable", "outcome_unknown", "internal",
	"unauthenticated", "forbidden", "not_found", "invalid_request", "conflict",
}

func TestProblemsAreTheContractsReasons(t *testing.T) {
	t.Parallel()
	var rows []receipts.Reason
	for _, p := range gateway.Problems() {
		rows = append(rows, p.Reason)
	}
	if diff := cmp.Diff(contractReasons, rows); diff != "" {
		t.Errorf("rows of the table, in order (-contract +table):\n%s", diff)
	}
	known := receipts.Reasons()
	slices.Sort(known)
	slices.Sort(rows)
	if diff := cmp.Diff(known, rows); diff != "" {
		t.Errorf("reasons (-receipts +table):\n%s", diff)
	}
}

func TestProblemsAreTheOpenAPIReasons(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, p := range gateway.Problems() {
		rows = append(rows, string(p.Reason))
	}
	enum := apitest.Load(t).Enum("Reason")
	slices.Sort(rows)
	slices.Sort(enum)
	if diff := cmp.Diff(enum, rows); diff != "" {
		t.Errorf("reasons (-openapi.yaml +table):\n%s", diff)
	}
}

func TestProblemsAreWhole(t *testing.T) {
	t.Parallel()
	retries := []gateway.Retry{gateway.RetrySameKey, gateway.RetryNewKey, gateway.RetryCheck, gateway.RetryNever}
	for _, p := range gateway.Problems() {
		if p.Status < 400 || p.Status > 599 || http.StatusText(p.Status) == "" {
			t.Errorf("%s: status %d", p.Reason, p.Status)
		}
		if !slices.Contains(retries, p.Retry) || p.Message == "" {
			t.Errorf("%s: retry %q, message %q", p.Reason, p.Retry, p.Message)
		}
		// Whoever is told to act anew must know that nothing ran; what may have run
		// is for looking at.
		if p.Retry == gateway.RetryNewKey && p.Ran != gateway.RanNone {
			t.Errorf("%s: new_key, but the tool may have run", p.Reason)
		}
		if p.Retry == gateway.RetryCheck && p.Ran != gateway.RanUnknown {
			t.Errorf("%s: check, but it is known that the tool ran: %s", p.Reason, p.Ran)
		}
	}
	if p := gateway.ProblemFor("no_such_reason"); p.Reason != receipts.ReasonInternal {
		t.Errorf("an unlisted reason became %q, want internal", p.Reason)
	}
	for reason, retry := range map[receipts.Reason]gateway.Retry{
		"store_unavailable": "same_key", "outcome_unknown": "same_key", "tool_error": "check", "idempotency_in_progress": "same_key",
	} {
		if got := gateway.ProblemFor(reason).Retry; got != retry {
			t.Errorf("%s: retry %s, want %s", reason, got, retry)
		}
	}
}

func TestWriteProblem(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	c := echo.New().NewContext(httptest.NewRequest(http.MethodGet, "/v1/x", nil), rec)
	if err := gateway.WriteProblem(c, "unauthenticated", `say "who"`); err != nil {
		t.Fatal(err)
	}
	want := `{"type":"about:blank","title":"Unauthorized","status":401,"detail":"say \"who\"","reason":"unauthenticated","retry":"never"}` + "\n"
	if rec.Code != 401 || rec.Body.String() != want {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
	if got := rec.Header().Get("WWW-Authenticate"); got != `Bearer realm="counterfoil"` {
		t.Errorf("WWW-Authenticate: %q", got)
	}
	if got := rec.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type: %q", got)
	}
}
