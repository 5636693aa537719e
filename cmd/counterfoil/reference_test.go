package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"counterfoil/cmd/counterfoil/config"
	"counterfoil/gateway"
	"counterfoil/receipts"
	"counterfoil/verify"
)

// TestReasonTable holds the page to the one table in the code.
func TestReasonTable(t *testing.T) {
	t.Parallel()
	var rows [][]string
	for _, p := range gateway.Problems() {
		rows = append(rows, []string{
			"`" + string(p.Reason) + "`", outcomeOf(p.Reason), strconv.Itoa(p.Status), "`" + string(p.Retry) + "`", string(p.Ran), p.Message,
		})
	}
	sameTable(t, "docs/format.md", "reasons", []string{"reason", "outcome", "status", "retry", "ran", "says"}, rows)
}

// outcomeOf asks the receipts' own rules which outcome goes with a reason.
func outcomeOf(reason receipts.Reason) string {
	for _, o := range []receipts.Outcome{receipts.Denied, receipts.Failed, receipts.Uncertain} {
		c := receipts.Claims{Outcome: o, Reason: reason}
		if reason == receipts.ReasonOperationRefReused {
			c.DuplicateOf = "op_first"
		}
		if c.Consistent() == nil {
			return "`" + string(o) + "`"
		}
	}
	return "–"
}

// TestCodeTable holds the page to the verifier's one table.
func TestCodeTable(t *testing.T) {
	t.Parallel()
	var rows [][]string
	for _, e := range verify.Explanations() {
		undecided := ""
		if e.Undecided {
			undecided = "undecided"
		}
		rows = append(rows, []string{"`" + string(e.Code) + "`", undecided, e.Sentence})
	}
	sameTable(t, "docs/format.md", "codes", []string{"code", "leaves", "says"}, rows)
}

// provoking is a configuration with a key that does not exist in each of its parts.
const provoking = `issuer: http://127.0.0.1:8080
listen: 127.0.0.1:8080
nothing: 1
database: {nothing: 1, embedded: {dir: ./data, nothing: 1}}
keys: {dir: ./keys, nothing: 1}
tokens: {nothing: 1}
upstreams: [{name: a, url: "http://127.0.0.1:9100/mcp", nothing: 1}]
tools: [{name: b, upstream: a, credits: {max: 1, actual: /a, nothing: 1}, value: {pointer: /a, currency: USD, nothing: 1}, recipient: {pointers: [/a], nothing: 1}, probe: {tool: p, nothing: 1}, nothing: 1}]
identity: {nothing: 1}
limits: {nothing: 1, per_agent: {nothing: 1}, timeouts: {nothing: 1}}
log: {nothing: 1}
`

// settings asks the configuration for its own keys: each part, given one that does not exist, lists those
// that do.
func settings(t *testing.T) map[string]bool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "counterfoil.yaml")
	if err := os.WriteFile(path, []byte(provoking), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(path, nil)
	var faults config.Faults
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, f := range faults {
		_, listed, found := strings.Cut(f.What, "here there are: ")
		if !found {
			t.Fatalf("%s", f)
		}
		part := regexp.MustCompile(`\[\w+\]`).ReplaceAllString(strings.TrimSuffix(f.Path, "nothing"), "[]")
		for _, key := range strings.Split(listed, ", ") {
			keys[part+key] = true
		}
	}
	// What holds others is no setting of its own.
	for key := range keys {
		for other := range keys {
			if strings.HasPrefix(other, key+".") || strings.HasPrefix(other, key+"[].") {
				delete(keys, key)
			}
		}
	}
	// A price is also one number.
	keys["tools[].credits"] = true
	return keys
}

// TestConfigurationReference: each setting has its row, under its name and its variable; no row is about
// a setting that does not exist.
func TestConfigurationReference(t *testing.T) {
	t.Parallel()
	known := settings(t)
	if len(known) < 40 {
		t.Errorf("only %d settings: the test reads nothing", len(known))
	}
	rows := map[string]string{}
	for _, line := range strings.Split(between(t, "docs/operations.md", "settings"), "\n") {
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			rows[strings.Trim(cells[1], " `")] = line
		}
	}
	for _, key := range sortedKeys(known) {
		if row, there := rows[key]; !there {
			t.Errorf("there is no row about %s", key)
		} else if variable := "`" + variableOf(key) + "`"; !strings.Contains(row, variable) {
			t.Errorf("the row about %s does not name %s", key, variable)
		}
	}
	for _, key := range sortedKeys(rows) {
		if !known[key] {
			t.Errorf("there is no setting %s", key)
		}
	}
}

// variableOf is the variable that lies over a setting; NAME stands for the entry's own name.
func variableOf(key string) string {
	name := strings.NewReplacer("[].", "_NAME_", ".", "_").Replace(key)
	return "COUNTERFOIL_" + strings.ToUpper(name)
}

// TestConfigurationDefaults: the defaults on the page are those that a short configuration gets.
func TestConfigurationDefaults(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "counterfoil.yaml")
	short := `{issuer: "http://a", listen: "127.0.0.1:1", database: {url: "postgres://a/b"}, keys: {dir: k},
upstreams: [{name: a, url: "http://a"}], tools: [{name: b, upstream: a, credits: 1, probe: {tool: p}}]}`
	if err := os.WriteFile(path, []byte(short), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	page := between(t, "docs/operations.md", "settings")
	for key, value := range map[string]string{
		"upstreams[].timeout":         cfg.Upstreams[0].Timeout.String(),
		"tools[].max_response_bytes":  strconv.FormatInt(cfg.Tools[0].MaxResponseBytes, 10),
		"tools[].on_tool_error":       map[bool]string{true: "charge", false: "refund"}[cfg.Tools[0].ChargeOnError],
		"tools[].probe.argument":      cfg.Tools[0].Probe.Argument,
		"tools[].probe.status":        cfg.Tools[0].Probe.Status,
		"tools[].probe.after":         cfg.Tools[0].Probe.After.String(),
		"tools[].probe.longest":       strings.TrimSuffix(cfg.Tools[0].Probe.Longest.String(), "0s"),
		"tools[].probe.give_up":       strings.TrimSuffix(cfg.Tools[0].Probe.GiveUp.String(), "0m0s"),
		"limits.retention":            strings.TrimSuffix(cfg.Limits.Retention.String(), "0m0s"),
		"limits.catalogue_refresh":    strings.TrimSuffix(cfg.Limits.CatalogueRefresh.String(), "0s"),
		"limits.lease":                cfg.Limits.Lease.String(),
		"limits.permit_lifetime":      strings.TrimSuffix(cfg.Limits.PermitLifetime.String(), "0m0s"),
		"limits.body_bytes":           strconv.FormatInt(cfg.Limits.BodyBytes, 10),
		"upstreams[].rate":            strconv.Itoa(cfg.Upstreams[0].Rate),
		"limits.in_flight":            strconv.Itoa(cfg.Limits.InFlight),
		"limits.connections":          strconv.Itoa(cfg.Limits.Connections),
		"limits.queue":                strconv.Itoa(cfg.Limits.Queue),
		"limits.timeouts.header":      cfg.Limits.Timeouts.Header.String(),
		"limits.timeouts.body":        cfg.Limits.Timeouts.Body.String(),
		"limits.timeouts.write":       cfg.Limits.Timeouts.Write.String(),
		"limits.timeouts.idle":        strings.TrimSuffix(cfg.Limits.Timeouts.Idle.String(), "0s"),
		"limits.timeouts.store":       cfg.Limits.Timeouts.Store.String(),
		"limits.per_agent.rate":       strconv.Itoa(cfg.Limits.AgentRate),
		"limits.per_agent.concurrent": strconv.Itoa(cfg.Limits.AgentConcurrent),
		"identity.pool":               strconv.FormatBool(cfg.Identity.Pool),
		"identity.diagnostics":        strconv.FormatBool(cfg.Identity.Diagnostics),
		"log.format":                  cfg.Log.Format,
		"log.level":                   cfg.Log.Level,
	} {
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(key) + "` \\| `?" + regexp.QuoteMeta(value) + "`? \\|")
		if !row.MatchString(page) {
			t.Errorf("the default of %s is %s", key, value)
		}
	}
}

// TestMetricsAreDocumented: every metric has its row, and no row is about another.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	gateway.NewMetrics(registry, "test")
	described := make(chan *prometheus.Desc, 100)
	registry.Describe(described)
	close(described)
	var known []string
	for d := range described {
		known = append(known, regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1])
	}
	slices.Sort(known)
	var rows []string
	for _, found := range regexp.MustCompile("(?m)^\\| `(counterfoil_\\w+)").FindAllStringSubmatch(between(t, "docs/operations.md", "metrics"), -1) {
		rows = append(rows, found[1])
	}
	slices.Sort(rows)
	if !slices.Equal(known, rows) || len(known) < 10 {
		t.Errorf("the metrics are\n%s\nand the page has\n%s", strings.Join(known, "\n"), strings.Join(rows, "\n"))
	}
}
