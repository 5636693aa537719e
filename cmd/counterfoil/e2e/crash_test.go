package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/embeddedpg"
	"counterfoil/internal/testdb"
)

// longLease is far longer than what a lone gateway may take to recover: it has not to wait for it.
const (
	longLease     = "limits: {lease: 60s}"
	recoverySlack = 20 * time.Second
)

// interrupted kills the gateway while the tool waits with its answer, starts it again, and follows what
// became of the call.
func (s *system) interrupted(t *testing.T) {
	t.Helper()
	x := s.newTenant(t, 100, anything())
	c := call{tool: "slow", args: `{"seconds":0.012}`, wallet: x.wallet, permit: x.permit, key: "invoice-1"}
	release := s.tool.keep(c.args)
	broken := make(chan error, 1)
	go func() {
		_, err := x.try(s.url, c)
		broken <- err
	}()
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, "seconds")) == 1 })
	op := s.all(t, "/v1/operations", url.Values{"wallet": {x.wallet}})[0]
	if op["state"] != "dispatching" || op.number(t, "credits_held") != slowPrice {
		t.Errorf("while the call runs: %v", op)
	}
	s.first.kill(t)
	release()
	if err := receive(t, broken, "the end of the caller's connection"); err == nil {
		t.Error("a dead gateway answered")
	}
	began := time.Now()
	s.start(t)

	var first answer
	eventually(t, "the recovery", func() bool {
		first = x.do(t, c)
		return first.reason() != "idempotency_in_progress"
	})
	if took := time.Since(began); took > recoverySlack {
		t.Errorf("a lone gateway took %s to recover, as if it waited for its predecessor's lease", took)
	}
	if first.meta.Outcome != "delivery_uncertain" || first.meta.Reason != "gateway_interrupted" || !first.isError || !first.replayed() ||
		first.meta.Retry != "check" || *first.meta.Charged != slowPrice || first.meta.Operation != op.text(t, "id") {
		t.Fatalf("after the crash: %s", first)
	}
	r := s.receipt(t, first)
	if r.Credits.Authorized != slowPrice || r.Credits.Charged != slowPrice || r.Ledger == nil || r.Chain.Seq != 1 {
		t.Errorf("the receipt says %+v", r)
	}
	want := state{Balance: 98, Available: 98, Spent: slowPrice, Calls: 1, Charges: 1, Receipts: 1, Operations: 1}
	unchanged(t, "after the crash", want, x.state(t))
	s.fsck(t)

	// It stays so, however often anybody asks or starts again.
	s.restart(t)
	again := x.do(t, c)
	if !again.replayed() || string(again.result) != string(first.result) {
		t.Errorf("another answer: %s\n%s", first, again)
	}
	unchanged(t, "after another start", want, x.state(t))
	if n := len(s.tool.effects(t, "seconds")); n != 1 {
		t.Errorf("%d effects", n)
	}
	x.succeed(t, x.payout("invoice-2"))
}

// TestKilled: kill -9 between the two commits of a call, on a database that syncs to disk. The next start knows
// at once what its predecessor left, however long the lease is.
func TestKilled(t *testing.T) {
	t.Parallel()
	server := testdb.NewDurable(t)
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", server.URL()), longLease)
	s.interrupted(t)
}

// TestKilledWithItsDatabase: the same where the database is the gateway's own child.
func TestKilledWithItsDatabase(t *testing.T) {
	t.Parallel()
	dir := testdb.Dir(t) + "/pg"
	s := newSystemOn(t, fmt.Sprintf("database: {embedded: {dir: %q}}", dir), longLease)
	s.interrupted(t)
	s.first.stop(t)
	if url, err := embeddedpg.Running(dir); err == nil {
		t.Errorf("the database outlived its gateway: %s", url)
	}
	s.fsck(t) // starts it for itself
	s.start(t)
}

// TestStopped: a call that runs at SIGTERM ends, is recorded and is answered; new ones are not taken.
func TestStopped(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	release := s.tool.keep(`"seconds":0.011`)
	c := call{tool: "slow", args: `{"seconds":0.011}`, wallet: x.wallet, permit: x.permit, key: "invoice-1"}
	answered := make(chan answer, 1)
	go func() {
		a, err := x.try(s.url, c)
		if err != nil {
			t.Errorf("the call was cut: %v", err)
		}
		answered <- a
	}()
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, "0.011")) == 1 })
	s.first.signal(t, syscall.SIGTERM)
	// A signal takes its time to arrive. The probe is a call that leaves nothing behind where it is taken.
	refused := func(c call) bool {
		a, err := x.try(s.url, c)
		return err != nil || a.status == http.StatusServiceUnavailable
	}
	probe := x.payout("invoice-2")
	probe.tool = "nothing"
	eventually(t, "the refusal of new calls", func() bool { return refused(probe) })
	if !refused(x.payout("invoice-2")) {
		t.Error("a call was taken by a gateway that is stopping")
	}
	select {
	case a := <-answered:
		t.Fatalf("answered before the tool did: %s", a)
	case <-s.first.ended:
		t.Fatal("the gateway ended while a call ran")
	default:
	}
	release()
	first := receive(t, answered, "the answer")
	if first.meta.Outcome != "succeeded" || *first.meta.Charged != slowPrice {
		t.Errorf("the call that ran at SIGTERM: %s", first)
	}
	if status := s.first.status(t); status != 0 {
		t.Errorf("exit status %d", status)
	}
	s.start(t)
	again := x.do(t, c)
	if !again.replayed() || string(again.result) != string(first.result) {
		t.Errorf("after the restart: %s", again)
	}
	want := state{Balance: 98, Available: 98, Spent: slowPrice, Calls: 1, Charges: 1, Receipts: 1, Operations: 1}
	unchanged(t, "after the restart", want, x.state(t))
}

// TestStoreAway: while the database is away calls are refused and nothing happens; the gateway goes on with
// the one that comes back.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	server := testdb.NewDurable(t)
	var back *embeddedpg.Server
	t.Cleanup(func() {
		if back != nil {
			_ = back.Stop()
		}
	})
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", server.URL()), "")
	x := s.newTenant(t, 100, anything())
	r := x.once(t, x.payout("invoice-1"))
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"invoice-1", "invoice-2"} {
		a := x.do(t, x.payout(key))
		if a.status != http.StatusOK || a.refusal == nil || a.refusal.Code != -31503 || a.reason() != "store_unavailable" || a.refusal.Data.Retry != "same_key" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s without a store: %s", key, a)
		}
	}
	if status, data := s.ask(t, s.url, operatorToken, http.MethodGet, "/v1/wallets/"+x.wallet, nil); status != http.StatusServiceUnavailable || !strings.Contains(string(data), "store_unavailable") {
		t.Errorf("the operator without a store: %d %s", status, data)
	}
	if status, _ := s.ask(t, s.url, "", http.MethodGet, "/readyz", nil); status != http.StatusServiceUnavailable {
		t.Errorf("readyz without a store: %d", status)
	}
	if status, _ := s.ask(t, s.url, "", http.MethodGet, "/healthz", nil); status != http.StatusOK {
		t.Errorf("healthz without a store: %d", status)
	}
	var err error
	if back, err = embeddedpg.Start(t.Context(), embeddedpg.Options{Dir: server.Dir()}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store", func() bool {
		status, _ := s.ask(t, s.url, "", http.MethodGet, "/readyz", nil)
		return status == http.StatusOK
	})
	unchanged(t, "after the store came back", r.then, x.state(t))
	r.same(t, x.do(t, r.call))
	x.succeed(t, x.payout("invoice-2"))
}

// TestUpstreamAway: where no byte could be sent, nothing is charged, and the call counts for nothing.
func TestUpstreamAway(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	x.succeed(t, x.payout("invoice-1"))
	before := x.state(t)
	s.tool.server.CloseClientConnections()
	_ = s.tool.server.Listener.Close()
	a := x.do(t, x.payout("invoice-2"))
	if a.meta.Outcome != "failed" || a.meta.Reason != "upstream_unreachable" || *a.meta.Charged != 0 || !a.isError || a.meta.Retry != "new_key" {
		t.Fatalf("without an upstream: %s", a)
	}
	if r := s.receipt(t, a); r.Ledger != nil || r.Credits.Authorized != payoutPrice {
		t.Errorf("the receipt says %+v", r)
	}
	w := s.operator(t, http.MethodGet, "/v1/wallets/"+x.wallet, nil, http.StatusOK)
	p := s.operator(t, http.MethodGet, "/v1/permits/"+x.permit, nil, http.StatusOK)
	if w.number(t, "available") != before.Available || w.number(t, "held") != 0 || p.number(t, "usage", "credits_spent") != before.Spent || p.number(t, "usage", "calls_total") != before.Calls {
		t.Errorf("what did not happen is not given back: %v %v", w, p["usage"])
	}
	if again := x.do(t, x.payout("invoice-2")); !again.replayed() || again.meta.ReceiptID != a.meta.ReceiptID {
		t.Errorf("again: %s", again)
	}
}
