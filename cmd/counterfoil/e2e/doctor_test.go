package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"counterfoil/internal/testdb"
)

// doctorReport is what "counterfoil doctor --json" prints.
type doctorReport struct {
	Version   string
	Platforms []string `json:"identity_platforms"`
	Checks    []struct {
		What, Says string
		OK         bool
	}
	Permit *struct{ ID, Status string } `json:"default_permit"`
	Call   *struct {
		Revision string
		ID       string `json:"json_rpc_id"`
		Meta     []string
		Key      []string `json:"key_in"`
		Wallet   []string `json:"wallet_in"`
		Answer   string
	}
	Identity *struct {
		Accepted             bool
		Source, Reason, Says string
	}
}

func doctorSays(t *testing.T, out []byte) doctorReport {
	t.Helper()
	var r doctorReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// examine runs the doctor as an agent and gives its status and what it printed.
func (s *system) examine(t *testing.T, key string, args ...string) (status int, out, errOut string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.key")
	writeFile(t, path, key+"\n")
	cmd := command("counterfoil", append([]string{"doctor", "--server", s.url, "--key-file", path}, args...)...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// The doctor spends nothing, and tells a good credential and identity from bad ones by its status.
func TestDoctorExaminesAGateway(t *testing.T) {
	t.Parallel()
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), "identity: {platforms: [acme]}")
	x := s.newTenant(t, 100, anything())
	s.operator(t, http.MethodPatch, "/v1/agents/"+x.agent, object{"default_permit_id": x.permit}, http.StatusOK)
	before := x.state(t)
	status, out, errOut := s.examine(t, x.key, "--json")
	r := doctorSays(t, []byte(out))
	if status != 0 || len(r.Checks) != 5 || r.Version == "" || !slices.Equal(r.Platforms, []string{"codex", "claude_code", "acme"}) ||
		r.Permit == nil || r.Permit.ID != x.permit || r.Permit.Status != "active" || r.Identity != nil {
		t.Errorf("status %d: %s%s", status, out, errOut)
	}
	status, out, _ = s.examine(t, x.key, "--meta", `{"callId":"call_1"}`)
	if shown := strings.NewReplacer(s.url, "http://127.0.0.1:8080", x.permit, "prm_q4", x.wallet, "wal_ops").Replace(out); status != 0 || shown != block(t, "text doctor") {
		t.Errorf("docs/identity.md does not show what is printed (status %d):\n%s", status, shown)
	}
	for name, c := range map[string]struct {
		meta   string
		status int
		says   string
	}{
		"codex":       {`{"callId":"call_hidden1"}`, 0, "ok    identity: codex. "},
		"acme":        {`{"counterfoil/platform-invocation":{"platform":"acme","call_id":"call_hidden2"}}`, 0, "ok    identity: acme. "},
		"not enabled": {`{"counterfoil/platform-invocation":{"platform":"other","call_id":"call_hidden3"}}`, 1, `FAULT identity: none (idempotency_key_required). `},
		"two":         {`{"callId":"call_hidden4","claudecode/toolUseId":"toolu_hidden"}`, 1, "FAULT identity: none (identity_ambiguous). "},
		"malformed":   {`{"callId":"call hidden"}`, 1, "FAULT identity: none (idempotency_key_invalid). "},
	} {
		status, out, errOut := s.examine(t, x.key, "--meta", c.meta)
		if status != c.status || !strings.Contains(out, c.says) || !strings.Contains(out, "ok    one read-only call: the default permit is "+x.permit) || strings.Contains(out+errOut, "hidden") {
			t.Errorf("%s: status %d: %s%s", name, status, out, errOut)
		}
	}
	status, out, errOut = s.examine(t, "cf_nobody")
	if status != 1 || !strings.Contains(out, "FAULT credential: the gateway does not know this API key") || strings.Contains(out+errOut, "cf_nobody") {
		t.Errorf("a wrong key: status %d: %s%s", status, out, errOut)
	}
	unchanged(t, "after all examinations", before, x.state(t))
}

// block is the fenced block of docs/identity.md that is marked with these words.
func block(t *testing.T, words string) string {
	t.Helper()
	_, rest, _ := strings.Cut(string(readFile(t, filepath.Join("..", "..", "..", "docs", "identity.md"))), "\n```"+words+"\n")
	inner, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatalf("the page has no block %q", words)
	}
	return inner
}

// listening is a doctor between a client and the gateway.
type listening struct {
	url   string
	out   bytes.Buffer
	ended chan int
}

func (s *system) listen(t *testing.T, args ...string) *listening {
	t.Helper()
	l := &listening{ended: make(chan int, 1)}
	cmd := command("counterfoil", append([]string{"doctor", "--server", s.url, "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Stdout = &l.out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	told := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if m := regexp.MustCompile(`at (http://\S+/mcp) `).FindStringSubmatch(lines.Text()); m != nil {
				told <- m[1]
			}
		}
		_ = cmd.Wait()
		l.ended <- cmd.ProcessState.ExitCode()
	}()
	l.url = receive(t, told, "the doctor's address")
	return l
}

// Real clients make one call through the doctor: the call runs once, and the report has its shape, never its values.
func TestDoctorListensToRealClients(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	digests := regexp.MustCompile(` [0-9a-f]{8}\n`)
	gosdk := func(revision string) func(*testing.T, string, tenant, mcp.Meta) {
		return func(t *testing.T, url string, x tenant, meta mcp.Meta) {
			t.Helper()
			client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}})
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: url, MaxRetries: -1, DisableStandaloneSSE: true,
				HTTPClient: &http.Client{Transport: staticHeaders{http.DefaultTransport, map[string]string{
					"Authorization": "Bearer " + x.key, "Counterfoil-Wallet": x.wallet, "Counterfoil-Permit": x.permit,
				}}},
			}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = session.Close() }()
			// A refusal is the client's error; the doctor's report is what counts.
			_, _ = session.CallTool(t.Context(), &mcp.CallToolParams{Meta: meta, Name: "payout", Arguments: json.RawMessage(x.payoutArgs())})
		}
	}
	npm := func(which, mode string) func(*testing.T, string, tenant, mcp.Meta) {
		return func(t *testing.T, url string, x tenant, meta mcp.Meta) {
			t.Helper()
			text, _ := json.Marshal(meta)
			node(t, "once.mjs", []string{
				"URL_=" + url, "KEY=" + x.key, "WALLET=" + x.wallet, "PERMIT=" + x.permit, "TOOL=payout", "ARGS=" + x.payoutArgs(), "META=" + string(text),
			}, which, mode)
		}
	}
	t.Run("as the page shows it", func(t *testing.T) {
		t.Parallel()
		x := s.newTenant(t, 100, anything())
		l := s.listen(t)
		gosdk("2025-11-25")(t, l.url, x, mcp.Meta{"callId": "call_Tr1XyVbQ9mJw2Pz0LkE7", "openai/session": "v1/4b7e2f"})
		if status := receive(t, l.ended, "the doctor's end"); status != 0 {
			t.Errorf("status %d", status)
		}
		shown := strings.ReplaceAll(l.out.String(), s.url, "http://127.0.0.1:8080")
		if got, want := digests.ReplaceAllString(shown, " …\n"), digests.ReplaceAllString(block(t, "text listen"), " …\n"); got != want {
			t.Errorf("docs/identity.md does not show what is printed:\n%s", shown)
		}
	})
	for name, c := range map[string]struct {
		call     func(*testing.T, string, tenant, mcp.Meta)
		meta     mcp.Meta
		revision string
		status   int
		effects  int
		verdict  string
		shape    string
	}{
		"go-sdk, modern":      {gosdk("2026-07-28"), mcp.Meta{"callId": "call_hidden"}, "2026-07-28", 0, 1, "codex", `"callId" string 11 `},
		"go-sdk, handshake":   {gosdk("2025-06-18"), mcp.Meta{"claudecode/toolUseId": "toolu_hidden"}, "2025-06-18", 0, 1, "claude_code", `"claudecode/toolUseId" string 12 `},
		"npm v1":              {npm("v1", "default"), mcp.Meta{"callId": "call_hidden"}, "2025-11-25", 0, 1, "codex", `"callId" string 11 `},
		"npm v2, auto":        {npm("v2", "auto"), mcp.Meta{"openai/session": "s_hidden"}, "2026-07-28", 1, 0, "idempotency_key_required", `"openai/session" string 8 `},
		"go-sdk, ambiguously": {gosdk("2025-11-25"), mcp.Meta{"callId": "a_hidden", "claudecode/toolUseId": "b_hidden"}, "2025-11-25", 1, 0, "identity_ambiguous", `"callId" string 8 `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := s.newTenant(t, 100, anything())
			l := s.listen(t, "--json")
			c.call(t, l.url, x, c.meta)
			status := receive(t, l.ended, "the doctor's end")
			r := doctorSays(t, l.out.Bytes())
			if status != c.status || r.Call == nil || r.Identity == nil {
				t.Fatalf("status %d: %s", status, &l.out)
			}
			if r.Identity.Source+r.Identity.Reason != c.verdict || r.Call.Revision != c.revision || len(r.Call.Key) != 0 || !slices.Equal(r.Call.Wallet, []string{"header"}) {
				t.Errorf("%s", &l.out)
			}
			if !slices.ContainsFunc(r.Call.Meta, func(line string) bool { return strings.HasPrefix(line, c.shape) }) {
				t.Errorf("no %s in %q", c.shape, r.Call.Meta)
			}
			if c.status == 0 && r.Call.Answer != "succeeded" || c.status != 0 && r.Call.Answer != c.verdict {
				t.Errorf("the answer was %q", r.Call.Answer)
			}
			for _, hidden := range []string{"hidden", x.key, x.wallet, x.permit, x.marker()} {
				if strings.Contains(l.out.String(), hidden) {
					t.Errorf("the report shows %s", hidden)
				}
			}
			if n := len(s.tool.effects(t, x.marker())); n != c.effects {
				t.Errorf("%d effects", n)
			}
		})
	}
}
