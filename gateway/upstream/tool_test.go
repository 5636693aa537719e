package upstream_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

// toolWord as the first argument makes the test binary a tool.
const toolWord = "tool"

// tool is an upstream as a process. Whatever it then does, a tools/call that it has read is an effect, and is in its
// journal. What it does is the row of its own tables that has the called tool's name.
type tool struct {
	era     string
	journal *os.File
	in      *bufio.Reader
	mu      sync.Mutex
	held    []string // ids of calls that wait for more
}

// runTool is the process. The eras are modern, handshake, and some that misbehave before the first call.
func runTool(era string, args []string) int {
	if era == "sdk" {
		return runSDK()
	}
	journal, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	t := &tool{era: era, journal: journal, in: bufio.NewReaderSize(os.Stdin, 1<<16)}
	t.note("start %d", os.Getpid())
	defer t.note("end")
	if era == "dies" {
		return 3
	}
	if era == "stubborn" {
		signal.Ignore(syscall.SIGTERM)
	}
	for {
		text, err := t.in.ReadString('\n')
		if err != nil {
			if era == "stubborn" {
				hang()
			}
			return 0
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				RequestID json.RawMessage
			}
		}
		if json.Unmarshal([]byte(text), &m) != nil {
			t.note("not a message: %q", text[:min(len(text), 40)])
			continue
		}
		if !t.handle(m.Method, m.Params.Name, string(m.ID), strings.TrimSpace(text)) {
			return 4
		}
	}
}

// note writes one line to the journal.
func (t *tool) note(format string, args ...any) { fmt.Fprintf(t.journal, format+"\n", args...) }

func (t *tool) handle(method, name, id, text string) bool {
	switch {
	case method == "tools/call":
		t.note("call %s %s", id, name)
		if do := toolRow(name); do != nil {
			return do(t, id, text)
		}
		t.say(rpcResult(id, paid))
	case method == "notifications/cancelled":
		t.note("cancelled %s", text)
	case method == "":
		t.note("answer %s", text)
	case id == "":
		t.note("%s", method)
	case method == "server/discover" && t.era == "exits":
		return false
	case t.era == "unwilling":
		t.say(rpcError(id, -32000))
	case method == "server/discover" && t.era != "handshake" && t.era != "old" && t.era != "exits":
		t.note("discover")
		t.say(rpcResult(id, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`))
	case method == "initialize" && (t.era == "handshake" || t.era == "exits" || t.era == "old"):
		t.note("initialize")
		version := map[string]string{"old": "2024-11-05"}[t.era]
		if version == "" {
			version = "2025-11-25"
		}
		// As many do: the result first, the id last.
		t.say(`{"result":{"protocolVersion":"` + version + `","capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}},"jsonrpc":"2.0","id":` + id + `}`)
	case method == "tools/list":
		t.say(rpcResult(id, `{"tools":[{"name":"payout","inputSchema":{"type":"object"}}]}`))
	default:
		t.say(rpcError(id, -32601))
	}
	return true
}

// say writes a line to the output.
func (t *tool) say(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = io.WriteString(os.Stdout, text+"\n")
}

// runSDK is a stdio server of the official SDK.
func runSDK() int {
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Message: "half"})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	server.AddTool(&mcp.Tool{Name: "ask", InputSchema: object}, askForName)
	server.AddTool(&mcp.Tool{Name: "wait", InputSchema: object}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "the call has begun")
		<-ctx.Done()
		fmt.Fprintln(os.Stderr, "the call was cancelled")
		return nil, ctx.Err()
	})
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		return 1
	}
	return 0
}

// proc is the test's side: a client of a tool process, and its journal.
type proc struct {
	t       *testing.T
	client  *upstream.Client
	journal string
}

func startTool(t *testing.T, era string, config upstream.Config) *proc {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &proc{t: t, journal: filepath.Join(t.TempDir(), "journal")}
	config.Command = []string{self, toolWord, era, p.journal}
	if config.Grace == 0 {
		config.Grace = 30 * time.Second // the machine may be busy, and all but a few end by themselves
	}
	p.client = client(t, config)
	return p
}

func (p *proc) call(name string) upstream.Answer {
	q := pay()
	q.Tool = name
	return p.client.Call(context.Background(), q)
}

// lines are those of the journal that begin with a word.
func (p *proc) lines(word string) []string {
	p.t.Helper()
	text, err := os.ReadFile(p.journal)
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	var found []string
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, word+" "); ok || line == word {
			found = append(found, rest)
		}
	}
	return found
}

// until waits for a condition, which a process of its own fulfils.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("in vain: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// pid is that of the process started last.
func (p *proc) pid() int {
	p.t.Helper()
	started := p.lines("start")
	pid := 0
	if len(started) == 0 {
		p.t.Fatal("never started")
	}
	if _, err := fmt.Sscan(started[len(started)-1], &pid); err != nil {
		p.t.Fatal(err)
	}
	return pid
}

// exists also says yes of a zombie.
func exists(pid int) bool { return syscall.Kill(pid, 0) == nil }

func toolRow(name string) func(t *tool, id, text string) bool {
	for _, r := range processRows() {
		if r.name == name {
			return r.do
		}
	}
	return toolHabits()[name]
}

// processRow is one line of contract 3.4: what a process does with a call that it has read. What it does returns
// false to end the process.
type processRow struct {
	name    string
	do      func(t *tool, id, text string) bool
	outcome receipts.Outcome
	reason  receipts.Reason
	brief   bool  // the call's time ends soon after it was read
	limit   int64 // bytes of the answer; 0: as usual
	starts  int   // processes in all, with the next call
}

func says(text func(id string) string) func(*tool, string, string) bool {
	return func(t *tool, id, _ string) bool {
		t.say(text(id))
		return true
	}
}

func processRows() []processRow {
	ok := func(id string) string { return rpcResult(id, paid) }
	answer := func(name string, outcome receipts.Outcome, reason receipts.Reason, text func(id string) string) processRow {
		return processRow{name, says(text), outcome, reason, false, 0, 1}
	}
	rejected := func(name string, text func(id string) string) processRow {
		return answer(name, receipts.Uncertain, receipts.ReasonResponseRejected, text)
	}
	// What is nobody's answer is passed over; the call ends with its time.
	ignored := func(name string, text func(id string) string) processRow {
		return processRow{name, says(text), receipts.Uncertain, receipts.ReasonNoResponse, true, 0, 1}
	}
	lost := func(name string, do func(t *tool, id, text string) bool) processRow {
		return processRow{name, do, receipts.Uncertain, receipts.ReasonNoResponse, false, 0, 2}
	}
	big := func(id string) string {
		return `{"result":{"content":[{"type":"text","text":"` + repeat("x", 1<<20) + `"}]},"jsonrpc":"2.0","id":` + id + `}`
	}
	rows := []processRow{
		answer("result", receipts.Succeeded, "", ok),
		answer("result behind other things", receipts.Succeeded, "", func(id string) string {
			return "Server started on stdio\n\n" + `{"jsonrpc":"2.0","method":"notifications/message","params":{}}` + "\n" + rpcResult("999999", `{}`) +
				"\n" + rpcResult(`"x"`, `{}`) + "\n" + rpcError("null", -32600) + "\n \t" + ok(id) + " \r"
		}),
		answer("result twice", receipts.Succeeded, "", func(id string) string { return ok(id) + "\n" + rpcError(id, -32600) }),
		answer("1 MiB line", receipts.Succeeded, "", big),
		answer("tool error", receipts.Failed, receipts.ReasonToolError, func(id string) string { return rpcResult(id, `{"content":[],"isError":true}`) }),
		{"result, then the end, without a line break", func(_ *tool, id, _ string) bool {
			_, _ = io.WriteString(os.Stdout, ok(id))
			return false
		}, receipts.Succeeded, "", false, 0, 2},
		rejected("result and error", func(id string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"result":{},"error":{"code":-32600,"message":"no"}}`
		}),
		rejected("neither", func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `}` }),
		rejected("no version", func(id string) string { return `{"id":` + id + `,"result":` + paid + `}` }),
		rejected("bad UTF-8", func(id string) string { return rpcResult(id, "{\"content\":[\"\xff\"]}") }),
		rejected("duplicate name", func(id string) string { return rpcResult(id, `{"content":[],"x":{"a":1,"\u0061":2}}`) }),
		rejected("trailing data", func(id string) string { return ok(id) + "{}" }),
		rejected("result is no object", func(id string) string { return rpcResult(id, `[]`) }),
		rejected("over the cap, id last", func(id string) string {
			return `{"result":{"content":["\"id\":1,\\` + repeat("x", 5<<20) + `"],"id":77},"jsonrpc":"2.0","id":` + id + `}`
		}),
		rejected("over the cap, id first", func(id string) string { return rpcResult(id, `{"content":["`+repeat("x", 5<<20)+`"]}`) }),
		ignored("HTML", func(string) string { return "<html>welcome</html>" }),
		ignored("wrong id", func(string) string { return rpcResult("999999", paid) }),
		ignored("id as text", func(id string) string { return rpcResult(`"`+id+`"`, paid) }),
		ignored("id null", func(string) string { return rpcError("null", -32600) }),
		ignored("batch", func(id string) string { return "[" + ok(id) + "]" }),
		ignored("over the cap, a call of its own", func(id string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"x":"` + repeat("x", 5<<20) + `","method":"ping"}`
		}),
		{"silent", func(*tool, string, string) bool { return true }, receipts.Uncertain, receipts.ReasonNoResponse, true, 0, 1},
		lost("exits", func(*tool, string, string) bool { return false }),
		lost("half an answer, then the end", func(_ *tool, id, _ string) bool {
			_, _ = io.WriteString(os.Stdout, ok(id)[:30])
			return false
		}),
		lost("kills itself", func(*tool, string, string) bool {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			hang()
			return false
		}),
		lost("closes its output", func(*tool, string, string) bool {
			_ = os.Stdout.Close()
			return true
		}),
		{"a line without end", func(_ *tool, id, _ string) bool {
			_, err := io.WriteString(os.Stdout, rpcResult(id, `"`)[:len(rpcResult(id, `"`))-1])
			for block := repeat("x", 1<<16); err == nil; {
				_, err = io.WriteString(os.Stdout, block)
			}
			return false
		}, receipts.Uncertain, receipts.ReasonResponseRejected, false, 0, 2},
	}
	small := rejected("over a cap of its own", func(id string) string { return rpcResult(id, `{"content":["`+repeat("x", 3000)+`"]}`) })
	small.limit = 1000
	rows = append(rows, small)
	for _, code := range []int{-32700, -32600, -32601, -32602, -32020, -32021, -32022} {
		rows = append(rows, answer(fmt.Sprint("error ", code), receipts.Failed, receipts.ReasonUpstreamRejected, func(id string) string { return rpcError(id, code) }))
	}
	for _, code := range []int{-32603, -32000, 7} {
		rows = append(rows, answer(fmt.Sprint("error ", code), receipts.Uncertain, receipts.ReasonUpstreamError, func(id string) string { return rpcError(id, code) }))
	}
	return rows
}

// toolHabits are what else a tool can be told to do.
func toolHabits() map[string]func(t *tool, id, text string) bool {
	return map[string]func(t *tool, id, text string) bool{
		"text": func(t *tool, id, text string) bool {
			quoted, _ := json.Marshal(text)
			t.say(rpcResult(id, `{"content":[],"structuredContent":{"got":`+string(quoted)+`}}`))
			return true
		},
		"environment": func(t *tool, id, _ string) bool {
			all, _ := json.Marshal(os.Environ())
			dir, _ := os.Getwd()
			t.say(rpcResult(id, `{"content":[],"structuredContent":{"env":`+string(all)+`,"dir":"`+dir+`"}}`))
			return true
		},
		// The last of three answers the three, the last first.
		"three": func(t *tool, id, _ string) bool {
			if t.held = append(t.held, id); len(t.held) == 3 {
				for i := range t.held {
					held := t.held[len(t.held)-1-i]
					t.say(rpcResult(held, `{"content":[],"structuredContent":{"id":`+held+`}}`))
				}
				t.held = nil
			}
			return true
		},
		"hold": func(*tool, string, string) bool { return true },
		"late": func(t *tool, id, _ string) bool {
			for {
				text, err := t.in.ReadString('\n')
				if err != nil {
					return false
				}
				if strings.Contains(text, "notifications/cancelled") {
					t.note("cancelled %s", strings.TrimSpace(text))
					t.say(rpcResult(id, paid))
					return true
				}
			}
		},
		"progress": func(t *tool, id, _ string) bool {
			for _, token := range []string{id, "77777", `"` + id + `"`, id} {
				t.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"message":"` + opKey + `"}}`)
			}
			t.say(rpcResult(id, paid))
			return true
		},
		// It asks its client, and answers when it was answered.
		"asks": func(t *tool, id, _ string) bool {
			t.say(`{"jsonrpc":"2.0","id":"p-1","method":"ping"}`)
			t.say(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
			for range 2 {
				text, _ := t.in.ReadString('\n')
				t.note("answer %s", strings.TrimSpace(text))
			}
			t.say(rpcResult(id, paid))
			return true
		},
		// It refuses what comes next when it has read the beginning.
		"impatient": func(t *tool, id, _ string) bool {
			t.say(rpcResult(id, paid))
			head, err := t.in.Peek(64)
			if err != nil {
				return false
			}
			_, next, _ := strings.Cut(string(head), `"id":`)
			next, _, _ = strings.Cut(next, ",")
			t.say(rpcError(next, -32600))
			return false
		},
		// It reads no more.
		"deaf": func(t *tool, id, _ string) bool {
			t.say(rpcResult(id, paid))
			hang()
			return true
		},
		"closes its input": func(t *tool, id, _ string) bool {
			_ = os.Stdin.Close()
			t.say(rpcResult(id, paid))
			hang()
			return true
		},
		// It starts another process, which holds on to all it has.
		"family": func(t *tool, id, _ string) bool {
			other := exec.Command("/bin/sleep", "3600")
			other.Stdin, other.Stdout, other.Stderr = os.Stdin, os.Stdout, os.Stderr
			if err := other.Start(); err != nil {
				return false
			}
			t.note("other %d", other.Process.Pid)
			t.say(rpcResult(id, paid))
			return true
		},
		"complains": func(t *tool, id, _ string) bool {
			fmt.Fprintf(os.Stderr, "token %s of %s\n%s%s\nshort\n", os.Getenv("API_TOKEN"), "private-key-1", repeat("y", 2000), repeat(os.Getenv("API_TOKEN"), 100))
			t.say(rpcResult(id, paid))
			return true
		},
	}
}

// hang waits for a signal that nobody sends.
func hang() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2)
	<-never
}
