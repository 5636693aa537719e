package mcp_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/ledger"
	"counterfoil/permits"
)

// together runs n calls at once and returns their answers.
func (h *house) together(n int, call func(i int) (answer, error)) []answer {
	h.t.Helper()
	answers := make([]answer, n)
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			answers[i], errs[i] = call(i)
		})
	}
	close(start)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			h.t.Fatal(err)
		}
	}
	return answers
}

func (h *house) clean() {
	h.t.Helper()
	report, err := ledger.Fsck(context.Background(), h.url, h.keys.Public(), nil)
	if err != nil {
		h.t.Errorf("fsck: %v (%+v)", err, report)
	}
}

func TestRacersOnOneKey(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := context.Background()
	answers := h.together(200, func(int) (answer, error) { return h.try(ctx, callBody("pay", payArgs, keyed("one"))) })
	var result []byte
	won, replayed, waiting := 0, 0, 0
	for _, a := range answers {
		switch {
		case a.reason == "idempotency_in_progress" && a.code == -31409 && a.header.Get("Retry-After") == "1" && a.retry == "same_key":
			waiting++
			continue
		case a.text("counterfoil/outcome") != "succeeded":
			t.Fatalf("got %d %s", a.status, a.body)
		case a.header.Get("Idempotent-Replayed") == "true":
			replayed++
		default:
			won++
		}
		if result == nil {
			result = a.result
		}
		if !bytes.Equal(result, a.result) {
			t.Errorf("two results: %s and %s", result, a.result)
		}
	}
	if won != 1 {
		t.Errorf("%d won, %d were replayed, %d were told to wait; one may win", won, replayed, waiting)
	}
	if got, want := h.state("wal_1"), (state{Available: 1_000_000 - price, Receipts: 1, Effects: 1, Transfers: 2}); got != want {
		t.Errorf("state %+v, want %+v", got, want)
	}
	h.clean()
}

func TestRacersOnOnePermit(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.permit("prm_50", func(p *permits.Permit) { p.Grant.Limits = permits.Limits{Credits: 50 * price} })
	ctx := context.Background()
	answers := h.together(500, func(i int) (answer, error) {
		return h.try(ctx, callBody("pay", payArgs, keyed(fmt.Sprint("r", i))+`,"permit_id":"prm_50"`))
	})
	succeeded, denied := 0, 0
	for _, a := range answers {
		h.claims(a)
		switch {
		case a.text("counterfoil/outcome") == "succeeded":
			succeeded++
		case a.text("counterfoil/reason") == "permit_credits_exceeded":
			denied++
		default:
			t.Fatalf("got %d %s", a.status, a.body)
		}
	}
	if succeeded != 50 || denied != 450 {
		t.Errorf("%d succeeded, %d denied; want 50 and 450", succeeded, denied)
	}
	if got, want := h.state("wal_1"), (state{Available: 1_000_000 - 50*price, Receipts: 500, Effects: 50, Transfers: 51}); got != want {
		t.Errorf("state %+v, want %+v", got, want)
	}
	h.clean()
}

func TestInProgressAndWaiting(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := context.Background()
	body := callBody("slow", "{}", keyed("k"))
	var first, second answer
	var errs [2]error
	var wg sync.WaitGroup
	wg.Go(func() { first, errs[0] = h.try(ctx, body) })
	<-h.tool.started
	if a := h.post(body); a.code != -31409 || a.reason != "idempotency_in_progress" || a.header.Get("Retry-After") != "1" {
		t.Errorf("while it runs: %d %s", a.status, a.body)
	}
	if a := h.post(callBody("slow", `{"n":1}`, keyed("k"))); a.reason != "idempotency_key_reused" {
		t.Errorf("another request while it runs: %s", a.body)
	}
	if a := h.post(body, "Prefer", "wait=1"); a.reason != "idempotency_in_progress" {
		t.Errorf("after a wait in vain: %s", a.body)
	}
	wg.Go(func() { second, errs[1] = h.try(ctx, body, "Prefer", "wait=30") })
	close(h.tool.gate)
	wg.Wait()
	if errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	if !bytes.Equal(first.result, second.result) || second.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("who waited got %d %s", second.status, second.body)
	}
}

func TestCallerHangsUp(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx, hangUp := context.WithCancel(context.Background())
	body := callBody("slow", "{}", keyed("k"))
	done := make(chan error, 1)
	go func() {
		_, err := h.try(ctx, body)
		done <- err
	}()
	<-h.tool.started
	hangUp()
	if err := <-done; err == nil {
		t.Fatal("the caller did not hang up")
	}
	close(h.tool.gate)
	a := h.post(body, "Prefer", "wait=30")
	if a.text("counterfoil/outcome") != "succeeded" || h.tool.count() != 1 {
		t.Errorf("the call that was left alone: %d %s", a.status, a.body)
	}
}

func TestDrainFinishesCallsInFlight(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	body := callBody("slow", "{}", keyed("k"))
	answers := make(chan answer, 1)
	go func() {
		a, err := h.try(context.Background(), body)
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}()
	<-h.tool.started
	stopped := make(chan error, 1)
	go func() { stopped <- h.stop() }()
	waitFor(t, func() bool { return h.draining() })
	close(h.tool.gate)
	if a := <-answers; a.text("counterfoil/outcome") != "succeeded" {
		t.Errorf("a call in flight was cut: %d %s", a.status, a.body)
	}
	if err := <-stopped; err != nil {
		t.Errorf("drain: %v", err)
	}
}

// A drain that runs out of time leaves no call without its record.
func TestDrainCutsAndRecords(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.drain = 100 * time.Millisecond
	h.restart(nil)
	answers := make(chan answer, 1)
	go func() {
		a, err := h.try(context.Background(), callBody("slow", "{}", keyed("k")))
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}()
	<-h.tool.started
	if err := h.stop(); err == nil {
		t.Error("a drain that cut a call says that it cut none")
	}
	a := <-answers
	if a.text("counterfoil/outcome") != "delivery_uncertain" || a.text("counterfoil/reason") != "no_response" || h.claims(a).Charged != price {
		t.Errorf("the call that was cut: %d %s", a.status, a.body)
	}
	close(h.tool.gate)
	h.clean()
}

// draining: new connections are no longer taken.
func (h *house) draining() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := h.try(ctx, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	return err != nil && strings.Contains(err.Error(), "refused")
}

func waitFor(t *testing.T, ready func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(30 * time.Second)
	for !ready() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("timed out")
		}
	}
}
