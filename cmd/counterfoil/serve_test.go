package main

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/testdb"
)

// TestServeDrains: what was in flight when the process was asked to stop ends as if it had not been.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	p := serve(t, gatewayFiles(t, testdb.New(t), up.url))
	key := p.customer()
	answers := make(chan answer, 1)
	go func() { answers <- p.call(key, "invoice-1") }()
	wait(t, up.called, "call at the upstream")
	p.signal(syscall.SIGTERM)
	select {
	case a := <-answers:
		t.Fatalf("cut by the signal: %+v", a)
	case <-p.ended:
		t.Fatal("it ended with a call in flight")
	case <-time.After(300 * time.Millisecond):
	}
	up.letGo()
	a := wait(t, answers, "answer")
	if a.err != nil || a.outcome != "succeeded" || a.receipt == "" {
		t.Errorf("%+v", a)
	}
	if code := p.status(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if strings.Contains(p.logged(), testToken) || strings.Contains(p.logged(), key) {
		t.Error("the log shows a secret")
	}
}

// TestServeRecordsWhatItCuts: a drain that runs out of time leaves a record, not a gap.
func TestServeRecordsWhatItCuts(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	config := gatewayFiles(t, testdb.New(t), up.url)
	p := serve(t, config, "--drain", "200ms")
	key := p.customer()
	answers := make(chan answer, 1)
	go func() { answers <- p.call(key, "invoice-1") }()
	wait(t, up.called, "call at the upstream")
	p.signal(syscall.SIGTERM)
	first := wait(t, answers, "answer")
	if first.outcome != "delivery_uncertain" || first.charged != 5 {
		t.Errorf("%+v", first)
	}
	if code := p.status(); code != 1 {
		t.Errorf("exit status %d", code)
	}
	again := serve(t, config).call(key, "invoice-1")
	if !again.replayed || again.receipt != first.receipt || !bytes.Equal(again.raw, first.raw) {
		t.Errorf("not the same answer: %+v", again)
	}
	if n := up.effects.Load(); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestServeKilled: after kill -9 the operation is uncertain, has a receipt, and is never sent again.
func TestServeKilled(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	config := gatewayFiles(t, testdb.New(t), up.url)
	p := serve(t, config)
	key := p.customer()
	answers := make(chan answer, 1)
	go func() { answers <- p.call(key, "invoice-1") }()
	wait(t, up.called, "call at the upstream")
	p.signal(os.Kill)
	if a := wait(t, answers, "broken connection"); a.err == nil {
		t.Errorf("an answer of a dead process: %+v", a)
	}
	p.status()
	q := serve(t, config)
	a := q.settled(key, "invoice-1")
	if a.outcome != "delivery_uncertain" || a.reason != "gateway_interrupted" || !a.replayed || a.charged != 5 || a.receipt == "" {
		t.Errorf("%+v", a)
	}
	if n := up.effects.Load(); n != 1 {
		t.Errorf("%d effects", n)
	}
	if w := q.operateJSON("wallet", "get", "wal_ops"); shown(w["balance"]) != "95" || shown(w["held"]) != "0" {
		t.Errorf("%v", w)
	}
	q.signal(syscall.SIGINT)
	if code := q.status(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// settled repeats a call until it is no longer running.
func (p *process) settled(apiKey, key string) answer {
	p.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		a := p.call(apiKey, key)
		if a.refused != "idempotency_in_progress" {
			return a
		}
		select {
		case <-tick.C:
		case <-deadline:
			p.t.Fatal("the operation is never settled")
		}
	}
}

// TestServeRefusesToStart: each thing without which a gateway must not serve.
func TestServeRefusesToStart(t *testing.T) {
	t.Parallel()
	ask := func(config string, env []string, args ...string) (int, string) {
		var out bytes.Buffer
		code := run(t.Context(), append([]string{"serve", "--config", config}, args...), env, &out, &out)
		return code, out.String()
	}
	t.Run("a schema that is not there", func(t *testing.T) {
		t.Parallel()
		config := gatewayFiles(t, emptyDatabase(t), "http://127.0.0.1:1/mcp")
		code, said := ask(config, nil)
		if code != 2 || !strings.Contains(said, "no Counterfoil schema") || !strings.Contains(said, "--migrate") {
			t.Errorf("status %d: %s", code, said)
		}
	})
	t.Run("a database that does not answer", func(t *testing.T) {
		t.Parallel()
		config := gatewayFiles(t, "postgres://app:hunter2@127.0.0.1:1/x", "http://127.0.0.1:1/mcp")
		code, said := ask(config, nil)
		if code != 1 || strings.Contains(said, "hunter2") {
			t.Errorf("status %d: %s", code, said)
		}
	})
	t.Run("a port that is taken", func(t *testing.T) {
		t.Parallel()
		config := gatewayFiles(t, "postgres://app@127.0.0.1:1/x", "http://127.0.0.1:1/mcp")
		l := listen(t)
		code, said := ask(config, []string{"COUNTERFOIL_LISTEN=" + l})
		if code != 1 || !strings.Contains(said, "address already in use") {
			t.Errorf("status %d: %s", code, said)
		}
	})
}

// TestServeMigratesWhenAsked: --migrate makes the schema of a database that has none.
func TestServeMigratesWhenAsked(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.letGo()
	p := serve(t, gatewayFiles(t, emptyDatabase(t), up.url), "--migrate")
	if a := p.call(p.customer(), "invoice-1"); a.outcome != "succeeded" {
		t.Errorf("%+v", a)
	}
}
