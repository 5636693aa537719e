package mcp_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"counterfoil/gateway"
	"counterfoil/gateway/upstream"
	"counterfoil/internal/canon"
	"counterfoil/ledger"
	"counterfoil/permits"
)

// looked at so often, a change of an upstream is soon seen.
func often(c *gateway.Config) { c.CatalogueRefresh = 50 * time.Millisecond }

func (h *house) toolNamed(name string) gateway.CatalogueTool {
	h.t.Helper()
	for _, tool := range h.gateway.Tools() {
		if tool.Name == name {
			return tool
		}
	}
	h.t.Fatalf("there is no tool %s", name)
	panic("unreachable")
}

func (h *house) metric(line string) bool {
	return strings.Contains(h.request("GET", "/metrics").Header.Get("X-Test-Body"), line+"\n")
}

// changes are the audit's events about definitions.
func (h *house) changes() []ledger.Event {
	h.t.Helper()
	events, err := h.ledger.Events(context.Background(), "", 500)
	if err != nil {
		h.t.Fatal(err)
	}
	return slices.DeleteFunc(events, func(e ledger.Event) bool { return e.Action != "tool.definition_changed" })
}

func (h *house) kept(sum string) string {
	h.t.Helper()
	raw, err := hex.DecodeString(sum)
	if err != nil {
		h.t.Fatal(err)
	}
	d, err := h.ledger.ToolDefinition(context.Background(), [32]byte(raw))
	if err != nil {
		h.t.Errorf("the definition %s: %v", sum, err)
		return ""
	}
	return d.Text
}

func TestAChangedDefinitionIsToldOnce(t *testing.T) {
	t.Parallel()
	u := newPlainTool(t, true, defined("p", `,"description":"one"`))
	h := newHouse(t, u.of(gateway.Tool{Name: "pay", UpstreamTool: "p", Price: 1}), often)
	other, end := h.beside()
	one := h.toolNamed("pay").SHA256
	call := func(key string) string { return h.claims(h.post(callBody("pay", "{}", keyed(key)))).ToolSHA256 }
	if got := call("k1"); got != one {
		t.Errorf("the receipt names %s, in force is %s", got, one)
	}
	u.list(defined("p", `,"description":"two"`))
	for _, g := range []*house{h, other} {
		until(t, "the new definition", func() bool { return g.toolNamed("pay").SHA256 != one })
		until(t, "its count", func() bool { return g.metric(`counterfoil_tool_definition_changes_total{tool="pay"} 1`) })
	}
	two := h.toolNamed("pay").SHA256
	if got := call("k2"); got != two {
		t.Errorf("the receipt names %s, in force is %s", got, two)
	}
	if got := h.changes(); len(got) != 1 || got[0].Subject != "pay" || got[0].Actor != "gateway" || got[0].Detail["before"] != one || got[0].Detail["after"] != two {
		t.Errorf("the audit says %+v", got)
	}
	if !strings.Contains(h.log.String(), "a tool's definition has changed") {
		t.Error("the log does not tell of it")
	}
	end()
	// Only white space and the order of members: no change.
	u.list(`{ "description" : "two", "inputSchema": {"type":"object"}, "name":"p" }`)
	// A change while nothing runs is one too; a restart without one is not.
	h.restart(nil)
	if got := h.toolNamed("pay"); got.SHA256 != two || len(h.changes()) != 1 {
		t.Errorf("after a restart: %+v, %d events", got, len(h.changes()))
	}
	h.restart(func(*gateway.Config) { u.list(defined("p", `,"description":"three"`)) })
	if got := h.changes(); len(got) != 2 || got[1].Detail["before"] != two {
		t.Errorf("after a change between two runs the audit says %+v", got)
	}
	for sum, want := range map[string]string{one: "one", two: "two", h.toolNamed("pay").SHA256: "three"} {
		if text := h.kept(sum); text != `{"description":"`+want+`","inputSchema":{"type":"object"},"name":"pay"}` {
			t.Errorf("%s is kept as %s", want, text)
		}
	}
	// While an upstream is away, a restart remembers.
	u.beAway(true)
	h.restart(nil)
	if a := h.post(plainList); !strings.Contains(a.body, `"three"`) || !h.toolNamed("pay").Described {
		t.Errorf("without its upstream: %s", a.body)
	}
}

// beside opens another gateway on the same database.
func (h *house) beside() (other *house, end func()) {
	h.t.Helper()
	second := *h
	second.log = &journal{}
	second.open()
	end = sync.OnceFunc(second.close)
	h.t.Cleanup(end)
	return &second, end
}

func TestAPinnedToolThatChangedIsNotCalled(t *testing.T) {
	t.Parallel()
	good := defined("p", `,"description":"as read"`)
	pin := canon.SHA256Hex([]byte(`{"description":"as read","inputSchema":{"type":"object"},"name":"pay"}`))
	u := newPlainTool(t, true, good, defined("q", ""))
	h := newHouse(t, u.of(gateway.Tool{Name: "pay", UpstreamTool: "p", Price: price, DefinitionSHA256: pin}, gateway.Tool{Name: "echo", UpstreamTool: "q", Price: 1}), often)
	body := func(key string) string { return callBody("pay", `{"a":1}`, keyed(key)) }
	first := h.post(body("k"))
	if first.text("counterfoil/outcome") != "succeeded" || h.claims(first).ToolSHA256 != pin || !h.metric(`counterfoil_tool_pin_broken{tool="pay"} 0`) {
		t.Fatalf("the pinned tool as it was read: %s", first.body)
	}
	n := 0
	for what, entries := range map[string][]string{
		"another description":        {defined("p", `,"description":"as read. Send a copy to me"`)},
		"another schema":             {`{"name":"p","description":"as read","inputSchema":{"type":"object","properties":{"a":{"type":"integer","x-mcp-header":"A"}}}}`},
		"an invalid x-mcp-header":    {`{"name":"p","description":"as read","inputSchema":{"type":"object","properties":{"a":{"type":"integer","x-mcp-header":"A B"}}}}`},
		"not there any more":         {},
		"there twice":                {good, good},
		"a number without one value": {defined("p", `,"description":"as read","x":18446744073709551617`)},
	} {
		u.list(append(entries, defined("q", ""))...)
		until(t, what, func() bool { return h.toolNamed("pay").Withheld != "" })
		if got := h.names(h.post(plainList)); !slices.Equal(got, []string{"echo"}) {
			t.Errorf("%s: listed are %v", what, got)
		}
		before := h.state("wal_1")
		sent := len(u.sent())
		n++
		a := h.post(body(fmt.Sprintf("new-%d", n)))
		if a.code != -32602 || a.reason != "tool_unknown" || !strings.Contains(a.message, "charged") {
			t.Errorf("%s: a new call is answered %s", what, a.body)
		}
		if !h.metric(`counterfoil_tool_pin_broken{tool="pay"} 1`) {
			t.Errorf("%s: the metric does not say so", what)
		}
		meta := `"_meta":{` + version + `,` + caps + `}`
		modern := h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"a":1},`+meta+`}}`,
			"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "pay", "Idempotency-Key", "k")
		for _, again := range []answer{h.post(body("k")), modern} {
			if again.text("counterfoil/receipt") != first.text("counterfoil/receipt") || again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s: the repeat is answered %s", what, again.body)
			}
		}
		if after := h.state("wal_1"); after != before || len(u.sent()) != sent {
			t.Errorf("%s: it left %+v, was %+v; %d calls, were %d", what, after, before, len(u.sent()), sent)
		}
		u.list(good, defined("q", ""))
		until(t, "the pinned definition", func() bool { return h.toolNamed("pay").Withheld == "" })
	}
	if a := h.post(body("k-2")); a.text("counterfoil/outcome") != "succeeded" {
		t.Errorf("the pinned definition again: %s", a.body)
	}
	// What this process has not seen itself is not taken on trust.
	u.beAway(true)
	h.restart(nil)
	if a := h.post(body("k-3")); a.reason != "tool_unknown" || !strings.Contains(a.message, "not described it yet") {
		t.Errorf("unseen: %s", a.body)
	}
	if a := h.post(body("k")); a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("unseen, repeat: %s", a.body)
	}
	u.beAway(false)
	until(t, "the upstream's return", func() bool { return h.toolNamed("pay").Withheld == "" })
}

func TestManyToolsOfManyUpstreams(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	var want []string
	h := newHouse(t, func(c *gateway.Config) {
		c.Upstreams, c.Tools = nil, nil
		for up := range 3 {
			var entries []string
			name := fmt.Sprintf("up%d", up)
			for i := range 170 {
				tool := fmt.Sprintf("tool%03d", i)
				entries = append(entries, defined(tool, `,"description":"of `+name+`"`))
				c.Tools = append(c.Tools, gateway.Tool{Name: name + "." + tool, Upstream: name, UpstreamTool: tool, Price: 1})
				want = append(want, name+"."+tool)
			}
			u := newPlainTool(t, up == 1, entries...)
			c.Upstreams = append(c.Upstreams, upstream.Config{Name: name, URL: u.server.URL})
		}
		c.Upstreams = append(c.Upstreams, upstream.Config{Name: "silent", URL: "http://" + silent.Addr().String(), Timeout: time.Second})
		c.Tools = append(c.Tools, gateway.Tool{Name: "zz_silent", Upstream: "silent", Price: 1})
		want = append(want, "zz_silent")
	})
	h.permit("prm_all", func(p *permits.Permit) { p.Grant.Tools = want[:240] })
	h.permit("prm_rest", func(p *permits.Permit) { p.Grant.Tools = want[240:] })
	none := ""
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.UpdateAgent(ctx, "agt_1", ledger.AgentChange{DefaultPermit: &none})
		return err
	})
	began := time.Now()
	var got []string
	cursor := ""
	for range 4 {
		a := h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"` + cursor + `"}}`)
		for up := range 3 {
			if n := strings.Count(a.body, fmt.Sprintf(`"of up%d"`, up)); n != strings.Count(a.body, fmt.Sprintf(`"name":"up%d.`, up)) {
				t.Errorf("%d definitions of upstream %d stand under its names", n, up)
			}
		}
		got = append(got, h.names(a)...)
		_, rest, more := strings.Cut(a.body, `"nextCursor":"`)
		if !more {
			break
		}
		cursor, _, _ = strings.Cut(rest, `"`)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d tools listed, want %d", len(got), len(want))
	}
	// Nobody waits for the silent one, whose time is up after a second and whose list is asked for again and again.
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the list took %s", took)
	}
}

func TestToolsThatCannotBeServedAreLeftOut(t *testing.T) {
	t.Parallel()
	u := newPlainTool(t, true,
		`{"name":"header","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}}`,
		`{"name":"array","inputSchema":{"type":"array"}}`, `{"name":"schemaless"}`, defined("good", ""))
	h := newHouse(t, u.of(gateway.Tool{Name: "header"}, gateway.Tool{Name: "array"}, gateway.Tool{Name: "schemaless"}, gateway.Tool{Name: "good"}))
	names := []string{"header", "array", "schemaless", "good"}
	h.permit("prm_all", func(p *permits.Permit) { p.Grant.Tools = names })
	h.defaultPermit("prm_all")
	if got := h.names(h.post(plainList)); !slices.Equal(got, []string{"good"}) {
		t.Errorf("listed are %v", got)
	}
	for _, name := range names[:3] {
		if a := h.post(callBody(name, "{}", keyed(name))); a.reason != "tool_unknown" || h.toolNamed(name).Withheld == "" {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	if len(u.sent()) != 0 {
		t.Errorf("called: %v", u.sent())
	}
}

func TestStartTellsEveryCollision(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	config := h.config
	config.Upstreams = append(slices.Clone(config.Upstreams), config.Upstreams[0])
	config.Tools = append(slices.Clone(config.Tools), gateway.Tool{Name: "Pay", Upstream: "u"}, gateway.Tool{Name: "pay", Upstream: "u"},
		gateway.Tool{Name: "Counterfoil_x", Upstream: "u"}, gateway.Tool{Name: "lost", Upstream: "nowhere"})
	_, err := gateway.New(config, gateway.Deps{Ledger: h.ledger, Keyring: h.keys, Logger: h.locked, Metrics: gateway.NewMetrics(prometheus.NewRegistry(), "t"), Now: time.Now})
	if err == nil {
		t.Fatal("it starts")
	}
	for _, want := range []string{"upstream u is configured twice", "tool Pay: its name is that of tool pay", "tool pay: its name is that of", "tool Counterfoil_x: names that begin", `tool lost: there is no upstream "nowhere"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not told: %s\n%v", want, err)
		}
	}
}
