package receipts

import "counterfoil/permits"

// Reason is a stable code that says why an operation ended as it did, or why a
// request never became one.
type Reason = permits.Reason

// Codes of requests that never became an operation; they leave no receipt.
const (
	ReasonContextConflict        Reason = "context_conflict"
	ReasonContextMissing         Reason = "context_missing"
	ReasonWalletForbidden        Reason = "wallet_forbidden"
	ReasonToolUnknown            Reason = "tool_unknown"
	ReasonArgumentsInvalid       Reason = "arguments_invalid"
	ReasonIdentityInArguments    Reason = "identity_in_arguments"
	ReasonIdentityAmbiguous      Reason = "identity_ambiguous"
	ReasonIdempotencyKeyRequired Reason = "idempotency_key_required"
	ReasonIdempotencyKeyInvalid  Reason = "idempotency_key_invalid"
	ReasonIdempotencyKeyConflict Reason = "idempotency_key_conflict"
	ReasonIdempotencyKeyReused   Reason = "idempotency_key_reused"
	ReasonIdempotencyInProgress  Reason = "idempotency_in_progress"
	ReasonPermitRequired         Reason = "permit_required"
	ReasonPermitNotFound         Reason = "permit_not_found"
	ReasonPermitInvalid          Reason = "permit_invalid"
	ReasonPermitWalletMismatch   Reason = "permit_wallet_mismatch"
	ReasonPermitAgentMismatch    Reason = "permit_agent_mismatch"
	ReasonResponsePruned         Reason = "response_pruned"
	ReasonRateLimited            Reason = "rate_limited"
	ReasonRequestTooLarge        Reason = "request_too_large"
	ReasonStoreUnavailable       Reason = "store_unavailable"
	ReasonOutcomeUnknown         Reason = "outcome_unknown"
	ReasonInternal               Reason = "internal"
	ReasonUnauthenticated        Reason = "unauthenticated"
	ReasonForbidden              Reason = "forbidden"
	ReasonNotFound               Reason = "not_found"
	ReasonInvalidRequest         Reason = "invalid_request"
	ReasonConflict               Reason = "conflict"
)

// Codes of denials: the permit's verdicts, those of a person who was asked, and
// that on an operation whose reference another one holds.
const (
	ReasonRevoked                          = permits.ReasonRevoked
	ReasonNotYetValid                      = permits.ReasonNotYetValid
	ReasonExpired                          = permits.ReasonExpired
	ReasonToolNotAllowed                   = permits.ReasonToolNotAllowed
	ReasonScopeMissing                     = permits.ReasonScopeMissing
	ReasonArgumentForbidden                = permits.ReasonArgumentForbidden
	ReasonRecipientNotAllowed              = permits.ReasonRecipientNotAllowed
	ReasonCallsExceeded                    = permits.ReasonCallsExceeded
	ReasonValueMissing                     = permits.ReasonValueMissing
	ReasonValueExceeded                    = permits.ReasonValueExceeded
	ReasonCreditsExceeded                  = permits.ReasonCreditsExceeded
	ReasonWalletFrozen                     = permits.ReasonWalletFrozen
	ReasonWalletCreditsInsufficient        = permits.ReasonWalletCreditsInsufficient
	ReasonApprovalRequired                 = permits.ReasonApprovalRequired
	ReasonApprovalDenied            Reason = "approval_denied"
	ReasonApprovalExpired           Reason = "approval_expired"
	ReasonOperationRefReused        Reason = "operation_ref_reused"
)

// Codes of failures, where the tool did not run or said that it failed.
const (
	ReasonUpstreamUnreachable Reason = "upstream_unreachable"
	ReasonUpstreamRejected    Reason = "upstream_rejected"
	ReasonToolError           Reason = "tool_error"
	ReasonInputAbandoned      Reason = "input_abandoned"
	ReasonNotDispatched       Reason = "not_dispatched"
)

// Codes of uncertain deliveries, where the tool may have acted.
const (
	ReasonUpstreamError      Reason = "upstream_error"
	ReasonNoResponse         Reason = "no_response"
	ReasonResponseRejected   Reason = "response_rejected"
	ReasonGatewayInterrupted Reason = "gateway_interrupted"
)

// Reasons lists every reason code, in the order of the contract.
func Reasons() []Reason {
	return []Reason{
		ReasonContextConflict, ReasonContextMissing, ReasonWalletForbidden, ReasonToolUnknown,
		ReasonArgumentsInvalid, ReasonIdentityInArguments, ReasonIdentityAmbiguous,
		ReasonIdempotencyKeyRequired, ReasonIdempotencyKeyInvalid, ReasonIdempotencyKeyConflict,
		ReasonIdempotencyKeyReused, ReasonIdempotencyInProgress, ReasonOperationRefReused,
		ReasonPermitRequired, ReasonPermitNotFound, ReasonPermitInvalid, ReasonPermitWalletMismatch,
		ReasonPermitAgentMismatch, ReasonRevoked, ReasonNotYetValid, ReasonExpired,
		ReasonToolNotAllowed, ReasonScopeMissing, ReasonArgumentForbidden, ReasonRecipientNotAllowed,
		ReasonCallsExceeded, ReasonValueExceeded, ReasonCreditsExceeded, ReasonValueMissing,
		ReasonWalletFrozen, ReasonWalletCreditsInsufficient, ReasonApprovalRequired,
		ReasonApprovalDenied, ReasonApprovalExpired, ReasonUpstreamUnreachable,
		ReasonUpstreamRejected, ReasonUpstreamError, ReasonToolError, ReasonNoResponse,
		ReasonResponseRejected, ReasonResponsePruned, ReasonInputAbandoned,
		ReasonGatewayInterrupted, ReasonNotDispatched, ReasonRateLimited, ReasonRequestTooLarge,
		ReasonStoreUnavailable, ReasonOutcomeUnknown, ReasonInternal, ReasonUnauthenticated,
		ReasonForbidden, ReasonNotFound, ReasonInvalidRequest, ReasonConflict,
	}
}
