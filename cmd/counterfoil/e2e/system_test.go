package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"counterfoil/internal/apitest"
	"counterfoil/internal/testdb"
)

const (
	operatorToken   = "operator-7f3c19d2a4e85b60c1d7e9f2a3b4c5d6"
	approverToken   = "approver-1b2c3d4e5f60718293a4b5c6d7e8f901"
	reconcilerToken = "reconciler-90817263544f5e6d7c8b9aabbccddee"
)

// What the tools of every system cost.
const (
	payoutPrice = 5
	slowPrice   = 2
	flakyPrice  = 4
)

const toolLines = `
  - {name: payout, upstream: payments, credits: 5, scopes: [payments.write], value: {pointer: /amount, currency: USD}, recipient: {pointers: [/to]}}
  - {name: refund, upstream: payments, credits: 3, scopes: [payments.write]}
  - {name: send_email, upstream: payments, credits: 1, scopes: [mail.send], recipient: {pointers: [/to]}}
  - {name: slow, upstream: payments, credits: 2, scopes: [payments.write]}
  - {name: flaky, upstream: payments, credits: 4, scopes: [payments.write]}
  - {name: flaky_charged, upstream: payments, upstream_tool: flaky, credits: 4, on_tool_error: charge}
  - {name: metered, upstream: payments, upstream_tool: payout, credits: {max: 9, actual: /structuredContent/effect}}`

// system is a database, a tool and one gateway or more.
type system struct {
	dir    string
	config string // of the first gateway
	url    string // of the first gateway, which is the issuer's too
	place  string // the line of the configuration that names the database
	limits string // more lines of the configuration
	tools  string // the lines of the tools
	beside string // the lines of upstreams beside the usual one
	tool   *tool
	first  *process
	client *http.Client // checks each answer against openapi.yaml
	raw    *http.Client // does not, for races
	names  atomic.Int64

	mu      sync.Mutex
	secrets []string // guarded by mu
}

// newSystem starts a gateway on a fresh database. The test ends with a clean fsck.
func newSystem(t *testing.T) *system {
	t.Helper()
	return newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), "")
}

func newSystemOn(t *testing.T, place, limits string) *system {
	t.Helper()
	return newSystemWith(t, place, limits, toolLines)
}

func newSystemWith(t *testing.T, place, limits, tools string) *system {
	t.Helper()
	return (&system{place: place, limits: limits, tools: tools}).build(t)
}

// newSystemBeside starts a gateway with more upstreams and with their tools: lines of the configuration.
func newSystemBeside(t *testing.T, upstreams, tools string) *system {
	t.Helper()
	return (&system{place: fmt.Sprintf("database: {url: %q}", testdb.New(t)), beside: upstreams, tools: tools}).build(t)
}

func (s *system) build(t *testing.T) *system {
	t.Helper()
	s.dir, s.tool, s.secrets = t.TempDir(), newTool(t), []string{operatorToken, approverToken, reconcilerToken}
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, MaxIdleConns: 2048, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	s.raw = &http.Client{Transport: transport}
	s.client = &http.Client{Transport: apitest.Load(t).Transport(t, transport)}
	listen := freeAddress(t)
	s.url = "http://" + listen
	for name, secret := range map[string]string{"operator": operatorToken, "approver": approverToken, "reconciler": reconcilerToken} {
		writeFile(t, filepath.Join(s.dir, name+".token"), secret+"\n")
	}
	s.config = s.configure(t, "counterfoil.yaml", listen, s.tools)
	if status, out := program(t, "counterfoil", "keys", "new", "--config", s.config); status != 0 {
		t.Fatalf("keys new: status %d: %s", status, out)
	}
	s.start(t)
	t.Cleanup(func() {
		if !t.Failed() {
			s.fsck(t)
			s.first.keepsSecret(t, s.secrets...)
		}
	})
	return s
}

// configure writes a configuration; all of a system's name the same issuer, keys and database.
func (s *system) configure(t *testing.T, name, listen, tools string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	writeFile(t, path, fmt.Sprintf(`issuer: %s
listen: %s
%s
keys: {dir: ./keys}
tokens: {operator_file: ./operator.token, approver_file: ./approver.token, reconciler_file: ./reconciler.token}
upstreams:
  - {name: payments, url: %q, timeout: 60s, forward_key_header: Idempotency-Key}%s
tools:%s
%s
`, s.url, listen, s.place, s.tool.url(), s.beside, tools, s.limits))
	return path
}

// start starts the first gateway, and waits until it knows its tools.
func (s *system) start(t *testing.T) {
	t.Helper()
	s.first = serve(t, s.config)
	s.described(t, s.url)
}

func (s *system) restart(t *testing.T) {
	t.Helper()
	s.first.stop(t)
	s.start(t)
}

// second starts another gateway on the same database.
func (s *system) second(t *testing.T) (p *process, url string) {
	t.Helper()
	listen := freeAddress(t)
	p, url = serve(t, s.configure(t, "second.yaml", listen, s.tools)), "http://"+listen
	s.described(t, url)
	return p, url
}

func (s *system) described(t *testing.T, url string) {
	t.Helper()
	eventually(t, "the descriptions of the tools", func() bool {
		for _, tool := range s.operatorAt(t, url, http.MethodGet, "/v1/tools", nil, http.StatusOK).list(t, "items") {
			if tool["described"] != true {
				return false
			}
		}
		return true
	})
}

// fsck proves the database with the program, which may run beside gateways.
func (s *system) fsck(t *testing.T) {
	t.Helper()
	if status, out := program(t, "counterfoil", "fsck", "--config", s.config); status != 0 || !strings.Contains(out, "clean") {
		t.Errorf("fsck: status %d: %s", status, out)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
