package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"counterfoil/internal/testdb"
)

// atLimit reports whether an answer is a refusal at a limit, told as one.
func (a answer) atLimit() bool {
	return a.status == http.StatusOK && a.refusal != nil && a.refusal.Code == -31429 && a.reason() == "rate_limited" &&
		a.refusal.Data.Retry == "same_key" && a.header.Get("Retry-After") == "1"
}

// withoutStore reports whether an answer says that nothing happened because of the store.
func (a answer) withoutStore() bool {
	return a.status == http.StatusOK && a.refusal != nil && a.refusal.Code == -31503 && a.reason() == "store_unavailable" &&
		a.refusal.Data.Retry == "same_key" && a.header.Get("Retry-After") == "1"
}

// open is how many operations of a tenant have no outcome yet.
func (x tenant) open(t *testing.T) int {
	t.Helper()
	n := 0
	for _, op := range x.s.all(t, "/v1/operations", url.Values{"wallet": {x.wallet}}) {
		if op["state"] == "dispatching" {
			n++
		}
	}
	return n
}

// hold begins a call of each tenant, of which those that get to the tool are kept there. The callers hang up as
// soon as their calls are recorded.
func (s *system) hold(t *testing.T, url string, tenants ...tenant) (release func()) {
	t.Helper()
	var releases []func()
	done := len(s.tool.effects(t, tenants[0].marker()))
	ctx, hangUp := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, x := range tenants {
		releases = append(releases, s.tool.keep(x.marker()))
		wg.Go(func() {
			_, _ = s.send(ctx, s.raw, url+"/mcp/messages", x.key, x.payout("held").body())
		})
		eventually(t, "the hold", func() bool { return x.open(t) == 1 })
	}
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, tenants[0].marker())) == done+1 })
	hangUp()
	wg.Wait()
	return func() {
		for _, release := range releases {
			release()
		}
	}
}

// TestCallsAtALimit: a call above a limit is refused before anything is stored, is told when to come again, and
// succeeds under the same key later. Callers that hang up make no room; replays need none.
func TestCallsAtALimit(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for name, c := range map[string]struct{ upstream, limits, says string }{
		"of an upstream": {"concurrency: 1", "{}", "The tool's server gets as many calls as it may"}, // one there, one waits
		"of the gateway": {"", "{in_flight: 2}", "The gateway has as many calls in flight as it may"},
		"of an agent":    {"", "{per_agent: {concurrent: 1}}", "This agent makes too many calls"},
	} {
		t.Run(name, func(t *testing.T) {
			_, url := s.limited(t, c.upstream, c.limits)
			first, second, third := s.newTenant(t, 100, anything()), s.newTenant(t, 100, anything()), s.newTenant(t, 100, anything())
			asks := third
			if name == "of an agent" {
				asks = first
			}
			paid := asks.succeed(t, asks.payout("before"))
			release := s.hold(t, url, first, second)
			defer release()
			before := asks.state(t)
			for range 3 {
				a, err := asks.try(url, asks.payout("after"))
				if err != nil || !a.atLimit() || len(a.refusal.Message) < len(c.says) || a.refusal.Message[:len(c.says)] != c.says {
					t.Fatalf("a call above the limit: %v %s", err, a)
				}
			}
			unchanged(t, "after the refusals", before, asks.state(t))
			if again, err := asks.try(url, asks.payout("before")); err != nil || !again.replayed() || again.meta.ReceiptID != paid.meta.ReceiptID {
				t.Errorf("a replay at the limit: %v %s", err, again)
			}
			release()
			for _, x := range []tenant{first, second} {
				eventually(t, "the end of the call", func() bool { return x.open(t) == 0 })
				if a := x.do(t, x.payout("held")); a.meta.Outcome != "succeeded" || !a.replayed() {
					t.Errorf("a call whose caller hung up: %s", a)
				}
			}
			// The place is free an instant after the record.
			eventually(t, "the call under the same key", func() bool {
				a, err := asks.try(url, asks.payout("after"))
				return err == nil && a.meta.Outcome == "succeeded" && !a.atLimit()
			})
			if st := asks.state(t); st.Operations != before.Operations+1 && st.Operations != before.Operations+2 || st.Effects != st.Operations {
				t.Errorf("after all: %+v", st)
			}
		})
	}
}

// TestRateOfAnUpstream: an upstream gets no more calls a second than it may, whoever makes them; what is above is
// not stored, and succeeds later under the same keys.
func TestRateOfAnUpstream(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	const rate = 2
	_, url := s.limited(t, fmt.Sprintf("rate: %d", rate), "{}")
	x, y := s.newTenant(t, 1000, anything()), s.newTenant(t, 1000, anything())
	began := time.Now()
	payout := func(i int) call { return []tenant{x, y}[i%2].payout(fmt.Sprintf("invoice-%d", i)) }
	admitted := 0
	for _, a := range s.together(t, 20, func(i int) (answer, error) { return []tenant{x, y}[i%2].try(url, payout(i)) }) {
		switch {
		case a.meta.Outcome == "succeeded":
			admitted++
		case !a.atLimit():
			t.Errorf("neither made nor refused at the limit: %s", a)
		}
	}
	most := rate + int(time.Since(began).Seconds()*rate) + 1
	if admitted < rate || admitted > most && most < 20 {
		t.Errorf("%d calls in %v at %d a second", admitted, time.Since(began), rate)
	}
	if n := x.state(t).Operations + y.state(t).Operations; n != admitted {
		t.Errorf("%d operations of %d calls", n, admitted)
	}
	eventually(t, "one more under its key", func() bool {
		a, err := x.try(url, payout(0))
		return err == nil && a.meta.Outcome == "succeeded"
	})
}

// TestOneAgentTakesHalfTheConnections: whatever an agent does, the others get their answers.
func TestOneAgentTakesHalfTheConnections(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	_, url := s.limited(t, "", "{connections: 8}")
	x, y := s.newTenant(t, 100, anything()), s.newTenant(t, 100, anything())
	paid := x.succeed(t, x.payout("paid"))
	release := s.hold(t, url, x)
	var wg sync.WaitGroup
	waited := make(chan answer, 3)
	for range 3 {
		wg.Go(func() {
			for {
				a, err := s.send(context.Background(), s.raw, url+"/mcp/messages", x.key, x.payout("held").body(), "Prefer", "wait=60")
				if err != nil {
					t.Error(err)
				}
				if !a.atLimit() { // the repeats below may be in its place
					waited <- a
					return
				}
			}
		})
	}
	// The call that is held is the fourth.
	eventually(t, "the end of what the agent may", func() bool {
		a, err := x.try(url, x.payout("paid"))
		return err == nil && a.atLimit()
	})
	if status, _ := s.ask(t, url, x.key, http.MethodGet, "/v1/receipts/"+paid.meta.ReceiptID, nil); status != http.StatusTooManyRequests {
		t.Errorf("a receipt above the limit: status %d", status)
	}
	if a, err := y.try(url, y.payout("invoice-1")); err != nil || a.meta.Outcome != "succeeded" {
		t.Errorf("another agent: %v %s", err, a)
	}
	release()
	for range 3 {
		if a := receive(t, waited, "an answer"); a.meta.Outcome != "succeeded" {
			t.Errorf("one that waited: %s", a)
		}
	}
	wg.Wait()
	eventually(t, "the repeat", func() bool {
		a, err := x.try(url, x.payout("paid"))
		return err == nil && a.replayed()
	})
}

// TestAFullQueueRefuses: what finds the lane's queue full is refused before anything is written, at once, and what
// found room runs when the store goes on.
func TestAFullQueueRefuses(t *testing.T) {
	t.Parallel()
	database := testdb.New(t)
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", database), "limits: {queue: 8}")
	x := s.newTenant(t, 1000, anything())
	x.succeed(t, x.payout("invoice-0"))
	before := s.rest(t, s.url)

	stuck := stick(t, database, x.wallet)
	const calls, room = 60, 8
	answers := make(chan answer, calls)
	begin := func(i int) {
		a, err := x.try(s.url, x.payout(fmt.Sprintf("invoice-%d", i)))
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}
	go begin(1)
	stuck.waits(t)
	for i := 2; i <= calls; i++ {
		go begin(i)
	}
	for range calls - 1 - room {
		if a := receive(t, answers, "a refusal"); !a.withoutStore() {
			t.Fatalf("beside a full queue: %s", a)
		}
	}
	if n := stuck.count(t, "select count(*) from operations where wallet_id = $1", x.wallet); n != 1 {
		t.Errorf("%d operations were written beside the one before", n-1)
	}
	stuck.goOn(t)
	for range 1 + room {
		if a := receive(t, answers, "the answer of one that waited"); a.meta.Outcome != "succeeded" || a.replayed() {
			t.Errorf("one that waited: %s", a)
		}
	}
	if st := x.state(t); st.Operations != 2+room || st.Effects != 2+room || st.Held != 0 {
		t.Errorf("after the lane went on: %+v", st)
	}
	for i, a := range s.together(t, 8, func(i int) (answer, error) { return x.try(s.url, x.payout(fmt.Sprintf("again-%d", i))) }) {
		if a.meta.Outcome != "succeeded" {
			t.Errorf("call %d after all: %s", i, a)
		}
	}
	s.restored(t, s.url, before)
}

// TestStrangersAtTheDoor: who guesses keys, however fast, is refused, and keeps nobody else out.
func TestStrangersAtTheDoor(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 1000, anything())
	x.succeed(t, x.payout("invoice-0"))
	before := s.rest(t, s.url)
	over := make(chan struct{})
	var strangers sync.WaitGroup
	for worker := range 64 {
		strangers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				key := fmt.Sprintf("cf_%d-%d", worker, i)
				a, err := s.send(context.Background(), s.raw, s.url+"/mcp/messages", key, x.payout("invoice-0").body())
				if err != nil || a.status != http.StatusUnauthorized {
					t.Errorf("a stranger: %v %s", err, a)
					return
				}
			}
		})
	}
	var longest time.Duration
	for i := range 50 {
		began := time.Now()
		x.succeed(t, x.payout(fmt.Sprintf("invoice-%d", i+1)))
		longest = max(longest, time.Since(began))
	}
	close(over)
	strangers.Wait()
	t.Logf("beside 64 strangers a call took %v at most", longest)
	if longest > 5*time.Second {
		t.Errorf("beside 64 strangers a call took %v", longest)
	}
	s.restored(t, s.url, before)
}

// TestConnectionsToTheStoreTaken: when others hold all that the database gives, calls are refused and nothing
// happens; when they let go, everything goes on.
func TestConnectionsToTheStoreTaken(t *testing.T) {
	t.Parallel()
	server := testdb.NewDurable(t)
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", server.URL()), "limits: {timeouts: {store: 2s}}")
	x := s.newTenant(t, 1000, anything())
	r := x.once(t, x.payout("invoice-0"))
	before := s.rest(t, s.url)
	release := s.tool.keep(`"amount":77`)
	kept := x.payout("kept")
	kept.args = fmt.Sprintf(`{"to":"%svendor.example","amount":77}`, x.marker())
	answers := make(chan answer, 1)
	go func() {
		a, err := x.try(s.url, kept)
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}()
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, `"amount":77`)) == 1 })

	free := takeAll(t, server.URL())
	release()
	if a := receive(t, answers, "the answer"); a.reason() != "outcome_unknown" {
		t.Errorf("a call whose outcome cannot be recorded: %s", a)
	}
	for i, a := range s.together(t, 50, func(i int) (answer, error) { return x.try(s.url, x.payout(fmt.Sprintf("invoice-%d", i))) }) {
		if !a.withoutStore() {
			t.Errorf("call %d without a connection: %s", i, a)
		}
	}
	if status, _ := s.ask(t, s.url, "", http.MethodGet, "/readyz", nil); status != http.StatusServiceUnavailable {
		t.Errorf("readyz: status %d", status)
	}
	free()
	eventually(t, "the record of the kept call", func() bool {
		a := x.do(t, kept)
		return a.meta.Outcome == "succeeded" && a.replayed()
	})
	r.then = x.state(t)
	r.same(t, x.do(t, r.call))
	if st := r.then; st.Operations != 2 || st.Effects != 2 || st.Held != 0 || st.Open != 0 {
		t.Errorf("after all: %+v", st)
	}
	x.succeed(t, x.payout("invoice-1"))
	s.restored(t, s.url, before)
}

// TestAStalledStore: a store that answers nothing is waited for as long as the configuration says, by whoever asks;
// then nothing has happened, or it is not known, and everything goes on when it answers again.
func TestAStalledStore(t *testing.T) {
	t.Parallel()
	database := testdb.New(t)
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", database), "limits: {timeouts: {store: 2s}}")
	x := s.newTenant(t, 1000, anything())
	x.succeed(t, x.payout("invoice-0"))
	before := s.rest(t, s.url)
	stuck := standStill(t, database, "lock table wallets in access exclusive mode")
	const calls = 20
	told := make(chan answer, calls)
	for i := range calls {
		go func() {
			a, err := x.try(s.url, x.payout(fmt.Sprintf("invoice-%d", i+1)))
			if err != nil {
				t.Error(err)
			}
			told <- a
		}()
	}
	if status, data := s.ask(t, s.url, operatorToken, http.MethodGet, "/v1/wallets/"+x.wallet, nil); status != http.StatusServiceUnavailable {
		t.Errorf("the operator was told %d %s", status, data)
	}
	for range calls {
		if a := receive(t, told, "an answer"); !a.withoutStore() && a.reason() != "outcome_unknown" {
			t.Errorf("a call was told %s", a)
		}
	}
	if n := len(s.tool.effects(t, x.marker())); n != 1 {
		t.Errorf("%d effects beside the one before", n-1)
	}
	stuck.goOn(t)
	eventually(t, "the end of what nobody waits for", func() bool { return x.open(t) == 0 })
	notSent := 0
	for i := range calls {
		var a answer
		eventually(t, "an outcome", func() bool {
			var err error
			a, err = x.try(s.url, x.payout(fmt.Sprintf("invoice-%d", i+1)))
			return err == nil && a.refusal == nil
		})
		switch {
		case a.meta.Reason == "not_dispatched" && a.replayed():
			notSent++
		case a.meta.Outcome != "succeeded" || a.replayed():
			t.Errorf("a call under its key: %s", a)
		}
	}
	if st := x.state(t); st.Operations != 1+calls || st.Effects != 1+calls-notSent || st.Held != 0 {
		t.Errorf("%d were not sent: %+v", notSent, st)
	}
	s.restored(t, s.url, before)
}

// takeAll takes every connection that a server gives, from whoever has it, until it is called.
func takeAll(t *testing.T, database string) (free func()) {
	t.Helper()
	ctx := context.Background()
	var held []*pgx.Conn
	free = func() {
		for _, conn := range held {
			_ = conn.Close(ctx)
		}
		held = nil
	}
	t.Cleanup(free)
	eventually(t, "the last connection", func() bool {
		conn, err := pgx.Connect(ctx, database)
		if err == nil {
			held = append(held, conn)
			return false
		}
		var others int
		row := held[0].QueryRow(ctx, "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'counterfoil'")
		if err := errors.Join(row.Scan(&others)); err != nil {
			t.Fatal(err)
		}
		return others == 0
	})
	return free
}
