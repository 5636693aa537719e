package gateway

import (
	"time"

	"counterfoil/gateway/upstream"
	"counterfoil/ledger"
)

// What tests of package gateway_test reach into.
var (
	IdentityName = identityName
	WithText     = withText
	RequestHash  = requestHash
	Credential   = credential
)

// Mirrored returns a definition as it would be listed, its property names and
// its headers.
func Mirrored(name string, t upstream.Tool) (json []byte, properties map[string]bool, headers []ParamHeader, err error) {
	d, err := mirrored(name, t)
	if err != nil {
		return nil, nil, nil, err
	}
	return d.json, d.properties, d.params, nil
}

// SettlementOf is the money of one answer to a tool.
func SettlementOf(t Tool, a upstream.Answer) *ledger.Settlement {
	return settlementOf(&entry{Tool: t}, &ledger.Granted{}, a)
}

// Limiter hands out the limiter alone.
func Limiter(l Limits) func(agent string, now time.Time) (func(), *Refusal) {
	return newLimiter(l).admit
}
