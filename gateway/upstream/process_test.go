package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

// Contract 3.4 over a pipe, in both eras: one effect each, and the next call goes through, if need be to a process
// that was started for it.
func TestOutcomesOfAProcess(t *testing.T) {
	t.Parallel()
	for i, r := range processRows() {
		eras := []string{"handshake", "modern"}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			p := startTool(t, eras[i%2], upstream.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if r.brief {
				go func() {
					until(t, "the call is read", func() bool { return len(p.lines("call")) == 1 })
					time.AfterFunc(100*time.Millisecond, cancel) // for what it says then
				}()
			}
			q := pay()
			q.Tool = r.name
			if r.limit > 0 {
				q.MaxResponseBytes = r.limit
			}
			a := p.client.Call(ctx, q)
			if a.Outcome != r.outcome || a.Reason != r.reason {
				t.Errorf("got %s/%s (%s), want %s/%s", a.Outcome, a.Reason, a.Note, r.outcome, r.reason)
			}
			if (a.Result != nil) != (r.outcome == receipts.Succeeded || r.reason == receipts.ReasonToolError) {
				t.Errorf("result %q", a.Result)
			}
			if strings.HasPrefix(r.name, "error ") != (a.Error != nil) {
				t.Errorf("error %s", a.Error)
			}
			if a := p.call("payout"); a.Outcome != receipts.Succeeded {
				t.Errorf("the next call: %s/%s (%s)", a.Outcome, a.Reason, a.Note)
			}
			if calls, starts := len(p.lines("call")), len(p.lines("start")); calls != 2 || starts != r.starts {
				t.Errorf("%d effects of 2 calls, %d processes", calls, starts)
			}
		})
	}
}

// However many calls come first, one process is started and asked once which era it is of.
func TestOneProcessForAll(t *testing.T) {
	t.Parallel()
	for era, want := range map[string]string{"modern": "1 0", "handshake": "0 1", "old": "0 1"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			p := startTool(t, era, upstream.Config{})
			if len(p.lines("start")) != 0 {
				t.Error("started before it was needed")
			}
			var calls sync.WaitGroup
			for range 30 {
				calls.Go(func() {
					if a := p.call("three"); a.Outcome != receipts.Succeeded {
						t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
					}
				})
			}
			calls.Wait()
			if got := fmt.Sprint(len(p.lines("discover")), " ", len(p.lines("initialize"))); got != want || len(p.lines("start")) != 1 || len(p.lines("call")) != 30 {
				t.Errorf("%s probes, %d processes, %d calls", got, len(p.lines("start")), len(p.lines("call")))
			}
		})
	}
}

// Each call gets the answer under its own id, in whatever order they come.
func TestAnswersFindTheirCalls(t *testing.T) {
	t.Parallel()
	p := startTool(t, "modern", upstream.Config{})
	var mu sync.Mutex
	got := map[string]bool{}
	var calls sync.WaitGroup
	for range 12 {
		calls.Go(func() {
			a := p.call("three")
			mu.Lock()
			defer mu.Unlock()
			got[string(a.Result)] = true
		})
	}
	calls.Wait()
	for _, line := range p.lines("call") {
		id, _, _ := strings.Cut(line, " ")
		if want := `{"content":[],"structuredContent":{"id":` + id + `}}`; !got[want] {
			t.Errorf("nobody got %s", want)
		}
	}
	if len(got) != 12 {
		t.Errorf("%d different answers to 12 calls", len(got))
	}
}

// What goes down the pipe is one line, says what this hop has to say, and nothing of HTTP.
func TestWhatAProcessGets(t *testing.T) {
	t.Parallel()
	for era, meta := range map[string]string{
		"modern": `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/clientInfo":{"name":"counterfoil","version":"1"},"traceparent":"00-1"}`,
		"old":    `{"traceparent":"00-1"}`,
	} {
		p := startTool(t, era, upstream.Config{})
		q := pay()
		q.Tool, q.Capabilities, q.Trace = "text", []byte("{\"sampling\":\r{}}"), map[string]string{"traceparent": "00-1"}
		members := ""
		if era == "modern" {
			q.Input = &upstream.Input{Responses: []byte("{\n\"a\":{}\n}"), State: []byte(`"s\n"`)}
			members, meta = `,"inputResponses":{ "a":{} },"requestState":"s\n"`, strings.Replace(meta, `:{}}`, `: {}}`, 1)
		}
		a := p.client.Call(context.Background(), q)
		want := `"method":"tools/call","params":{"name":"text","arguments":` + string(q.Arguments) + members + `,"_meta":` + meta + `}}`
		if got := plain(t, a.Result, "got"); !strings.HasSuffix(got, want) {
			t.Errorf("%s/%s %s\nhas not\n%s", a.Outcome, a.Reason, got, want)
		}
	}
}

func TestProgressOfAProcess(t *testing.T) {
	t.Parallel()
	p := startTool(t, "handshake", upstream.Config{})
	q := pay()
	q.Tool = "progress"
	var got []string
	q.Progress = func(params []byte) { got = append(got, string(params)) }
	a := p.client.Call(context.Background(), q)
	if a.Outcome != receipts.Succeeded || len(got) != 2 || !strings.HasSuffix(got[0], `"message":"`+handle+`"}`) {
		t.Errorf("%s/%s (%s) %q", a.Outcome, a.Reason, a.Note, got)
	}
}

// The answer that comes when the call's time has ended is nobody's, and the tool was told that nobody waits.
func TestLateAnswerOfAProcess(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"handshake", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			p := startTool(t, era, upstream.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				until(t, "the call is read", func() bool { return len(p.lines("call")) == 1 })
				cancel()
			}()
			q := pay()
			q.Tool = "late"
			if a := p.client.Call(ctx, q); a.Outcome != receipts.Uncertain || a.Reason != receipts.ReasonNoResponse {
				t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
			}
			if a := p.call("payout"); a.Outcome != receipts.Succeeded {
				t.Errorf("the next call: %s/%s (%s)", a.Outcome, a.Reason, a.Note)
			}
			id, _, _ := strings.Cut(p.lines("call")[0], " ")
			if said := p.lines("cancelled"); len(said) != 1 || !strings.Contains(said[0], `"params":{"requestId":`+id+`,`) {
				t.Errorf("cancelled: %q", said)
			}
		})
	}
}

// What a server asks of its client is refused, not left without an answer; ping has one.
func TestAProcessAsksItsClient(t *testing.T) {
	t.Parallel()
	p := startTool(t, "handshake", upstream.Config{})
	if a := p.call("asks"); a.Outcome != receipts.Succeeded {
		t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	want := []string{`{"jsonrpc":"2.0","id":"p-1","result":{}}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"not served here"}}`}
	if got := p.lines("answer"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Killed from outside while it works: those whose call was written are uncertain, and nothing is sent again.
func TestProcessKilled(t *testing.T) {
	t.Parallel()
	p := startTool(t, "modern", upstream.Config{})
	const held = 20
	answers := make(chan upstream.Answer, held)
	for range held {
		go func() { answers <- p.call("hold") }()
	}
	until(t, "the calls are read", func() bool { return len(p.lines("call")) == held })
	pid := p.pid()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range held {
		if a := <-answers; a.Outcome != receipts.Uncertain || a.Reason != receipts.ReasonNoResponse {
			t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
		}
	}
	until(t, "the process leaves no zombie", func() bool { return !exists(pid) })
	if a := p.call("payout"); a.Outcome != receipts.Succeeded {
		t.Errorf("the next call: %s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	if len(p.lines("call")) != held+1 || len(p.lines("start")) != 2 {
		t.Errorf("%d effects, %d processes", len(p.lines("call")), len(p.lines("start")))
	}
}

// A process that no longer reads: what waits in the pipe may have gone, what waits before it has not. When nobody's
// time can still depend on it, it is ended, and another one started.
func TestProcessStopsReading(t *testing.T) {
	t.Parallel()
	p := startTool(t, "modern", upstream.Config{Timeout: 2 * time.Second, Grace: 50 * time.Millisecond})
	if a := p.call("deaf"); a.Outcome != receipts.Succeeded {
		t.Fatalf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	deaf := p.pid()
	large := pay()
	large.Arguments = []byte(`{"x":"` + repeat("x", 4<<20) + `"}`)
	entered := make(chan upstream.Answer, 1)
	go func() { entered <- p.client.Call(context.Background(), large) }()
	// The writer has the large one as soon as a small one does not get through any more.
	small := upstream.Answer{}
	until(t, "a call waits before the pipe", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		small = p.client.Call(ctx, pay())
		return small.Outcome == receipts.Failed
	})
	if small.Reason != receipts.ReasonUpstreamUnreachable {
		t.Errorf("not written: %s/%s (%s)", small.Outcome, small.Reason, small.Note)
	}
	if a := <-entered; a.Outcome != receipts.Uncertain || a.Reason != receipts.ReasonNoResponse {
		t.Errorf("half written: %s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	until(t, "the hung process ends", func() bool { return !exists(deaf) })
	until(t, "the next call goes through", func() bool { return p.call("payout").Outcome == receipts.Succeeded })
}

// Where not a byte can be written, the call has not been sent.
func TestProcessClosesItsInput(t *testing.T) {
	t.Parallel()
	p := startTool(t, "handshake", upstream.Config{Grace: 50 * time.Millisecond})
	if a := p.call("closes its input"); a.Outcome != receipts.Succeeded {
		t.Fatalf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	if a := p.call("payout"); a.Outcome != receipts.Failed || a.Reason != receipts.ReasonUpstreamUnreachable {
		t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	if a := p.call("payout"); a.Outcome != receipts.Succeeded || len(p.lines("call")) != 2 {
		t.Errorf("the next call: %s/%s (%s), %d effects", a.Outcome, a.Reason, a.Note, len(p.lines("call")))
	}
}

// Some servers do not survive a question they do not know, and some never answer it.
func TestProcessesThatDislikeQuestions(t *testing.T) {
	t.Parallel()
	p := startTool(t, "exits", upstream.Config{})
	if a := p.call("payout"); a.Outcome != receipts.Succeeded || len(p.lines("start")) != 2 {
		t.Errorf("%s/%s (%s), %d processes", a.Outcome, a.Reason, a.Note, len(p.lines("start")))
	}
	if a := p.call("exits"); a.Outcome != receipts.Uncertain {
		t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	// Its era is remembered: the third one is not asked.
	if a := p.call("payout"); a.Outcome != receipts.Succeeded || len(p.lines("start")) != 3 {
		t.Errorf("%s/%s (%s), %d processes", a.Outcome, a.Reason, a.Note, len(p.lines("start")))
	}
}

// A process that ends again and again, or with which nothing can be agreed, is not started for each call.
func TestProcessThatDoesNotStart(t *testing.T) {
	t.Parallel()
	for era, reason := range map[string]receipts.Reason{"dies": receipts.ReasonUpstreamUnreachable, "unwilling": receipts.ReasonUpstreamRejected} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			p := startTool(t, era, upstream.Config{})
			until(t, "the next start is put off", func() bool {
				a := p.call("payout")
				putOff := strings.Contains(a.Note, "is not started again yet")
				if a.Outcome != receipts.Failed || a.Reason != reason && !(putOff && a.Reason == receipts.ReasonUpstreamUnreachable) {
					t.Fatalf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
				}
				return putOff
			})
			if starts := len(p.lines("start")); starts < 3 {
				t.Errorf("put off after %d starts", starts)
			}
		})
	}
}

// A refusal that comes before the call was read to its end is one all the same.
func TestProcessRefusesWhatItHasNotRead(t *testing.T) {
	t.Parallel()
	p := startTool(t, "modern", upstream.Config{})
	if a := p.call("impatient"); a.Outcome != receipts.Succeeded {
		t.Fatalf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	large := pay()
	large.Arguments = []byte(`{"x":"` + repeat("x", 8<<20) + `"}`)
	if a := p.client.Call(context.Background(), large); a.Outcome != receipts.Failed || a.Reason != receipts.ReasonUpstreamRejected {
		t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	if a := p.call("payout"); a.Outcome != receipts.Succeeded || len(p.lines("start")) != 2 {
		t.Errorf("the next call: %s/%s (%s), %d processes", a.Outcome, a.Reason, a.Note, len(p.lines("start")))
	}
}

// Close leaves nothing: not the process, not what it started, whether they want to end or not.
func TestCloseEndsTheProcess(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		era, habit string
		grace      time.Duration
		ends       int // processes that came to their own end
	}{
		{"modern", "payout", time.Minute, 1},
		{"modern", "family", time.Minute, 1},
		{"stubborn", "family", 50 * time.Millisecond, 0},
	} {
		t.Run(tt.era+" "+tt.habit, func(t *testing.T) {
			t.Parallel()
			p := startTool(t, tt.era, upstream.Config{Grace: tt.grace})
			if a := p.call(tt.habit); a.Outcome != receipts.Succeeded {
				t.Fatalf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
			}
			pids := []int{p.pid()}
			for _, line := range p.lines("other") {
				var other int
				_, _ = fmt.Sscan(line, &other)
				pids = append(pids, other)
			}
			for _, pid := range pids {
				if !exists(pid) {
					t.Errorf("process %d is gone already", pid)
				}
			}
			p.client.Close()
			if exists(pids[0]) {
				t.Error("the process is there, or its zombie")
			}
			for _, pid := range pids[1:] {
				until(t, "what it started has gone", func() bool { return !alive(pid) })
			}
			if ends := len(p.lines("end")); ends != tt.ends {
				t.Errorf("%d processes ended by themselves, want %d", ends, tt.ends)
			}
			if a := p.call("payout"); a.Reason != receipts.ReasonNotDispatched {
				t.Errorf("after Close: %s/%s", a.Outcome, a.Reason)
			}
		})
	}
}

// alive is false for a zombie too: somebody else's child is somebody else's to bury.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return exists(pid) && !proceeds()
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// proceeds says whether this system has /proc.
func proceeds() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}
