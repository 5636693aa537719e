package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// stdioWord as the first argument makes the test binary a tool over its standard streams; the second one is its
// journal.
const stdioWord = "stdio-tool"

// runStdio is a server of the official SDK: whatever a call does then, that it was read is in the journal.
func runStdio(journal string) int {
	note := func(format string, args ...any) {
		f, err := os.OpenFile(journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		defer func() { _ = f.Close() }()
		fmt.Fprintf(f, format+"\n", args...)
	}
	note("pid %d", os.Getpid())
	defer note("end %d", os.Getpid())
	server := mcp.NewServer(&mcp.Implementation{Name: "books", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	server.AddTool(&mcp.Tool{Name: "book", InputSchema: object}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		note("call %s", r.Params.Arguments)
		text := fmt.Sprintf("booked with %s, one of %d variables", os.Getenv("BOOKS_TOKEN"), len(os.Environ()))
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	})
	server.AddTool(&mcp.Tool{Name: "hang", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		note("call %s", r.Params.Arguments)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		return 1
	}
	return 0
}

// lines are those of the journal that begin with a word.
func linesOf(journal, word string) []string {
	text, _ := os.ReadFile(journal) // not there yet: none
	var found []string
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, word+" "); ok {
			found = append(found, rest)
		}
	}
	return found
}

// TestAProcessIsAnUpstreamLikeAnyOther: a governed call to a process acts once and has its receipt; one whose process is
// killed is uncertain and is never made again; the next one goes to a new process; none is left when the gateway has
// stopped, and none that minds its input when the gateway was killed.
func TestAProcessIsAnUpstreamLikeAnyOther(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	journal, env := filepath.Join(dir, "journal"), filepath.Join(dir, "books.env")
	const secret = "books-7f3c19d2a4e85b60"
	writeFile(t, env, "BOOKS_TOKEN="+secret+"\n")
	s := newSystemBeside(t, fmt.Sprintf("\n  - {name: books, command: [%q, %s, %q], dir: %q, env_file: %q, timeout: 60s}", self, stdioWord, journal, dir, env), `
  - {name: book, upstream: books, credits: 5, scopes: [payments.write]}
  - {name: hang, upstream: books, credits: 3, scopes: [payments.write]}`)
	s.secrets = append(s.secrets, secret)
	x := s.newTenant(t, 100, object{"tools": []string{"book", "hang"}, "limits": object{"credits": 100}})
	do := func(tool, key string) call {
		return call{tool: tool, args: `{"which":"` + key + `"}`, wallet: x.wallet, permit: x.permit, key: key}
	}
	a := x.succeed(t, do("book", "first"))
	if len(a.text) != 1 || a.text[0] != "booked with "+a.meta.Operation+", one of 3 variables" || bytes.Contains(a.body, []byte(secret)) {
		t.Errorf("it knows what it was given, and does not tell: %s", a)
	}
	if again := x.do(t, do("book", "first")); !again.replayed() || !bytes.Equal(again.result, a.result) {
		t.Errorf("again: %s", again)
	}

	lost := make(chan answer, 1)
	go func() {
		a, err := s.send(context.Background(), s.raw, s.url+"/mcp/messages", x.key, do("hang", "lost").body())
		if err != nil {
			t.Error(err)
		}
		lost <- a
	}()
	eventually(t, "the call in the process", func() bool { return len(linesOf(journal, "call")) == 2 })
	first := pidOf(t, journal)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a = receive(t, lost, "the answer of the call whose process was killed")
	if a.meta.Outcome != "delivery_uncertain" || a.meta.Reason != "no_response" || *a.meta.Charged != 3 {
		t.Fatalf("killed: %s", a)
	}
	if again := x.do(t, do("hang", "lost")); !again.replayed() || !bytes.Equal(again.result, a.result) {
		t.Errorf("killed, again: %s", again)
	}
	x.succeed(t, do("book", "second"))
	if calls := linesOf(journal, "call"); len(calls) != 3 || len(linesOf(journal, "pid")) != 2 {
		t.Errorf("%d processes were called: %q", len(linesOf(journal, "pid")), calls)
	}

	second := pidOf(t, journal)
	s.restart(t)
	if syscall.Kill(second, 0) == nil {
		t.Error("the gateway has stopped, and its process has not")
	}
	third := pidOf(t, journal)
	s.first.kill(t)
	eventually(t, "the end of a process whose gateway was killed", func() bool {
		ended := linesOf(journal, "end")
		return len(ended) > 0 && ended[len(ended)-1] == fmt.Sprint(third)
	})
	s.start(t)
	if st := x.state(t); st.Balance != 100-5-3-5 || st.Charges != 3 || st.Receipts != 3 || st.Held != 0 {
		t.Errorf("after all: %+v", st)
	}
}

// pidOf is the process started last.
func pidOf(t *testing.T, journal string) (pid int) {
	t.Helper()
	started := linesOf(journal, "pid")
	if len(started) == 0 {
		t.Fatal("no process was started")
	}
	if _, err := fmt.Sscan(started[len(started)-1], &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}
