package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// harness is how an agent's program names a call: in _meta, by an id that its user never sees.
type harness struct{ member, prefix string }

func harnesses() map[string]harness {
	return map[string]harness{"codex": {"callId", "call_"}, "claude_code": {"claudecode/toolUseId", "toolu_"}}
}

// call is a payment as the harness sends it: JSON-RPC ids and progress tokens are new each time, the call's id is not.
func (h harness) call(x tenant, rpcID int, callID string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"payout","arguments":%s,"_meta":{%q:%q,"progressToken":%d}}}`,
		rpcID, x.payoutArgs(), h.member, h.prefix+callID, rpcID)
}

// TestAHarnessThatDispatchesEverythingTwice: each call arrives twice within milliseconds under two ids. Those are two calls,
// and both cost; but no permit gives more than it says, and a third and fourth arrival of the same ids change nothing.
func TestAHarnessThatDispatchesEverythingTwice(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for name, h := range harnesses() {
		for limit, c := range map[string]struct {
			most   int
			limits object
			reason string
		}{
			"calls":   {15, object{"credits": 1000, "calls_total": 15}, "permit_calls_exceeded"},
			"credits": {12, object{"credits": 12*payoutPrice + payoutPrice - 1}, "permit_credits_exceeded"},
			"value":   {7, object{"credits": 1000, "value": object{"currency": "USD", "total": 7 * 1200}}, "permit_value_exceeded"},
		} {
			t.Run(name+" "+limit, func(t *testing.T) {
				t.Parallel()
				x := s.newTenant(t, 1000, object{"tools": []string{"payout"}, "limits": c.limits})
				dispatch := func() []answer {
					return s.together(t, 20, func(i int) (answer, error) {
						id := fmt.Sprintf("%d-%c", i/2, 'a'+i%2) // every call once as a, once as b
						return s.send(context.Background(), s.client, s.url+"/mcp", x.key, h.call(x, i, id), "Counterfoil-Permit", x.permit)
					})
				}
				first := dispatch()
				paid, keys := 0, map[string]bool{}
				for i, a := range first {
					switch {
					case a.meta.Outcome == "succeeded":
						paid++
					case a.meta.Outcome != "denied" || a.meta.Reason != c.reason:
						t.Errorf("dispatch %d: %s", i, a)
					}
					if r := s.receipt(t, a); r.Call.KeySource != name {
						t.Errorf("dispatch %d: the key came from %q", i, r.Call.KeySource)
					}
				}
				for _, e := range s.tool.effects(t, x.marker()) {
					keys[e.Key] = true
				}
				once := x.state(t)
				if paid != c.most || len(keys) != paid || once.Effects != paid || once.Charges != paid || once.Receipts != 20 || once.Balance != 1000-int64(paid*payoutPrice) {
					t.Errorf("%d paid, want %d; %d keys at the tool; %+v", paid, c.most, len(keys), once)
				}
				for i, a := range dispatch() {
					if !a.replayed() || !bytes.Equal(a.result, first[i].result) {
						t.Errorf("dispatch %d again: %s, and the first was %s", i, a, first[i])
					}
				}
				unchanged(t, "after the same ids again", once, x.state(t))
			})
		}
	}
}

// TestAHarnessThatSendsAgainAfterABrokenStream: the stream of a call breaks after its first progress, and the harness sends
// the call again, while it runs and when it has ended: with other JSON-RPC ids, and with the id that the call has.
func TestAHarnessThatSendsAgainAfterABrokenStream(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for name, h := range harnesses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := s.newTenant(t, 100, anything())
			gate := make(chan struct{})
			s.tool.answer(x.marker(), s.tool.telling(gate))
			send := func(ctx context.Context, id int) (answer, error) {
				return s.send(ctx, s.client, s.url+"/mcp", x.key, h.call(x, id, "7"), "Counterfoil-Permit", x.permit, "Prefer", "wait=60")
			}
			s.breakStream(t, x, h.call(x, 1, "7"))
			again := make(chan answer, 3)
			for id := range 3 {
				go func() {
					a, err := send(t.Context(), 10+id)
					if err != nil {
						t.Error(err)
					}
					again <- a
				}()
			}
			if n := len(s.tool.effects(t, x.marker())); n != 0 {
				t.Errorf("%d effects before the tool has acted", n)
			}
			close(gate)
			answers := []answer{receive(t, again, "an answer"), receive(t, again, "an answer"), receive(t, again, "an answer")}
			last, err := send(t.Context(), 20)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range append(answers, last) {
				if a.meta.Outcome != "succeeded" || !a.replayed() || !bytes.Equal(a.result, last.result) {
					t.Errorf("sent again: %s, and the last was %s", a, last)
				}
			}
			s.receipt(t, last)
			if st := x.state(t); st.Effects != 1 || st.Charges != 1 || st.Receipts != 1 || st.Operations != 1 || st.Balance != 100-payoutPrice {
				t.Errorf("after all: %+v", st)
			}
		})
	}
}

// telling tells of progress at once, acts when the gate is open, and then answers, all in one stream.
func (up *tool) telling(gate <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Params struct {
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &call) != nil {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1}}\n\n", call.Params.Meta.ProgressToken)
		w.(http.Flusher).Flush()
		<-gate
		acted := httptest.NewRecorder()
		r.Body = io.NopCloser(bytes.NewReader(body))
		up.inner.ServeHTTP(acted, r)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", bytes.TrimSpace(acted.Body.Bytes()))
	}
}

// breakStream sends a call and hangs up when it hears of its progress.
func (s *system) breakStream(t *testing.T, x tenant, body string) {
	t.Helper()
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", x.key)
	req.Header.Set("Counterfoil-Permit", x.permit)
	resp, err := s.raw.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), "notifications/progress") {
			return
		}
	}
	t.Fatalf("no progress: HTTP %d, %s", resp.StatusCode, resp.Header.Get("Content-Type"))
}
