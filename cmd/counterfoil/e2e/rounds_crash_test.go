package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"counterfoil/internal/testdb"
)

// TestKilledWhileACallWaits: kill -9 while one call waits for its caller and another's answer is at the tool. What waits still waits, at
// the next process and at every other gateway, and is gone on with once; what was at its tool is uncertain, and
// its state is good for nothing any more.
func TestKilledWhileACallWaits(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := (&system{place: fmt.Sprintf("database: {url: %q}", testdb.NewDurable(t).URL()), limits: longLease, beside: p.line("peer", ""), tools: toolLines + doLine}).build(t)
	x, y, z := s.newTenant(t, 100, anythingOf("do")), s.newTenant(t, 100, anythingOf("do")), s.newTenant(t, 100, anythingOf("do"))
	waits := x.begin(t, p, "waits", 2)
	elsewhere := z.begin(t, p, "elsewhere", 1)
	y.begin(t, p, "answered", 1)
	arrived, gate := make(chan struct{}), make(chan struct{})
	p.on(`"answered"`, func(http.ResponseWriter, *http.Request, string) {
		close(arrived)
		<-gate
	})
	t.Cleanup(func() { close(gate) })
	broken := make(chan error, 1)
	go func() {
		_, err := y.trySaying(s.url, saysYes(1, "answered"), y.doing("answered"))
		broken <- err
	}()
	receive(t, arrived, "the continuation")
	s.first.kill(t)
	if err := receive(t, broken, "the end of the caller's connection"); err == nil {
		t.Error("a dead gateway answered")
	}
	s.fsck(t)
	s.start(t)

	var a answer
	eventually(t, "the recovery", func() bool {
		a = y.saying(t, saysYes(1, "answered"), y.doing("answered"))
		return a.reason() != "idempotency_in_progress"
	})
	if a.meta.Outcome != "delivery_uncertain" || a.meta.Reason != "gateway_interrupted" || *a.meta.Charged != peerPrice || !a.replayed() || p.sent(1, "answered") != 1 {
		t.Errorf("what was at its tool: %s", a)
	}
	s.receipt(t, a)
	unchanged(t, "what was at its tool", paidOnce(), y.state(t))
	unchanged(t, "what waits", parked(), x.state(t))
	if again := x.saying(t, asking(), x.doing("waits")); string(again.result) != string(waits.result) {
		t.Errorf("asked again after the crash:\n%s\n%s", waits.result, again)
	}
	x.pending(t, x.saying(t, saysYes(1, "waits"), x.doing("waits")), 2, "waits")

	// Another gateway goes on with what this one has parked; and this one, killed again, with the last round.
	other, url := s.second(t)
	if b, err := z.trySaying(url, saysYes(1, "elsewhere"), z.doing("elsewhere")); err != nil || b.meta.Outcome != "succeeded" || b.meta.Operation != elsewhere.meta.Operation {
		t.Errorf("at another gateway: %v %s", err, b)
	}
	other.kill(t)
	s.first.kill(t)
	s.start(t)
	if b := x.saying(t, saysYes(2, "waits"), x.doing("waits")); b.meta.Outcome != "succeeded" || b.replayed() || b.meta.Operation != waits.meta.Operation {
		t.Errorf("the last round: %s", b)
	}
	for _, who := range []tenant{x, z} {
		unchanged(t, "after all", paidOnce(), who.state(t))
	}
	for n, which := range map[int]string{1: "waits", 2: "waits"} {
		if p.sent(n, which) != 1 {
			t.Errorf("round %d of %s was sent %d times", n, which, p.sent(n, which))
		}
	}
}

// TestPausedInARound: a gateway that stands still with a continuation for longer than its lease finds its call settled;
// the question that its tool asks meanwhile is nobody's any more.
func TestPausedInARound(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := (&system{place: "database: " + freshDatabase(t), limits: shortLease, beside: p.line("peer", ""), tools: toolLines + doLine}).build(t)
	other, url := s.second(t)
	x := s.newTenant(t, 100, anythingOf("do"))
	x.begin(t, p, "paused", 2)
	arrived, gate := make(chan struct{}), make(chan struct{})
	p.on(`"paused"`, func(w http.ResponseWriter, r *http.Request, id string) {
		recorded := httptest.NewRecorder()
		asks(2)(recorded, r, id) // the next question
		close(arrived)
		<-gate
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(recorded.Body.Bytes())
	})
	told := make(chan answer, 1)
	go func() {
		a, _ := x.trySaying(url, saysYes(1, "paused"), x.doing("paused"))
		told <- a
	}()
	receive(t, arrived, "the continuation")
	other.freeze(t)
	var a answer
	eventually(t, "the takeover", func() bool {
		a = x.saying(t, asking(), x.doing("paused"))
		return a.reason() != "idempotency_in_progress"
	})
	if a.meta.Outcome != "delivery_uncertain" || a.meta.Reason != "gateway_interrupted" || !a.replayed() {
		t.Errorf("after the takeover: %s", a)
	}
	close(gate)
	other.thaw()
	if late := receive(t, told, "the answer of the paused gateway"); late.meta.ReceiptID != a.meta.ReceiptID || strings.Contains(string(late.body), "round 2") {
		t.Errorf("the paused gateway says %s\nand the other %s", late, a)
	}
	if b := x.saying(t, saysYes(2, "paused"), x.doing("paused")); !b.replayed() || b.meta.ReceiptID != a.meta.ReceiptID || p.sent(2, "paused") != 0 {
		t.Errorf("an answer to the lost question: %s", b)
	}
	unchanged(t, "after all", paidOnce(), x.state(t))
}

// freshDatabase is a new database, as a configuration names it.
func freshDatabase(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("{url: %q}", testdb.New(t))
}
