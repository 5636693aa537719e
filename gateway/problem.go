package gateway

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"counterfoil/internal/canon"
	"counterfoil/receipts"
)

// Retry is the advice that goes with a reason: what the caller may do next.
type Retry string

// The four pieces of advice of contract 3.3.
const (
	RetrySameKey Retry = "same_key" // ask again, nothing new will run
	RetryNewKey  Retry = "new_key"  // nothing ran; a new action may
	RetryCheck   Retry = "check"    // the tool may have acted: look first
	RetryNever   Retry = "never"
)

// Ran says whether the tool may have run when a reason is given.
type Ran string

// A settle that fails after the tool ran is never RanNone.
const (
	RanNone    Ran = "none"
	RanDone    Ran = "done"
	RanUnknown Ran = "unknown"
)

// Problem is one row of the reason table: whose fault (the HTTP status a REST
// client gets, hence -31nnn), what to do next, whether the tool may have run,
// and the sentence a person or a model reads.
type Problem struct {
	Reason  receipts.Reason
	Status  int
	Retry   Retry
	Ran     Ran
	Message string
}

// Problems is the one reason table of contract 7, in its order. It feeds
// JSON-RPC errors, problem documents and `_meta` members alike.
func Problems() []Problem {
	return []Problem{
		{"context_conflict", 400, RetryNever, RanNone, "The places that name the wallet or the permit disagree."},
		{"context_missing", 400, RetryNever, RanNone, "No wallet is named, and the agent has no default wallet."},
		{"wallet_forbidden", 403, RetryNever, RanNone, "This agent may not use that wallet."},
		{"tool_unknown", 404, RetryNever, RanNone, "There is no such tool in the catalogue."},
		{"arguments_invalid", 400, RetryNever, RanNone, "The request could not be accepted as it is written."},
		{"identity_in_arguments", 400, RetryNever, RanNone, "The arguments carry a name that is reserved for the call's identity."},
		{"identity_ambiguous", 400, RetryNever, RanNone, "More than one harness identity names this call."},
		{"idempotency_key_required", 400, RetryNever, RanNone, "The call names no idempotency key."},
		{"idempotency_key_invalid", 400, RetryNever, RanNone, "The idempotency key must be a string of 1 to 128 characters, not blank, without control characters."},
		{"idempotency_key_conflict", 400, RetryNever, RanNone, "The places that name the idempotency key disagree."},
		{"idempotency_key_reused", 422, RetryNever, RanUnknown, "This idempotency key was used for another request."},
		{"idempotency_in_progress", 409, RetrySameKey, RanUnknown, "A call with this idempotency key is still running."},
		{"operation_ref_reused", 422, RetryCheck, RanUnknown, "This operation reference belongs to another call."},

		{"permit_required", 400, RetryNever, RanNone, "No permit is named, and the agent has no default permit."},
		{"permit_not_found", 404, RetryNever, RanNone, "There is no such permit."},
		{"permit_invalid", 403, RetryNever, RanNone, "The permit's signature or content is not accepted."},
		{"permit_wallet_mismatch", 403, RetryNever, RanNone, "The permit is not for this wallet."},
		{"permit_agent_mismatch", 403, RetryNever, RanNone, "The permit is not for this agent."},

		{"permit_revoked", 403, RetryNever, RanNone, "The permit has been revoked."},
		{"permit_not_yet_valid", 403, RetryNewKey, RanNone, "The permit is not valid yet."},
		{"permit_expired", 403, RetryNever, RanNone, "The permit has expired."},
		{"permit_tool_not_allowed", 403, RetryNever, RanNone, "The permit does not allow this tool."},
		{"permit_scope_missing", 403, RetryNever, RanNone, "The permit lacks a scope that this tool needs."},
		{"permit_argument_forbidden", 403, RetryNewKey, RanNone, "The permit forbids an argument of this call."},
		{"permit_recipient_not_allowed", 403, RetryNewKey, RanNone, "The permit does not allow this recipient."},
		{"permit_calls_exceeded", 403, RetryNever, RanNone, "The permit's number of calls is used up."},
		{"permit_value_exceeded", 403, RetryNewKey, RanNone, "The value of this call is above what the permit allows."},
		{"permit_credits_exceeded", 403, RetryNever, RanNone, "The permit has too few credits left for this call."},
		{"permit_value_missing", 403, RetryNewKey, RanNone, "The permit limits values, and this call's value is missing or is not a whole number."},
		{"wallet_frozen", 403, RetryNewKey, RanNone, "The wallet is frozen."},
		{"wallet_credits_insufficient", 403, RetryNewKey, RanNone, "The wallet has too few credits for this call."},
		{"approval_required", 403, RetrySameKey, RanNone, "The call waits for a person's approval."},
		{"approval_denied", 403, RetryNever, RanNone, "A person has denied this call."},
		{"approval_expired", 403, RetryNewKey, RanNone, "Nobody approved this call in time."},

		{"upstream_unreachable", 502, RetryNewKey, RanNone, "The tool's server could not be reached; nothing was sent to it."},
		{"upstream_rejected", 502, RetryNewKey, RanNone, "The tool's server refused the call before running it."},
		{"upstream_error", 502, RetryCheck, RanUnknown, "The tool's server answered with an error after the call was sent."},
		{"tool_error", 502, RetryCheck, RanUnknown, "The tool answered with an error; it may have acted."},
		{"no_response", 504, RetryCheck, RanUnknown, "The call was sent, and no answer came back."},
		{"response_rejected", 502, RetryCheck, RanUnknown, "The call was sent, and its answer could not be accepted."},
		{"response_pruned", 409, RetryNever, RanDone, "This call has finished, and its stored answer is no longer kept."},
		{"input_abandoned", 409, RetryNewKey, RanNone, "The tool asked for further input, and none was given."},
		{"gateway_interrupted", 500, RetryCheck, RanUnknown, "The gateway was interrupted while the call was running."},
		{"not_dispatched", 503, RetryNewKey, RanNone, "The gateway gave the call up before anything was sent."},
		{"rate_limited", 429, RetrySameKey, RanNone, "This agent makes too many calls at once."},
		{"request_too_large", 413, RetryNever, RanNone, "The request is too large."},
		{"store_unavailable", 503, RetrySameKey, RanNone, "The gateway's store is not available; nothing happened."},
		{"outcome_unknown", 503, RetrySameKey, RanUnknown, "The gateway's store did not answer in time; ask again with the same key to learn the outcome."},
		{"internal", 500, RetrySameKey, RanUnknown, "The gateway failed."},

		{"unauthenticated", 401, RetryNever, RanNone, "The credential is missing or not valid."},
		{"forbidden", 403, RetryNever, RanNone, "This credential may not do that."},
		{"not_found", 404, RetryNever, RanNone, "There is no such thing here."},
		{"invalid_request", 400, RetryNever, RanNone, "The request could not be accepted as it is written."},
		{"conflict", 409, RetryNever, RanNone, "The request conflicts with what is stored."},
	}
}

// reasonTable is built once for each process and only read after that.
var reasonTable = func() map[receipts.Reason]Problem {
	rows := Problems()
	m := make(map[receipts.Reason]Problem, len(rows))
	for _, p := range rows {
		m[p.Reason] = p
	}
	return m
}()

// ProblemFor returns the row of a reason. A reason without a row is `internal`:
// nothing about it is told.
func ProblemFor(reason receipts.Reason) Problem {
	if p, ok := reasonTable[reason]; ok {
		return p
	}
	return reasonTable["internal"]
}

// WriteProblem answers with an RFC 9457 problem document. An empty detail says
// the table's own sentence.
func WriteProblem(c echo.Context, reason receipts.Reason, detail string) error {
	return WriteProblemStatus(c, reason, ProblemFor(reason).Status, detail)
}

// WriteProblemStatus lets the transport's own refusals (405, 415) keep their
// status under the nearest reason.
func WriteProblemStatus(c echo.Context, reason receipts.Reason, status int, detail string) error {
	p := ProblemFor(reason)
	if detail == "" {
		detail = p.Message
	}
	h := c.Response().Header()
	switch p.Reason {
	case "unauthenticated":
		h.Set(echo.HeaderWWWAuthenticate, `Bearer realm="counterfoil"`)
	case "store_unavailable", "outcome_unknown", "rate_limited", "idempotency_in_progress":
		h.Set(echo.HeaderRetryAfter, "1")
	}
	b := make([]byte, 0, 256)
	b = append(b, `{"type":"about:blank","title":`...)
	b = canon.AppendString(b, http.StatusText(status))
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, `,"detail":`...)
	b = canon.AppendString(b, detail)
	b = append(b, `,"reason":`...)
	b = canon.AppendString(b, string(p.Reason))
	b = append(b, `,"retry":`...)
	b = canon.AppendString(b, string(p.Retry))
	b = append(b, '}', '\n')
	return c.Blob(status, "application/problem+json", b)
}
