package e2e_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// conformanceTools are the tools that the official suite calls: those of its reference server.
var conformanceTools = []string{
	"test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource", "test_multiple_content_types",
	"test_error_handling", "test_tool_with_progress", "test_tool_with_logging", "test_sampling", "test_elicitation",
	"test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums", "test_reconnection",
	"test_missing_capability", "test_streaming_elicitation", "test_logging_tool", "test_trigger_tool_change", "test_trigger_prompt_change",
	"test_x_mcp_header", "json_schema_2020_12_tool",
	"test_input_required_result_elicitation", "test_input_required_result_sampling", "test_input_required_result_list_roots",
	"test_input_required_result_request_state", "test_input_required_result_multiple_inputs", "test_input_required_result_multi_round",
	"test_input_required_result_tampered_state", "test_input_required_result_capabilities",
}

// everythingServer is the Go SDK's server for the suite, built from the module that go.mod names anyway.
var everythingServer = sync.OnceValues(func() (string, error) {
	program := filepath.Join(programs, "everything-server")
	build := exec.Command("go", "build", "-o", program, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the everything server: %w: %s", err, out)
	}
	return program, nil
})

// newConformanceSystem is a gateway in front of the Go SDK's server for the suite.
func newConformanceSystem(t *testing.T) *system {
	t.Helper()
	program, err := everythingServer()
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	background(t, exec.Command(program, "-http", address))
	reachable(t, address)
	var tools strings.Builder
	for _, name := range conformanceTools {
		fmt.Fprintf(&tools, "\n  - {name: %s, upstream: everything, credits: 1}", name)
	}
	return newSystemBeside(t, fmt.Sprintf("\n  - {name: everything, url: \"http://%s/mcp\", timeout: 30s}", address), tools.String())
}

// TestConformance: the official suite, in both revisions, against the gateway in front of the suite's own kind of server.
// A scenario that fails must be in the revision's list, with its reason, and what is in the list must fail.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := newConformanceSystem(t)
	for revision, least := range map[string]int{"2026-07-28": 20, "2025-11-25": 10} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			expected := filepath.Join("testdata", "conformance", revision+".yaml")
			reasoned(t, expected)
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "node", npmProgram(t, conformanceProgram), "server", "--url", s.ungoverned(t)+"/mcp",
				"--requirements", revision, "--expected-failures", expected, "-o", dir)
			out, err := cmd.CombinedOutput()
			_, summary, _ := strings.Cut(string(out), "=== SUMMARY ===")
			if err != nil {
				t.Fatalf("the suite: %v\n%s\n%s", err, cmp.Or(summary, string(out)), strings.Join(complaints(t, dir), "\n"))
			}
			if n := passed(t, summary); n < least {
				t.Errorf("%d checks passed, want %d at least:\n%s", n, least, summary)
			}
		})
	}
}

// ungoverned is a door for clients that know nothing of wallets: it adds a tenant's credential, and a new key to each
// request. Host and Origin stay as the client sent them.
func (s *system) ungoverned(t *testing.T) string {
	t.Helper()
	x := s.newTenant(t, 100_000, object{"tools": conformanceTools, "limits": object{"credits": 100_000}})
	s.operator(t, http.MethodPatch, "/v1/agents/"+x.agent, object{"default_permit_id": x.permit}, http.StatusOK)
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	var said lockedBuffer // of the proxy: a client that hangs up is part of the suite
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the proxy said:\n%s", said.String())
		}
	})
	door := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		ErrorLog:      log.New(&said, "", log.Ltime|log.Lmicroseconds),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("X-API-Key", x.key)
			r.Out.Header.Set("Idempotency-Key", fmt.Sprintf("request-%d", requests.Add(1)))
		},
	})
	t.Cleanup(door.Close)
	return door.URL
}

// lockedBuffer is a buffer that may be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// reachable waits until a server takes connections.
func reachable(t *testing.T, address string) {
	t.Helper()
	eventually(t, "a server at "+address, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// reasoned checks that each entry of a list of expected failures says why it is there.
func reasoned(t *testing.T, path string) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(readFile(t, path)))
	for lines.Scan() {
		entry, reason, _ := strings.Cut(lines.Text(), " # ")
		if strings.HasPrefix(strings.TrimSpace(entry), "-") && len(strings.Fields(reason)) < 3 {
			t.Errorf("%s: %s has no reason", path, entry)
		}
	}
}

// passed is how many checks the suite counted as passed.
func passed(t *testing.T, summary string) int {
	t.Helper()
	match := regexp.MustCompile(`Total: (\d+) passed`).FindStringSubmatch(summary)
	if match == nil {
		t.Fatalf("the suite counted nothing: %s", summary)
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// complaints are the checks that did not pass, as the suite wrote them down: a directory a scenario.
func complaints(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(readFile(t, file), &checks); err != nil {
			t.Fatal(err)
		}
		for _, c := range checks {
			if c.Status == "FAILURE" || c.Status == "WARNING" {
				lines = append(lines, fmt.Sprintf("%.60s: %s: %s: %s", filepath.Base(filepath.Dir(file)), c.Status, c.ID, c.ErrorMessage))
			}
		}
	}
	return lines
}
