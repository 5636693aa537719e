package permits

import (
	"encoding/json"
	"slices"
	"strconv"

	"counterfoil/internal/canon"
)

// Fit is all that can be said about a call without looking at what was used before. Denial is the first of the
// verdicts tool, scope, forbidden argument and recipient; those of Decide come before and after it.
type Fit struct {
	Tool   string
	Denial *Denial
	Value  *Value // nil where the tool has no value pointer, or the call no readable amount
}

// Fit compares a call with the permit. args are the canonical bytes (RFC 8785) of the call's arguments.
func (p *Permit) Fit(t Tool, args []byte) Fit {
	f := Fit{Tool: t.Name, Value: readValue(t.Value, args)}
	if reason := p.fitReason(t, args); reason != "" {
		f.Denial = &Denial{Reason: reason}
	}
	return f
}

// fitReason's cases are in the order of the verdicts.
func (p *Permit) fitReason(t Tool, args []byte) Reason {
	switch {
	case t.Name == "" || !slices.Contains(p.Grant.Tools, t.Name):
		return ReasonToolNotAllowed
	case !containsAll(p.Scopes, t.Scopes):
		return ReasonScopeMissing
	case forbidden(p.Grant.DenyArgs, args):
		return ReasonArgumentForbidden
	case p.Grant.Recipient != nil && !p.Grant.Recipient.allows(t.Recipients, args):
		return ReasonRecipientNotAllowed
	}
	return ""
}

func containsAll(have, need []string) bool {
	for _, s := range need {
		if !slices.Contains(have, s) {
			return false
		}
	}
	return true
}

// readValue takes an integer literal in 0…2^53−1; the canonical form of 5.0 is such a literal.
func readValue(v *ValuePointer, args []byte) *Value {
	if v == nil {
		return nil
	}
	raw, ok := canon.Lookup(args, v.Pointer)
	if !ok || len(raw) == 0 {
		return nil
	}
	for _, c := range raw {
		if c < '0' || c > '9' {
			return nil
		}
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n > MaxInteger {
		return nil
	}
	return &Value{Currency: v.Currency, Amount: n}
}

// allows wants every pointer to hold at least one address, and every address to be in one of the domains. Where it
// is not known who receives, nobody is allowed.
func (r *Recipient) allows(pointers []string, args []byte) bool {
	for _, pointer := range pointers {
		addresses := readAddresses(args, pointer)
		if len(addresses) == 0 {
			return false
		}
		for _, a := range addresses {
			if !r.allowsAddress(a) {
				return false
			}
		}
	}
	return len(pointers) > 0
}

// readAddresses reads a string or an array of strings, and nothing (nil) of anything else.
func readAddresses(args []byte, pointer string) []string {
	raw, ok := canon.Lookup(args, pointer)
	if !ok {
		return nil
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		addresses := make([]string, 0, len(v))
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil
			}
			addresses = append(addresses, s)
		}
		return addresses
	}
	return nil
}
