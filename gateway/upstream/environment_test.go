package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

// plain reads a string of a result's structuredContent.
func plain(t *testing.T, result []byte, name string) string {
	t.Helper()
	var r struct{ StructuredContent map[string]any }
	if err := json.Unmarshal(result, &r); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	text, _ := r.StructuredContent[name].(string)
	return text
}

// A process knows what it was given and nothing else of ours; and what it was given is a secret.
func TestEnvironmentOfAProcess(t *testing.T) {
	t.Setenv("UPSTREAM_TEST_AMBIENT", "ambient")
	dir := t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := startTool(t, "modern", upstream.Config{
		Dir:     dir,
		Environ: []string{"PATH=/usr/bin:/bin", "HOME=/home/gateway"},
		Env:     map[string]string{"API_TOKEN": "token-7-and-more", "HOME": "/elsewhere", "MODE": "live", "SPACED": " a=b "},
	})
	a := p.call("environment")
	var r struct {
		StructuredContent struct {
			Env []string
			Dir string
		}
	}
	if err := json.Unmarshal(a.Result, &r); err != nil || !a.Scrubbed {
		t.Fatalf("%s/%s (%s) %v", a.Outcome, a.Reason, a.Note, err)
	}
	got := slices.DeleteFunc(r.StructuredContent.Env, func(v string) bool { return strings.HasPrefix(v, "PWD=") || strings.HasPrefix(v, "GOCOVERDIR=") })
	slices.Sort(got)
	want := []string{"API_TOKEN=" + handle, "HOME=" + handle, "MODE=live", "PATH=/usr/bin:/bin", "SPACED= a=b "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r.StructuredContent.Dir != dir {
		t.Errorf("runs in %s", r.StructuredContent.Dir)
	}
}

// lockedBuffer takes what a logger writes in many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// What a process complains of is logged at debug, each line up to a length and without a secret.
func TestComplaintsOfAProcess(t *testing.T) {
	t.Parallel()
	for level, logged := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			var out lockedBuffer
			p := startTool(t, "modern", upstream.Config{
				Env:    map[string]string{"API_TOKEN": `tok"en-7-and-more`},
				Logger: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: level})),
			})
			q := pay()
			q.Tool, q.Secret, q.Arguments = "complains", "private-key-1", []byte(`{"key":"private-key-1"}`)
			if a := p.client.Call(context.Background(), q); a.Outcome != receipts.Succeeded {
				t.Fatalf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
			}
			p.client.Close() // it has been heard to the end then
			log := out.String()
			if said := strings.Contains(log, `"token [secret] of [secret]"`) && strings.Contains(log, `"short"`); said != logged {
				t.Errorf("complaints logged: %v\n%s", said, log)
			}
			for _, secret := range []string{"en-7", "private-key"} {
				if strings.Contains(log, secret) {
					t.Errorf("the log shows %s", secret)
				}
			}
			for _, line := range strings.Split(log, "\n") {
				if len(line) > 3000 {
					t.Errorf("a line of %d bytes", len(line))
				}
			}
			if !strings.Contains(log, "process started") || !strings.Contains(log, "exit status 0") {
				t.Error(log)
			}
		})
	}
}

func TestCommandFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := []string{"PATH=relative::" + dir + ":/usr/bin:/bin"}
	for name, config := range map[string]upstream.Config{
		"neither":              {},
		"both":                 {Command: []string{"sh"}, Environ: path, URL: "http://x/"},
		"key header":           {Command: []string{"sh"}, Environ: path, ForwardKeyHeader: "Idempotency-Key"},
		"headers":              {Command: []string{"sh"}, Environ: path, Headers: map[string][]string{"A": {"b"}}},
		"no such program":      {Command: []string{"counterfoil-no-such-program"}, Environ: path},
		"no path":              {Command: []string{"sh"}},
		"not executable":       {Command: []string{"plain"}, Environ: path},
		"no such file":         {Command: []string{"/no/such/program"}},
		"a relative program":   {Command: []string{"./sh"}, Environ: path},
		"a directory":          {Command: []string{"/bin"}},
		"no name":              {Command: []string{""}, Environ: path},
		"no such directory":    {Command: []string{"sh"}, Environ: path, Dir: filepath.Join(dir, "none")},
		"a file as directory":  {Command: []string{"sh"}, Environ: path, Dir: filepath.Join(dir, "plain")},
		"NUL":                  {Command: []string{"sh", "a\x00b"}, Environ: path},
		"a variable's name":    {Command: []string{"sh"}, Environ: path, Env: map[string]string{"A=B": "c"}},
		"time":                 {Command: []string{"sh"}, Environ: path, Timeout: -1},
		"environment of a URL": {URL: "http://x/", Env: map[string]string{"A": "b"}},
		"directory of a URL":   {URL: "http://x/", Dir: dir},
	} {
		if _, err := upstream.New(config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	c, err := upstream.New(upstream.Config{Command: []string{"sh"}, Environ: path, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// The official SDK's server over its standard streams: listed, called, asked, answered, cancelled.
func TestSDKProcess(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	p := startTool(t, "sdk", upstream.Config{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	tools, err := p.client.Tools(t.Context())
	if err != nil || len(tools) != 3 {
		t.Fatalf("%d tools, %v", len(tools), err)
	}
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			var progress []string
			q := upstream.Call{Tool: "echo", Arguments: []byte(`{"z":1.5,"é":"<&>"}`), Handle: handle}
			q.Progress = func(params []byte) { progress = append(progress, string(params)) }
			a := p.client.Call(context.Background(), q)
			if a.Outcome != receipts.Succeeded || !sameJSON(`{"content":[{"type":"text","text":"{\"z\":1.5,\"é\":\"<&>\"}"}]}`, a.Result) {
				t.Errorf("%s/%s (%s) %s", a.Outcome, a.Reason, a.Note, a.Result)
			}
			if len(progress) != 1 || !strings.Contains(progress[0], "half") {
				t.Errorf("progress %q", progress)
			}
		})
	}
	calls.Wait()
	q := upstream.Call{Tool: "ask", Handle: handle, MayAsk: true}
	if a := p.client.Call(context.Background(), q); a.Reason != receipts.ReasonUpstreamRejected || !strings.Contains(string(a.Error), "-32021") {
		t.Errorf("nothing declared: %s/%s (%s) %s", a.Outcome, a.Reason, a.Note, a.Error)
	}
	q.Capabilities = []byte(`{"elicitation":{}}`)
	a := p.client.Call(context.Background(), q)
	if a.Round == nil {
		t.Fatalf("%s/%s (%s) %s", a.Outcome, a.Reason, a.Note, a.Error)
	}
	q.Input = &upstream.Input{Responses: []byte(`{"name":{"action":"accept","content":{"name":"Zoë"}}}`), State: a.Round.State}
	if a = p.client.Call(context.Background(), q); !strings.Contains(string(a.Result), "Zoë of state-1") {
		t.Errorf("%s/%s (%s) %s", a.Outcome, a.Reason, a.Note, a.Result)
	}
	if a := p.client.Call(context.Background(), upstream.Call{Tool: "unknown", Handle: handle}); a.Reason != receipts.ReasonUpstreamRejected {
		t.Errorf("unknown: %s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		until(t, "the call has begun", func() bool { return strings.Contains(out.String(), "the call has begun") })
		cancel()
	}()
	if a := p.client.Call(ctx, upstream.Call{Tool: "wait", Handle: handle}); a.Outcome != receipts.Uncertain {
		t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
	until(t, "the server hears that the call is cancelled", func() bool { return strings.Contains(out.String(), "the call was cancelled") })
}
