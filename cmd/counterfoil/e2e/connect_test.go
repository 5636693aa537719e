package e2e_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// guide is what "agent connect --json" prints.
type guide struct {
	Endpoint string
	Steps    []struct {
		Language, Text string
		File           *string
	}
}

// guide has the program write the guide of a client for a tenant. No token and no key is in reach of it.
func (x tenant) guide(t *testing.T, client string) guide {
	t.Helper()
	status, out := program(t, "counterfoil", "agent", "connect", "--client", client, "--server", x.s.url, "--wallet", x.wallet, "--permit", x.permit, "--json")
	var g guide
	if err := json.Unmarshal([]byte(out), &g); status != 0 || err != nil {
		t.Fatalf("status %d, %v: %s", status, err, out)
	}
	return g
}

// withoutDefaults is another agent of the wallet, for which a call must say whose money it spends under what permit.
func (x tenant) withoutDefaults(t *testing.T) tenant {
	t.Helper()
	other := tenant{s: x.s, wallet: x.wallet, agent: x.agent + "-bare"}
	x.s.operator(t, http.MethodPost, "/v1/agents", object{"id": other.agent, "name": t.Name(), "wallets": []string{x.wallet}}, http.StatusCreated)
	other.key = x.s.newKey(t, other.agent)
	other.permit = other.issue(t, terms{grant: anything()})
	return other
}

// text gives the last step in a language.
func (g guide) text(t *testing.T, language string) string {
	t.Helper()
	for i := len(g.Steps) - 1; i >= 0; i-- {
		if g.Steps[i].Language == language {
			return g.Steps[i].Text
		}
	}
	t.Fatalf("no step in %s: %+v", language, g)
	return ""
}

// runs runs a command as a person who has followed the guide would, and gives what it printed.
func (x tenant) runs(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "COUNTERFOIL_KEY="+x.key), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// TestConnectedSnippets: what "agent connect" prints is run as it stands, twice. The first run pays, the second is told
// what the first was told.
func TestConnectedSnippets(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	root, err := modules()
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd() // a folder of the module that has the Go client
	if err != nil {
		t.Fatal(err)
	}
	script := func(t *testing.T, extension, text string) string {
		t.Helper()
		dir, err := os.MkdirTemp(root, "run-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		path := filepath.Join(dir, "snippet"+extension)
		writeFile(t, path, text)
		return path
	}
	for client, run := range map[string]func(t *testing.T, x tenant, g guide) string{
		"curl": func(t *testing.T, x tenant, g guide) string {
			return x.runs(t, t.TempDir(), nil, "bash", "-euo", "pipefail", "-c", g.text(t, "sh"))
		},
		"inspector": func(t *testing.T, x tenant, g guide) string {
			return x.runs(t, root, []string{"HOME=" + t.TempDir()}, "bash", "-euo", "pipefail", "-c", g.text(t, "sh"))
		},
		"typescript": func(t *testing.T, x tenant, g guide) string {
			return x.runs(t, root, nil, "node", script(t, ".mjs", g.text(t, "ts")))
		},
		"go": func(t *testing.T, x tenant, g guide) string {
			return x.runs(t, here, nil, "go", "run", script(t, ".go", g.text(t, "go")))
		},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			x := s.newWallet(t, 100).withoutDefaults(t)
			g := x.guide(t, client)
			receipt := regexp.MustCompile(`rcp_[0-9a-f-]{36}`)
			first := run(t, x, g)
			if !strings.Contains(first, "succeeded") || receipt.FindString(first) == "" {
				t.Fatalf("it printed:\n%s", first)
			}
			if again := run(t, x, g); receipt.FindString(again) != receipt.FindString(first) {
				t.Errorf("it printed:\n%s\nand then:\n%s", first, again)
			}
			if st := x.state(t); st.Charges != 1 || st.Operations != 1 || st.Balance != 100-payoutPrice {
				t.Errorf("after both: %+v", st)
			}
		})
	}
}

// TestConnectedConfigurations: the files for programs that cannot run here hold the URL and the headers that a gateway
// wants, once the program has put the key in.
func TestConnectedConfigurations(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newWallet(t, 100).withoutDefaults(t)
	for client, read := range map[string]func(t *testing.T, text string) (url string, headers map[string]string){
		"claude-code": func(t *testing.T, text string) (string, map[string]string) {
			var file struct{ MCPServers map[string]remoteServer }
			decodeStrictly(t, text, &file)
			server := file.MCPServers["counterfoil"]
			return server.URL, server.Headers
		},
		"vscode": func(t *testing.T, text string) (string, map[string]string) {
			var file struct {
				Inputs []struct {
					Type, ID, Description string
					Password              bool
				}
				Servers map[string]remoteServer
			}
			decodeStrictly(t, text, &file)
			if len(file.Inputs) != 1 || !file.Inputs[0].Password || file.Inputs[0].ID != "counterfoil-key" || file.Inputs[0].Type != "promptString" {
				t.Errorf("it asks for %+v", file.Inputs)
			}
			server := file.Servers["counterfoil"]
			return server.URL, server.Headers
		},
		"codex": codexServer,
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			g := x.guide(t, client)
			file := g.Steps[len(g.Steps)-1]
			url, headers := read(t, file.Text)
			if file.File == nil || url != s.url+"/mcp" || len(headers) != 3 {
				t.Fatalf("URL %q, headers %v", url, headers)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"payout","arguments":`+x.payoutArgs()+`}}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Idempotency-Key", client)
			for name, value := range headers {
				req.Header.Set(name, strings.NewReplacer("${COUNTERFOIL_KEY}", x.key, "${input:counterfoil-key}", x.key).Replace(value))
			}
			resp, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"counterfoil/outcome":"succeeded"`) {
				t.Errorf("%d, %v: %s", resp.StatusCode, err, body)
			}
		})
	}
}

// remoteServer is a server as two of the clients configure it.
type remoteServer struct {
	Type, URL string
	Headers   map[string]string
}

func decodeStrictly(t *testing.T, text string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// codexServer reads as much of TOML as there is; the key comes from the variable that the file names.
func codexServer(t *testing.T, text string) (url string, headers map[string]string) {
	t.Helper()
	headers = map[string]string{}
	pair := regexp.MustCompile(`"([^"]+)" = "([^"]+)"`)
	for _, line := range strings.Split(text, "\n") {
		name, value, _ := strings.Cut(line, " = ")
		switch name {
		case "url":
			url = strings.Trim(value, `"`)
		case "bearer_token_env_var":
			headers["Authorization"] = "Bearer ${" + strings.Trim(value, `"`) + "}"
		case "http_headers":
			for _, m := range pair.FindAllStringSubmatch(value, -1) {
				headers[m[1]] = m[2]
			}
		case "[mcp_servers.counterfoil]", "tool_timeout_sec":
		default:
			t.Errorf("a line that Codex does not know: %s", line)
		}
	}
	return url, headers
}
