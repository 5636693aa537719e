package e2e_test

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// clientResult is a result as a client library hands it on.
type clientResult struct {
	Content           []struct{ Type, Text string }
	StructuredContent map[string]any
	IsError           bool
	Meta              meta `json:"_meta"`
}

// TestNPMClients: the stock clients of npm list and call tools, with the context in headers, in params and in _meta.
func TestNPMClients(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for _, c := range []struct{ which, mode, version string }{
		{"v1", "default", "2025-11-25"}, {"v2", "default", "2025-11-25"}, {"v2", "auto", "2026-07-28"}, {"v2", "pin", "2026-07-28"},
	} {
		t.Run(c.which+" "+c.mode, func(t *testing.T) {
			t.Parallel()
			x := s.newWallet(t, 100)
			x.permit = x.issue(t, terms{grant: object{
				"tools": []string{"payout"}, "limits": object{"credits": 100, "value": object{"currency": "USD", "per_call": 5000}},
			}})
			printed := node(t, "client.mjs", []string{
				"URL_=" + s.url + "/mcp/messages", "KEY=" + x.key, "WALLET=" + x.wallet, "PERMIT=" + x.permit, "TO=" + x.marker() + "vendor.example",
			}, c.which, c.mode)
			var saw struct {
				Server  struct{ Name string }
				Version string
				Tools   []struct {
					Name        string
					Description string
				}
				First, Again, Params, Meta, Denied clientResult
				Refused                            struct {
					Code int
					Data struct{ Reason, Retry string }
				}
			}
			if err := json.Unmarshal(printed, &saw); err != nil {
				t.Fatalf("%v: %s", err, printed)
			}
			if saw.Server.Name != "counterfoil" || saw.Version != c.version {
				t.Errorf("it is connected to %q with %q, want counterfoil with %s", saw.Server.Name, saw.Version, c.version)
			}
			if len(saw.Tools) != 4 || saw.Tools[0].Name != "payout" || !strings.Contains(saw.Tools[0].Description, "Pays") {
				t.Errorf("it lists %+v", saw.Tools)
			}
			for name, r := range map[string]clientResult{"in headers": saw.First, "in params": saw.Params, "in _meta": saw.Meta} {
				if r.IsError || r.Meta.Outcome != "succeeded" || r.Meta.Receipt == "" || r.Meta.Charged == nil || *r.Meta.Charged != payoutPrice || r.StructuredContent["effect"] == nil || len(r.Content) != 1 {
					t.Errorf("%s: %+v", name, r)
				}
				s.receipt(t, answer{meta: r.Meta})
			}
			if saw.Again.Meta.Receipt != saw.First.Meta.Receipt {
				t.Errorf("another receipt for the same call: %+v", saw.Again)
			}
			if !saw.Denied.IsError || saw.Denied.Meta.Reason != "permit_value_exceeded" || saw.Denied.Meta.Receipt == "" {
				t.Errorf("denied: %+v", saw.Denied)
			}
			if saw.Refused.Code != -31422 || saw.Refused.Data.Reason != "idempotency_key_reused" || saw.Refused.Data.Retry != "never" {
				t.Errorf("refused: %+v", saw.Refused)
			}
			if st := x.state(t); st.Effects != 3 || st.Charges != 3 || st.Receipts != 4 || st.Balance != 85 {
				t.Errorf("after all: %+v", st)
			}
		})
	}
}

// staticHeaders adds what a user of a command line client can configure.
type staticHeaders struct {
	base    http.RoundTripper
	headers map[string]string
}

func (s staticHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range s.headers {
		r.Header.Set(name, value)
	}
	return s.base.RoundTrip(r)
}

// TestGoSDKClient: the official Go client, left to itself and held to each revision.
func TestGoSDKClient(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for _, revision := range []string{"", "2026-07-28", "2025-11-25", "2025-06-18"} {
		t.Run("revision "+revision, func(t *testing.T) {
			t.Parallel()
			x := s.newTenant(t, 100, anything())
			connect := func(key string) *mcp.ClientSession {
				t.Helper()
				client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{
					MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}, Capabilities: &mcp.ClientCapabilities{},
				})
				session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
					Endpoint: s.url + "/mcp", MaxRetries: -1, DisableStandaloneSSE: true,
					HTTPClient: &http.Client{Transport: staticHeaders{s.client.Transport, map[string]string{
						"Authorization": "Bearer " + x.key, "Counterfoil-Wallet": x.wallet, "Counterfoil-Permit": x.permit, "Idempotency-Key": key,
					}}},
				}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = session.Close() })
				return session
			}
			session := connect("invoice-1")
			list, err := session.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Tools) != 10 || list.Tools[0].Name != "payout" {
				t.Errorf("it lists %+v", list.Tools)
			}
			pay := &mcp.CallToolParams{Name: "payout", Arguments: json.RawMessage(x.payoutArgs())}
			first, err := session.CallTool(t.Context(), pay)
			if err != nil || first.IsError || first.Meta["counterfoil/outcome"] != "succeeded" {
				t.Fatalf("the call: %v, %+v", err, first)
			}
			again, err := connect("invoice-1").CallTool(t.Context(), pay)
			if err != nil || again.Meta["counterfoil/receipt"] != first.Meta["counterfoil/receipt"] {
				t.Errorf("the same call: %v, %+v", err, again)
			}
			denied, err := connect("invoice-2").CallTool(t.Context(), &mcp.CallToolParams{Name: "send_email", Arguments: json.RawMessage(`{}`)})
			if err != nil || !denied.IsError || denied.Meta["counterfoil/outcome"] == "succeeded" {
				t.Errorf("a call that the tool refuses: %v, %+v", err, denied)
			}
			if _, err := connect("invoice-1").CallTool(t.Context(), &mcp.CallToolParams{Name: "refund", Arguments: map[string]any{}}); err == nil || !strings.Contains(err.Error(), "used for another request") {
				t.Errorf("another call under the same key: %v", err)
			}
			if st := x.state(t); st.Effects != 1 || st.Charges != 1 {
				t.Errorf("after all: %+v", st)
			}
		})
	}
}

// TestCurl: the call of the contract, with curl.
func TestCurl(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	curl := func() (headers, body string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "headers")
		out, err := exec.CommandContext(t.Context(), "curl", "-sS", "--fail-with-body", "-D", file, s.url+"/mcp/messages",
			"-H", "X-API-Key: "+x.key, "-H", "Content-Type: application/json", "-d", x.payout("invoice-4417").body()).CombinedOutput()
		if err != nil {
			t.Fatalf("curl: %v: %s", err, out)
		}
		return string(readFile(t, file)), string(out)
	}
	headers, first := curl()
	if !strings.Contains(first, `"counterfoil/outcome":"succeeded"`) || strings.Contains(headers, "Idempotent-Replayed") {
		t.Errorf("%s\n%s", headers, first)
	}
	headers, again := curl()
	if again != first || !strings.Contains(headers, "Idempotent-Replayed: true") {
		t.Errorf("%s\n%s\n%s", headers, first, again)
	}
	if n := len(s.tool.effects(t, x.marker())); n != 1 {
		t.Errorf("%d effects", n)
	}
}
