package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"counterfoil/internal/testdb"
	"counterfoil/verify"
)

// TestOperate runs the commands against a gateway, as an operator would on the first day.
func TestOperate(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.letGo()
	config := gatewayFiles(t, testdb.New(t), up.url)
	p := serve(t, config)
	key := p.customer()
	a := p.call(key, "invoice-1")
	if a.outcome != "succeeded" {
		t.Fatalf("%+v", a)
	}
	has := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%q is not in:\n%s", part, text)
			}
		}
	}
	// The same deposit again is no second one.
	p.operate("wallet", "deposit", "wal_ops", "100", "--reference", "first")
	has(p.operate("wallet", "list"), "BALANCE (CREDITS)", "wal_ops", "95")
	has(p.operate("wallet", "get", "wal_ops"), "available (credits)", "95")
	has(p.operate("wallet", "transfers", "wal_ops"), "first", "100", "5")
	has(p.operate("wallet", "statement", "wal_ops"), `"jws"`)
	has(p.operate("agent", "list"), "agt_ops", "wal_ops")
	has(p.operate("agent", "update", "agt_ops", "--default-permit", "prm_q4"), "prm_q4")
	has(p.operate("permit", "list", "--wallet", "wal_ops"), "prm_q4", "active")
	has(p.operate("permit", "get", "prm_q4"), "spent (credits)", "left (credits)", "45", "payout")
	has(p.operate("tool", "list"), "payout", "refund")
	has(p.operate("receipt", "list"), a.receipt, "succeeded")
	has(p.operate("receipt", "get", a.receipt), "payout")
	p.checkDefinition(t, a.receipt)

	operations, _ := p.operateJSON("operation", "list", "--wallet", "wal_ops")["items"].([]any)
	if len(operations) != 1 {
		t.Fatalf("%d operations", len(operations))
	}
	id, _ := operations[0].(map[string]any)["id"].(string)
	has(p.operate("operation", "get", id), "finished", "charged (credits)")

	has(p.operate("permit", "revoke", "prm_q4"), "revoked")
	if b := p.call(key, "invoice-2"); b.reason != "permit_revoked" {
		t.Errorf("%+v", b)
	}
	has(p.operate("wallet", "freeze", "wal_ops"), "frozen", "yes")
	p.operate("wallet", "unfreeze", "wal_ops")

	keys, _ := p.operateJSON("agent", "key", "create", "agt_ops", "--expires", "1h")["id"].(string)
	has(p.operate("agent", "key", "revoke", "agt_ops", keys), "revoked")
	p.checkFiles(t, config, a.receipt)
	p.checkProblems(t)
}

// checkDefinition prints what a receipt's tool_sha256 stands for, to the byte.
func (p *process) checkDefinition(t *testing.T, receipt string) {
	t.Helper()
	claims, _ := p.operateJSON("receipt", "get", receipt)["receipt"].(map[string]any)
	call, _ := claims["call"].(map[string]any)
	want, _ := call["tool_sha256"].(string)
	text := p.operate("tool", "definition", want)
	if sum := sha256.Sum256([]byte(text)); hex.EncodeToString(sum[:]) != want || !strings.Contains(text, `"name":"payout"`) {
		t.Errorf("the definition %s is printed as %s", want, text)
	}
}

// checkFiles judges what the commands write, by the keys that "keys list --json" prints.
func (p *process) checkFiles(t *testing.T, config, receipt string) {
	t.Helper()
	dir := t.TempDir()
	bundle, export := filepath.Join(dir, "one.bundle.json"), filepath.Join(dir, "all.jsonl")
	p.operate("receipt", "bundle", receipt, "--out", bundle)
	p.operate("receipt", "export", "--wallet", "wal_ops", "--out", export)
	var trust verify.Trust
	if err := trust.Add("trust.json", []byte(p.operate("keys", "list", "--config", config, "--json"))); err != nil {
		t.Fatal(err)
	}
	v := verify.New(verify.Options{Trust: &trust, Require: []string{"permit"}})
	entries := [][]byte{read(t, bundle)}
	lines := bytes.Split(bytes.TrimSpace(read(t, export)), []byte("\n"))
	if len(lines) != 2 {
		t.Errorf("%d bundles exported, want 2", len(lines))
	}
	for _, entry := range append(entries, lines...) {
		if verdict := v.Judge(verify.Entry{Data: entry}); verdict.State != verify.Valid {
			t.Errorf("%s: %+v", verdict.State, verdict.Checks)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// checkProblems: what the gateway refuses is told in its words, with status 1.
func (p *process) checkProblems(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		token string
		args  []string
		want  string
	}{
		{testToken, []string{"wallet", "get", "wal_none"}, "(not_found, HTTP 404)"},
		{testToken, []string{"tool", "definition", strings.Repeat("0", 64)}, "(not_found, HTTP 404)"},
		{testToken, []string{"wallet", "create", "x", "--id", "wal_ops"}, "(conflict, HTTP 409)"},
		{"another-0123456789abcdef0123456789", []string{"wallet", "list"}, "(unauthenticated, HTTP 401)"},
	} {
		var out, errOut bytes.Buffer
		env := []string{"COUNTERFOIL_TOKEN=" + c.token, "COUNTERFOIL_SERVER=" + p.url}
		if code := run(t.Context(), c.args, env, &out, &errOut); code != 1 || !strings.Contains(errOut.String(), c.want) {
			t.Errorf("%v: status %d: %s", c.args, code, &errOut)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// listen takes a port for the length of the test.
func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// emptyDatabase is a database on the test's server that nobody has migrated.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	config, err := pgx.ParseConfig(testdb.New(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	name := "empty_" + randomHex(6)
	if _, err := conn.Exec(t.Context(), "create database "+name+" template template0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if conn, err := pgx.ConnectConfig(context.Background(), config); err == nil {
			_, _ = conn.Exec(context.Background(), "drop database "+name+" with (force)")
			_ = conn.Close(context.Background())
		}
	})
	u, err := url.Parse(config.ConnString())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}
