package e2e_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// visit is what a client saw that listed the tools, paid, paid again under the same key, and asked for too much.
type visit struct {
	Server  struct{ Name string }
	Version string
	Tools   []struct{ Name, Description string }

	First, Again, Denied clientResult
	More                 []clientResult // further payments, before the denial
}

// clientResult is a result as a client library hands it on.
type clientResult struct {
	Content           []struct{ Type, Text string }
	StructuredContent map[string]any
	IsError           bool
	Meta              meta `json:"_meta"`
}

// visitor is the tenant of a client's visit: it may pay a little at a time.
func (s *system) visitor(t *testing.T) tenant {
	t.Helper()
	x := s.newWallet(t, 100)
	x.permit = x.issue(t, terms{grant: object{
		"tools": []string{"payout"}, "limits": object{"credits": 100, "value": object{"currency": "USD", "per_call": 5000}},
	}})
	return x
}

// tooMuch are the arguments of a payment that the visitor's permit does not allow.
func (x tenant) tooMuch() string { return strings.Replace(x.payoutArgs(), "1200", "999999999", 1) }

// sawAll checks a visit: each call did and cost what it should, and each receipt that the client holds is good.
func (x tenant) sawAll(t *testing.T, v visit, version string) {
	t.Helper()
	if v.Server.Name != "counterfoil" || v.Version != version {
		t.Errorf("it is connected to %q with %q, want counterfoil with %s", v.Server.Name, v.Version, version)
	}
	// What the permit allows, and the tools of our own.
	if len(v.Tools) != 4 || v.Tools[0].Name != "payout" || !strings.Contains(v.Tools[0].Description, "Pays") {
		t.Errorf("it lists %+v", v.Tools)
	}
	paid := append([]clientResult{v.First}, v.More...)
	var receipts []string
	for i, r := range paid {
		if r.IsError || r.Meta.Outcome != "succeeded" || r.Meta.Receipt == "" || r.Meta.Charged == nil || *r.Meta.Charged != payoutPrice || r.StructuredContent["effect"] == nil || len(r.Content) != 1 {
			t.Errorf("payment %d: %+v", i, r)
		}
		receipts = append(receipts, r.Meta.Receipt)
		x.s.receipt(t, answer{meta: r.Meta})
	}
	if v.Again.Meta.Receipt != v.First.Meta.Receipt || v.Again.IsError {
		t.Errorf("another receipt for the same call: %+v", v.Again)
	}
	if !v.Denied.IsError || v.Denied.Meta.Reason != "permit_value_exceeded" || v.Denied.Meta.Receipt == "" {
		t.Errorf("denied: %+v", v.Denied)
	}
	x.s.holdGood(t, append(receipts, v.Denied.Meta.Receipt)...)
	n := len(paid)
	if st := x.state(t); st.Effects != n || st.Charges != n || st.Receipts != n+1 || st.Balance != 100-int64(n)*payoutPrice || st.Open != 0 {
		t.Errorf("after %d payments: %+v", n, st)
	}
}

// holdGood gives a wallet's receipts, as a client holds them, to the offline verifier: they must be a whole chain.
func (s *system) holdGood(t *testing.T, receipts ...string) {
	t.Helper()
	dir := t.TempDir()
	trust, file := filepath.Join(dir, "jwks.json"), filepath.Join(dir, "receipts.jsonl")
	writeFile(t, trust, string(s.published(t)))
	writeFile(t, file, strings.Join(receipts, "\n")+"\n")
	if status, out := program(t, "counterfoil-verify", "--trust", trust, "--issuer", s.url, "--require", "chain", file); status != 0 {
		t.Errorf("the receipts: status %d: %s", status, out)
	}
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
			x := s.visitor(t)
			printed := node(t, "client.mjs", []string{
				"URL_=" + s.url + "/mcp/messages", "KEY=" + x.key, "WALLET=" + x.wallet, "PERMIT=" + x.permit, "TO=" + x.marker() + "vendor.example",
			}, c.which, c.mode)
			var saw struct {
				visit
				Refused struct {
					Code int
					Data struct{ Reason, Retry string }
				}
			}
			if err := json.Unmarshal(printed, &saw); err != nil {
				t.Fatalf("%v: %s", err, printed)
			}
			if len(saw.More) != 2 {
				t.Errorf("it paid with the context in %d more places", len(saw.More))
			}
			x.sawAll(t, saw.visit, c.version)
			if saw.Refused.Code != -31422 || saw.Refused.Data.Reason != "idempotency_key_reused" || saw.Refused.Data.Retry != "never" {
				t.Errorf("refused: %+v", saw.Refused)
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
			x := s.visitor(t)
			client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
			session := x.connect(t, client, "invoice-1", revision)
			var v visit
			if hello := session.InitializeResult(); hello.ServerInfo != nil {
				v.Server.Name, v.Version = hello.ServerInfo.Name, hello.ProtocolVersion
			}
			list, err := session.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			remake(t, list.Tools, &v.Tools)
			v.First = sdkCall(t, session, "payout", x.payoutArgs())
			v.Again = sdkCall(t, x.connect(t, client, "invoice-1", revision), "payout", x.payoutArgs())
			v.Denied = sdkCall(t, x.connect(t, client, "invoice-2", revision), "payout", x.tooMuch())
			x.sawAll(t, v, cmp.Or(revision, "2026-07-28"))
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "refund", Arguments: map[string]any{}}); err == nil || !strings.Contains(err.Error(), "used for another request") {
				t.Errorf("another call under the same key: %v", err)
			}
		})
	}
}

// connect is a session of the Go client, with what its user can configure: headers.
func (x tenant) connect(t *testing.T, client *mcp.Client, key, revision string) *mcp.ClientSession {
	t.Helper()
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: x.s.url + "/mcp",
		HTTPClient: &http.Client{Transport: staticHeaders{x.s.client.Transport, map[string]string{
			"Authorization": "Bearer " + x.key, "Counterfoil-Wallet": x.wallet, "Counterfoil-Permit": x.permit, "Idempotency-Key": key,
		}}},
	}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func sdkCall(t *testing.T, session *mcp.ClientSession, tool, args string) (r clientResult) {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	remake(t, result, &r)
	return r
}

// remake turns one type into another by way of JSON.
func remake(t *testing.T, from, to any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatalf("%v: %s", err, text)
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
