package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"counterfoil/receipts"
)

// ErrTooLarge means that the body is over the limit and was not read to its end.
var ErrTooLarge = errors.New("the request body is too large")

const (
	// recordTimeout is what calls get to be recorded after a drain has cut them.
	recordTimeout = 10 * time.Second
	maxHeader     = 32 << 10 // bytes
	// trustedBody is how long a body may be said to be for memory to be taken before
	// it has come.
	trustedBody = 64 << 10 // bytes
)

func (g *Gateway) newEcho() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = g.httpError
	e.Use(g.limitBody, g.recover, g.checkOrigin, g.refuseWhileDraining)
	g.registerHealth(e)
	return e
}

// server is an HTTP server for the router on these connections. It sets no limit
// on the time of an answer: a call's own deadline does, and an answer that is cut
// would be lost. Of a client that does not read, the connections know.
func (g *Gateway) server(l *connections) *http.Server {
	return &http.Server{
		Handler: g.echo, ReadHeaderTimeout: g.cfg.Timeouts.Header, IdleTimeout: g.cfg.Timeouts.Idle, MaxHeaderBytes: maxHeader,
		ConnState: l.follow,
	}
}

// Serve answers on l until ctx ends, then drains for at most the given time. It
// returns nil only when no call was cut.
func (g *Gateway) Serve(ctx context.Context, l net.Listener, drain time.Duration) error {
	clients := newConnections(l, g.cfg.Limits.Connections, g.cfg.Timeouts.Write, g.now)
	srv := g.server(clients)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(clients) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	g.draining.Store(true)
	_ = clients.Close() // no new connections; those that are there are answered
	g.quiet(draining)
	return g.Drain(draining, srv)
}

// quiet waits until nobody that was let in is inside. The server is not shut down
// before: from then on it closes a connection on which a request has just come, and
// whoever sent that cannot know that nothing happened.
func (g *Gateway) quiet(ctx context.Context) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for g.inside.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// Drain takes no new calls and waits for those in flight. When ctx ends first,
// they are cut off from their upstreams and recorded as uncertain: no call is
// left without its record, unless the store is away.
func (g *Gateway) Drain(ctx context.Context, srv *http.Server) error {
	g.draining.Store(true)
	err := srv.Shutdown(ctx)
	if err == nil {
		return nil
	}
	g.log.Warn("the drain ran out of time, calls are cut", "error", err)
	g.cut()
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if late := srv.Shutdown(recording); late != nil {
		return errors.Join(fmt.Errorf("drain: %w", late), srv.Close())
	}
	return fmt.Errorf("drain: calls in flight were cut: %w", err)
}

// limitBody bounds the time that a body may take, also one that nobody wants: the
// server reads on for a while before it answers.
func (g *Gateway) limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().ContentLength != 0 {
			// Recorders in tests know no deadlines; a real connection does.
			_ = http.NewResponseController(c.Response()).SetReadDeadline(g.now().Add(g.cfg.Timeouts.Body))
		}
		return next(c)
	}
}

// ReadBody reads at most the allowed size. A body that has come to its end is no
// longer under the deadline of limitBody: the call may take longer.
func (g *Gateway) ReadBody(c echo.Context) ([]byte, error) {
	r := c.Request()
	if r.ContentLength > g.cfg.MaxBody {
		return nil, ErrTooLarge
	}
	body, err := readAll(r, g.cfg.MaxBody+1)
	if err != nil {
		return nil, fmt.Errorf("read request body: %w", err)
	}
	if int64(len(body)) > g.cfg.MaxBody {
		return nil, ErrTooLarge
	}
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Time{})
	return body, nil
}

func readAll(r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength <= 0 || r.ContentLength > trustedBody {
		return io.ReadAll(io.LimitReader(r.Body, most))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// httpError answers what the router refused. Unserved paths get JSON, since a
// page of HTML in /.well-known breaks clients.
func (g *Gateway) httpError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	var he *echo.HTTPError
	if !errors.As(err, &he) {
		g.log.Error("a request failed", "path", c.Path(), "error", err)
		_ = WriteProblem(c, receipts.ReasonInternal, "")
		return
	}
	switch he.Code {
	case http.StatusNotFound:
		_ = WriteProblem(c, receipts.ReasonNotFound, "")
	case http.StatusMethodNotAllowed:
		_ = WriteProblemStatus(c, receipts.ReasonInvalidRequest, he.Code, "This path does not take that method.")
	default:
		_ = WriteProblemStatus(c, receipts.ReasonInvalidRequest, he.Code, "")
	}
}

// recover answers a broken invariant. What the call did is not known.
func (g *Gateway) recover(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // the server compares it so, too
				panic(v)
			}
			g.log.Error("a request panicked", "path", c.Path(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = WriteProblem(c, receipts.ReasonInternal, "")
		}()
		return next(c)
	}
}

// refuseWhileDraining answers 503 and never 404: to some clients one early 404
// means that the server is gone for good.
func (g *Gateway) refuseWhileDraining(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		g.inside.Add(1) // before the look: who is let in has been counted
		defer g.inside.Add(-1)
		path := c.Request().URL.Path
		if g.draining.Load() && (strings.HasPrefix(path, "/mcp") || strings.HasPrefix(path, "/v1/")) {
			c.Response().Header().Set("Connection", "close")
			return WriteProblem(c, receipts.ReasonStoreUnavailable, "The gateway is stopping; nothing happened.")
		}
		return next(c)
	}
}

// checkOrigin keeps web pages of others away. On a loopback connection the Host
// is checked as well, since a page can make its own name point here.
func (g *Gateway) checkOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		local := onLoopback(r)
		if local && !g.origins[hostName(r.Host)] && !loopbackName(hostName(r.Host)) {
			return WriteProblem(c, receipts.ReasonForbidden, "This Host is not served here.")
		}
		for _, origin := range r.Header["Origin"] {
			if !g.originAllowed(origin, local) {
				return WriteProblem(c, receipts.ReasonForbidden, "This Origin is not allowed.")
			}
		}
		return next(c)
	}
}

// originSet holds the allowed origins and, for the Host check, their host names.
func originSet(cfg Config) (map[string]bool, error) {
	set := map[string]bool{}
	for _, o := range append([]string{cfg.Issuer}, cfg.AllowedOrigins...) {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" || u.Scheme == "" {
			return nil, fmt.Errorf("the origin %q is not scheme://host[:port]", o)
		}
		set[strings.ToLower(u.Scheme+"://"+u.Host)] = true
		set[strings.ToLower(u.Hostname())] = true
	}
	return set, nil
}

func (g *Gateway) originAllowed(origin string, local bool) bool {
	origin = strings.ToLower(origin)
	if strings.Contains(origin, "://") && g.origins[origin] {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && local && (u.Scheme == "http" || u.Scheme == "https") && loopbackName(u.Hostname())
}

func onLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func loopbackName(name string) bool {
	return name == "localhost" || net.ParseIP(name).IsLoopback()
}

func (g *Gateway) registerHealth(e *echo.Echo) {
	e.GET("/healthz", func(c echo.Context) error {
		return c.JSONBlob(http.StatusOK, []byte(`{"status":"ok"}`))
	})
	e.GET("/readyz", g.readyz)
	e.GET("/metrics", echo.WrapHandler(promhttp.HandlerFor(g.metrics.registry, promhttp.HandlerOpts{})))
	e.GET("/.well-known/jwks.json", g.jwks)
	e.GET("/.well-known/counterfoil.json", g.metadata)
}

// readyz tells a balancer whether to send calls here.
func (g *Gateway) readyz(c echo.Context) error {
	if g.draining.Load() {
		return WriteProblem(c, receipts.ReasonStoreUnavailable, "The gateway is stopping.")
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), 2*time.Second)
	defer cancel()
	if err := g.ledger.Ready(ctx); err != nil {
		g.log.Warn("not ready", "error", err)
		return WriteProblem(c, receipts.ReasonStoreUnavailable, "")
	}
	return c.JSONBlob(http.StatusOK, []byte(`{"status":"ready"}`))
}
