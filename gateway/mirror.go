package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"counterfoil/gateway/upstream"
	"counterfoil/internal/canon"
	"counterfoil/ledger"
)

// Why a tool is not in force, in words for those who call it. None of them moves money.
const (
	withheldUnseen  = "The operator has pinned this tool's definition, and its server has not described it yet. Nothing was called and nothing was charged; ask again later."
	withheldChanged = "The operator has pinned this tool's definition, and its server describes another one now. Nothing was called and nothing was charged; ask the operator, who has been told."
	withheldGone    = "The operator has pinned this tool's definition, and its server does not list the tool any more. Nothing was called and nothing was charged; ask the operator, who has been told."
	withheldFaulty  = "The tool's server describes it in a way that cannot be served. Nothing was called and nothing was charged; ask the operator, who has been told."
)

const (
	mirrorTimeout = 10 * time.Second
	firstRetry    = 500 * time.Millisecond
)

// unseen is the definition of a tool before its upstream has answered: a pinned one waits for that.
func (e *entry) unseen(d *definition) *definition {
	if e.DefinitionSHA256 == "" {
		return d
	}
	e.meters.pinBroken.Set(1)
	return d.withhold(withheldUnseen)
}

// remember begins with the definitions that the tools had last, so that a restart changes nothing while an upstream
// is away. Those that stand in for none are kept first: a receipt may name one.
func (c *catalogue) remember() error {
	ctx, cancel := context.WithTimeout(context.Background(), mirrorTimeout)
	defer cancel()
	var names []string
	var standIns []ledger.ToolDefinition
	for _, e := range c.order {
		names, standIns = append(names, e.Name), append(standIns, rowOf(e.Name, e.def.Load()))
	}
	if err := c.ledger.KeepToolDefinitions(ctx, standIns); err != nil {
		return err
	}
	known, err := c.ledger.ToolsDescribed(ctx, names)
	if err != nil {
		return err
	}
	for _, k := range known {
		def, err := remembered(k.Tool, k.Text)
		if err != nil {
			c.log.Warn("a remembered definition is not used", "tool", k.Tool, "error", err)
			continue
		}
		e := c.byName[k.Tool]
		e.recorded = def.sha256
		e.def.Store(e.unseen(def))
	}
	return nil
}

func rowOf(name string, d *definition) ledger.ToolDefinition {
	return ledger.ToolDefinition{Tool: name, SHA256: sha256.Sum256(d.json), Text: string(d.json)}
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
			wait = min(max(2*wait, firstRetry), every)
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

// mirror takes over the definitions of one upstream. What is withheld from now on is so at once; what comes into
// force is stored before, so that no receipt names a definition that nobody can read.
func (c *catalogue) mirror(ctx context.Context, name string, client *upstream.Client) error {
	ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
	defer cancel()
	tools, err := client.Tools(ctx)
	if err != nil {
		return fmt.Errorf("list tools: %w", err)
	}
	listed := make(map[string]upstream.Tool, len(tools))
	for _, t := range tools {
		listed[t.Name] = t
	}
	c.allowProbes(name, listed)
	var found []described
	for _, e := range c.order {
		if e.Upstream != name {
			continue
		}
		d := described{e, c.judge(e, listed)}
		if d.def.withheld != "" {
			c.adopt(d)
		}
		found = append(found, d)
	}
	if err := c.record(ctx, found); err != nil {
		return err
	}
	for _, d := range found {
		c.adopt(d)
	}
	return nil
}

// described is a tool and what its upstream says it is now.
type described struct {
	*entry
	def *definition
}

// judge says what has become of a tool's definition. A tool that its upstream no longer names keeps the one it had,
// unless that is pinned: its calls are refused upstream, not here.
func (c *catalogue) judge(e *entry, listed map[string]upstream.Tool) *definition {
	before := e.def.Load()
	t, there := listed[e.UpstreamTool]
	if !there {
		c.log.Warn("the upstream does not list a configured tool", "upstream", e.Upstream, "tool", e.Name)
		if e.DefinitionSHA256 != "" {
			return before.withhold(withheldGone)
		}
		return before
	}
	def, err := mirrored(e.Name, t)
	if err != nil {
		c.log.Warn("a tool's definition cannot be served", "upstream", e.Upstream, "tool", e.Name, "error", err)
		return before.withhold(withheldFaulty)
	}
	if e.DefinitionSHA256 != "" && e.DefinitionSHA256 != def.sha256 {
		return def.withhold(withheldChanged)
	}
	return def
}

// maxRecorded bounds the definitions of one transaction.
const maxRecorded = 64

// record stores definitions that the tools did not have before.
func (c *catalogue) record(ctx context.Context, found []described) error {
	found = slices.DeleteFunc(slices.Clone(found), func(d described) bool {
		return !d.def.described || d.def.sha256 == d.recorded
	})
	for some := range slices.Chunk(found, maxRecorded) {
		rows := make([]ledger.ToolDefinition, 0, len(some))
		for _, d := range some {
			rows = append(rows, rowOf(d.Name, d.def))
		}
		_, err := c.ledger.Administer(ctx, ledger.Act{Actor: "gateway"}, func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
			return ledger.Answer{}, a.DefineTools(ctx, rows)
		})
		if err != nil {
			return fmt.Errorf("store definitions: %w", err)
		}
		for _, d := range some {
			d.recorded = d.def.sha256
		}
	}
	return nil
}

// adopt makes a definition the one that counts, and tells of what that changes. The hot path asks it one question.
func (c *catalogue) adopt(d described) {
	before := d.entry.def.Swap(d.def)
	if d.DefinitionSHA256 != "" {
		d.meters.pinBroken.Set(0)
		if d.def.withheld != "" {
			d.meters.pinBroken.Set(1)
		}
	}
	if before.described && (before.sha256 != d.def.sha256 || before.withheld == "" && d.def.withheld != "") {
		c.metrics.definitionChanges.WithLabelValues(d.Name).Inc()
		c.log.Warn("a tool's definition has changed", "upstream", d.Upstream, "tool", d.Name, "before", before.sha256,
			"after", d.def.sha256, "pinned", d.DefinitionSHA256, "in_force", d.def.withheld == "")
	}
	if before.withheld != d.def.withheld && d.def.withheld != "" {
		c.log.Error("a tool is not in force", "upstream", d.Upstream, "tool", d.Name, "why", d.def.withheld)
	}
}

// allowProbes lets only those probes of an upstream be asked that it calls read-only itself.
func (c *catalogue) allowProbes(name string, listed map[string]upstream.Tool) {
	for _, e := range c.order {
		if e.Upstream != name || e.Probe == nil {
			continue
		}
		probe := listed[e.Probe.Tool]
		hint, _ := canon.Lookup(probe.Definition, "/annotations/readOnlyHint")
		readOnly := probe.Fault == nil && string(hint) == "true"
		if e.probeReadOnly.Store(readOnly); !readOnly {
			c.log.Warn("a probe is not asked: its upstream does not list it with annotations.readOnlyHint true", "upstream", name, "tool", e.Name, "probe", e.Probe.Tool)
		}
	}
}
