package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// together makes n calls at once and gives their answers in order.
func (s *system) together(t *testing.T, n int, try func(i int) (answer, error)) []answer {
	t.Helper()
	answers := make([]answer, n)
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			answers[i], errs[i] = try(i)
		})
	}
	close(start)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return answers
}

// try makes a call without checking anything, at any gateway.
func (x tenant) try(url string, c call) (answer, error) {
	return x.s.send(context.Background(), x.s.raw, url+"/mcp/messages", x.key, c.body())
}

// TestRacersOnOneKey: of 200 one acts and pays; everyone gets its result or is told to wait for it.
func TestRacersOnOneKey(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.oneKey(t, []string{s.url})
}

// oneKey lets 200 calls of one key race at the gateways.
func (s *system) oneKey(t *testing.T, urls []string) {
	t.Helper()
	x := s.newTenant(t, 1000, anything())
	c := x.payout("invoice-1")
	var result []byte
	fresh := 0
	for _, a := range s.together(t, 200, func(i int) (answer, error) { return x.try(urls[i%len(urls)], c) }) {
		if a.refusal != nil {
			if a.refusal.Code != -31409 || a.reason() != "idempotency_in_progress" || a.refusal.Data.Retry != "same_key" || a.header.Get("Retry-After") != "1" {
				t.Errorf("a racer was told %s", a)
			}
			continue
		}
		if !a.replayed() {
			fresh++
		}
		if result == nil {
			result = a.result
			s.receipt(t, a)
		}
		if a.meta.Outcome != "succeeded" || !bytes.Equal(a.result, result) {
			t.Errorf("two results: %s\n%s", result, a)
		}
	}
	if fresh != 1 {
		t.Errorf("%d racers were the first", fresh)
	}
	want := state{Balance: 995, Available: 995, Spent: 5, Calls: 1, Charges: 1, Receipts: 1, Operations: 1, Effects: 1}
	unchanged(t, "after the race", want, x.state(t))
}

// watch reads a permit's usage and its wallet until the race is over, and gives how often it looked. At no
// moment may more be spent and held than the limits say.
func (x tenant) watch(t *testing.T, over <-chan struct{}, deposited, limit int64) int {
	looks := 0
	for {
		w := x.s.operator(t, http.MethodGet, "/v1/wallets/"+x.wallet, nil, http.StatusOK)
		p := x.s.operator(t, http.MethodGet, "/v1/permits/"+x.permit, nil, http.StatusOK)
		spent, held := p.number(t, "usage", "credits_spent"), p.number(t, "usage", "credits_held")
		balance, walletHeld, available := w.number(t, "balance"), w.number(t, "held"), w.number(t, "available")
		if spent < 0 || held < 0 || spent+held > limit || p.number(t, "remaining", "credits") != limit-spent-held {
			t.Errorf("the permit over %d credits: spent %d, held %d", limit, spent, held)
		}
		if available < 0 || walletHeld < 0 || balance != available+walletHeld || deposited-available > limit {
			t.Errorf("the wallet of %d credits: balance %d, held %d, available %d", deposited, balance, walletHeld, available)
		}
		looks++
		select {
		case <-over:
			return looks
		default:
		}
	}
}

// TestRacersOnOnePermit: a permit that pays for 50 calls lets 50 of 500 through.
func TestRacersOnOnePermit(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 10_000, object{"tools": []string{"payout"}, "limits": object{"credits": 50 * payoutPrice}})
	release := s.tool.keep(x.marker())
	over, watched := make(chan struct{}), make(chan int, 1)
	go func() { watched <- x.watch(t, over, 10_000, 50*payoutPrice) }()

	// All 50 are kept at the tool until the other 450 were refused for what the 50 hold.
	denied := make(chan struct{}, 500)
	go func() {
		for range 450 {
			<-denied
		}
		p := s.operator(t, http.MethodGet, "/v1/permits/"+x.permit, nil, http.StatusOK)
		if p.number(t, "usage", "credits_held") != 50*payoutPrice || p.number(t, "usage", "credits_spent") != 0 {
			t.Errorf("while 50 calls run: %v", p["usage"])
		}
		release()
	}()
	answers := s.together(t, 500, func(i int) (answer, error) {
		a, err := x.try(s.url, x.payout(fmt.Sprintf("invoice-%d", i)))
		if a.meta.Outcome != "succeeded" {
			denied <- struct{}{}
		}
		return a, err
	})
	close(over)
	if looks := <-watched; looks < 3 {
		t.Errorf("only %d looks at the usage", looks)
	}
	succeeded := s.fifty(t, answers, "permit_credits_exceeded")
	if succeeded != 50 {
		t.Errorf("%d succeeded", succeeded)
	}
	want := state{Balance: 9750, Available: 9750, Spent: 250, Calls: 50, Charges: 50, Receipts: 500, Operations: 500, Effects: 50}
	unchanged(t, "after the race", want, x.state(t))
}

// fifty counts the calls that succeeded; each other must be a denial for this reason, with its receipt.
func (s *system) fifty(t *testing.T, answers []answer, reason string) int {
	t.Helper()
	succeeded := 0
	receipts := map[string]bool{}
	for _, a := range answers {
		switch {
		case a.meta.Outcome == "succeeded" && *a.meta.Charged == payoutPrice:
			succeeded++
		case a.meta.Outcome == "denied" && a.meta.Reason == reason && *a.meta.Charged == 0:
		default:
			t.Fatalf("a racer was told %s", a)
		}
		if a.meta.ReceiptID == "" || receipts[a.meta.ReceiptID] {
			t.Errorf("no receipt of its own: %s", a)
		}
		receipts[a.meta.ReceiptID] = true
	}
	return succeeded
}

// TestRacersOnTwoGateways: 20 wallets, two processes, one database. Half of the wallets are limited by the
// permit, half by their own credits.
func TestRacersOnTwoGateways(t *testing.T) {
	t.Parallel()
	const wallets, racers, pays = 20, 50, 10
	s := newSystem(t)
	_, second := s.second(t)
	urls := []string{s.url, second}
	s.oneKey(t, urls)
	tenants := make([]tenant, wallets)
	for i := range tenants {
		deposit, limit := int64(10_000), int64(pays*payoutPrice)
		if i%2 == 1 {
			deposit, limit = limit+payoutPrice-1, deposit
		}
		tenants[i] = s.newTenant(t, deposit, object{"tools": []string{"payout"}, "limits": object{"credits": limit}})
	}
	over, watched := make(chan struct{}), make(chan int, 2)
	go func() { watched <- tenants[0].watch(t, over, 10_000, pays*payoutPrice) }()
	go func() { watched <- tenants[1].watch(t, over, pays*payoutPrice+payoutPrice-1, 10_000) }()
	answers := s.together(t, wallets*racers, func(i int) (answer, error) {
		x := tenants[i%wallets]
		return x.try(urls[i/wallets%2], x.payout(fmt.Sprintf("invoice-%d", i)))
	})
	close(over)
	if looks := min(<-watched, <-watched); looks < 2 {
		t.Errorf("only %d looks at the usage", looks)
	}
	for i, x := range tenants {
		var mine []answer
		for j := i; j < len(answers); j += wallets {
			mine = append(mine, answers[j])
		}
		reason := "permit_credits_exceeded"
		want := state{Balance: 9950, Available: 9950}
		if i%2 == 1 {
			reason, want = "wallet_credits_insufficient", state{Balance: payoutPrice - 1, Available: payoutPrice - 1}
		}
		if n := s.fifty(t, mine, reason); n != pays {
			t.Errorf("%d of wallet %d succeeded, want %d", n, i, pays)
		}
		want.Spent, want.Calls, want.Charges = pays*payoutPrice, pays, pays
		want.Receipts, want.Operations, want.Effects = racers, racers, pays
		unchanged(t, fmt.Sprintf("wallet %d after the race", i), want, x.state(t))
	}
}

// TestInProgress: while a call runs, its key says so, or waits where it is asked to.
func TestInProgress(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	release := s.tool.keep(x.marker())
	first := make(chan answer, 2)
	start := func(pairs ...string) {
		a, err := s.send(context.Background(), s.client, s.url+"/mcp", x.key, x.payout("invoice-1").body(), pairs...)
		if err != nil {
			t.Error(err)
		}
		first <- a
	}
	go start()
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, x.marker())) == 1 })
	if st := x.state(t); st.Held != payoutPrice || st.Available != 95 || st.Balance != 100 || st.PermitHeld != payoutPrice || st.Open != 1 || st.Receipts != 0 {
		t.Errorf("while the call runs: %+v", st)
	}
	for _, pairs := range [][]string{nil, {"Prefer", "wait=1"}} {
		a := x.do(t, x.payout("invoice-1"), pairs...)
		if a.status != http.StatusOK || a.refusal == nil || a.refusal.Code != -31409 || a.reason() != "idempotency_in_progress" ||
			a.refusal.Data.Retry != "same_key" || a.header.Get("Retry-After") != "1" {
			t.Errorf("%v: %s", pairs, a)
		}
	}
	c := x.payout("invoice-1")
	c.args = `{"to":"other@vendor.example","amount":1}`
	if a := x.do(t, c); a.reason() != "idempotency_key_reused" {
		t.Errorf("another request under a running key: %s", a)
	}
	go start("Prefer", "wait=60")
	release()
	a, b := receive(t, first, "the first answer"), receive(t, first, "the second answer")
	if a.meta.Outcome != "succeeded" || !bytes.Equal(a.result, b.result) || a.replayed() == b.replayed() {
		t.Errorf("who ran and who waited:\n%s\n%s", a, b)
	}
	want := state{Balance: 95, Available: 95, Spent: 5, Calls: 1, Charges: 1, Receipts: 1, Operations: 1, Effects: 1}
	unchanged(t, "after all", want, x.state(t))
}
