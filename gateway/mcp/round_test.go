package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway"
	"counterfoil/ledger"
)

// asking are tools that ask before they run. What they ask is in bytes that no encoder would choose.
func asking() map[string]func(http.ResponseWriter, *http.Request, wire) {
	done := func(w http.ResponseWriter, q wire) {
		q.result(w, `{"resultType":"complete","content":[{"type":"text","text":"done"}]}`)
	}
	return map[string]func(http.ResponseWriter, *http.Request, wire){
		"ask": func(w http.ResponseWriter, _ *http.Request, q wire) {
			if q.Params.RequestState == nil {
				q.result(w, `{ "resultType":"input_required","inputRequests":{"name":{"method":"elicitation/create","params":{"n":1.10}}},"requestState":"st\u00e4te \"1\"","_meta":{"theirs":1,"counterfoil/outcome":"succeeded"}}`)
				return
			}
			done(w, q)
		},
		"twice": func(w http.ResponseWriter, _ *http.Request, q wire) {
			switch string(q.Params.RequestState) {
			case "":
				q.result(w, `{"resultType":"input_required","inputRequests":{"a":{}},"requestState":"a"}`)
			case `"a"`:
				q.result(w, `{"resultType":"input_required","inputRequests":{"b":{}},"requestState":"b"}`)
			default:
				done(w, q)
			}
		},
		"bare": func(w http.ResponseWriter, _ *http.Request, q wire) { // without a state
			if q.Params.InputResponses == nil {
				q.result(w, `{"resultType":"input_required","inputRequests":{"a":{}}}`)
				return
			}
			done(w, q)
		},
		"told": func(w http.ResponseWriter, _ *http.Request, q wire) {
			if q.Params.RequestState == nil {
				q.result(w, `{"resultType":"input_required","requestState":"t"}`)
				return
			}
			q.progress(w, `,"progress":1`)
			event(w, `{"jsonrpc":"2.0","id":`+string(q.ID)+`,"result":{"resultType":"complete","content":[]}}`)
		},
	}
}

// modernCall is a tools/call of 2026-07-28 with further members of its params.
func modernCall(tool, members string) (body string, headers []string) {
	return modernBody("tools/call", `"name":"`+tool+`",`+members), modernPairs("tools/call", "Mcp-Name", tool)
}

func (h *house) ask(tool, members string, pairs ...string) answer {
	h.t.Helper()
	body, headers := modernCall(tool, members)
	return h.post(body, append(headers, pairs...)...)
}

func underKey(key string) string { return `"arguments":{},"mcpContext":{` + keyed(key) + `}` }

const nameGiven = `,"inputResponses":{"name":{"action":"accept","content":{"x":1.50}}},"requestState":"st\u00e4te \u00221\""`

func pending(a answer) bool {
	return a.status == 200 && a.text("counterfoil/outcome") == "pending" && a.text("counterfoil/operation_id") != "" && a.meta["counterfoil/credits_charged"] == 0.0
}

func TestAToolAsksAndIsAnswered(t *testing.T) {
	t.Parallel()
	up, add := newScript(t, asking())
	h := newHouse(t, add)
	h.permitFor("ask")
	before := h.state("wal_1")
	first := h.ask("ask", underKey("k"))
	op := first.text("counterfoil/operation_id")
	want := `{ "resultType":"input_required","inputRequests":{"name":{"method":"elicitation/create","params":{"n":1.10}}},"requestState":"st\u00e4te \"1\"","_meta":{"theirs":1,"counterfoil/operation_id":"` + op +
		`","counterfoil/outcome":"pending","counterfoil/credits_charged":0,"io.modelcontextprotocol/serverInfo":{"name":"counterfoil","version":"test"}}}`
	if diff := cmp.Diff(want, string(first.result)); !pending(first) || diff != "" {
		t.Errorf("the question (-want +got):\n%s", diff)
	}
	if got := h.state("wal_1"); got.Held != price || got.Available != before.Available-price || got.Receipts != 0 {
		t.Errorf("while it waits: %+v", got)
	}
	body, headers := modernCall("ask", underKey("k"))
	for name, pairs := range map[string][]string{"again": nil, "waiting": {"Prefer", "wait=30"}} {
		if a := h.post(body, append(headers, pairs...)...); string(a.result) != string(first.result) || a.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: another question: %s", name, a.body)
		}
	}
	if a := h.post(callBody("ask", "{}", keyed("k"))); a.code != -31409 || a.reason != "idempotency_in_progress" {
		t.Errorf("who cannot be asked: %s", a.body)
	}
	for name, inputs := range map[string]string{
		"altered":        strings.Replace(nameGiven, `u00221`, `u00222`, 1),
		"empty":          `,"inputResponses":{"name":{}},"requestState":""`,
		"without state":  `,"inputResponses":{"name":{}}`,
		"in other words": `,"requestState":"st\u00e4te 1"`,
	} {
		if a := h.ask("ask", underKey("k")+inputs); a.status != 400 || a.code != -32602 || a.reason != "arguments_invalid" || a.retry != "never" {
			t.Errorf("%s: got %d %s", name, a.status, a.body)
		}
	}
	if a := h.ask("ask", `"arguments":{"other":1},"mcpContext":{`+keyed("k")+`}`+nameGiven); a.reason != "idempotency_key_reused" {
		t.Errorf("another request's answer: %s", a.body)
	}
	if n := len(up.calls()); n != 1 {
		t.Fatalf("%d calls went up before the question was answered", n)
	}
	last := h.ask("ask", underKey("k")+nameGiven)
	if last.text("counterfoil/outcome") != "succeeded" || last.text("counterfoil/operation_id") != op || h.claims(last).Charged != price {
		t.Fatalf("the answer: %d %s", last.status, last.body)
	}
	calls := up.calls()
	if q := calls[1].Params; string(q.InputResponses) != `{"name":{"action":"accept","content":{"x":1.50}}}` || string(q.RequestState) != `"st\u00e4te \u00221\""` || string(q.Arguments) != "{}" {
		t.Errorf("what went up: %s %s %s", q.InputResponses, q.RequestState, q.Arguments)
	}
	if calls[0].key == "" || calls[0].key != calls[1].key {
		t.Error("the rounds of one operation have two keys")
	}
	for name, inputs := range map[string]string{"without inputs": "", "same inputs": nameGiven, "other inputs": `,"inputResponses":{}`} {
		if a := h.ask("ask", underKey("k")+inputs); string(a.result) != string(last.result) || a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: the replay is %s", name, a.body)
		}
	}
	if got, want := h.state("wal_1"), (state{Available: before.Available - price, Receipts: 1, Transfers: before.Transfers + 1}); got != want || len(up.calls()) != 2 {
		t.Errorf("at the end: %+v, want %+v; %d calls", got, want, len(up.calls()))
	}
	page := h.request(http.MethodGet, "/metrics").Header.Get("X-Test-Body")
	for _, line := range []string{`counterfoil_calls_total{outcome="succeeded",reason="",tool="ask"} 1`, `counterfoil_input_rounds_total{tool="ask"} 1`, "counterfoil_operations_in_flight 0"} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	h.clean()
}

// Clients that send another key with each request, or none, are known by the state that they bring back.
func TestTheStateStandsForTheKey(t *testing.T) {
	t.Parallel()
	up, add := newScript(t, asking())
	h := newHouse(t, add)
	h.permitFor("ask", "twice")
	noKey := `"arguments":{}`
	for i, next := range []string{noKey, underKey("fresh")} {
		first := h.ask("ask", underKey(fmt.Sprint("k", i)))
		for name, c := range map[string]struct {
			members string
			pairs   []string
		}{
			"another's":         {next + nameGiven, []string{"X-API-Key", keyTwo}},
			"another wallet's":  {next + nameGiven, []string{"Counterfoil-Wallet", "wal_2"}},
			"other arguments":   {strings.Replace(next, "{}", `{"a":1}`, 1) + nameGiven, nil},
			"another permit's":  {next + nameGiven, []string{"Counterfoil-Permit", "prm_1"}},
			"altered":           {next + `,"requestState":"state"`, nil},
			"in blanks":         {next + `,"requestState":" st\u00e4te \"1\""`, nil},
			"state of no round": {next + `,"requestState":"a"`, nil},
		} {
			if a := h.ask("ask", c.members, c.pairs...); a.status != 400 || a.code != -32602 || strings.Contains(a.body, "op_") {
				t.Errorf("%s: got %d %s", name, a.status, a.body)
			}
		}
		if a := h.ask("twice", next+nameGiven); a.code != -32602 {
			t.Errorf("another tool: %s", a.body)
		}
		if a := h.ask("ask", noKey); a.reason != "idempotency_key_required" {
			t.Errorf("neither key nor state: %s", a.body)
		}
		last := h.ask("ask", next+nameGiven)
		if last.text("counterfoil/outcome") != "succeeded" || last.text("counterfoil/operation_id") != first.text("counterfoil/operation_id") {
			t.Errorf("%s: got %d %s", next, last.status, last.body)
		}
		if again := h.ask("ask", next+nameGiven); again.status != 400 || again.code != -32602 {
			t.Errorf("%s: a state that is used up: %d %s", next, again.status, again.body)
		}
		if again := h.ask("ask", underKey(fmt.Sprint("k", i))); string(again.result) != string(last.result) {
			t.Errorf("the key's own answer: %s", again.body)
		}
	}
	// A new default permit breaks no round.
	h.ask("ask", underKey("permit"))
	h.defaultPermit("prm_1")
	if a := h.ask("ask", noKey+nameGiven); a.text("counterfoil/outcome") != "succeeded" || h.claims(a).PermitID != "prm_script" {
		t.Errorf("after a new default permit: %d %s", a.status, a.body)
	}
	if op, err := h.ledger.Lookup(context.Background(), "wal_1", "fresh"); err != nil || op != nil {
		t.Errorf("the key of a continuation was stored: %+v, %v", op, err)
	}
	if n := len(up.calls()); n != 6 {
		t.Errorf("%d calls went up, want 6", n)
	}
	h.clean()
}

func TestRoundAfterRound(t *testing.T) {
	t.Parallel()
	up, add := newScript(t, asking())
	h := newHouse(t, add)
	h.permitFor("twice", "bare", "told")
	if a := h.ask("twice", underKey("k")); !pending(a) || !strings.Contains(a.body, `"requestState":"a"`) {
		t.Fatalf("first question: %s", a.body)
	}
	if a := h.ask("twice", underKey("k")+`,"inputResponses":{"a":{}},"requestState":"b"`); a.code != -32602 {
		t.Errorf("the second state before the second question: %s", a.body)
	}
	if a := h.ask("twice", underKey("k")+`,"inputResponses":{"a":{}},"requestState":"a"`); !pending(a) || !strings.Contains(a.body, `"requestState":"b"`) {
		t.Fatalf("second question: %s", a.body)
	}
	if a := h.ask("twice", underKey("k")+`,"inputResponses":{"a":{}},"requestState":"a"`); a.status != 400 || a.code != -32602 {
		t.Errorf("the first state again: %s", a.body)
	}
	if a := h.ask("twice", underKey("k")+`,"requestState":"b"`); a.text("counterfoil/outcome") != "succeeded" {
		t.Errorf("the end: %s", a.body)
	}
	// Without a state, the key alone binds a round.
	if a := h.ask("bare", underKey("b")); !pending(a) || strings.Contains(a.body, "requestState") {
		t.Fatalf("a question without state: %s", a.body)
	}
	if a := h.ask("bare", underKey("b")+`,"inputResponses":{"a":{}},"requestState":"a"`); a.code != -32602 {
		t.Errorf("a state where none was given: %s", a.body)
	}
	if a := h.ask("bare", underKey("b")+`,"inputResponses":{"a":{"x":[]}}`); a.text("counterfoil/outcome") != "succeeded" {
		t.Errorf("the answer without state: %s", a.body)
	}
	// Inputs that come with a first call go up with it.
	if a := h.ask("bare", underKey("first")+`,"inputResponses":{"a":{}}`); a.text("counterfoil/outcome") != "succeeded" {
		t.Errorf("inputs on a first call: %s", a.body)
	}
	if a := h.ask("bare", underKey("unknown")+`,"inputResponses":{"a":{}},"requestState":"none"`); a.status != 400 || a.code != -32602 {
		t.Errorf("a state nobody was given: %s", a.body)
	}
	// A round that only the state continues, with progress on the way.
	h.ask("told", underKey("t"))
	body, headers := modernCall("told", underKey("t")+`,"requestState":"t"`)
	a := h.post(strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":"p",`, 1), headers...)
	if list := events(t, a.body); len(list) != 2 || !strings.Contains(list[0], `"progressToken":"p","progress":1`) || !strings.Contains(list[1], `"counterfoil/outcome":"succeeded"`) {
		t.Errorf("progress of a round: %s", a.body)
	}
	if n := len(up.calls()); n != 8 {
		t.Errorf("%d calls went up, want 8", n)
	}
	h.clean()
}

func TestInputsAreOfTheirForm(t *testing.T) {
	t.Parallel()
	up, add := newScript(t, asking())
	h := newHouse(t, add)
	h.permitFor("ask")
	rows := map[string]row{}
	for name, inputs := range map[string]string{
		"array": `"inputResponses":[]`, "null": `"inputResponses":null`, "string": `"inputResponses":"{}"`, "of strings": `"inputResponses":{"a":{},"b":"c"}`,
		"of null": `"inputResponses":{"a":null}`, "of arrays": `"inputResponses":{"a":[{}]}`, "state null": `"requestState":null`, "state number": `"requestState":1`,
		"state object": `"requestState":{}`, "state array": `"inputResponses":{},"requestState":["a"]`,
	} {
		body, headers := modernCall("ask", underKey("k-"+name)+","+inputs)
		rows[name] = row{body, headers, 400, -32602, `"reason":"arguments_invalid"`}
		rows[name+", handshake"] = row{strings.Replace(callBody("ask", "{}", keyed("k-"+name)), `"name"`, inputs+`,"name"`, 1), nil, 200, -32602, `2026-07-28`}
	}
	for name, inputs := range map[string]string{"responses": `"inputResponses":{}`, "state": `"requestState":"a"`} {
		rows[name+", handshake"] = row{strings.Replace(callBody("ask", "{}", keyed("k")), `"name"`, inputs+`,"name"`, 1), nil, 200, -32602, `2026-07-28`}
	}
	body, headers := modernCall("ask", underKey("k")+`,"InputResponses":{}`)
	rows["other case"] = row{body, headers, 200, -31400, `another case`}
	h.check(rows)
	if n := len(up.calls()); n != 0 {
		t.Errorf("%d calls went up", n)
	}
	if got := h.state("wal_1"); got.Held != 0 || got.Receipts != 0 {
		t.Errorf("something was stored: %+v", got)
	}
}

// Of all who answer one round, one goes on.
func TestRacersOnOneRound(t *testing.T) {
	t.Parallel()
	up, add := newScript(t, asking())
	h := newHouse(t, add)
	h.permitFor("ask")
	if a := h.ask("ask", underKey("k")); !pending(a) {
		t.Fatal(a.body)
	}
	answers := h.together(40, func(i int) (answer, error) {
		key := underKey("k")
		if i%2 == 0 {
			key = underKey(fmt.Sprint("other", i))
		}
		body, headers := modernCall("ask", key+nameGiven)
		return h.try(context.Background(), body, headers...)
	})
	won := 0
	for _, a := range answers {
		switch {
		case a.reason == "idempotency_in_progress", a.status == 400 && a.code == -32602, a.header.Get("Idempotent-Replayed") == "true":
		case a.text("counterfoil/outcome") == "succeeded":
			won++
		default:
			t.Errorf("got %d %s", a.status, a.body)
		}
	}
	if won != 1 || len(up.calls()) != 2 {
		t.Errorf("%d went on, %d calls went up; want 1 and 2", won, len(up.calls()))
	}
	h.clean()
}

// What stands against a new call stands against the next round of one, and the round stays open.
func TestARoundGoesOnOnlyUnderWhatStands(t *testing.T) {
	t.Parallel()
	up, add := newScript(t, asking())
	h := newHouse(t, add)
	h.permitFor("ask")
	frozen := func(is bool) {
		h.admin(func(ctx context.Context, a *ledger.Admin) error {
			_, err := a.SetFrozen(ctx, "wal_1", is, "")
			return err
		})
	}
	h.ask("ask", underKey("k"))
	h.ask("ask", underKey("revoked"))
	refused := func(key string, code int, reason string) {
		t.Helper()
		a := h.ask("ask", underKey(key)+nameGiven)
		if a.status != 200 || a.code != code || a.reason != reason || a.meta != nil {
			t.Errorf("got %d %s, want %d %s", a.status, a.body, code, reason)
		}
		if still := h.ask("ask", underKey(key)); !pending(still) {
			t.Errorf("the round is not open any more: %s", still.body)
		}
	}
	frozen(true)
	refused("k", -31403, "wallet_frozen")
	frozen(false)
	tools := h.config.Tools
	h.restart(func(c *gateway.Config) { c.Tools = c.Tools[:7] })
	refused("k", -32602, "tool_unknown")
	h.restart(func(c *gateway.Config) { // back, at another price
		c.Tools = append([]gateway.Tool(nil), tools...)
		for i := range c.Tools {
			c.Tools[i].Price = 2 * price
		}
	})
	if a := h.ask("ask", underKey("k")+nameGiven); a.text("counterfoil/outcome") != "succeeded" || h.claims(a).Charged != price {
		t.Errorf("after two restarts: %s", a.body)
	}
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.RevokePermit(ctx, "prm_script", "")
		return err
	})
	refused("revoked", -31403, "permit_revoked")
	if n := len(up.calls()); n != 3 {
		t.Errorf("%d calls went up, want 3", n)
	}
	h.clean()
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	up, add := newScript(t, asking())
	h := newHouse(t, add, func(c *gateway.Config) { c.Limits.InputTTL = time.Second })
	h.permitFor("ask")
	before := h.state("wal_1")
	if a := h.ask("ask", underKey("k")); !pending(a) {
		t.Fatal(a.body)
	}
	var a answer
	waitFor(t, func() bool { a = h.ask("ask", underKey("k")); return !pending(a) })
	if a.text("counterfoil/outcome") != "failed" || a.text("counterfoil/reason") != "input_abandoned" || a.text("counterfoil/retry") != "new_key" || h.claims(a).Charged != 0 {
		t.Errorf("given up: %s", a.body)
	}
	if late := h.ask("ask", underKey("k")+nameGiven); string(late.result) != string(a.result) || late.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("an answer that comes too late: %s", late.body)
	}
	if late := h.ask("ask", `"arguments":{}`+nameGiven); late.status != 400 || late.code != -32602 {
		t.Errorf("a state that comes too late: %s", late.body)
	}
	// Who cannot be asked has nothing to wait for.
	b := h.post(callBody("ask", "{}", keyed("handshake")))
	if b.text("counterfoil/outcome") != "failed" || b.text("counterfoil/reason") != "input_abandoned" || h.claims(b).Charged != 0 {
		t.Errorf("a handshake caller: %s", b.body)
	}
	after := h.state("wal_1")
	if after.Available != before.Available || after.Held != 0 || after.Receipts != 2 || len(up.calls()) != 2 {
		t.Errorf("at the end: %+v, was %+v; %d calls", after, before, len(up.calls()))
	}
	h.clean()
}
