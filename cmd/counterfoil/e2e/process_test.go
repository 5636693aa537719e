package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds each wait; a machine that compiles beside the tests can be slow.
const patience = 60 * time.Second

// process is one "counterfoil serve".
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	listen string
	killed atomic.Bool

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

// serve starts the program and returns when it says that it serves. What still runs at the end of the
// test is stopped, and must stop cleanly.
func serve(t *testing.T, config string, flags ...string) *process {
	t.Helper()
	p := &process{
		cmd:   command("counterfoil", append([]string{"serve", "--config", config}, flags...)...),
		ended: make(chan struct{}),
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cleanUp(t) })
	serving := make(chan string, 1)
	go p.read(stderr, serving)
	select {
	case p.listen = <-serving:
	case <-p.ended:
		t.Fatalf("the gateway ended at once:\n%s", p.logged())
	case <-time.After(patience):
		t.Fatalf("the gateway does not serve:\n%s", p.logged())
	}
	return p
}

func (p *process) read(stderr io.Reader, serving chan<- string) {
	lines := bufio.NewReader(stderr)
	for {
		text, err := lines.ReadBytes('\n')
		p.mu.Lock()
		p.log.Write(text)
		p.mu.Unlock()
		var line struct{ Msg, Listen string }
		if json.Unmarshal(text, &line) == nil && line.Msg == "serving" {
			serving <- line.Listen
		}
		if err != nil {
			break
		}
	}
	_ = p.cmd.Wait()
	close(p.ended)
}

func (p *process) cleanUp(t *testing.T) {
	if p.running() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if status := p.status(t); status != 0 {
			t.Errorf("the gateway ended with status %d", status)
		}
	}
	most := 8000
	if p.killed.Load() { // one of many, perhaps
		most = 1000
	}
	if t.Failed() {
		t.Logf("log of the gateway:\n%s", tail(p.logged(), most))
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// status waits for the end; -1 is a death by signal.
func (p *process) status(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		t.Fatalf("the gateway does not end:\n%s", tail(p.logged(), 8000))
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the process as a loss of power would.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.killed.Store(true)
	p.signal(t, os.Kill)
	p.status(t)
}

// stop asks the process to end and wants it to end well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	if status := p.status(t); status != 0 {
		t.Fatalf("the gateway ended with status %d:\n%s", status, tail(p.logged(), 8000))
	}
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// keepsSecret checks that the log shows none of the secrets.
func (p *process) keepsSecret(t *testing.T, secrets ...string) {
	t.Helper()
	log := p.logged()
	for _, secret := range secrets {
		if secret != "" && strings.Contains(log, secret) {
			t.Error("the gateway's log shows a secret")
		}
	}
}

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("in vain waited for %s", what)
		}
	}
}

// receive gives what arrives, or fails the test.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("in vain waited for %s", what)
		panic("unreachable")
	}
}
