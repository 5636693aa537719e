package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"counterfoil/gateway/upstream"
	"counterfoil/internal/canon"
	"counterfoil/ledger"
	"counterfoil/permits"
)

// catalogue holds the configured tools and what their upstreams say about them.
// The set of tools never changes while the process runs; a definition does.
type catalogue struct {
	order  []*entry
	byName map[string]*entry
	log    *slog.Logger
	asked  []chan struct{} // one for each upstream, closed after its first answer or failure
}

// entry is one tool. Everything but def is fixed at start.
type entry struct {
	Tool
	policy  permits.Tool
	client  *upstream.Client
	timeout time.Duration
	meters  toolMeters
	def     atomic.Pointer[definition]
	// probeReadOnly says that the upstream calls the probe's tool read-only: else it is not asked.
	probeReadOnly atomic.Bool
}

// CatalogueTool is a tool as the outside may see it.
type CatalogueTool struct {
	Tool
	Definition []byte // canonical, as tools/list shows it
	SHA256     string // of Definition: the receipts' tool_sha256
	Mirrored   bool   // false until the upstream has described the tool
	Probed     bool   // it has a probe, and its upstream calls that read-only
}

func newCatalogue(cfg Config, m *Metrics, log *slog.Logger) (*catalogue, map[string]*upstream.Client, error) {
	clients := make(map[string]*upstream.Client, len(cfg.Upstreams))
	timeouts := make(map[string]time.Duration, len(cfg.Upstreams))
	for _, u := range cfg.Upstreams {
		if clients[u.Name] != nil {
			return nil, clients, fmt.Errorf("upstream %s is configured twice", u.Name)
		}
		if u.Logger == nil {
			u.Logger = log
		}
		client, err := upstream.New(u)
		if err != nil {
			return nil, clients, fmt.Errorf("upstream %s: %w", u.Name, err)
		}
		clients[u.Name], timeouts[u.Name] = client, orDefault(u.Timeout, defaultUpstreamTimeout)
	}
	cat := &catalogue{byName: make(map[string]*entry, len(cfg.Tools)), log: log}
	for _, t := range cfg.Tools {
		e, err := newEntry(t, clients[t.Upstream], timeouts[t.Upstream], m)
		if err != nil {
			return nil, clients, err
		}
		if cat.byName[t.Name] != nil {
			return nil, clients, fmt.Errorf("tool %s is configured twice", t.Name)
		}
		cat.byName[t.Name] = e
		cat.order = append(cat.order, e)
	}
	return cat, clients, nil
}

// upstreamBounds are the limits of each upstream, as the limiter keeps them.
func upstreamBounds(configs []upstream.Config, clients map[string]*upstream.Client) map[string]bound {
	out := make(map[string]bound, len(configs))
	for _, u := range configs {
		out[u.Name] = bound{rate: u.Rate, concurrent: perSlot * clients[u.Name].Concurrency()}
	}
	return out
}

// upstreamOf names the upstream of a tool; "" where there is no such tool.
func (c *catalogue) upstreamOf(tool string) string {
	if e, ok := c.byName[tool]; ok {
		return e.Upstream
	}
	return ""
}

func newEntry(t Tool, client *upstream.Client, timeout time.Duration, m *Metrics) (*entry, error) {
	if client == nil {
		return nil, fmt.Errorf("tool %s: there is no upstream %q", t.Name, t.Upstream)
	}
	if t.Price < 0 || t.Price > permits.MaxInteger {
		return nil, fmt.Errorf("tool %s: the price is out of range", t.Name)
	}
	if t.UpstreamTool == "" {
		t.UpstreamTool = t.Name
	}
	if t.MaxResponseBytes == 0 {
		t.MaxResponseBytes = defaultMaxResponse
	}
	e := &entry{
		Tool: t, client: client, timeout: timeout, meters: m.forTool(t.Name),
		policy: permits.Tool{Name: t.Name, Scopes: t.Scopes, Price: t.Price, Value: t.Value, Recipients: t.Recipients},
	}
	e.def.Store(permissive(t.Name))
	if t.Probe != nil {
		for _, answer := range probeAnswers() {
			m.probes.WithLabelValues(t.Name, answer)
		}
	}
	return e, nil
}

// refresh asks one upstream for its tools, again and again, until ctx ends.
func (c *catalogue) refresh(ctx context.Context, name string, client *upstream.Client, every time.Duration, asked chan struct{}) {
	wait := time.Duration(0)
	for {
		err := c.mirror(ctx, name, client)
		select {
		case <-asked:
		default:
			close(asked)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.log.Warn("tools of an upstream could not be listed", "upstream", name, "error", err)
			wait = min(max(2*wait, 500*time.Millisecond), every)
		} else {
			wait = every
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err == nil {
			wait = 0
		}
	}
}

// mirror takes over the definitions of one upstream. A tool that it no longer
// names keeps the definition it had: its calls are refused upstream, not here.
func (c *catalogue) mirror(ctx context.Context, name string, client *upstream.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tools, err := client.Tools(ctx)
	if err != nil {
		return fmt.Errorf("list tools: %w", err)
	}
	for _, e := range c.order {
		if e.Upstream != name {
			continue
		}
		i := slices.IndexFunc(tools, func(t upstream.Tool) bool { return t.Name == e.UpstreamTool })
		if i < 0 {
			c.log.Warn("the upstream does not list a configured tool", "upstream", name, "tool", e.Name)
			continue
		}
		def, err := mirrored(e.Name, tools[i])
		if err != nil {
			c.log.Warn("a tool's definition was not taken over", "upstream", name, "tool", e.Name, "error", err)
			continue
		}
		e.def.Store(def)
	}
	c.allowProbes(name, tools)
	return nil
}

// allowProbes lets only those probes of an upstream be asked that it calls read-only itself.
func (c *catalogue) allowProbes(name string, tools []upstream.Tool) {
	for _, e := range c.order {
		if e.Upstream != name || e.Probe == nil {
			continue
		}
		readOnly := slices.ContainsFunc(tools, func(t upstream.Tool) bool {
			hint, _ := canon.Lookup(t.Definition, "/annotations/readOnlyHint")
			return t.Name == e.Probe.Tool && string(hint) == "true"
		})
		if e.probeReadOnly.Store(readOnly); !readOnly {
			c.log.Warn("a probe is not asked: its upstream does not list it with annotations.readOnlyHint true", "upstream", name, "tool", e.Name, "probe", e.Probe.Tool)
		}
	}
}

// Tools returns the catalogue in its configured order.
func (g *Gateway) Tools() []CatalogueTool {
	out := make([]CatalogueTool, 0, len(g.catalogue.order))
	for _, e := range g.catalogue.order {
		def := e.def.Load()
		out = append(out, CatalogueTool{Tool: e.Tool, Definition: def.json, SHA256: def.sha256, Mirrored: def.mirrored, Probed: e.probeReadOnly.Load()})
	}
	return out
}

// Definitions returns the tool definitions that an agent may see, as JSON: those
// that the permit allows or, where that is not a permit of this agent, all.
func (g *Gateway) Definitions(ctx context.Context, agent *ledger.Agent, permitID string) [][]byte {
	var permit *permits.Permit
	if permitID != "" {
		if p, err := g.permitByID(ctx, permitID); err == nil && p.Agent == agent.ID {
			permit = p
		}
	}
	out := make([][]byte, 0, len(g.catalogue.order))
	for _, e := range g.catalogue.order {
		if permit == nil || listed(permit, e) {
			out = append(out, e.def.Load().json)
		}
	}
	return out
}

func listed(p *permits.Permit, e *entry) bool {
	if !slices.Contains(p.Grant.Tools, e.Name) {
		return false
	}
	return !slices.ContainsFunc(e.Scopes, func(s string) bool { return !slices.Contains(p.Scopes, s) })
}

// ParamHeaders returns the headers that repeat arguments of a tool.
func (g *Gateway) ParamHeaders(tool string) []ParamHeader {
	if e, ok := g.catalogue.byName[tool]; ok {
		return e.def.Load().params
	}
	return nil
}

// PermitTool is what permits.CheckTools asks for.
func (g *Gateway) PermitTool(name string) (permits.Tool, bool) {
	e, ok := g.catalogue.byName[name]
	if !ok {
		return permits.Tool{}, false
	}
	return e.policy, true
}

// WaitCatalogue returns when each upstream has been asked once, with whatever
// result, or when ctx ends.
func (g *Gateway) WaitCatalogue(ctx context.Context) {
	for _, asked := range g.catalogue.asked {
		select {
		case <-asked:
		case <-ctx.Done():
			return
		}
	}
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
