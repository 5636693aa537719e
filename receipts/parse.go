package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"counterfoil/internal/canon"
)

// The ways in which a payload is not a receipt of this format.
var (
	ErrClaims  = errors.New("not a receipt's claims")
	ErrVersion = errors.New("receipt of an unknown version")
)

const maxDepth = 8

// ParseClaims reads a payload that has exactly the members of the format, in any
// order. A payload of another version is ErrVersion, whatever else it holds.
func ParseClaims(payload []byte) (*Claims, error) {
	c, ok := scanClaims(payload)
	if !ok {
		var err error
		if c, err = decodeClaims(payload); err != nil {
			return nil, err
		}
	}
	if fault := c.fault(); fault != "" {
		return nil, fmt.Errorf("%w: %s", ErrClaims, fault)
	}
	return c, nil
}

func decodeClaims(payload []byte) (*Claims, error) {
	if err := canon.CheckClaims(payload, maxDepth); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClaims, err)
	}
	v, ok := canon.Lookup(payload, "/v")
	if !ok {
		return nil, fmt.Errorf("%w: no version", ErrClaims)
	}
	if string(v) != "1" {
		return nil, ErrVersion
	}
	var w wireClaims
	if err := canon.Decode(payload, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClaims, err)
	}
	c := w.claims()
	// An absent member, a null for an absent one and an empty object all read as
	// zero. Only the exact members write the same bytes again.
	canonical, err := canon.Canonical(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClaims, err)
	}
	if !bytes.Equal(canonical, c.AppendPayload(make([]byte, 0, len(payload)))) {
		return nil, fmt.Errorf("%w: a member is missing, or null or empty where it must not be", ErrClaims)
	}
	return c, nil
}

// fault names the first member whose form is wrong, or returns "". What the
// members say together is Consistent's matter.
func (c *Claims) fault() string {
	for _, m := range []struct {
		name string
		ok   bool
	}{
		{"iss", c.Issuer != ""},
		{"iat", inRange(c.IssuedAt)},
		{"jti", isID(c.ID)},
		{"sub", isID(c.Wallet)},
		{"act.sub", isID(c.Agent)},
		{"permit.jti", isID(c.PermitID)},
		{"permit.sha256", isHash(c.PermitSHA256)},
		{"call.id", isID(c.Operation)},
		{"call.tool", c.Tool != ""},
		{"call.tool_sha256", isHash(c.ToolSHA256)},
		{"call.key_source", c.KeySource != ""},
		{"call.started_ms", inRange(c.StartedMS)},
		{"call.ended_ms", inRange(c.EndedMS)},
		{"outcome", slices.Contains(outcomes(), c.Outcome)},
		{"reason", c.Reason == "" || slices.Contains(Reasons(), c.Reason)},
		{"credits.authorized", inRange(c.Authorized)},
		{"credits.charged", inRange(c.Charged)},
		{"detail", c.Detail == nil || inRange(c.Detail.Limit) && inRange(c.Detail.Needed) && inRange(c.Detail.Remaining)},
		{"detail.operation_id", c.DuplicateOf == "" || isOperation(c.DuplicateOf)},
		{"value", c.Value == nil || c.Value.Currency != "" && inRange(c.Value.Amount)},
		{"ledger.entry", c.LedgerEntry == "" || isID(c.LedgerEntry)},
		{"audit.event", isID(c.AuditEvent)},
		{"req.sha256", isHash(c.ArgumentsSHA256)},
		{"req.request_hash", isHash(c.RequestHash)},
		{"res", c.Result == nil || isHash(c.Result.SHA256) && inRange(c.Result.Bytes)},
		{"chain.seq", c.Seq >= 1 && inRange(c.Seq)},
		{"chain.prev", c.Seq == 1 && c.Prev == "" || c.Seq > 1 && isHash(c.Prev)},
		{"reconciles", c.Reconciles == nil || c.Reconciles.wellFormed()},
	} {
		if !m.ok {
			return m.name + " has a wrong form"
		}
	}
	return ""
}

func (r *Reconciles) wellFormed() bool {
	return isID(r.ID) && isHash(r.EvidenceSHA256) && inRange(r.ChargedBefore) &&
		(r.Resolution == Delivered || r.Resolution == NotDelivered)
}

func outcomes() []Outcome {
	return []Outcome{Succeeded, Denied, Failed, Uncertain, Reconciled}
}

func inRange(n int64) bool { return n >= 0 && n <= MaxInteger }

func isHash(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// isOperation is stricter than isID: an operation's id is always of the gateway's
// making, so that its prefix is known.
func isOperation(s string) bool { return strings.HasPrefix(s, "op_") && isID(s) }

// isID follows the contract's ^[a-z]{2,4}_[A-Za-z0-9._-]{1,64}$.
func isID(s string) bool {
	prefix := 0
	for prefix < len(s) && s[prefix] >= 'a' && s[prefix] <= 'z' {
		prefix++
	}
	if prefix < 2 || prefix > 4 || prefix == len(s) || s[prefix] != '_' {
		return false
	}
	rest := s[prefix+1:]
	if len(rest) < 1 || len(rest) > 64 {
		return false
	}
	for i := range len(rest) {
		c := rest[i]
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alnum && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
