package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"counterfoil/internal/testdb"
)

// TestCancellationIsNeverMisdirected: a notification that cancels names a JSON-RPC id, which every client gives out for
// itself: it cancels nothing here, neither the sender's own call nor another's that happens to have that id. A closed
// stream leaves a call that is on its way to its end and its record, in both eras. Source: modelcontextprotocol/go-sdk#1093,
// where cancellations were lost, or reached the wrong call.
func TestCancellationIsNeverMisdirected(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	for name, d := range map[string]dialect{"modern": {modern: true}, "handshake": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, y := s.newTenant(t, 100, anythingOf("do")), s.newTenant(t, 100, anythingOf("do"))
			gate, arrived := make(chan struct{}), make(chan struct{}, 3)
			release := sync.OnceFunc(func() { close(gate) })
			t.Cleanup(release)
			kept := func(w http.ResponseWriter, r *http.Request, id string) {
				arrived <- struct{}{}
				select {
				case <-gate:
					answerWith(w, id, `{"resultType":"complete","content":[]}`)
				case <-r.Context().Done(): // it was cancelled upstream
				}
			}
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			answers := make(chan answer, 2)
			left := make(chan error, 1)
			begin := func(x tenant, key string, done func(answer, error)) {
				c := x.doing(key + name)
				p.on(`"`+c.key+`"`, kept)
				body, headers := d.say(c)
				go func() { done(s.send(ctx, s.raw, s.url+"/mcp", x.key, body, headers...)) }()
				receive(t, arrived, "the call")
			}
			stay := func(a answer, _ error) { answers <- a }
			begin(x, "own", func(_ answer, err error) { left <- err })
			begin(y, "other", stay)
			for _, sender := range []tenant{x, y, s.newTenant(t, 100, anythingOf("do"))} {
				for _, id := range []string{"1", `"1"`, "2", "null"} {
					body := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"changed my mind"%s}}`, id, "")
					headers := []string{}
					if d.modern {
						body = fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"_meta":{%s:"2026-07-28",%s:{}}}}`, id, metaVersion, metaCapabilities)
						headers = []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "notifications/cancelled"}
					}
					if a := s.post(t, sender.key, body, headers...); a.status != http.StatusAccepted || len(a.body) != 0 {
						t.Errorf("a notification: %s", a)
					}
				}
			}
			for _, who := range []tenant{x, y} {
				if n := who.open(t); n != 1 {
					t.Errorf("after the notifications %d calls run", n)
				}
			}
			hangUp() // both streams close; what was sent goes on
			if err := receive(t, left, "the end of the caller"); !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that left: %v", err)
			}
			receive(t, answers, "the end of the other caller")
			release()
			for key, who := range map[string]tenant{"own": x, "other": y} {
				a := who.saying(t, d, who.doing(key+name), "Prefer", "wait=60")
				if a.meta.Outcome != "succeeded" || !a.replayed() {
					t.Errorf("%s: %s", key, a)
				}
				s.receipt(t, a)
				want := state{Balance: 95, Available: 95, Spent: 5, Calls: 1, Charges: 1, Receipts: 1, Operations: 1}
				unchanged(t, key, want, who.state(t))
				if n := p.did(`"` + key + name + `"`); n != 1 {
					t.Errorf("%s was sent %d times", key, n)
				}
			}
		})
	}
}

// TestWhoLeavesBeforeTheRecordLeavesNothing: callers that hang up while their calls wait for their transaction leave no
// trace, in both eras, and their keys are free. The transaction that they wait for stands still meanwhile.
func TestWhoLeavesBeforeTheRecordLeavesNothing(t *testing.T) {
	t.Parallel()
	database := testdb.New(t)
	const callers = 40
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", database), fmt.Sprintf("limits: {in_flight: %d}", 1+callers))
	x := s.newTenant(t, 1000, anything())
	x.succeed(t, x.payout("warm"))
	stuck := stick(t, database, x.wallet)
	first := make(chan answer, 1)
	go func() {
		a, err := x.try(s.url, x.payout("first"))
		if err != nil {
			t.Error(err)
		}
		first <- a
	}()
	stuck.waits(t)
	before := s.rest(t, s.url)

	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	var leaving sync.WaitGroup
	key := func(i int) string { return fmt.Sprintf("left-%d", i) }
	for i := range callers {
		leaving.Go(func() {
			body, headers := dialect{modern: i%2 == 0}.say(x.payout(key(i)))
			if a, err := s.send(ctx, s.raw, s.url+"/mcp", x.key, body, headers...); err == nil {
				t.Errorf("a caller was answered: %s", a)
			}
		})
	}
	// A call is counted as in flight when it has been looked up; then it waits for its transaction.
	probe := x.payout("probe")
	probe.tool = "nothing"
	eventually(t, "the callers", func() bool {
		a, err := x.try(s.url, probe)
		return err == nil && a.atLimit()
	})
	waiting := s.rest(t, s.url)
	if waiting.files < before.files+callers {
		t.Errorf("before: %s; with %d callers: %s", before, callers, waiting)
	}
	hangUp()
	leaving.Wait()
	eventually(t, "the gateway to see that they have left", func() bool {
		v, ok := s.vitals(s.url)
		return ok && v.files < before.files+callers/2
	})
	stuck.goOn(t)
	if a := receive(t, first, "the answer"); a.meta.Outcome != "succeeded" {
		t.Errorf("the one that stayed: %s", a)
	}
	x.succeed(t, x.payout("last")) // behind all that waited
	want := state{Balance: 985, Available: 985, Spent: 15, Calls: 3, Charges: 3, Receipts: 3, Operations: 3, Effects: 3, Value: 0}
	unchanged(t, "after all", want, x.state(t))
	for i := range 2 { // one of each era
		body, headers := dialect{modern: i%2 == 0}.say(x.payout(key(i)))
		if a := s.post(t, x.key, body, headers...); a.meta.Outcome != "succeeded" || a.replayed() {
			t.Errorf("the key of one that left: %s", a)
		}
	}
}
