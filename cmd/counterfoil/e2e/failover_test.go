//go:build unix && !aix && !solaris

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"counterfoil/internal/testdb"

	"github.com/jackc/pgx/v5"
)

// TestFailover: the primary dies under load and its synchronous standby takes its place. The gateway goes on by
// itself; nothing acknowledged is lost, nothing is done twice.
func TestFailover(t *testing.T) {
	t.Parallel()
	pair := testdb.NewPair(t)
	pair.Synchronise(t)
	p := newPayroll(t, pair, "")
	p.reach(t, 100)
	p.failOver(t, pair)
	p.losesNothing(t)
	if p.longest > 30*time.Second {
		t.Errorf("nothing was acknowledged for %s", p.longest)
	}
}

// TestFailoverAfterAPartition: the standby is away for a while when the primary dies, so that every commit
// waits, and an operator has cancelled such waits. What is on the primary alone then is neither acknowledged
// nor dispatched.
func TestFailoverAfterAPartition(t *testing.T) {
	t.Parallel()
	pair := testdb.NewPair(t)
	pair.Synchronise(t)
	p := newPayroll(t, pair, "limits: {timeouts: {store: 1s}}")
	p.reach(t, 50)
	pair.Cut(t)
	cancelWaits(t, pair, 12)
	eventually(t, "a caller to be told that nothing is known", func() bool { return p.refusals("outcome_unknown", "store_unavailable") > 0 })
	p.failOver(t, pair)
	p.losesNothing(t)
}

// TestAsynchronousFailover measures what replication that no commit waits for loses. It asserts nothing of
// that: docs/operations.md has the figures.
func TestAsynchronousFailover(t *testing.T) {
	t.Parallel()
	if os.Getenv("COUNTERFOIL_ASYNC_FAILOVER") == "" {
		return
	}
	pair := testdb.NewPair(t)
	p := newPayroll(t, pair, "")
	p.reach(t, 500)
	pair.Cut(t)
	after(500 * time.Millisecond)
	p.failOver(t, pair)
	p.repeat(t)
}

// paid is a call on which its caller insisted until it had an outcome.
type paid struct {
	call   call
	amount int64 // no other call's
	first  answer
}

// payroll is callers who pay without a pause, each call under its own key. Whoever gets no outcome asks again
// with the same key.
type payroll struct {
	x    tenant
	over chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	done    []paid         // guarded by mu
	last    time.Time      // of the latest outcome; guarded by mu
	longest time.Duration  // without any outcome; guarded by mu
	refused map[string]int // by reason; guarded by mu
}

const payers = 8

func newPayroll(t *testing.T, pair *testdb.Pair, limits string) *payroll {
	t.Helper()
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", pair.URL()), limits)
	s.secrets = append(s.secrets, passwordOf(t, pair.URL()))
	p := &payroll{x: s.newTenant(t, 10_000_000, anything()), over: make(chan struct{}), last: time.Now(), refused: map[string]int{}}
	for payer := range payers {
		p.wg.Go(func() { p.pay(t, payer) })
	}
	t.Cleanup(func() { p.end(); p.wg.Wait() })
	return p
}

func passwordOf(t *testing.T, databaseURL string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return password
}

func (p *payroll) pay(t *testing.T, payer int) {
	for i := 0; ; i++ {
		select {
		case <-p.over:
			return
		default:
		}
		c := paid{call: p.x.payout(fmt.Sprintf("invoice-%d-%d", payer, i)), amount: int64(payer*1_000_000 + i + 1)}
		c.call.args = strings.Replace(p.x.payoutArgs(), "1200", fmt.Sprint(c.amount), 1)
		if !p.insist(t, c) {
			return
		}
	}
}

// insist repeats a call until it has an outcome.
func (p *payroll) insist(t *testing.T, c paid) bool {
	deadline := time.Now().Add(2 * patience)
	for time.Now().Before(deadline) {
		var err error
		if c.first, err = p.x.try(p.x.s.url, c.call); err != nil {
			t.Errorf("the gateway broke off %s: %v", c.call.key, err)
			return false
		}
		if p.note(c) {
			return true
		}
		after(50 * time.Millisecond)
	}
	t.Errorf("%s never had an outcome: %s", c.call.key, c.first)
	return false
}

func (p *payroll) note(c paid) (outcome bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.first.meta.Outcome == "" {
		p.refused[c.first.reason()]++
		return false
	}
	now := time.Now()
	p.done = append(p.done, c)
	p.longest, p.last = max(p.longest, now.Sub(p.last)), now
	return true
}

func after(d time.Duration) { <-time.After(d) }

func (p *payroll) acknowledged() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.done)
}

func (p *payroll) refusals(reasons ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, reason := range reasons {
		n += p.refused[reason]
	}
	return n
}

// reach waits until so many more calls are acknowledged.
func (p *payroll) reach(t *testing.T, more int) {
	t.Helper()
	want := p.acknowledged() + more
	eventually(t, fmt.Sprintf("%d acknowledged calls", want), func() bool { return p.acknowledged() >= want })
}

// failOver kills the primary and promotes its standby, and returns when the gateway works with that.
func (p *payroll) failOver(t *testing.T, pair *testdb.Pair) {
	t.Helper()
	pair.KillPrimary(t)
	p.mu.Lock()
	p.longest = 0
	p.mu.Unlock()
	after(300 * time.Millisecond)
	began := time.Now()
	pair.Promote(t)
	t.Logf("promoted in %.2f s", time.Since(began).Seconds())
	p.reach(t, 100)
}

// finish lets the callers have the outcomes of what they have begun.
func (p *payroll) finish(t *testing.T) {
	t.Helper()
	p.end()
	done := make(chan struct{})
	go func() { p.wg.Wait(); close(done) }()
	receive(t, done, "the outcomes of all calls")
}

func (p *payroll) end() {
	select {
	case <-p.over:
	default:
		close(p.over)
	}
}

func (p *payroll) losesNothing(t *testing.T) {
	t.Helper()
	if lost, twice := p.repeat(t); lost != 0 || twice != 0 {
		t.Errorf("%d acknowledged calls were lost, %d done twice", lost, twice)
	}
}

// repeat asks for every acknowledged call again. It counts those that the gateway does not answer as it did, and
// what the tool has then done more than once.
func (p *payroll) repeat(t *testing.T) (lost, twice int) {
	t.Helper()
	p.finish(t)
	var mu sync.Mutex
	calls := make(chan paid)
	var wg sync.WaitGroup
	for range payers {
		wg.Go(func() {
			for c := range calls {
				again, err := p.x.try(p.x.s.url, c.call)
				if err != nil {
					t.Errorf("%s again: %v", c.call.key, err)
				}
				if !again.replayed() || !bytes.Equal(again.result, c.first.result) {
					mu.Lock()
					lost++
					mu.Unlock()
				}
			}
		})
	}
	for _, c := range p.done {
		calls <- c
	}
	close(calls)
	wg.Wait()
	twice = p.effects(t)
	t.Logf("%d calls acknowledged, %d of them lost, %d done twice; the longest time without an answer was %.2f s; refused meanwhile: %v",
		len(p.done), lost, twice, p.longest.Seconds(), p.refused)
	return lost, twice
}

// effects compares the tool's journal with the outcomes, and counts what was done more than once.
func (p *payroll) effects(t *testing.T) (twice int) {
	t.Helper()
	times := map[int64]int{}
	for _, e := range p.x.s.tool.effects(t, p.x.marker()) {
		var args struct{ Amount int64 }
		if err := json.Unmarshal(e.Arguments, &args); err != nil {
			t.Fatal(err)
		}
		if times[args.Amount]++; times[args.Amount] == 2 {
			twice++
		}
	}
	for _, c := range p.done {
		n, outcome := times[c.amount], c.first.meta.Outcome
		if outcome == "succeeded" && n == 0 || outcome == "failed" && n != 0 {
			t.Errorf("%s is %s and was done %d times: %s", c.call.key, outcome, n, c.first)
		}
	}
	return twice
}

// cancelWaits does what an operator does who wonders why commits hang: it cancels n of the gateway's waits for
// the standby, each as soon as it begins.
func cancelWaits(t *testing.T, pair *testdb.Pair, n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pair.Primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	const cancel = `select count(*) filter (where pg_cancel_backend(pid)) from pg_stat_activity
		where application_name = 'counterfoil' and wait_event = 'SyncRep'`
	eventually(t, "the gateway's commits to wait for the standby", func() bool {
		ended := 0
		if err := conn.QueryRow(t.Context(), cancel).Scan(&ended); err != nil {
			t.Fatal(err)
		}
		n -= ended
		return n <= 0
	})
}
