// Package config guarantees that a configuration is either whole and valid, or refused with every
// fault named at once: nothing is guessed, and nothing that was written is ignored.
package config

import (
	"net/http"
	"net/url"
	"time"
)

// Config is one configuration, checked. Paths in it are absolute.
type Config struct {
	File           string
	Issuer         string
	Listen         string
	Database       Database
	KeysDir        string
	Tokens         Tokens
	AllowedOrigins []string
	Upstreams      []Upstream
	Tools          []Tool
	Identity       Identity
	Limits         Limits
	Log            Log
}

// Database names the ledger's PostgreSQL: exactly one of the two is set.
type Database struct {
	URL         Secret // may hold a password
	EmbeddedDir string
	EmbeddedBin string // the directory of postgres and initdb; "": the newest installed one that fits
}

// Embedded says whether the gateway runs its own server.
func (d Database) Embedded() bool { return d.EmbeddedDir != "" }

// Place names the database without what is secret in its URL.
func (d Database) Place() string {
	if d.Embedded() {
		return "embedded in " + d.EmbeddedDir
	}
	u, err := url.Parse(d.URL.Reveal())
	if err != nil || u.Host == "" && u.Path == "" {
		return "[secret]"
	}
	return u.Host + u.Path
}

// Tokens are the bearer tokens of people. Empty: nobody has that part.
type Tokens struct {
	Operator   Secret
	Approver   Secret
	Reconciler Secret
}

// Upstream is one MCP server that the gateway calls: by URL, or as a process that it runs.
type Upstream struct {
	Name             string
	URL              string   // "": a process
	Command          []string // its program and arguments
	Dir              string
	Environ          []string          // what it is told of our own environment
	Env              map[string]string // what it is given: secret values
	Timeout          time.Duration
	Headers          http.Header // secret values
	ForwardKeyHeader string
	Refusals         []int // nil: the contract's list
	Concurrency      int   // calls at a time; 0: the client's own bound
	Rate             int   // calls a second; 0: no limit
}

// Tool is one entry of the catalogue.
type Tool struct {
	Name             string
	Upstream         string
	UpstreamTool     string
	Credits          int64  // the price, or the most it can be
	ActualPointer    string // "": the price is fixed
	Scopes           []string
	Value            *Value
	Recipients       []string
	OperationRef     string // pointer to the argument that names the effect; "": none
	ChargeOnError    bool
	MaxResponseBytes int64
	DefinitionSHA256 string // "": any definition is taken
	Probe            *Probe // nil: only people find out what became of a lost call
}

// Value says which argument of a tool holds money, and in which currency.
type Value struct {
	Pointer  string
	Currency string
}

// Identity says how calls are known that name no idempotency key, and by which keys tools know them.
type Identity struct {
	Platforms   []string // whose envelopes name a call, beside codex and claude_code
	Pool        bool     // operation keys come from those that an operator loads
	Diagnostics bool     // the shape of each call's _meta is logged
}

// Limits bound what a gateway does.
type Limits struct {
	Lease           time.Duration
	PermitLifetime  time.Duration
	BodyBytes       int64
	AgentRate       int // new calls a second of one agent; 0: no limit
	AgentConcurrent int // new calls in flight of one agent; 0: no limit
	InFlight        int // new calls in flight
	Connections     int // of clients
	Queue           int // requests that wait in one lane of the ledger
	Timeouts        Timeouts
	Retention       time.Duration // of response bodies; 0: for ever
	InputTTL        time.Duration // how long a tool that asks for input waits for its caller

	CatalogueRefresh time.Duration // between two looks at an upstream's tools
}

// Timeouts bound each wait for a client, and the wait for the store.
type Timeouts struct {
	Header, Body, Write, Idle time.Duration
	Store                     time.Duration
}

// Log says how the gateway writes its log.
type Log struct {
	Format string // json, text
	Level  string // debug, info, warn, error
}

// The values of what a configuration leaves out.
const (
	defaultTimeout        = 30 * time.Second
	defaultLease          = 15 * time.Second
	defaultPermitLifetime = 366 * 24 * time.Hour
	defaultBodyBytes      = 1 << 20
	defaultResponseBytes  = 4 << 20
	maxCredits            = 1<<53 - 1

	defaultInFlight    = 2048
	defaultConnections = 4096
	defaultQueue       = 4096
	defaultInputTTL    = 15 * time.Minute
	maxInputTTL        = 30 * 24 * time.Hour
	defaultRetention   = 90 * 24 * time.Hour
	defaultRefresh     = time.Minute
	maxRetention       = 100 * 365 * 24 * time.Hour
	defaultHeader      = 10 * time.Second
	defaultBody        = 30 * time.Second
	defaultWrite       = 30 * time.Second
	defaultIdle        = 2 * time.Minute
	defaultStore       = 20 * time.Second
)
