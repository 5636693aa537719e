package gateway

import (
	"net"
	"net/http"
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
	return settlementOf(&entry{Tool: t}, &ledger.Granted{}, t.Price, a)
}

// Limiter is the limiter alone.
type Limiter struct{ *limiter }

// NewLimiter makes one with one upstream, "u", of this rate and concurrency.
func NewLimiter(l Limits, rate, concurrent int, now time.Time) Limiter {
	return Limiter{newLimiter(l, map[string]bound{"u": {rate, concurrent}}, now)}
}

// Enter takes a request in.
func (l Limiter) Enter(agent string, now time.Time) (leave func(), refusal *Refusal) {
	return l.enter(agent, now)
}

// Admit takes a new call in. leave is told whether the call was sent.
func (l Limiter) Admit(agent, upstream string, now time.Time) (leave func(sent bool), refusal *Refusal) {
	p, refusal := l.admit(agent, upstream, now)
	return func(sent bool) {
		p.sent = sent
		p.leave()
	}, refusal
}

// Known is how many agents are remembered.
func (l Limiter) Known() int { return len(l.agents) }

// NewConnections is the listener alone, and the server that follows it.
func NewConnections(l net.Listener, most int, write time.Duration, h http.Handler) (net.Listener, *http.Server) {
	c := newConnections(l, most, write, time.Now)
	return c, &http.Server{Handler: h, ConnState: c.follow, ReadHeaderTimeout: 10 * time.Second}
}
