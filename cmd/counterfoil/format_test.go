package main

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"counterfoil/gateway/operator"
	"counterfoil/internal/jws"
	"counterfoil/receipts"
)

const formatPage = "docs/format.md"

// exampleFiles copies the page's example to where commands can be run on it.
func exampleFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"receipts.jsonl", "trust.json", "statement.jws"} {
		if err := os.WriteFile(filepath.Join(dir, name), read(t, filepath.Join(top, "docs/example", name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFormatShowsTheExample: the payloads on the page are those of the files, and what was signed once
// still verifies.
func TestFormatShowsTheExample(t *testing.T) {
	t.Parallel()
	page := string(read(t, filepath.Join(top, formatPage)))
	keys, err := jws.ParseJWKS(read(t, filepath.Join(top, "docs/example/trust.json")))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(read(t, filepath.Join(top, "docs/example/receipts.jsonl"))), "\n")
	bundle, err := receipts.ParseBundle([]byte(first))
	if err != nil {
		t.Fatal(err)
	}
	statement := strings.TrimSpace(string(read(t, filepath.Join(top, "docs/example/statement.jws"))))
	if _, _, err := jws.Verify(statement, operator.StatementType, jws.PurposeReceipt, keys, 1<<16); err != nil {
		t.Error(err)
	}
	for what, token := range map[string]string{"permit": bundle.Permit, "receipt": bundle.Receipt, "statement": statement} {
		payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page, "\n```json\n"+string(payload)+"\n```\n") {
			t.Errorf("the page does not show the example's %s:\n%s", what, payload)
		}
	}
}

// TestFormatVerifier runs the page's command, and wants the output that the page shows.
func TestFormatVerifier(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", block(t, formatPage, "sh verify"))
	cmd.Dir = top
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v", err)
	}
	if !strings.Contains(string(read(t, filepath.Join(top, formatPage))), "\n```\n"+string(out)+"```\n") {
		t.Errorf("the page shows other output than\n%s", out)
	}
}

// TestFormatOpenSSL runs the page's commands, which know nothing of Counterfoil, and sees them notice a change.
func TestFormatOpenSSL(t *testing.T) {
	t.Parallel()
	script := block(t, formatPage, "sh openssl")
	dir := exampleFiles(t)
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), ": fits\n") != 4 || !strings.Contains(string(out), "Signature Verified Successfully") {
		t.Errorf("%v\n%s", err, out)
	}
	bend(t, filepath.Join(dir, "receipts.jsonl"), `"receipt":"`, 300)
	cmd = exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("a changed receipt passes:\n%s", out)
	}
}

// TestFormatJose runs the page's program, and sees it notice a change.
func TestFormatJose(t *testing.T) {
	t.Parallel()
	dir := exampleFiles(t)
	if err := os.WriteFile(filepath.Join(dir, "verify.mjs"), []byte(block(t, formatPage, "js jose")), 0o600); err != nil {
		t.Fatal(err)
	}
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", filepath.Join(dir, "cache"), "jose@6.2.0")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm install jose: %v\n%s", err, out)
	}
	const want = "wal_ops 1 succeeded 5\nwal_ops 2 denied 0\nwal_ops 3 delivery_uncertain 2\nwal_ops 4 failed 0\n"
	node := exec.Command("node", "verify.mjs")
	node.Dir = dir
	if out, err := node.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
	bend(t, filepath.Join(dir, "receipts.jsonl"), `"arguments_b64":"`, 8)
	node = exec.Command("node", "verify.mjs")
	node.Dir = dir
	if out, err := node.CombinedOutput(); err == nil {
		t.Errorf("changed arguments pass:\n%s", out)
	}
}

// bend changes one character of a file, so far behind a text.
func bend(t *testing.T, path, text string, behind int) {
	t.Helper()
	data := read(t, path)
	at := strings.Index(string(data), text) + len(text) + behind
	if data[at] == 'A' {
		data[at] = 'B'
	} else {
		data[at] = 'A'
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
