package mcp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway"
	"counterfoil/ledger"
	"counterfoil/permits"
)

// builtin calls a tool of the gateway's own, without any context.
func (h *house) builtin(name, args string, pairs ...string) answer {
	h.t.Helper()
	return h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"counterfoil_`+name+`","arguments":`+args+`}}`, pairs...)
}

// builtinModern is builtin as a client of 2026-07-28 sends it.
func (h *house) builtinModern(name, args string, pairs ...string) answer {
	h.t.Helper()
	return h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"counterfoil_`+name+`","arguments":`+args+`,"_meta":{`+version+`,`+caps+`}}}`,
		append([]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "counterfoil_" + name}, pairs...)...)
}

func operationArgs(id string) string { return `{"operation_id":"` + id + `"}` }

// structured reads a result's structuredContent, which its text block repeats.
func (a answer) structured(t *testing.T) map[string]any {
	t.Helper()
	var r struct {
		StructuredContent json.RawMessage
		Content           []struct{ Type, Text string }
	}
	if err := json.Unmarshal(a.result, &r); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	if a.isError || len(r.Content) != 1 || r.Content[0].Type != "text" || r.Content[0].Text != string(r.StructuredContent) {
		t.Errorf("the text is not the structured content: %s", a.body)
	}
	var out map[string]any
	if err := json.Unmarshal(r.StructuredContent, &out); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return out
}

// listed is a tool of tools/list.
type listed struct {
	Name         string
	Annotations  map[string]bool
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
}

func (h *house) listed(a answer) []listed {
	h.t.Helper()
	var r struct{ Tools []listed }
	if err := json.Unmarshal(a.result, &r); err != nil {
		h.t.Fatalf("%s: %v", a.body, err)
	}
	return r.Tools
}

const plainList = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

func TestBuiltInToolsStandAfterTheCatalogue(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	handshake := h.listed(h.post(plainList))
	modern := h.listed(h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+version+`,`+caps+`}}}`,
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"))
	if diff := cmp.Diff(handshake, modern); diff != "" {
		t.Errorf("the eras list other tools (-handshake +modern):\n%s", diff)
	}
	names := make([]string, len(handshake))
	for i, tool := range handshake {
		names[i] = tool.Name
	}
	if len(names) != 10 || slices.ContainsFunc(names[:7], func(name string) bool { return strings.HasPrefix(name, "counterfoil_") }) {
		t.Fatalf("the list: %v", names)
	}
	readOnly := map[string]bool{}
	for _, tool := range handshake[7:] {
		readOnly[tool.Name] = tool.Annotations["readOnlyHint"]
		if hasSchema := tool.OutputSchema != nil; hasSchema != readOnly[tool.Name] {
			t.Errorf("%s: outputSchema %s", tool.Name, tool.OutputSchema)
		}
		if !strings.Contains(string(tool.InputSchema), `"additionalProperties":false`) {
			t.Errorf("%s: inputSchema %s", tool.Name, tool.InputSchema)
		}
	}
	want := map[string]bool{"counterfoil_operation_get": true, "counterfoil_operation_resume": false, "counterfoil_permit_get": true}
	if diff := cmp.Diff(want, readOnly); diff != "" {
		t.Errorf("read-only tools (-want +got):\n%s", diff)
	}
}

// fits holds a view to the outputSchema that the list promises.
func (h *house) fits(name string, view map[string]any) {
	h.t.Helper()
	tools := h.listed(h.post(plainList))
	i := slices.IndexFunc(tools, func(l listed) bool { return l.Name == "counterfoil_"+name })
	var schema openapi3.Schema
	if err := json.Unmarshal(tools[i].OutputSchema, &schema); err != nil {
		h.t.Fatal(err)
	}
	if err := schema.VisitJSON(view); err != nil {
		h.t.Errorf("%s: %v", name, err)
	}
	for member := range view {
		if schema.Properties[member] == nil {
			h.t.Errorf("%s: the schema does not name %q", name, member)
		}
	}
}

func TestOperationGet(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.permit("prm_two", func(p *permits.Permit) { p.Agent = "agt_2" })
	paid := h.pay("invoice-4417")
	failed := h.post(callBody("fail", payArgs, keyed("failing")))
	denied := h.post(callBody("pay", payArgs, keyed("denied")+`,"permit_id":"prm_two"`), "X-API-Key", keyTwo)
	theirs := h.post(callBody("echo", `{}`, keyed("secret-of-two")+`,"permit_id":"prm_two"`), "X-API-Key", keyTwo)
	if denied.isError || theirs.isError {
		t.Fatalf("%s\n%s", denied.body, theirs.body)
	}
	refused := h.post(callBody("pay", `{"to":"ap@vendor.example","amount":1}`, keyed("poor")+`,"wallet_id":"wal_poor","permit_id":"prm_1"`))
	if refused.reason != "permit_wallet_mismatch" {
		t.Fatalf("%s", refused.body)
	}

	view := h.builtin("operation_get", operationArgs(paid.text("counterfoil/operation_id"))).structured(t)
	h.fits("operation_get", view)
	if view["receipt"] != paid.text("counterfoil/receipt") || view["created_at"] == nil || view["finished_at"] == nil {
		t.Errorf("%v", view)
	}
	for member := range map[string]bool{"receipt": true, "created_at": true, "finished_at": true} {
		delete(view, member)
	}
	want := map[string]any{
		"id": paid.text("counterfoil/operation_id"), "state": "finished", "outcome": "succeeded", "tool": "pay", "wallet_id": "wal_1", "permit_id": "prm_1",
		"agent_id": "agt_1", "idempotency_key": "invoice-4417", "key_source": "context", "credits_authorized": 5.0, "credits_held": 0.0, "credits_charged": 5.0,
		"value": map[string]any{"currency": "USD", "amount": 1200.0}, "receipt_id": paid.text("counterfoil/receipt_id"),
	}
	if diff := cmp.Diff(want, view); diff != "" {
		t.Errorf("a payment (-want +got):\n%s", diff)
	}

	view = h.builtinModern("operation_get", operationArgs(failed.text("counterfoil/operation_id"))).structured(t)
	h.fits("operation_get", view)
	if view["outcome"] != "failed" || view["reason"] != "tool_error" || view["retry"] != "check" || view["credits_charged"] != 0.0 {
		t.Errorf("a failure: %v", view)
	}

	named := h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"callId":"call_9"}}}`)
	view = h.builtin("operation_get", operationArgs(named.text("counterfoil/operation_id"))).structured(t)
	h.fits("operation_get", view)
	if diff := cmp.Diff(map[string]any{"platform": "codex", "call_id": "call_9"}, view["call_identity"]); diff != "" || view["idempotency_key"] != nil {
		t.Errorf("a call that its harness named: %v", view)
	}
	before := h.state("wal_1")

	// A colleague's operation of the same wallet: its receipt is the wallet's, its key is not.
	of := h.builtin("operation_get", operationArgs(theirs.text("counterfoil/operation_id")))
	if view := of.structured(t); view["agent_id"] != "agt_2" || view["receipt"] != theirs.text("counterfoil/receipt") || view["idempotency_key"] != nil || strings.Contains(of.body, "secret-of-two") {
		t.Errorf("a colleague's: %s", of.body)
	}
	if got := h.state("wal_1"); got != before {
		t.Errorf("looking has changed the state from %+v to %+v", before, got)
	}
}

func TestOperationGetWhileItRuns(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	done := make(chan answer, 1)
	go func() {
		a, _ := h.try(context.Background(), callBody("slow", `{}`, keyed("running")))
		done <- a
	}()
	<-h.tool.started
	ops, err := h.ledger.Operations(t.Context(), ledger.OperationFilter{}, "", 10)
	if err != nil || len(ops) != 1 {
		t.Fatalf("%v, %v", ops, err)
	}
	view := h.builtin("operation_get", operationArgs(ops[0].ID)).structured(t)
	h.fits("operation_get", view)
	if view["state"] != "dispatching" || view["retry"] != "same_key" || view["credits_held"] != 5.0 || view["outcome"] != nil || view["receipt"] != nil || view["finished_at"] != nil {
		t.Errorf("while it runs: %v", view)
	}
	if a := h.builtin("operation_resume", operationArgs(ops[0].ID)); a.code != -31409 || a.reason != "idempotency_in_progress" || a.retry != "same_key" || a.header.Get("Retry-After") != "1" {
		t.Errorf("resumed while it runs: %s", a.body)
	}
	close(h.tool.gate)
	waited := h.builtin("operation_resume", operationArgs(ops[0].ID), "Prefer", "wait=30")
	if first := <-done; !bytes.Equal(first.result, waited.result) {
		t.Errorf("waited for:\n%s\n%s", first.body, waited.body)
	}
	if h.tool.count() != 1 {
		t.Errorf("%d effects", h.tool.count())
	}
}

func TestOperationsOfOthersDoNotExist(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.CreateAgent(ctx, ledger.Agent{ID: "agt_bare", Name: "without wallets"})
		return err
	})
	h.newKey("agt_bare", "cf_bare")
	id := h.pay("mine").text("counterfoil/operation_id")
	none := "op_01912345-6789-7abc-8def-0123456789ab"
	for _, key := range []string{keyOther, "cf_bare"} {
		for _, tool := range []string{"operation_get", "operation_resume"} {
			theirs, nothing := h.builtin(tool, operationArgs(id), "X-API-Key", key), h.builtin(tool, operationArgs(none), "X-API-Key", key)
			if theirs.body != nothing.body {
				t.Errorf("%s tells a stranger more of an operation than of none:\n%s\n%s", tool, theirs.body, nothing.body)
			}
			if !theirs.isError || theirs.text("counterfoil/reason") != "not_found" || theirs.text("counterfoil/retry") != "never" || strings.Contains(theirs.body, "wal_1") {
				t.Errorf("%s: %s", tool, theirs.body)
			}
		}
	}
	for _, odd := range []string{"", "op_", id[3:], strings.ToUpper(id), id + " ", "rcp_" + id[3:], `\u0000`, strings.Repeat("x", 5000)} {
		if a := h.builtin("operation_get", operationArgs(odd)); a.text("counterfoil/reason") != "not_found" {
			t.Errorf("%q: %s", odd, a.body)
		}
	}
	if a := h.builtinModern("operation_get", operationArgs(none)); !strings.Contains(a.body, `"resultType":"complete"`) || !strings.Contains(a.body, "serverInfo") || !a.isError {
		t.Errorf("in the modern era: %s", a.body)
	}
}

func (h *house) newKey(agent, key string) {
	h.t.Helper()
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.CreateAgentKey(ctx, agent, sha256.Sum256([]byte(key)), nil, nil)
		return err
	})
}

func TestOperationResumeIsTheCallAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	first := h.pay("k1")
	id := first.text("counterfoil/operation_id")
	before := h.state("wal_1")
	same := func(name string, again answer) {
		t.Helper()
		if again.status != http.StatusOK || !bytes.Equal(again.result, first.result) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: not the first answer:\n%s\n%s", name, first.result, again.body)
		}
	}
	same("at once", h.builtin("operation_resume", operationArgs(id)))
	same("with a key of its own, which counts for nothing", h.builtin("operation_resume", operationArgs(id), "Idempotency-Key", "other"))
	modern := h.builtinModern("operation_resume", operationArgs(id))
	if repeat := h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":`+payArgs+`,"mcpContext":{`+keyed("k1")+`},"_meta":{`+version+`,`+caps+`}}}`,
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "pay"); !bytes.Equal(modern.result, repeat.result) {
		t.Errorf("in the modern era:\n%s\n%s", repeat.body, modern.body)
	}
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.RevokePermit(ctx, "prm_1", "")
		return err
	})
	same("after the permit was revoked", h.builtin("operation_resume", operationArgs(id)))

	// Another agent of the wallet is told what it is told under a used key: nothing.
	colleague, reused := h.builtin("operation_resume", operationArgs(id), "X-API-Key", keyTwo), h.pay("k1", "X-API-Key", keyTwo)
	if colleague.reason != "idempotency_key_reused" || colleague.body != reused.body {
		t.Errorf("a colleague: %s, under the used key: %s", colleague.body, reused.body)
	}
	h.restart(func(c *gateway.Config) { c.Tools = c.Tools[1:] })
	same("after the tool has left the catalogue", h.builtin("operation_resume", operationArgs(id)))
	if got := h.state("wal_1"); got != before {
		t.Errorf("resuming has changed the state from %+v to %+v", before, got)
	}
	h.clean()
}

func TestPermitGet(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.permit("prm_tight", func(p *permits.Permit) {
		p.Grant.Tools, p.Grant.DenyArgs = []string{"pay", "fail"}, []string{"bcc"}
		p.Grant.Recipient = &permits.Recipient{Domains: []string{"vendor.example"}}
		p.Grant.Limits = permits.Limits{
			Credits: 100, CallsTotal: limit(10), Calls: map[string]int64{"pay": 3}, CreditsPerCall: limit(50),
			Value: &permits.ValueLimit{Currency: "USD", Total: limit(5000), PerCall: limit(2000)},
		}
	})
	h.permit("prm_two", func(p *permits.Permit) { p.Agent = "agt_2" })
	if a := h.pay("k1", "Counterfoil-Permit", "prm_tight"); a.text("counterfoil/outcome") != "succeeded" {
		t.Fatalf("%s", a.body)
	}
	before := h.state("wal_1")
	view := h.builtin("permit_get", `{"permit_id":"prm_tight"}`).structured(t)
	h.fits("permit_get", view)
	for _, member := range []string{"not_before", "expires_at"} {
		if text, ok := view[member].(string); !ok || !strings.HasSuffix(text, "Z") {
			t.Errorf("%s: %v", member, view[member])
		}
		delete(view, member)
	}
	want := map[string]any{
		"id": "prm_tight", "status": "active", "wallet_id": "wal_1", "scope": "payments.write", "tools": []any{"pay", "fail"}, "deny_args": []any{"bcc"},
		"recipient": map[string]any{"domains": []any{"vendor.example"}, "subdomains": false},
		"limits": map[string]any{
			"credits": 100.0, "calls_total": 10.0, "calls": map[string]any{"pay": 3.0}, "credits_per_call": 50.0,
			"value": map[string]any{"currency": "USD", "total": 5000.0, "per_call": 2000.0},
		},
		"usage": map[string]any{
			"credits_spent": 5.0, "credits_held": 0.0, "calls_total": 1.0, "calls": map[string]any{"pay": 1.0}, "value_spent": 1200.0, "value_held": 0.0,
		},
		"remaining": map[string]any{"credits": 95.0, "calls_total": 9.0, "calls": map[string]any{"pay": 2.0}, "value": 3800.0},
	}
	if diff := cmp.Diff(want, view); diff != "" {
		t.Errorf("a permit (-want +got):\n%s", diff)
	}

	for name, pairs := range map[string][]string{"prm_1": nil, "prm_tight": {"Counterfoil-Permit", "prm_tight"}} {
		view := h.builtinModern("permit_get", `{}`, pairs...).structured(t)
		if view["id"] != name {
			t.Errorf("without a name, %v: %v", pairs, view)
		}
		h.fits("permit_get", view)
	}
	theirs, nothing := h.builtin("permit_get", `{"permit_id":"prm_two"}`), h.builtin("permit_get", `{"permit_id":"prm_none"}`)
	if theirs.body != nothing.body || theirs.text("counterfoil/reason") != "permit_not_found" || !theirs.isError {
		t.Errorf("another agent's permit:\n%s\nnone:\n%s", theirs.body, nothing.body)
	}
	if a := h.builtin("permit_get", `{"permit_id":"\u0000"}`); a.text("counterfoil/reason") != "permit_not_found" {
		t.Errorf("a name that can be none: %s", a.body)
	}
	if a := h.builtin("permit_get", `{}`, "X-API-Key", keyTwo); a.text("counterfoil/reason") != "permit_required" || !a.isError {
		t.Errorf("without a default permit: %s", a.body)
	}
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.RevokePermit(ctx, "prm_tight", "")
		return err
	})
	if view := h.builtin("permit_get", `{"permit_id":"prm_tight"}`).structured(t); view["status"] != "revoked" {
		t.Errorf("revoked: %v", view)
	}
	if got := h.state("wal_1"); got != before {
		t.Errorf("looking has changed the state from %+v to %+v", before, got)
	}
}

func TestBuiltInToolsAreStrict(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *gateway.Config) { c.Limits.Connections = 2 })
	id := h.pay("k").text("counterfoil/operation_id")
	for name, c := range map[string]struct {
		tool, args string
		pairs      []string
		code       int
		reason     string
	}{
		"no id":                {"operation_get", `{}`, nil, -31400, "arguments_invalid"},
		"no id to resume":      {"operation_resume", `{}`, nil, -31400, "arguments_invalid"},
		"unknown member":       {"operation_get", `{"operation_id":"` + id + `","verbose":true}`, nil, -31400, "arguments_invalid"},
		"other case":           {"operation_get", `{"Operation_id":"` + id + `"}`, nil, -31400, "arguments_invalid"},
		"not a string":         {"operation_get", `{"operation_id":1}`, nil, -31400, "arguments_invalid"},
		"null":                 {"permit_get", `{"permit_id":null}`, nil, -31400, "arguments_invalid"},
		"key in arguments":     {"operation_resume", `{"operation_id":"` + id + `","idempotency_key":"k"}`, nil, -31400, "arguments_invalid"},
		"twice":                {"permit_get", `{"permit_id":"prm_1","permit_id":"prm_1"}`, nil, -31400, "arguments_invalid"},
		"not an object":        {"permit_get", `[]`, nil, -32602, "arguments_invalid"},
		"no such tool":         {"wallet_get", `{}`, nil, -32602, "tool_unknown"},
		"no such tool, a key":  {"wallet_get", `{}`, []string{"Idempotency-Key", "k2"}, -32602, "tool_unknown"},
		"permits disagree":     {"permit_get", `{}`, []string{"Counterfoil-Permit", "prm_1", "Counterfoil-Permit", "prm_2"}, -31400, "context_conflict"},
		"blank key":            {"permit_get", `{}`, []string{"Idempotency-Key", " "}, -31400, "idempotency_key_invalid"},
		"somebody's wallet":    {"permit_get", `{}`, []string{"Counterfoil-Wallet", "wal_x"}, -31403, "wallet_forbidden"},
		"a wallet of its own":  {"permit_get", `{}`, []string{"Counterfoil-Wallet", "wal_2", "Idempotency-Key", "k"}, 0, ""},
		"no credential":        {"permit_get", `{}`, []string{"X-API-Key", "cf_none"}, 0, "unauthenticated"},
		"not for the operator": {"permit_get", `{}`, []string{"X-API-Key", "operator-token"}, 0, "unauthenticated"},
	} {
		if a := h.builtin(c.tool, c.args, c.pairs...); a.code != c.code || a.reason != c.reason {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	// The name must be in the header too, and no round of input is open here.
	if a := h.builtinModern("permit_get", `{}`, "Mcp-Name", "other"); a.status != http.StatusBadRequest || a.code != -32020 {
		t.Errorf("another name in the header: %d %s", a.status, a.body)
	}
	if a := h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"counterfoil_permit_get","requestState":"s"}}`); a.code != -32602 {
		t.Errorf("a round: %s", a.body)
	}

	// An agent's requests at a time are bounded, whatever they are.
	done := make(chan answer, 1)
	go func() {
		a, _ := h.try(context.Background(), callBody("slow", `{}`, keyed("running")))
		done <- a
	}()
	<-h.tool.started
	for _, c := range [][2]string{{"permit_get", `{}`}, {"operation_get", operationArgs(id)}, {"operation_resume", operationArgs(id)}} {
		if a := h.builtin(c[0], c[1]); a.code != -31429 || a.reason != "rate_limited" || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s over the bound: %s", c[0], a.body)
		}
	}
	close(h.tool.gate)
	<-done
}
