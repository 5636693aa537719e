package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"counterfoil/cmd/counterfoil/connect"
)

const agentKey = "cf_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"

// connected runs "agent connect" and gives its status and what it printed.
func connected(t *testing.T, env []string, args ...string) (int, string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), append([]string{"agent", "connect"}, args...), env, &out, &errOut)
	return code, out.String() + errOut.String()
}

func TestConnectNamesItsClients(t *testing.T) {
	t.Parallel()
	code, out := connected(t, nil, "--list", "--json")
	var listed struct {
		Items []struct{ Name, Title string }
	}
	if err := json.Unmarshal([]byte(out), &listed); code != 0 || err != nil {
		t.Fatalf("status %d, %v: %s", code, err, out)
	}
	var names []string
	for _, item := range listed.Items {
		names = append(names, item.Name)
	}
	if want := []string{"claude-code", "codex", "vscode", "inspector", "typescript", "python", "go", "curl"}; !slices.Equal(names, want) {
		t.Errorf("it names %v", names)
	}
}

// No text holds a key that nobody asked to see, and one that was asked for is in it once for each place it belongs.
func TestConnectShowsNoKeyUnasked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agent.key")
	if err := os.WriteFile(file, []byte(agentKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"COUNTERFOIL_KEY=" + agentKey}
	for _, c := range connect.Clients() {
		for _, how := range [][]string{nil, {"--json"}, {"--key-file", file}, {"--key-file", file, "--json"}} {
			code, out := connected(t, env, append([]string{"--client", c.Name, "--wallet", "wal_ops"}, how...)...)
			if code != 0 || strings.Contains(out, agentKey) {
				t.Errorf("%s %v: status %d: %s", c.Name, how, code, out)
			}
			if named := strings.Contains(out, "COUNTERFOIL_KEY") || strings.Contains(out, "${input:counterfoil-key}"); !named {
				t.Errorf("%s %v does not say where the key comes from: %s", c.Name, how, out)
			}
			if len(how) > 0 && how[0] == "--key-file" && c.Name != "vscode" && !strings.Contains(out, file) {
				t.Errorf("%s %v does not name the key's file: %s", c.Name, how, out)
			}
		}
		for _, from := range [][]string{{"--show-key"}, {"--show-key", "--key-file", file}} {
			env := env
			if len(from) > 1 {
				env = nil
			}
			code, out := connected(t, env, append(from, "--client", c.Name)...)
			if code != 0 || !strings.Contains(out, agentKey) || strings.Contains(out, "COUNTERFOIL_KEY") || strings.Contains(out, "${input") {
				t.Errorf("%s %v: status %d: %s", c.Name, from, code, out)
			}
		}
	}
}

func TestConnectRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"open.key": agentKey, "other.key": "operator-token"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "open.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no client":           {nil, "--list"},
		"unknown client":      {[]string{"--client", "telnet"}, `"telnet"`},
		"no URL":              {[]string{"--client", "curl", "--server", "gateway.example"}, "not an http or https URL"},
		"URL with a password": {[]string{"--client", "curl", "--server", "https://a:b@gateway.example"}, "not an http or https URL"},
		"URL with a quote":    {[]string{"--client", "curl", "--server", "https://gateway.example/'"}, "not an http or https URL"},
		"URL with a query":    {[]string{"--client", "curl", "--server", "https://gateway.example?x=1"}, "not an http or https URL"},
		"no host":             {[]string{"--client", "curl", "--server", "http://:8080"}, "not an http or https URL"},
		"wallet that quotes":  {[]string{"--client", "curl", "--wallet", "wal_\"$(id)"}, "id of a wallet"},
		"permit with a line":  {[]string{"--client", "curl", "--permit", "prm_1\nX: y"}, "id of a permit"},
		"no key to show":      {[]string{"--client", "curl", "--show-key"}, "no key to show"},
		"key file for all":    {[]string{"--client", "curl", "--key-file", filepath.Join(dir, "open.key")}, "chmod 600"},
		"another secret":      {[]string{"--client", "curl", "--key-file", filepath.Join(dir, "other.key")}, "begin with cf_"},
		"no such file":        {[]string{"--client", "curl", "--key-file", filepath.Join(dir, "none")}, "cannot read"},
	} {
		code, out := connected(t, nil, c.args...)
		if code != exitRefused || !strings.Contains(out, c.want) || strings.Contains(out, agentKey) || strings.Contains(out, "operator-token") {
			t.Errorf("%s: status %d: %s", name, code, out)
		}
	}
	if _, out := connected(t, nil, "--client", "curl", "--server", "http://gateway.example"); !strings.Contains(out, "not https") {
		t.Errorf("a key in clear text over the network: %s", out)
	}
	for _, local := range []string{"http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:8080", "https://gateway.example/tools/"} {
		if _, out := connected(t, nil, "--client", "curl", "--server", local); strings.Contains(out, "not https") || !strings.Contains(out, strings.TrimSuffix(local, "/")+"/mcp'") {
			t.Errorf("%s: %s", local, out)
		}
	}
}

// What is written is well formed, with and without a wallet, a permit and a shown key.
func TestConnectWritesWellFormedFiles(t *testing.T) {
	t.Parallel()
	for _, target := range []connect.Target{
		{Server: "https://gateway.example"},
		{Server: "https://gateway.example", Wallet: "wal_ops"},
		{Server: "https://gateway.example", Wallet: "wal_ops", Permit: "prm_q4", Key: agentKey},
		{Server: "https://gateway.example", Key: agentKey},
	} {
		for _, c := range connect.Clients() {
			g, err := connect.For(c.Name, target)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range g.Steps {
				switch s.Language {
				case "json":
					if !json.Valid([]byte(s.Text)) {
						t.Errorf("%s: %s", c.Name, s.Text)
					}
				case "go":
					if text, err := format.Source([]byte(s.Text)); err != nil || strings.TrimSpace(string(text)) != s.Text {
						t.Errorf("%s: %v: gofmt has it otherwise:\n%s", c.Name, err, text)
					}
				}
			}
		}
	}
}

// TestClientsPage holds the guides of docs/clients.md to what the program prints.
func TestClientsPage(t *testing.T) {
	t.Parallel()
	for _, c := range connect.Clients() {
		g, err := connect.For(c.Name, connect.Target{Server: "https://gateway.example", Wallet: "wal_ops", Permit: "prm_q4"})
		if err != nil {
			t.Fatal(err)
		}
		if want, got := markdown(g), between(t, "docs/clients.md", "connect "+c.Name); got != want {
			t.Errorf("the page's part %s is not the program's; it should be:\n%s", c.Name, want)
		}
	}
}

// markdown is a guide as it stands on the page.
func markdown(g *connect.Guide) string {
	var b strings.Builder
	b.WriteString("\n")
	for _, s := range g.Steps {
		do := s.Do
		if s.File != "" {
			do += ", in `" + s.File + "`"
		}
		fmt.Fprintf(&b, "%s:\n\n```%s\n%s\n```\n\n", do, s.Language, s.Text)
	}
	fmt.Fprintf(&b, "The idempotency key comes %s\n\n", g.IdempotencyKey)
	for _, note := range g.Notes {
		fmt.Fprintf(&b, "- %s\n", note)
	}
	return b.String() + "\n"
}

// TestSupportMatrix holds each row of docs/clients.md that says "tested" to tests that exist, use that version of the
// client, and speak those revisions.
func TestSupportMatrix(t *testing.T) {
	t.Parallel()
	pinned := string(read(t, filepath.Join(top, "cmd/counterfoil/e2e/npm_test.go"))) + string(read(t, filepath.Join(top, "go.mod")))
	sources := testSources(t)
	revision := regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	name := regexp.MustCompile("^`(Test[A-Za-z0-9]+)`$")
	tested := 0
	for _, row := range matrixRows(t) {
		client, version, eras, tests := row[0], row[1], row[2], row[4]
		if tests == "not tested" {
			continue
		}
		tested++
		if version != "any" && !strings.Contains(pinned, version) {
			t.Errorf("%s: no test has version %s", client, version)
		}
		source := ""
		for _, word := range strings.Split(tests, ", ") {
			m := name.FindStringSubmatch(word)
			if m == nil || sources[m[1]] == "" {
				t.Errorf("%s: there is no test %s", client, word)
				continue
			}
			source += sources[m[1]]
		}
		for _, era := range strings.Split(eras, ", ") {
			if revision.MatchString(era) && !strings.Contains(source, `"`+era+`"`) {
				t.Errorf("%s: no test of it speaks of %s", client, era)
			}
		}
	}
	if tested < 5 {
		t.Errorf("only %d rows are tested: the test reads nothing", tested)
	}
}

// matrixRows are the cells of the matrix: client, version, era, identity, tests.
func matrixRows(t *testing.T) [][]string {
	t.Helper()
	var rows [][]string
	for i, line := range strings.Split(strings.TrimSpace(between(t, "docs/clients.md", "matrix")), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		if len(cells) != 5 {
			t.Fatalf("row %d of the matrix has %d cells: %s", i, len(cells), line)
		}
		if i > 1 { // below the head and its line
			rows = append(rows, cells)
		}
	}
	return rows
}

// testSources are the texts of the tests of the whole repository, by their names.
func testSources(t *testing.T) map[string]string {
	t.Helper()
	declared := regexp.MustCompile(`(?ms)^func (Test[A-Za-z0-9]+)\(.*?^}$`)
	out := map[string]string{}
	for _, dir := range []string{"cmd/counterfoil/e2e", "cmd/counterfoil", "gateway/mcp", "gateway/upstream"} {
		files, err := filepath.Glob(filepath.Join(top, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, m := range declared.FindAllStringSubmatch(string(read(t, file)), -1) {
				out[m[1]] = m[0]
			}
		}
	}
	return out
}
