package mcp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"counterfoil/gateway"
)

// begin sends a call, again while the agent has too many, and returns what hangs up on it.
func (h *house) begin(body string, pairs ...string) (hangUp func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		a, err := h.try(ctx, body, pairs...)
		for err == nil && a.reason == "rate_limited" {
			a, err = h.try(ctx, body, pairs...)
		}
		done <- err
	}()
	return func() {
		h.t.Helper()
		cancel()
		if err := <-done; err == nil {
			h.t.Error("the call was answered before its caller hung up")
		}
	}
}

// hold locks wal_1, so that no call of it can be claimed until it is let go.
func (h *house) hold() (letGo func()) {
	h.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	run := func(statement string) {
		h.t.Helper()
		if _, err := conn.Exec(ctx, statement); err != nil {
			h.t.Fatal(err)
		}
	}
	run("begin")
	run("select 1 from wallets where id = 'wal_1' for update")
	return func() {
		run("rollback")
		_ = conn.Close(ctx)
	}
}

// blocked reports that a claim waits for the lock.
func (h *house) blocked() bool {
	h.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var waiting bool
	err = conn.QueryRow(ctx, "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')").Scan(&waiting)
	if err != nil {
		h.t.Fatal(err)
	}
	return waiting
}

// cancelled is what a client says when it has lost interest. Nothing hears it.
func (h *house) cancelled(pairs ...string) {
	h.t.Helper()
	a := h.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`, pairs...)
	if a.status != 202 || a.body != "" {
		h.t.Errorf("cancelled: %d %s", a.status, a.body)
	}
}

// A caller that hangs up before its call is in a batch leaves nothing behind; one that hangs up then, or later, leaves
// a call that runs to its record. Both eras, one rule.
func TestWhoHangsUpBeforeT1LeavesNothing(t *testing.T) {
	t.Parallel()
	// Of four connections one agent may use two: so the test sees when a request has come, and when it has gone.
	h := newHouse(t, func(c *gateway.Config) { c.Limits.Connections = 4 })
	h.pay("before")
	full := func() bool { return h.pay("before").reason == "rate_limited" }
	for _, s := range speakers("pay") {
		letGo := h.hold()
		inBatch, queued := s.call("pay", "batch-"+s.name, "", ""), s.call("pay", "queue-"+s.name, "", "")
		hangUpBatch := h.begin(inBatch, s.headers...)
		waitFor(t, h.blocked)
		hangUpQueued := h.begin(queued, s.headers...)
		waitFor(t, full)
		hangUpQueued()
		waitFor(t, func() bool { return !full() })
		hangUpBatch()
		h.cancelled(s.headers[:2]...)
		letGo()
		a := h.post(inBatch, append(s.headers, "Prefer", "wait=30")...)
		if a.text("counterfoil/outcome") != "succeeded" || a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: the call that was in a batch: %d %s", s.name, a.status, a.body)
		}
		if op, err := h.ledger.Lookup(context.Background(), "wal_1", "queue-"+s.name); err != nil || op != nil {
			t.Errorf("%s: the call that was in the queue: %+v, %v", s.name, op, err)
		}
	}
	if n := h.tool.count(); n != 3 {
		t.Errorf("%d effects, want 3", n)
	}
	if got, want := h.state("wal_1"), (state{Available: 1_000_000 - 3*price, Receipts: 3, Effects: 3, Transfers: 4}); got != want {
		t.Errorf("state %+v, want %+v", got, want)
	}
	h.clean()
}

func TestWhoHangsUpAfterT1IsRecorded(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, s := range speakers("slow") {
		for i, closes := range []bool{true, false} {
			body := s.call("slow", fmt.Sprint(s.name, i), "", "")
			if !closes { // it only says so
				answers := make(chan answer, 1)
				go func() {
					a, err := h.try(context.Background(), body, s.headers...)
					if err != nil {
						t.Error(err)
					}
					answers <- a
				}()
				<-h.tool.started
				h.cancelled(s.headers[:2]...)
				h.tool.gate <- struct{}{}
				if a := <-answers; a.text("counterfoil/outcome") != "succeeded" || a.header.Get("Idempotent-Replayed") != "" {
					t.Errorf("%s: the call that was cancelled in words: %s", s.name, a.body)
				}
				continue
			}
			hangUp := h.begin(body, s.headers...)
			<-h.tool.started
			hangUp()
			h.tool.gate <- struct{}{}
			if a := h.post(body, append(s.headers, "Prefer", "wait=30")...); a.text("counterfoil/outcome") != "succeeded" || h.claims(a).Charged != price {
				t.Errorf("%s: the call that was left alone: %s", s.name, a.body)
			}
		}
	}
	if got, want := h.state("wal_1"), (state{Available: 1_000_000 - 4*price, Receipts: 4, Effects: 4, Transfers: 5}); got != want {
		t.Errorf("state %+v, want %+v", got, want)
	}
	h.clean()
}
