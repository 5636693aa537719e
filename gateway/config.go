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
	OperationRef  string // RFC 6901, into the arguments: what names the effect; "" none
	// DefinitionSHA256 pins the definition as agents see it, in lower-case hex: under another one, or before
	// its upstream has shown one, the tool is not listed and not called. "" takes every definition.
	DefinitionSHA256 string

	ChargeOnToolError bool
	MaxResponseBytes  int64
	Probe             *Probe // nil: only people find out what became of a lost call
}

// Probe is a tool of the same upstream that knows what became of a call, and does nothing. It is asked after the
// call has been uncertain for After, then at twice the distance each time up to Longest, until GiveUp.
type Probe struct {
	Tool     string // as the upstream calls it
	Argument string // gets the operation key
	Status   string // RFC 6901, into the result: "delivered", "not_delivered" or "unknown"

	After, Longest, GiveUp time.Duration
}

// Limits bounds what is done at once.
type Limits struct {
	AgentRate       int // new calls a second of one agent; 0 is no limit
	AgentConcurrent int // new calls in flight of one agent; 0 is no limit
	InFlight        int // new calls in flight of all; 0 is 2048
	Connections     int // of clients, of which one agent uses half at most; 0 is 4096
	// InputTTL is how long a tool that asks for input waits for its caller; 0 is 15 min.
	InputTTL time.Duration
}

// Timeouts bounds each read from a client and each write to one. None of them is
// a limit on the time of a call.
type Timeouts struct {
	Header time.Duration // from a request's first byte to the end of its head; 0 is 10 s
	Body   time.Duration // to the end of its body; 0 is 30 s
	Write  time.Duration // for each 64 KiB of an answer; 0 is 30 s
	Idle   time.Duration // between requests; 0 is 2 min
}

// Config is everything the gateway needs to know; cmd parses it.
type Config struct {
	Issuer  string
	Version string

	Tools     []Tool
	Upstreams []upstream.Config

	// Only SHA-256 sums of the tokens are kept. "" switches the role off.
	OperatorToken, ApproverToken, ReconcilerToken string

	// Platforms are those whose envelopes name a call, beside the built-in ones.
	Platforms []string
	// Diagnostics logs the shape of each call's `_meta`.
	Diagnostics bool

	AllowedOrigins    []string
	Limits            Limits
	Timeouts          Timeouts
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

	defaultInFlight    = 2048
	defaultConnections = 4096
	defaultInputTTL    = 15 * time.Minute
	defaultHeader      = 10 * time.Second
	defaultBody        = 30 * time.Second
	defaultWrite       = 30 * time.Second
	defaultIdle        = 2 * time.Minute
)

func (cfg *Config) setDefaults() {
	cfg.MaxBody = orDefault(cfg.MaxBody, defaultMaxBody)
	cfg.SettleDeadline = orDefault(cfg.SettleDeadline, defaultSettleDeadline)
	cfg.CatalogueRefresh = orDefault(cfg.CatalogueRefresh, defaultCatalogueRefresh)
	cfg.Limits.InFlight = orDefault(cfg.Limits.InFlight, defaultInFlight)
	cfg.Limits.Connections = orDefault(cfg.Limits.Connections, defaultConnections)
	cfg.Limits.InputTTL = orDefault(cfg.Limits.InputTTL, defaultInputTTL)
	cfg.Timeouts.Header = orDefault(cfg.Timeouts.Header, defaultHeader)
	cfg.Timeouts.Body = orDefault(cfg.Timeouts.Body, defaultBody)
	cfg.Timeouts.Write = orDefault(cfg.Timeouts.Write, defaultWrite)
	cfg.Timeouts.Idle = orDefault(cfg.Timeouts.Idle, defaultIdle)
}
