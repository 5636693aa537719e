// Package permits decides what a signed permit allows: a call that does not fit every limit of its permit is
// never admitted, and whatever cannot be read is refused. It is pure: time, usage and keys are passed in.
package permits

import "errors"

const (
	// Type is the only accepted "typ" of a permit's header.
	Type = "vnd.counterfoil.permit+jwt"
	// GrantType is the "type" of the one authorization detail of a permit.
	GrantType = "counterfoil.tool-permit.v1"
	// MaxTokenBytes is the longest permit that is read or issued.
	MaxTokenBytes = 8192
	// MaxInteger is the largest amount, limit, count and time anywhere: 2^53−1.
	MaxInteger int64 = 1<<53 - 1
)

var (
	// ErrInvalid is wrapped by every refusal of a permit or grant: wrong signature, shape, issuer or content.
	ErrInvalid = errors.New("invalid permit")
	// ErrExpect means that the caller left out what a permit must be compared with. It is a fault of the
	// program's configuration, never of the permit.
	ErrExpect = errors.New("permit expectation incomplete")
)

// Reason is a reason code of the contract.
type Reason string

// The verdicts, in the order in which they are reached. A call with two faults gets the earlier one.
const (
	ReasonRevoked                   Reason = "permit_revoked"
	ReasonNotYetValid               Reason = "permit_not_yet_valid"
	ReasonExpired                   Reason = "permit_expired"
	ReasonToolNotAllowed            Reason = "permit_tool_not_allowed"
	ReasonScopeMissing              Reason = "permit_scope_missing"
	ReasonArgumentForbidden         Reason = "permit_argument_forbidden"
	ReasonRecipientNotAllowed       Reason = "permit_recipient_not_allowed"
	ReasonCallsExceeded             Reason = "permit_calls_exceeded"
	ReasonValueMissing              Reason = "permit_value_missing"
	ReasonValueExceeded             Reason = "permit_value_exceeded"
	ReasonCreditsExceeded           Reason = "permit_credits_exceeded"
	ReasonWalletFrozen              Reason = "wallet_frozen"
	ReasonWalletCreditsInsufficient Reason = "wallet_credits_insufficient"
	ReasonApprovalRequired          Reason = "approval_required"
)

// Permit is what a permit's claims say. Token is the text that was signed and SHA256 its hash in hex; both are
// empty in a permit that has not been signed yet. A Permit is not changed after it was parsed.
type Permit struct {
	ID, Issuer, Audience string // jti, iss, aud
	Wallet, Agent        string // sub, act.sub
	// Unix seconds. The window is half open: NotBefore ≤ now < Expires.
	IssuedAt, NotBefore, Expires int64
	Scopes                       []string
	Grant                        Grant
	Token, SHA256                string
}

// Grant is the permit's authorization detail. A nil slice, map or pointer is an absent member.
type Grant struct {
	// Tools are exact catalogue names; there is no wildcard, so that a new tool is never granted by an old permit.
	Tools  []string
	Limits Limits
	// DenyArgs are RFC 6901 pointers, in which "*" stands for one segment, and bare names that match at any depth.
	DenyArgs  []string
	Recipient *Recipient
	Approval  *Approval
}

// Limits are sums over the permit's whole life, but for those "per call". A nil limit is no limit.
type Limits struct {
	Credits    int64
	CallsTotal *int64
	// Calls limits single tools; one that is not in it has only CallsTotal.
	Calls          map[string]int64
	CreditsPerCall *int64
	Value          *ValueLimit
}

// ValueLimit binds the value argument of every call, in minor units of Currency.
type ValueLimit struct {
	Currency       string
	Total, PerCall *int64
}

// Recipient lists the domains that every address of a call must be in. They are kept as the issuer wrote them, U-labels
// or A-labels, and compared as A-labels.
type Recipient struct {
	Domains    []string
	Subdomains bool // every name below the domains as well
}

// Approval says which calls a person must approve first.
type Approval struct {
	Always    bool
	ValueOver *int64 // calls whose value is above this, or is not known
}

// Tool is what the catalogue says about a tool. Recipients holds pointers to the arguments that name recipients; all of
// them must be there in a call under a permit that limits recipients.
type Tool struct {
	Name       string
	Scopes     []string
	Price      int64
	Value      *ValuePointer
	Recipients []string
}

// ValuePointer says which argument holds the value of a call, and its currency.
type ValuePointer struct{ Pointer, Currency string }

// Value is what one call moves, in minor units.
type Value struct {
	Currency string
	Amount   int64
}

// Denial is a verdict against a call. Detail is nil where no number decided.
type Denial struct {
	Reason Reason
	Detail *Detail
}

// Detail is the limit, what the call needed of it, and what was left of it. Of a limit per call, all of it is left.
type Detail struct{ Limit, Needed, Remaining int64 }
