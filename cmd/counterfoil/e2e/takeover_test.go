package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"syscall"
	"testing"

	"counterfoil/internal/testdb"
)

// shortLease is long enough for a busy machine, and short enough to be waited for.
const shortLease = "limits: {lease: 3s}"

// begun starts a call at a second gateway and returns when the tool has acted and keeps its answer.
func (s *system) begun(t *testing.T, x tenant, url string) (answers <-chan answer, release func()) {
	t.Helper()
	release = s.tool.keep(x.marker())
	done := make(chan answer, 1)
	go func() {
		a, _ := x.try(url, x.payout("invoice-1")) // a zero answer is a connection that broke
		done <- a
	}()
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, x.marker())) == 1 })
	return done, release
}

// takenOver waits until the first gateway has settled the call of the other.
func (s *system) takenOver(t *testing.T, x tenant) answer {
	t.Helper()
	var a answer
	eventually(t, "the takeover", func() bool {
		a = x.do(t, x.payout("invoice-1"))
		return a.reason() != "idempotency_in_progress"
	})
	if a.meta.Outcome != "delivery_uncertain" || a.meta.Reason != "gateway_interrupted" || !a.replayed() || *a.meta.Charged != payoutPrice {
		t.Fatalf("after the takeover: %s", a)
	}
	s.receipt(t, a)
	return a
}

// TestTakeover: what a killed gateway left is settled by another one when its lease has run out.
func TestTakeover(t *testing.T) {
	t.Parallel()
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), shortLease)
	other, url := s.second(t)
	x := s.newTenant(t, 100, anything())
	answers, release := s.begun(t, x, url)
	other.kill(t)
	release()
	if a := receive(t, answers, "the end of the caller's connection"); a.status != 0 {
		t.Errorf("a dead gateway answered: %s", a)
	}
	s.takenOver(t, x)
	want := state{Balance: 95, Available: 95, Spent: 5, Calls: 1, Charges: 1, Receipts: 1, Operations: 1, Effects: 1}
	unchanged(t, "after the takeover", want, x.state(t))
}

// TestPaused: a gateway that was only paused finds its call settled. The answer it then gets is evidence, and
// no second outcome.
func TestPaused(t *testing.T) {
	t.Parallel()
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), shortLease)
	other, gatewayURL := s.second(t)
	x := s.newTenant(t, 100, anything())
	answers, release := s.begun(t, x, gatewayURL)
	other.signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { _ = other.cmd.Process.Signal(syscall.SIGCONT) })
	first := s.takenOver(t, x)
	release()
	other.signal(t, syscall.SIGCONT)
	late := receive(t, answers, "the answer of the paused gateway")
	if late.meta.ReceiptID != first.meta.ReceiptID || late.meta.Outcome != "delivery_uncertain" {
		t.Errorf("the paused gateway says %s\nand the other %s", late, first)
	}
	eventually(t, "the late result", func() bool {
		op := s.operator(t, http.MethodGet, "/v1/operations/"+first.meta.Operation, nil, http.StatusOK)
		result, _ := op["late_result"].(map[string]any)
		return result != nil && result["outcome"] == "succeeded"
	})
	want := state{Balance: 95, Available: 95, Spent: 5, Calls: 1, Charges: 1, Receipts: 1, Operations: 1, Effects: 1}
	unchanged(t, "after all", want, x.state(t))
	if n := len(s.all(t, "/v1/receipts", url.Values{"wallet": {x.wallet}})); n != 1 {
		t.Errorf("%d receipts", n)
	}
	y := s.newTenant(t, 100, anything())
	if a, err := y.try(gatewayURL, y.payout("invoice-2")); err != nil || a.meta.Outcome != "succeeded" {
		t.Errorf("the gateway that was paused does not go on: %v %s", err, a)
	}
}
