package config_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"counterfoil/cmd/counterfoil/config"
)

const operatorToken = "operator-0123456789abcdef0123456789abcdef"

// whole is a configuration without a fault; each case of the fault table breaks it in one place.
const whole = `issuer: http://127.0.0.1:8080
listen: 127.0.0.1:8080
database: {url: "postgres://app:hunter2@db.example/counterfoil"}
keys: {dir: ./keys}
tokens: {operator_file: ./operator.token}
upstreams:
  - {name: payments, url: "http://127.0.0.1:9100/mcp", timeout: 20s, headers_file: ./payments.headers, forward_key_header: Idempotency-Key}
tools:
  - name: payout
    upstream: payments
    upstream_tool: pay
    credits: 5
    scopes: [payments.write]
    value: {pointer: /amount, currency: USD}
    recipient: {pointers: [/to]}
    on_tool_error: charge
    max_response_bytes: 1024
  - {name: search, upstream: payments, credits: {max: 50, actual: /structuredContent/credits}, operation_ref: /query/id, probe: {tool: found, after: 1m}, definition_sha256: 3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855e}
limits: {lease: 5s, per_agent: {rate: 0, concurrent: 8}}
`

// place writes a configuration and the secrets it names, and gives its path.
func place(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "operator.token", operatorToken+"\n", 0o600)
	write(t, dir, "other.token", "another-0123456789abcdef0123456789abcdef", 0o400)
	write(t, dir, "short.token", "hunter2", 0o600)
	write(t, dir, "spaces.token", "two words that are long enough", 0o600)
	write(t, dir, "open.token", operatorToken, 0o640)
	write(t, dir, "payments.headers", "# the provider's key\nAuthorization: Bearer sk_live_1\n\nX-Team: ops\n", 0o600)
	write(t, dir, "bad.headers", "Authorization Bearer sk_live_1\nHost: evil\nX-A: 1\nx-a: 2\nX-B:\n", 0o600)
	write(t, dir, "payments.env", "# the provider's key\nAPI_KEY=sk_live_1\nEMPTY=\n QUOTED=\"a b\" \n", 0o600)
	write(t, dir, "bad.env", "hunter2\nexport A=hunter2\nA=hunter2\nA=hunter2\n", 0o600)
	return write(t, dir, "counterfoil.yaml", text, 0o644)
}

func write(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

func TestLoadWhole(t *testing.T) {
	t.Parallel()
	path := place(t, whole)
	got, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		File: path, Issuer: "http://127.0.0.1:8080", Listen: "127.0.0.1:8080",
		Database: config.Database{URL: "postgres://app:hunter2@db.example/counterfoil"},
		KeysDir:  filepath.Join(filepath.Dir(path), "keys"),
		Tokens:   config.Tokens{Operator: operatorToken},
		Upstreams: []config.Upstream{{
			Name: "payments", URL: "http://127.0.0.1:9100/mcp", Timeout: 20 * time.Second,
			Headers:          http.Header{"Authorization": {"Bearer sk_live_1"}, "X-Team": {"ops"}},
			ForwardKeyHeader: "Idempotency-Key",
		}},
		Tools: []config.Tool{
			{
				Name: "payout", Upstream: "payments", UpstreamTool: "pay", Credits: 5, Scopes: []string{"payments.write"},
				Value: &config.Value{Pointer: "/amount", Currency: "USD"}, Recipients: []string{"/to"},
				ChargeOnError: true, MaxResponseBytes: 1024,
			},
			{
				Name: "search", Upstream: "payments", UpstreamTool: "search", Credits: 50,
				ActualPointer: "/structuredContent/credits", MaxResponseBytes: 4 << 20, OperationRef: "/query/id",
				DefinitionSHA256: "3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855e",
				Probe: &config.Probe{
					Tool: "found", Argument: "operation_key", Status: "/structuredContent/status",
					After: time.Minute, Longest: 15 * time.Minute, GiveUp: 24 * time.Hour,
				},
			},
		},
		Limits: config.Limits{
			Lease: 5 * time.Second, PermitLifetime: 366 * 24 * time.Hour, BodyBytes: 1 << 20, AgentConcurrent: 8,
			InFlight: 2048, Connections: 4096, Queue: 4096, Retention: 90 * 24 * time.Hour, InputTTL: 15 * time.Minute, CatalogueRefresh: time.Minute,
			Timeouts: config.Timeouts{Header: 10 * time.Second, Body: 30 * time.Second, Write: 30 * time.Second, Idle: 2 * time.Minute, Store: 20 * time.Second},
		},
		Log: config.Log{Format: "json", Level: "info"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if place := got.Database.Place(); place != "db.example/counterfoil" {
		t.Errorf("place %q", place)
	}
}

// A process knows of our environment where programs and its home are, and what it was given.
func TestLoadProcess(t *testing.T) {
	t.Parallel()
	text := strings.Replace(whole, "url: \"http://127.0.0.1:9100/mcp\", timeout: 20s, headers_file: ./payments.headers, forward_key_header: Idempotency-Key",
		"command: [./bin/server, --stdio, \"a b\"], dir: ./state, env_file: ./payments.env, concurrency: 4", 1)
	path := place(t, text)
	dir := filepath.Dir(path)
	env := map[string]string{"PATH": "/bin", "HOME": "/root", "AWS_SECRET": "hunter2"}
	want := config.Upstream{
		Name: "payments", Command: []string{filepath.Join(dir, "bin/server"), "--stdio", "a b"}, Dir: filepath.Join(dir, "state"),
		Environ: []string{"PATH=/bin", "HOME=/root"}, Env: map[string]string{"API_KEY": "sk_live_1", "EMPTY": "", "QUOTED": `"a b"`},
		Timeout: 30 * time.Second, Concurrency: 4,
	}
	got, err := config.Load(path, env)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Upstreams[0]); diff != "" {
		t.Error(diff)
	}
	env["COUNTERFOIL_UPSTREAMS_PAYMENTS_COMMAND"] = "server, --other"
	env["COUNTERFOIL_UPSTREAMS_PAYMENTS_DIR"] = "/srv"
	want.Command, want.Dir = []string{"server", "--other"}, "/srv"
	if got, err = config.Load(path, env); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Upstreams[0]); diff != "" {
		t.Error(diff)
	}
}

func TestRetentionForEver(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "1s": time.Second} {
		got, err := config.Load(place(t, strings.Replace(whole, "{lease: 5s,", "{retention: "+text+",", 1)), nil)
		if err != nil || got.Limits.Retention != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func TestEachFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, old, new string // what replaces what in the whole configuration
		env            map[string]string
		want           []string
		more           int // faults that follow from the first
	}{
		{name: "unknown key at the top", old: "keys:", new: "key_dir: x\nkeys:", want: []string{"line 4: key_dir: is not a setting"}},
		{name: "unknown key in a tool", old: "credits: 5", new: "credits: 5\n    price: 5", want: []string{"line 13: tools[payout].price: is not a setting"}},
		{name: "key twice", old: "keys:", new: "issuer: http://b\nkeys:", want: []string{"line 4: issuer: is here twice, first on line 1"}},
		{name: "key twice inside", old: "credits: 5", new: "credits: 5\n    credits: 6", want: []string{"line 13: tools[payout].credits: is here twice"}},
		{name: "not YAML", old: "tools:", new: "tools: [", want: []string{"this is not YAML"}},
		{name: "two documents", old: "limits:", new: "---\nlimits:", want: []string{"after the first document"}},
		{name: "alias", old: "keys: {dir: ./keys}", new: "keys: &k {dir: ./keys}\nlog: *k", want: []string{"aliases and merges"}, more: 1},
		{name: "tag", old: "credits: 5", new: "credits: !!int 5", want: []string{"tags (!!int) are not used"}},
		{name: "no value", old: "issuer: http://127.0.0.1:8080", new: "issuer:", want: []string{"line 1: issuer: has no value"}},
		{name: "issuer missing", old: "issuer: http://127.0.0.1:8080\n", want: []string{"issuer: is missing"}},
		{name: "issuer is no URL", old: "issuer: http://127.0.0.1:8080", new: "issuer: counterfoil", want: []string{"line 1: issuer: is not an http or https URL"}},
		{name: "issuer with query", old: "issuer: http://127.0.0.1:8080", new: "issuer: http://a/?b", want: []string{"issuer: \"http://a/?b\" has more than"}},
		{name: "listen", old: "listen: 127.0.0.1:8080", new: "listen: 127.0.0.1", want: []string{"line 2: listen: \"127.0.0.1\" is not host:port"}},
		{name: "listen port", old: "listen: 127.0.0.1:8080", new: "listen: 127.0.0.1:65536", want: []string{"is not host:port"}},
		{name: "no database", old: "database: {url: \"postgres://app:hunter2@db.example/counterfoil\"}\n", want: []string{"database: is missing"}},
		{name: "empty database", old: "{url: \"postgres://app:hunter2@db.example/counterfoil\"}", new: "{}", want: []string{"line 3: database: names no database"}},
		{name: "both databases", old: "{url:", new: "{embedded: {dir: ./d}, url:", want: []string{"line 3: database: has both url and embedded"}},
		{name: "database of another kind", old: "\"postgres://app:", new: "\"mysql://app:", want: []string{"line 3: database.url: is not a postgres:// URL"}},
		{name: "embedded without dir", old: "{url: \"postgres://app:hunter2@db.example/counterfoil\"}", new: "{embedded: {}}", want: []string{"database.embedded.dir: is missing"}},
		{name: "keys missing", old: "keys: {dir: ./keys}\n", want: []string{"keys: is missing"}},
		{name: "token file missing", old: "./operator.token", new: "./nothing.token", want: []string{"line 5: tokens.operator_file: cannot read", "no such file"}},
		{name: "token file readable by others", old: "./operator.token", new: "./open.token", want: []string{"tokens.operator_file:", "has mode 0640"}},
		{name: "token file is a directory", old: "./operator.token", new: "./", want: []string{"is not a regular file"}},
		{name: "token short", old: "./operator.token", new: "./short.token", want: []string{"fewer than 16 characters"}},
		{name: "token of two words", old: "./operator.token", new: "./spaces.token", want: []string{"must be one word"}},
		{name: "token in the file", old: "operator_file: ./operator.token", new: "operator: hunter2hunter2hunter2", want: []string{"line 5: tokens.operator: a secret does not belong in this file"}},
		{name: "equal tokens", old: "{operator_file: ./operator.token", new: "{operator_file: ./operator.token, reconciler_file: ./operator.token", want: []string{"tokens.reconciler_file: is the same token as the operator's"}},
		{name: "equal tokens, one from the environment", old: "{operator_file: ./operator.token", new: "{operator_file: ./operator.token", env: map[string]string{"COUNTERFOIL_TOKENS_APPROVER": operatorToken}, want: []string{"COUNTERFOIL_TOKENS_APPROVER: is the same token as the operator's"}},
		{name: "token from both places", env: map[string]string{"COUNTERFOIL_TOKENS_OPERATOR": operatorToken}, want: []string{"COUNTERFOIL_TOKENS_OPERATOR: is set, and so is tokens.operator_file"}},
		{name: "origin", old: "keys:", new: "allowed_origins: [app.example]\nkeys:", want: []string{"line 4: allowed_origins: \"app.example\" is not an origin"}},
		{name: "upstreams are no list", old: "upstreams:\n  - {name: payments,", new: "upstreams:\n  {name: payments,", want: []string{"upstreams: must be a list"}, more: 2},
		{name: "upstream name", old: "name: payments,", new: "name: \"pay ments\",", want: []string{"upstreams[pay ments].name: \"pay ments\" is not a name"}, more: 2},
		{name: "upstream name taken", old: "upstreams:", new: "upstreams:\n  - {name: payments, url: \"http://b/mcp\"}", want: []string{"this name is another upstream's already"}},
		{name: "upstream URL", old: "\"http://127.0.0.1:9100/mcp\"", new: "\"127.0.0.1:9100\"", want: []string{"line 7: upstreams[payments].url: is not an http or https URL"}},
		{name: "upstream password", old: "http://127.0.0.1:9100", new: "http://u:hunter2@127.0.0.1:9100", want: []string{"upstreams[payments].url: holds a password"}},
		{name: "timeout without unit", old: "timeout: 20s", new: "timeout: 20", want: []string{"upstreams[payments].timeout: \"20\" is not a duration"}},
		{name: "timeout of nothing", old: "timeout: 20s", new: "timeout: 0s", want: []string{"0s is not between"}},
		{name: "headers file", old: "./payments.headers", new: "./bad.headers", want: []string{
			"upstreams[payments].headers_file: its line 1 is not \"Name: value\"", "its line 2 sets Host", "its line 4 sets x-a a second time", "its line 5 has no value for X-B",
		}},
		{name: "key header of the gateway", old: "forward_key_header: Idempotency-Key", new: "forward_key_header: content-type", want: []string{"the gateway writes itself"}},
		{name: "key header in the file", old: "forward_key_header: Idempotency-Key", new: "forward_key_header: x-team", want: []string{"x-team is in headers_file already"}},
		{name: "key header with blank", old: "forward_key_header: Idempotency-Key", new: "forward_key_header: \"Idempotency Key\"", want: []string{"is not the name of a header"}},
		{name: "refusals", old: "timeout: 20s", new: "refusals: [-32602, nope]", want: []string{"refusals: nope is not a JSON-RPC error code"}},
		{name: "neither url nor command", old: "url: \"http://127.0.0.1:9100/mcp\", ", want: []string{"line 7: upstreams[payments].url: is missing", "or command: [program"}},
		{name: "both url and command", old: "timeout: 20s", new: "command: [sh]", want: []string{"line 7: upstreams[payments]: has both url and command"}, more: 2},
		{name: "headers of a process", old: "url: \"http://127.0.0.1:9100/mcp\"", new: "command: [sh]", want: []string{"upstreams[payments].headers_file: belongs to an HTTP request", "upstreams[payments].forward_key_header: belongs"}, more: 1},
		{name: "headers of a process, from the environment", old: "url: \"http://127.0.0.1:9100/mcp\", timeout: 20s, headers_file: ./payments.headers, forward_key_header: Idempotency-Key", new: "command: [sh]", env: map[string]string{"COUNTERFOIL_UPSTREAMS_PAYMENTS_HEADERS": "A: b"}, want: []string{"COUNTERFOIL_UPSTREAMS_PAYMENTS_HEADERS: belongs to an HTTP request"}},
		{name: "environment of a URL", old: "timeout: 20s", new: "env_file: ./payments.env, dir: /", want: []string{"upstreams[payments].env_file: belongs to a process", "upstreams[payments].dir: belongs to a process"}, more: 1},
		{name: "command is no list", old: "url: \"http://127.0.0.1:9100/mcp\", timeout: 20s, headers_file: ./payments.headers, forward_key_header: Idempotency-Key", new: "command: sh", want: []string{"upstreams[payments].command: must be a list"}},
		{name: "environment file", old: "url: \"http://127.0.0.1:9100/mcp\", timeout: 20s, headers_file: ./payments.headers, forward_key_header: Idempotency-Key", new: "command: [sh], env_file: ./bad.env", want: []string{
			"upstreams[payments].env_file: its line 1 is not \"NAME=value\"", "its line 2 is not", "its line 4 sets A a second time",
		}},
		{name: "environment in the file", old: "url: \"http://127.0.0.1:9100/mcp\", timeout: 20s, headers_file: ./payments.headers, forward_key_header: Idempotency-Key", new: "command: [sh], env: hunter2", want: []string{"upstreams[payments].env: a secret does not belong in this file"}},
		{name: "concurrency", old: "timeout: 20s", new: "concurrency: 0", want: []string{"concurrency: 0 is not a whole number from 1"}},
		{name: "tool name", old: "name: payout", new: "name: pay out", want: []string{"tools[pay out].name: \"pay out\" is not a tool's name"}},
		{name: "tool name reserved", old: "name: payout", new: "name: counterfoil_permit_get", want: []string{"the gateway's own"}},
		{name: "tool name taken", old: "{name: search,", new: "{name: payout,", want: []string{"line 18: tools[payout]: this name is another tool's already"}},
		{name: "tool name taken but for its case", old: "{name: search,", new: "{name: PayOut,", want: []string{"line 18: tools[PayOut]: this name is another tool's already"}},
		{name: "tool name reserved, in another case", old: "name: payout", new: "name: Counterfoil_Permit_Get", want: []string{"the gateway's own"}},
		{name: "pin", old: "3b0c44298fc1", new: "3B0c44298fc1", want: []string{"line 18: tools[search].definition_sha256: \"3B0c44298fc1", "is not a SHA-256 in 64 lower-case hex digits"}},
		{name: "short pin", old: "3b0c44298fc1", new: "", want: []string{"is not a SHA-256 in 64 lower-case hex digits"}},
		{name: "refresh", old: "{lease: 5s,", new: "{catalogue_refresh: 10ms,", want: []string{"limits.catalogue_refresh: 10ms is not between 1s and"}},
		{name: "tool without upstream", old: "    upstream: payments\n", want: []string{"tools[payout].upstream: is missing"}},
		{name: "tool of no upstream", old: "    upstream: payments\n", new: "    upstream: paymnets\n", want: []string{"line 10: tools[payout].upstream: there is no upstream called \"paymnets\""}},
		{name: "no price", old: "    credits: 5\n", want: []string{"tools[payout].credits: is missing"}},
		{name: "price 5.0", old: "credits: 5", new: "credits: 5.0", want: []string{"5.0 is not a whole number"}},
		{name: "price 5e3", old: "credits: 5", new: "credits: 5e3", want: []string{"5e3 is not a whole number"}},
		{name: "price 0x5", old: "credits: 5", new: "credits: 0x5", want: []string{"0x5 is not a whole number"}},
		{name: "price text", old: "credits: 5", new: "credits: \"5\"", want: []string{"\"5\" is not a whole number"}},
		{name: "price below zero", old: "credits: 5", new: "credits: -5", want: []string{"-5 is not a whole number"}},
		{name: "price too large", old: "credits: 5", new: "credits: 9007199254740992", want: []string{"9007199254740992 is not a whole number"}},
		{name: "max without actual", old: ", actual: /structuredContent/credits", want: []string{"tools[search].credits.actual: is missing"}},
		{name: "actual is no pointer", old: "actual: /structuredContent/credits", new: "actual: credits", want: []string{"\"credits\" is not a JSON pointer"}},
		{name: "scope", old: "[payments.write]", new: "[\"payments write\"]", want: []string{"\"payments write\" is not a scope"}},
		{name: "value pointer", old: "pointer: /amount", new: "pointer: amount", want: []string{"tools[payout].value.pointer: \"amount\" is not a JSON pointer"}},
		{name: "value pointer escape", old: "pointer: /amount", new: "pointer: /a~2", want: []string{"is not a JSON pointer"}},
		{name: "currency", old: "currency: USD", new: "currency: US $", want: []string{"\"US $\" is not a currency"}},
		{name: "recipient pointers", old: "{pointers: [/to]}", new: "{pointers: []}", want: []string{"tools[payout].recipient.pointers: names no argument"}},
		{name: "on_tool_error", old: "on_tool_error: charge", new: "on_tool_error: keep", want: []string{"\"keep\" is none of: refund, charge"}},
		{name: "max_response_bytes", old: "max_response_bytes: 1024", new: "max_response_bytes: 0", want: []string{"0 is not a whole number from 1"}},
		{name: "operation_ref", old: "on_tool_error: charge", new: "operation_ref: invoice_id", want: []string{"tools[payout].operation_ref: \"invoice_id\" is not a JSON pointer"}},
		{name: "approval of a tool", old: "on_tool_error: charge", new: "approval: {always: true}", want: []string{"this version does not have approvals"}},
		{name: "retention", old: "{lease: 5s,", new: "{retention: 10ms,", want: []string{"limits.retention: 10ms is not between 1s and"}},
		{name: "retention from the environment", env: map[string]string{"COUNTERFOIL_LIMITS_RETENTION": "90 days"}, want: []string{"COUNTERFOIL_LIMITS_RETENTION: \"90 days\" is not a duration"}},
		{name: "probe of no tool", old: "on_tool_error: charge", new: "probe: {after: 1s}", want: []string{"tools[payout].probe.tool: is missing"}},
		{name: "probe of the tool itself", old: "on_tool_error: charge", new: "probe: {tool: pay}", want: []string{"tools[payout].probe.tool: is the tool itself"}},
		{name: "probe that waits longer and longer", old: "on_tool_error: charge", new: "probe: {tool: p, after: 1h}", want: []string{"tools[payout].probe: after 1h0m0s, longest 15m0s, give_up 24h0m0s: each must be at least as long"}},
		{name: "probe's argument", old: "on_tool_error: charge", new: "probe: {tool: p, argument: \"a b\", status: status, first: 1s}", want: []string{"\"a b\" is not an argument's name", "\"status\" is not a JSON pointer", "tools[payout].probe.first: is not a setting"}, more: 2},
		{name: "probe of an upstream", old: "forward_key_header: Idempotency-Key", new: "probe: {tool: p}", want: []string{"upstreams[payments].probe: is not a setting"}},
		{name: "approval_ttl", old: "{lease: 5s,", new: "{approval_ttl: 24h,", want: []string{"limits.approval_ttl: this version does not have approvals"}},
		{name: "input_ttl", old: "{lease: 5s,", new: "{input_ttl: 10ms,", want: []string{"limits.input_ttl: 10ms is not between 1s and"}},
		{name: "reconciliation", old: "limits:", new: "reconciliation: {}\nlimits:", want: []string{"reconciliation: is not a setting"}},
		{name: "limits per agent", old: "rate: 0", new: "rate: -1", want: []string{"limits.per_agent.rate: -1 is not a whole number from 0"}},
		{name: "lease", old: "lease: 5s", new: "lease: 5", want: []string{"limits.lease: \"5\" is not a duration"}},
		{name: "log", old: "limits:", new: "log: {level: loud}\nlimits:", want: []string{"log.level: \"loud\" is none of"}},
		{name: "unknown variable", env: map[string]string{"COUNTERFOIL_LISTENN": "x"}, want: []string{"COUNTERFOIL_LISTENN: names no setting"}},
		{name: "variable of Kubernetes", env: map[string]string{"COUNTERFOIL_SERVICE_HOST": "10.0.0.1"}, want: []string{"enableServiceLinks: false"}},
		{name: "empty variable", env: map[string]string{"COUNTERFOIL_LISTEN": ""}, want: []string{"COUNTERFOIL_LISTEN: is set, but empty"}},
		{name: "variable with two meanings", old: "tools:", new: "tools:\n  - {name: pay.out, upstream: payments, credits: 1}\n  - {name: pay-out, upstream: payments, credits: 1}", env: map[string]string{"COUNTERFOIL_TOOLS_PAY_OUT_CREDITS": "3"}, want: []string{"could mean tools[pay.out].credits or tools[pay-out].credits"}},
		{name: "bad value in a variable", env: map[string]string{"COUNTERFOIL_TOOLS_PAYOUT_CREDITS": "5.0"}, want: []string{"COUNTERFOIL_TOOLS_PAYOUT_CREDITS: 5.0 is not a whole number"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.old != "" && strings.Count(whole, c.old) == 0 {
				t.Fatalf("%q is not in the whole configuration", c.old)
			}
			text := whole
			if c.old != "" {
				text = strings.Replace(whole, c.old, c.new, 1)
			}
			_, err := config.Load(place(t, text), c.env)
			var faults config.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("no faults, but %v", err)
			}
			if len(faults) != max(1, headerFaults(c.want))+c.more {
				t.Errorf("one mistake, %d faults", len(faults))
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("not told: %s", want)
				}
			}
			if t.Failed() {
				t.Log(err)
			}
			for _, secret := range []string{"hunter2", operatorToken, "sk_live_1"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows a secret: %s", err)
				}
			}
		})
	}
}

// headerFaults counts the faults that one headers file has; every other case has one mistake.
func headerFaults(want []string) int {
	n := 0
	for _, w := range want {
		if strings.Contains(w, "its line") {
			n++
		}
	}
	return n
}

func TestAllFaultsTogether(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("issuer: http://127.0.0.1:8080", "issuer: nowhere", "credits: 5", "credits: 5.5",
		"timeout: 20s", "timeout: soon", "keys:", "kees:", "{name: search,", "{name: Payout,",
		"limits:", "  - {name: COUNTERFOIL_wallet, upstream: payments, credits: 1}\nlimits:").Replace(whole)
	_, err := config.Load(place(t, text), map[string]string{"COUNTERFOIL_NO": "1"})
	var faults config.Faults
	if !errors.As(err, &faults) || len(faults) != 8 { // one of them: keys is missing
		t.Fatalf("want 8 faults, have %v", err)
	}
}

func TestEnvironmentOverrides(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"COUNTERFOIL_LISTEN":                          "[::1]:9000",
		"COUNTERFOIL_DATABASE_URL":                    "postgres://other/db",
		"COUNTERFOIL_ALLOWED_ORIGINS":                 "https://a.example, https://b.example",
		"COUNTERFOIL_TOKENS_RECONCILER":               "reconciler-0123456789abcdef",
		"COUNTERFOIL_UPSTREAMS_PAYMENTS_TIMEOUT":      "2m",
		"COUNTERFOIL_TOOLS_PAYOUT_CREDITS":            "7",
		"COUNTERFOIL_TOOLS_SEARCH_CREDITS_MAX":        "60",
		"COUNTERFOIL_TOOLS_PAYOUT_VALUE_CURRENCY":     "EUR",
		"COUNTERFOIL_TOOLS_PAYOUT_RECIPIENT_POINTERS": "/to,/cc",
		"COUNTERFOIL_LIMITS_LEASE":                    "1m",
		"COUNTERFOIL_LOG_FORMAT":                      "text",
		"COUNTERFOIL_TOKEN":                           "belongs to the commands",
		"HOME":                                        "/",
	}
	got, err := config.Load(place(t, whole), env)
	if err != nil {
		t.Fatal(err)
	}
	have := []string{
		got.Listen, got.Database.URL.Reveal(), strings.Join(got.AllowedOrigins, " "), got.Tokens.Reconciler.Reveal(),
		got.Upstreams[0].Timeout.String(), fmt.Sprint(got.Tools[0].Credits, got.Tools[1].Credits), got.Tools[0].Value.Currency,
		strings.Join(got.Tools[0].Recipients, " "), got.Limits.Lease.String(), got.Log.Format,
	}
	want := []string{
		"[::1]:9000", "postgres://other/db", "https://a.example https://b.example", "reconciler-0123456789abcdef",
		"2m0s", "7 60", "EUR", "/to /cc", "1m0s", "text",
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

func TestStructureNeedsNoSecrets(t *testing.T) {
	t.Parallel()
	text := strings.Replace(whole, "./operator.token", "./not-made-yet", 1)
	if _, err := config.LoadStructure(place(t, text), nil); err != nil {
		t.Error(err)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	s := config.Secret(operatorToken)
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q"} {
		if shown := fmt.Sprintf(verb, struct{ S config.Secret }{s}); strings.Contains(shown, "0123") {
			t.Errorf("%s shows %s", verb, shown)
		}
	}
}

func TestFileCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", t.TempDir(), filepath.Join(t.TempDir(), "none.yaml")} {
		if _, err := config.Load(path, nil); err == nil {
			t.Errorf("%q was read", path)
		}
	}
}
