// Package gateway lets a call act at most once, under a permit, and answers it
// with its signed record: govern.go is the order of a call, and every front door
// goes through it. Only this package and its front doors know HTTP.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway/upstream"
	"counterfoil/internal/jws"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// Deps are the parts that a gateway stands on. It owns none of them.
type Deps struct {
	Ledger  *ledger.Ledger
	Keyring *jws.Keyring
	Logger  *slog.Logger
	Metrics *Metrics
	Now     func() time.Time
}

// Gateway is one running gateway. It is safe for concurrent use.
type Gateway struct {
	cfg       Config // without its tokens
	ledger    *ledger.Ledger
	keyring   *jws.Keyring
	log       *slog.Logger
	metrics   *Metrics
	now       func() time.Time
	tokens    []roleToken
	catalogue *catalogue
	clients   map[string]*upstream.Client
	limiter   *limiter
	origins   map[string]bool
	echo      *echo.Echo

	// base is the context of calls that are on their way. It outlives their
	// callers and ends when a drain has run out of time.
	base     context.Context
	cut      context.CancelFunc
	stop     context.CancelFunc // of what runs in the background
	draining atomic.Bool
	inside   atomic.Int64 // requests that are being answered
	tasks    sync.WaitGroup
}

// New checks the configuration and starts to mirror the upstreams' tools. The
// front doors are registered by their own packages.
func New(cfg Config, d Deps) (*Gateway, error) {
	if d.Ledger == nil || d.Keyring == nil || d.Logger == nil || d.Metrics == nil || d.Now == nil {
		return nil, errors.New("gateway: a dependency is missing")
	}
	if cfg.Issuer == "" || cfg.MaxPermitLifetime <= 0 {
		return nil, errors.New("gateway: an issuer and a longest permit lifetime are needed")
	}
	tokens, err := roleTokens(cfg)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	cfg.OperatorToken, cfg.ApproverToken, cfg.ReconcilerToken = "", "", ""
	cfg.setDefaults()
	cat, clients, err := newCatalogue(cfg, d)
	if err != nil {
		closeAll(clients)
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g := &Gateway{
		cfg: cfg, ledger: d.Ledger, keyring: d.Keyring, log: d.Logger, metrics: d.Metrics, now: d.Now,
		tokens: tokens, catalogue: cat, clients: clients, limiter: newLimiter(cfg.Limits, upstreamBounds(cfg.Upstreams, clients), d.Now()),
	}
	if g.origins, err = originSet(cfg); err != nil {
		closeAll(clients)
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g.base, g.cut = context.WithCancel(context.Background())
	background, stop := context.WithCancel(context.Background())
	g.stop = stop
	g.echo = g.newEcho()
	for name, client := range clients {
		asked := make(chan struct{})
		cat.asked = append(cat.asked, asked)
		g.tasks.Go(func() { cat.refresh(background, name, client, cfg.CatalogueRefresh, asked) })
	}
	if p := g.newProber(); len(p.tools) > 0 {
		g.tasks.Go(func() { p.run(background) })
	}
	return g, nil
}

// Close ends what runs in the background and the upstream sessions. Calls in
// flight end as their upstream's silence would end them; drain first.
func (g *Gateway) Close() {
	g.draining.Store(true)
	g.stop()
	g.cut()
	g.tasks.Wait()
	closeAll(g.clients)
}

// closeAll waits for all at once: a process may take its time to end.
func closeAll(clients map[string]*upstream.Client) {
	var closing sync.WaitGroup
	for _, c := range clients {
		closing.Go(c.Close)
	}
	closing.Wait()
}

// Echo is the router: front doors add their routes to it.
func (g *Gateway) Echo() *echo.Echo { return g.echo }

// Ledger is the durable record.
func (g *Gateway) Ledger() *ledger.Ledger { return g.ledger }

// Keyring holds the gateway's own keys.
func (g *Gateway) Keyring() *jws.Keyring { return g.keyring }

// Logger never gets a secret.
func (g *Gateway) Logger() *slog.Logger { return g.log }

// Config is what the gateway was made with, its tokens left out.
func (g *Gateway) Config() Config { return g.cfg }

// Now is the process's clock: for waiting and measuring. What is recorded has
// the database's.
func (g *Gateway) Now() time.Time { return g.now() }

// PermitTrust is what a permit must be signed by and say to be one of ours.
func (g *Gateway) PermitTrust() ledger.PermitTrust {
	return ledger.PermitTrust{Issuer: g.cfg.Issuer, Keys: g.keyring.Public(), MaxLifetime: g.cfg.MaxPermitLifetime}
}

// permitByID is parsed once and then kept by the ledger.
func (g *Gateway) permitByID(ctx context.Context, id string) (*permits.Permit, error) {
	return g.ledger.PermitByID(ctx, id, g.PermitTrust())
}

// ReasonOf maps an error to its reason code. What has no row is internal, and
// nothing of it is told.
func (g *Gateway) ReasonOf(err error) receipts.Reason {
	switch {
	case errors.Is(err, ledger.ErrUnavailable), errors.Is(err, ledger.ErrQueueFull):
		return receipts.ReasonStoreUnavailable
	case errors.Is(err, ledger.ErrUnknown):
		return receipts.ReasonOutcomeUnknown
	case errors.Is(err, ledger.ErrPermitUnknown):
		return receipts.ReasonPermitNotFound
	case errors.Is(err, ledger.ErrRoundTaken):
		return receipts.ReasonIdempotencyInProgress
	case errors.Is(err, ledger.ErrPermitRevoked):
		return receipts.ReasonRevoked
	case errors.Is(err, ledger.ErrPermitExpired):
		return receipts.ReasonExpired
	case errors.Is(err, ledger.ErrWalletFrozen):
		return receipts.ReasonWalletFrozen
	case errors.Is(err, ledger.ErrNotFound):
		return receipts.ReasonNotFound
	case errors.Is(err, ledger.ErrConflict):
		return receipts.ReasonConflict
	case errors.Is(err, ErrTooLarge):
		return receipts.ReasonRequestTooLarge
	case errors.Is(err, ErrUnauthenticated):
		return receipts.ReasonUnauthenticated
	}
	return receipts.ReasonInternal
}

// refuse logs what is ours to explain, once, and hides it from the caller.
func (g *Gateway) refuse(err error) *Refusal {
	reason := g.ReasonOf(err)
	switch {
	case errors.Is(err, context.Canceled):
		// The caller left before its call joined a batch: nothing happened.
		reason = receipts.ReasonStoreUnavailable
	case reason == receipts.ReasonInternal, reason == receipts.ReasonOutcomeUnknown:
		g.log.Error("a call failed in the store", "error", err)
	}
	refusal := &Refusal{Reason: reason}
	if errors.Is(err, ledger.ErrNoOperationKeys) {
		g.log.Warn("a new call is refused: the pool of operation keys is empty")
		refusal.Detail = poolEmpty
	}
	return refusal
}

const poolEmpty = "The gateway's pool of operation keys is empty, and a new call needs one: its operator has to load some (counterfoil operation keys load). " +
	"Nothing ran, and nothing was charged; ask again with the same key."
