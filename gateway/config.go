package gateway

import (
	"time"

	"counterfoil/gateway/upstream"
	"counterfoil/permits"
)

// Tool is one catalogue entry as configured: how agents see it, where it lives
// and what it costs.
type Tool struct {
	Name          string // as agents see it
	Upstream      string
	UpstreamTool  string
	Price         int64  // the most a call costs
	ActualPointer string // RFC 6901, into the result; "" charges the price
	Scopes        []string
	Value         *permits.ValuePointer
	Recipients    []string

	ChargeOnToolError bool
	MaxResponseBytes  int64
}

// Limits bounds what one agent may do at once. 0 is no limit.
type Limits struct {
	AgentRate       int // new calls a second
	AgentConcurrent int // new calls in flight
}

// Config is everything the gateway needs to know; cmd parses it.
type Config struct {
	Issuer  string
	Version string

	Tools     []Tool
	Upstreams []upstream.Config

	// Only SHA-256 sums of the tokens are kept. "" switches the role off.
	OperatorToken, ApproverToken, ReconcilerToken string

	AllowedOrigins    []string
	Limits            Limits
	MaxPermitLifetime time.Duration
	MaxBody           int64         // bytes; 0 is 1 MiB
	SettleDeadline    time.Duration // how long a caller waits for a store that does not commit; 0 is 30 s
	CatalogueRefresh  time.Duration // 0 is 60 s
}

const (
	defaultMaxBody          = 1 << 20
	defaultSettleDeadline   = 30 * time.Second
	defaultCatalogueRefresh = time.Minute
	defaultUpstreamTimeout  = 30 * time.Second
	defaultMaxResponse      = 4 << 20
)
