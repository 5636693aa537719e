package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"counterfoil/gateway/upstream"
	"counterfoil/ledger"
	"counterfoil/permits"
)

// catalogue holds the configured tools and what their upstreams say about them.
// The set of tools never changes while the process runs; a definition does.
type catalogue struct {
	order   []*entry // by name
	byName  map[string]*entry
	log     *slog.Logger
	metrics *Metrics
	ledger  *ledger.Ledger
	asked   []chan struct{} // one for each upstream, closed after its first answer or failure
}

// entry is one tool. Everything but def is fixed at start.
type entry struct {
	Tool
	policy  permits.Tool
	client  *upstream.Client
	timeout time.Duration
	meters  toolMeters
	def     atomic.Pointer[definition]
	// recorded is the hash of the definition that is stored as the tool's last; only the goroutine that asks the
	// upstream uses it.
	recorded string
	// probeReadOnly says that the upstream calls the probe's tool read-only: else it is not asked.
	probeReadOnly atomic.Bool
}

// CatalogueTool is a tool as the outside may see it.
type CatalogueTool struct {
	Tool
	Definition []byte // canonical
	SHA256     string // of Definition: the receipts' tool_sha256
	Described  bool   // false until the upstream has described the tool
	Withheld   string // why it is not in force; "": it is
	Probed     bool   // it has a probe, and its upstream calls that read-only
}

// newCatalogue checks all that is configured and tells every fault together.
func newCatalogue(cfg Config, d Deps) (*catalogue, map[string]*upstream.Client, error) {
	clients, timeouts, err := newClients(cfg, d.Logger)
	faults := []error{err}
	cat := &catalogue{byName: make(map[string]*entry, len(cfg.Tools)), log: d.Logger, metrics: d.Metrics, ledger: d.Ledger}
	names := make(map[string]string, len(cfg.Tools))
	for _, t := range cfg.Tools {
		folded := strings.ToLower(t.Name)
		other, taken := names[folded]
		names[folded] = t.Name
		e, err := newEntry(t, clients[t.Upstream], timeouts[t.Upstream], d.Metrics)
		switch {
		case taken:
			faults = append(faults, fmt.Errorf("tool %s: its name is that of tool %s", t.Name, other))
		case strings.HasPrefix(folded, reservedPrefix):
			faults = append(faults, fmt.Errorf("tool %s: names that begin with %s are the gateway's own", t.Name, reservedPrefix))
		case err != nil:
			faults = append(faults, err)
		default:
			cat.byName[t.Name] = e
			cat.order = append(cat.order, e)
		}
	}
	slices.SortFunc(cat.order, func(a, b *entry) int { return strings.Compare(a.Name, b.Name) })
	if err := errors.Join(faults...); err != nil {
		return nil, clients, err
	}
	return cat, clients, cat.remember()
}

// reservedPrefix begins the names of the gateway's own tools, in any case.
const reservedPrefix = "counterfoil_"

func newClients(cfg Config, log *slog.Logger) (map[string]*upstream.Client, map[string]time.Duration, error) {
	var faults []error
	clients := make(map[string]*upstream.Client, len(cfg.Upstreams))
	timeouts := make(map[string]time.Duration, len(cfg.Upstreams))
	for _, u := range cfg.Upstreams {
		if clients[u.Name] != nil {
			faults = append(faults, fmt.Errorf("upstream %s is configured twice", u.Name))
			continue
		}
		if u.Logger == nil {
			u.Logger = log
		}
		client, err := upstream.New(u)
		if err != nil {
			faults = append(faults, fmt.Errorf("upstream %s: %w", u.Name, err))
			continue
		}
		clients[u.Name], timeouts[u.Name] = client, orDefault(u.Timeout, defaultUpstreamTimeout)
	}
	return clients, timeouts, errors.Join(faults...)
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
	if t.DefinitionSHA256 != "" {
		e.meters.pinBroken = m.pinBroken.WithLabelValues(t.Name)
	}
	e.def.Store(e.unseen(permissive(t.Name)))
	m.definitionChanges.WithLabelValues(t.Name)
	if t.Probe != nil {
		for _, answer := range probeAnswers() {
			m.probes.WithLabelValues(t.Name, answer)
		}
	}
	return e, nil
}

// Tools returns the catalogue in the order of its names.
func (g *Gateway) Tools() []CatalogueTool {
	out := make([]CatalogueTool, 0, len(g.catalogue.order))
	for _, e := range g.catalogue.order {
		def := e.def.Load()
		out = append(out, CatalogueTool{
			Tool: e.Tool, Definition: def.json, SHA256: def.sha256, Described: def.described, Withheld: def.withheld,
			Probed: e.probeReadOnly.Load(),
		})
	}
	return out
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
