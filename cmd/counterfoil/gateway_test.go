package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	testToken = "operator-0123456789abcdef0123456789abcdef"
	patience  = 30 * time.Second
)

// upstreamTool is an MCP server whose one tool tells when it was called and answers when it is let go.
type upstreamTool struct {
	url     string
	effects atomic.Int64
	called  chan struct{}
	release chan struct{}
	once    sync.Once
}

func newUpstream(t *testing.T) *upstreamTool {
	t.Helper()
	u := &upstreamTool{called: make(chan struct{}, 16), release: make(chan struct{})}
	server := mcp.NewServer(&mcp.Implementation{Name: "fixture", Version: "1"}, nil)
	tool := &mcp.Tool{Name: "payout", Description: "pays", InputSchema: json.RawMessage(`{"type":"object"}`)}
	server.AddTool(tool, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		u.effects.Add(1)
		u.called <- struct{}{}
		select {
		case <-u.release:
		case <-ctx.Done():
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "paid"}}}, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	s := httptest.NewServer(handler)
	t.Cleanup(func() {
		u.letGo()
		s.CloseClientConnections()
		s.Close()
	})
	u.url = s.URL
	return u
}

// letGo answers all calls, now and later.
func (u *upstreamTool) letGo() { u.once.Do(func() { close(u.release) }) }

// gatewayFiles writes a configuration and makes its keys. Its lease is longer than any test waits: what
// is settled within one was settled because a successor knew that its predecessor is dead.
func gatewayFiles(t *testing.T, database, upstream string) string {
	t.Helper()
	dir := t.TempDir()
	port := freePort(t)
	text := fmt.Sprintf(`issuer: http://%[1]s
listen: %[1]s
database: {url: %q}
keys: {dir: ./keys}
tokens: {operator_file: ./operator.token}
upstreams: [{name: payments, url: %q}]
tools: [{name: payout, upstream: payments, credits: 5, scopes: [pay]}]
limits: {lease: 10m}
`, port, database, upstream)
	path := filepath.Join(dir, "counterfoil.yaml")
	for name, text := range map[string]string{"counterfoil.yaml": text, "operator.token": testToken} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"keys", "new", "--config", path}, nil, &out, &out); code != 0 {
		t.Fatalf("keys new: %s", &out)
	}
	return path
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// process is a running "counterfoil serve".
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	ended chan struct{}
	mu    sync.Mutex
	log   bytes.Buffer // guarded by mu
}

// serve starts the program and returns when it says that it serves.
func serve(t *testing.T, config string, flags ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command("counterfoil", append([]string{"serve", "--config", config}, flags...)...), ended: make(chan struct{})}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", p.logged())
		}
	})
	serving := make(chan string, 1)
	go p.read(stderr, serving)
	select {
	case addr := <-serving:
		p.url = "http://" + addr
	case <-p.ended:
		t.Fatalf("it ended at once:\n%s", p.logged())
	case <-time.After(patience):
		t.Fatalf("it does not serve:\n%s", p.logged())
	}
	return p
}

func (p *process) read(stderr io.Reader, serving chan<- string) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.mu.Lock()
		p.log.Write(append(lines.Bytes(), '\n'))
		p.mu.Unlock()
		var line struct{ Msg, Listen string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			serving <- line.Listen
		}
	}
	_ = p.cmd.Wait()
	close(p.ended)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// status waits for the end.
func (p *process) status() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("it does not end")
	}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// operate runs a command against the gateway and gives what it printed.
func (p *process) operate(args ...string) string {
	p.t.Helper()
	var out, errOut bytes.Buffer
	env := []string{"COUNTERFOIL_TOKEN=" + testToken, "COUNTERFOIL_SERVER=" + p.url}
	if code := run(p.t.Context(), args, env, &out, &errOut); code != 0 {
		p.t.Fatalf("%v: status %d: %s", args, code, &errOut)
	}
	return out.String()
}

// operateJSON is operate with --json, decoded.
func (p *process) operateJSON(args ...string) object {
	p.t.Helper()
	o, err := decodeObject([]byte(p.operate(append(args, "--json")...)))
	if err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
	return o
}

// customer makes wal_ops, agt_ops and prm_q4, and gives the agent's key.
func (p *process) customer() string {
	p.t.Helper()
	p.operate("wallet", "create", "operations", "--id", "wal_ops")
	p.operate("wallet", "deposit", "wal_ops", "100", "--reference", "first")
	p.operate("agent", "create", "bot", "--id", "agt_ops", "--wallet", "wal_ops", "--default-wallet", "wal_ops")
	p.operate("permit", "issue", "--id", "prm_q4", "--wallet", "wal_ops", "--agent", "agt_ops", "--scope", "pay",
		"--tool", "payout", "--credits", "50", "--expires", "1h")
	key, _ := p.operateJSON("agent", "key", "create", "agt_ops")["key"].(string)
	return key
}

// answer is one answer to a tools/call.
type answer struct {
	governed
	refused string // the reason of a JSON-RPC error
	err     error
}

// call sends a governed call.
func (p *process) call(apiKey, key string) answer {
	s := story{wallet: "wal_ops", permit: "prm_q4"}
	req, err := http.NewRequest(http.MethodPost, p.url+"/mcp/messages", strings.NewReader(s.callBody(key, vendor)))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", apiKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{err: err}
	}
	var refusal struct {
		Error struct {
			Data struct{ Reason string }
		}
	}
	if json.Unmarshal(data, &refusal) == nil && refusal.Error.Data.Reason != "" {
		return answer{refused: refusal.Error.Data.Reason}
	}
	g, err := readGoverned(data)
	g.replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	return answer{governed: g, err: err}
}

// wait gives what arrives, or fails the test.
func wait[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}
