package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// kind is how a call of the crowd has to end, if nothing dies.
type kind int

const (
	paying    kind = iota // succeeds at once
	slowly                // acts at once, and succeeds after some tens of milliseconds
	forbidden             // denied by its permit
	failing               // the tool answers that it failed: credits and value go back
	dropping              // the tool acts, and breaks the connection off
)

// page is one idempotency key: the call that is made with it, and what its callers were told.
type page struct {
	x    tenant
	call call
	kind kind

	mu    sync.Mutex
	told  answer // guarded by mu: the first governed answer, to which every other must be equal
	ended bool   // guarded by mu: told is set
	first int    // guarded by mu: how many answers were no replay
	lost  bool   // guarded by mu: an answer did not arrive, or said that nothing is known
	open  int    // guarded by mu: how many callers wait for an answer
}

func (p *page) answered() (answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told, p.ended
}

// book is what a crowd of callers knows: every call that was made and every answer. The oracle of the tests
// that kill compares it with what gateways, database and tool say afterwards.
type book struct {
	s        *system
	tenants  []tenant
	numbers  atomic.Int64 // makes arguments unique
	answers  atomic.Pointer[bell]
	longWait time.Duration // what an answer may take

	mu      sync.Mutex
	pages   []*page        // guarded by mu
	changed []string       // guarded by mu: arguments that came under a used key, and must never act
	counts  map[string]int // guarded by mu: answers, by what they said
}

// deposited is what each wallet of a book begins with.
const deposited = 1_000_000_000

func (s *system) newBook(t *testing.T, wallets int) *book {
	t.Helper()
	b := &book{s: s, counts: map[string]int{}, longWait: patience}
	grant := object{"tools": []string{"payout", "slow", "flaky"}, "limits": object{"credits": deposited}}
	for range wallets {
		b.tenants = append(b.tenants, s.newTenant(t, deposited, grant))
	}
	return b
}

// write makes a new page, of a random kind.
func (b *book) write(rng *rand.Rand) *page {
	n := b.numbers.Add(1)
	x := b.tenants[rng.IntN(len(b.tenants))]
	p := &page{x: x, call: call{wallet: x.wallet, permit: x.permit, key: fmt.Sprintf("invoice-%d", n)}}
	switch dice := rng.IntN(100); {
	case dice < 60:
		p.kind, p.call.tool = paying, "payout"
		p.call.args = payoutOf(x, n)
	case dice < 80:
		p.kind, p.call.tool = slowly, "slow"
		p.call.args = `{"seconds":` + strconv.FormatFloat(0.02+float64(rng.IntN(4))/100+float64(n)/1e9, 'f', -1, 64) + `}`
	case dice < 90:
		p.kind, p.call.tool = forbidden, "refund"
		p.call.args = fmt.Sprintf(`{"amount":%d,"invoice_id":"%s"}`, n, x.marker())
	case dice < 95:
		p.kind, p.call.tool, p.call.args = failing, "flaky", `{"mode":"error"}`
	default:
		p.kind, p.call.tool, p.call.args = dropping, "flaky", `{"mode":"drop"}`
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pages = append(b.pages, p)
	return p
}

// payoutOf are canonical arguments that no other call has: as they are written, so they stand in the journal.
func payoutOf(x tenant, n int64) string {
	return fmt.Sprintf(`{"amount":%d,"to":"%svendor.example"}`, n, x.marker())
}

// pick gives a new page, or now and then one that is in use: of the last few, some are being called just now.
func (b *book) pick(rng *rand.Rand) *page {
	dice := rng.IntN(100)
	if dice >= 20 {
		return b.write(rng)
	}
	b.mu.Lock()
	n := len(b.pages)
	if dice >= 8 {
		n = min(n, 12)
	}
	if n == 0 {
		b.mu.Unlock()
		return b.write(rng)
	}
	defer b.mu.Unlock()
	return b.pages[len(b.pages)-1-rng.IntN(n)]
}

func (b *book) all() []*page {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pages)
}

// word is what an answer means to its caller.
type word int

const (
	final   word = iota // the outcome
	running             // the key's call runs
	nothing             // the gateway says that nothing has happened
	unknown             // no answer, or one that says that nothing is known
)

// ask makes a page's call and enters the answer.
func (b *book) ask(t *testing.T, url string, p *page) word {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), b.longWait)
	defer cancel()
	p.mu.Lock()
	p.open++
	p.mu.Unlock()
	a, err := b.s.send(ctx, b.s.raw, url+"/mcp/messages", p.x.key, p.call.body())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	w := final
	switch {
	case err != nil:
		p.lost, w = true, unknown
		b.count("no answer")
	case a.status == http.StatusServiceUnavailable || a.reason() == "store_unavailable":
		w = nothing
		b.count("store_unavailable")
	case a.reason() == "outcome_unknown":
		p.lost, w = true, unknown
		b.count("outcome_unknown")
	case a.reason() == "idempotency_in_progress":
		w = running
		b.count("in progress")
	default:
		b.judge(t, p, a)
	}
	if err == nil {
		if a.refusal != nil && a.refusal.Data.Retry != "same_key" {
			t.Errorf("a refusal that does not say to come again with the same key: %s", a)
		}
		b.answers.Load().pass()
	}
	return w
}

// judge enters a governed answer: its outcome is one that this call can have, and all are the same bytes.
// p.mu is held.
func (b *book) judge(t *testing.T, p *page, a answer) {
	t.Helper()
	if !p.ended {
		p.told, p.ended = a, true
	}
	if !a.replayed() {
		p.first++
		b.count(a.meta.Outcome)
	} else {
		b.count("replay")
	}
	switch {
	case a.status != http.StatusOK || a.refusal != nil || a.meta.Charged == nil || a.meta.Receipt == "":
		t.Errorf("%s %s was told %s", p.call.tool, p.call.key, a)
	case !bytes.Equal(a.result, p.told.result):
		t.Errorf("%s was told\n%s\nand then\n%s", p.call.key, p.told.result, a.result)
	case p.first > 1:
		t.Errorf("%s was answered %d times as if it had run", p.call.key, p.first)
	case !slices.Contains(p.kind.endings(), a.ending()):
		t.Errorf("%s %s ended as %q: %s", p.call.tool, p.call.key, a.ending(), a)
	case *a.meta.Charged != p.costs(a.ending()):
		t.Errorf("%s %s, %s: charged %d", p.call.tool, p.call.key, a.ending(), *a.meta.Charged)
	}
}

// ending is outcome and reason.
func (a answer) ending() string {
	if a.meta.Reason == "" {
		return a.meta.Outcome
	}
	return a.meta.Outcome + " " + a.meta.Reason
}

const (
	interruptedEnding   = "delivery_uncertain gateway_interrupted"
	notDispatchedEnding = "failed not_dispatched"
)

func (k kind) endings() []string {
	switch k {
	case forbidden:
		return []string{"denied permit_tool_not_allowed"}
	case failing:
		return []string{"failed tool_error", interruptedEnding, notDispatchedEnding}
	case dropping:
		return []string{"delivery_uncertain no_response", interruptedEnding, notDispatchedEnding}
	default:
		return []string{"succeeded", interruptedEnding, notDispatchedEnding}
	}
}

func (p *page) costs(ending string) int64 {
	switch ending {
	case "succeeded", interruptedEnding, "delivery_uncertain no_response":
		return map[string]int64{"payout": payoutPrice, "slow": slowPrice, "flaky": flakyPrice}[p.call.tool]
	}
	return 0
}

// change repeats a used key with other arguments, which must do and reveal nothing.
func (b *book) change(t *testing.T, url string, rng *rand.Rand) word {
	t.Helper()
	p := b.pick(rng)
	if _, ended := p.answered(); !ended {
		return b.ask(t, url, p)
	}
	n := b.numbers.Add(1)
	c := p.call
	c.tool, c.args = "payout", payoutOf(p.x, n)
	b.mu.Lock()
	b.changed = append(b.changed, c.args)
	b.mu.Unlock()
	a, err := p.x.try(url, c)
	switch {
	case err != nil:
		return unknown
	case a.reason() == "idempotency_key_reused":
		b.count("changed repeat")
		b.answers.Load().pass()
		return final
	case a.status == http.StatusServiceUnavailable || a.reason() == "store_unavailable":
		return nothing
	}
	t.Errorf("%s with other arguments: %s", c.key, a)
	return final
}

func (b *book) count(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[what]++
}

// insist asks for a page until it has its outcome, each time at the gateway that next names.
func (b *book) insist(t *testing.T, p *page, next func() string) word {
	t.Helper()
	w := b.ask(t, next(), p)
	if w == final {
		return w
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * patience)
	for w != final {
		select {
		case <-tick.C:
			w = b.ask(t, next(), p)
		case <-deadline:
			t.Errorf("%s %s has no outcome", p.call.tool, p.call.key)
			return w
		}
	}
	return w
}

// at is a next for insist that names always the same gateway.
func at(url string) func() string { return func() string { return url } }
