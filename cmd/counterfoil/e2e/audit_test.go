package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// journal counts the tool's effects.
type journal struct {
	byKey  map[string]int // private operation key
	byArgs map[string]int
	total  int
}

// journal reads what the tool did so far.
func (b *book) journal() journal {
	j := journal{byKey: map[string]int{}, byArgs: map[string]int{}}
	for _, e := range b.s.tool.inner.Effects() {
		j.byKey[e.Key]++
		j.byArgs[string(e.Arguments)]++
		j.total++
	}
	return j
}

// unique reports that no other call has these arguments.
func (p *page) unique() bool { return p.call.tool != "flaky" }

// each runs a check of every page, a few at a time.
func each(pages []*page, check func(p *page)) {
	queue := make(chan *page)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for p := range queue {
				check(p)
			}
		})
	}
	for _, p := range pages {
		queue <- p
	}
	close(queue)
	wg.Wait()
}

// tally says in which state callers that were not answered found their calls.
type tally struct {
	mu          sync.Mutex
	neverMade   int // guarded by mu: the key was free, and ran when it was asked again
	interrupted int // guarded by mu: dispatched, and so uncertain for ever
	unheard     int // guarded by mu: recorded, and only the answer was lost
}

func (c *tally) add(to *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to++
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d never made, %d interrupted, %d recorded but not heard of", c.neverMade, c.interrupted, c.unheard)
}

// settle asks again for all pages without an outcome, which nobody else calls now, and says in c how it found
// them. A call that was never made can have had no effect before.
func (b *book) settle(t *testing.T, url string, c *tally) {
	t.Helper()
	before := b.journal()
	var open []*page
	for _, p := range b.all() {
		if _, ended := p.answered(); !ended {
			open = append(open, p)
		}
	}
	each(open, func(p *page) {
		if b.insist(t, p, at(url)) != final {
			return
		}
		a, _ := p.answered()
		p.mu.Lock()
		fresh, lost := p.first == 1, p.lost || p.open > 0
		p.mu.Unlock()
		switch {
		case !fresh && !lost:
			t.Errorf("%s has an outcome, and all that was ever said of it is that nothing happened: %s", p.call.key, a)
		case !fresh && a.ending() == interruptedEnding:
			c.add(&c.interrupted)
		case !fresh:
			c.add(&c.unheard)
		default:
			c.add(&c.neverMade)
			if p.unique() && before.byArgs[p.call.args] > 0 {
				t.Errorf("sent before it was written: %s %s", p.call.tool, p.call.args)
			}
		}
	})
}

// audit is the oracle: when nothing runs any more, every answer that was ever given is given again, the tool
// acted once at most for each call and not at all for those that are said not to have been sent, and what was
// charged is what is gone.
func (b *book) audit(t *testing.T, gateway string) {
	t.Helper()
	pages := b.all()
	each(pages, func(p *page) {
		if b.insist(t, p, at(gateway)) == final {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.first > 1 {
				t.Errorf("%s ran again", p.call.key)
			}
		}
	})
	b.auditEffects(t, pages)
	b.auditMoney(t, gateway, pages)
	b.clean(t)
}

func (b *book) auditEffects(t *testing.T, pages []*page) {
	t.Helper()
	j := b.journal()
	for key, n := range j.byKey {
		if n > 1 || key == "" {
			t.Errorf("%d effects of one operation key %q", n, key)
		}
	}
	dropped, drops := 0, j.byArgs[`{"mode":"drop"}`]
	for _, p := range pages {
		a, _ := p.answered()
		least, most := effectsOf(a)
		if p.kind == dropping {
			dropped += most
		}
		if n := j.byArgs[p.call.args]; p.unique() && (n < least || n > most) {
			t.Errorf("%d effects of %s %s, which ended as %s", n, p.call.tool, p.call.args, a.ending())
		}
	}
	if drops > dropped || j.byArgs[`{"mode":"error"}`] > 0 {
		t.Errorf("flaky acted %d times for %d calls, and %d times where it says that it did not", drops, dropped, j.byArgs[`{"mode":"error"}`])
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, args := range b.changed {
		if j.byArgs[args] > 0 {
			t.Errorf("a changed repeat acted: %s", args)
		}
	}
}

// effectsOf is how often the tool may have acted for a call that ended so.
func effectsOf(a answer) (least, most int) {
	switch a.meta.Outcome {
	case "succeeded":
		return 1, 1
	case "delivery_uncertain":
		return 0, 1
	}
	return 0, 0
}

func (b *book) auditMoney(t *testing.T, gateway string, pages []*page) {
	t.Helper()
	charged, calls := map[string]int64{}, map[string]int{}
	for _, p := range pages {
		if a, ended := p.answered(); ended {
			charged[p.x.wallet] += *a.meta.Charged
			calls[p.x.wallet]++
		}
	}
	for _, x := range b.tenants {
		w := b.s.operatorAt(t, gateway, http.MethodGet, "/v1/wallets/"+x.wallet, nil, http.StatusOK)
		if balance := w.number(t, "balance"); balance != deposited-charged[x.wallet] || w.number(t, "held") != 0 || w.number(t, "available") != balance {
			t.Errorf("%d credits of %s were charged: %v", charged[x.wallet], x.wallet, w)
		}
		u := b.s.operatorAt(t, gateway, http.MethodGet, "/v1/permits/"+x.permit, nil, http.StatusOK)
		if u.number(t, "usage", "credits_spent") != charged[x.wallet] || u.number(t, "usage", "credits_held") != 0 {
			t.Errorf("%d credits of %s were charged: %v", charged[x.wallet], x.permit, u["usage"])
		}
		if n := len(b.s.allAt(t, gateway, "/v1/receipts", url.Values{"wallet": {x.wallet}})); n != calls[x.wallet] {
			t.Errorf("%d receipts of %d calls of %s", n, calls[x.wallet], x.wallet)
		}
	}
}

// clean proves the database with the program: nothing is broken, in flight or unsigned.
func (b *book) clean(t *testing.T) {
	t.Helper()
	var out string
	eventually(t, "the last signatures", func() bool {
		var status int
		if status, out = program(t, "counterfoil", "fsck", "--config", b.s.config); status != 0 {
			t.Fatalf("fsck: status %d: %s", status, out)
		}
		return strings.Contains(out, "(0 not yet signed), 0 operations in flight")
	})
}

// report logs what was tried.
func (b *book) report(t *testing.T, format string, args ...any) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Logf("%s; %d calls, %d effects, answers %v", fmt.Sprintf(format, args...), len(b.pages), len(b.s.tool.inner.Effects()), b.counts)
}
