package mcp_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"counterfoil/permits"
)

// An operation that waits for input is resumed as its call would be: the same question again, and the answer to it
// goes on with the same operation, in the words of the original call.
func TestAnOperationThatAsksIsResumed(t *testing.T) {
	t.Parallel()
	up, add := newScript(t, asking())
	h := newHouse(t, add)
	h.permitFor("ask")
	h.permit("prm_two", func(p *permits.Permit) { p.Agent = "agt_2" })
	asked := h.ask("ask", `"arguments":{"n":1.50},"mcpContext":{`+keyed("k")+`}`)
	id := asked.text("counterfoil/operation_id")
	if !pending(asked) {
		t.Fatalf("%s", asked.body)
	}
	resume := func(inputs string, pairs ...string) answer {
		return h.ask("counterfoil_operation_resume", `"arguments":`+operationArgs(id)+inputs, pairs...)
	}

	view := h.builtin("operation_get", operationArgs(id)).structured(t)
	h.fits("operation_get", view)
	round, _ := view["round"].(map[string]any)
	if view["state"] != "awaiting_input" || view["retry"] != "same_key" || view["credits_held"] != float64(price) || round["number"] != 1.0 || view["outcome"] != nil {
		t.Errorf("while it waits: %v", view)
	}
	if a := resume(""); !bytes.Equal(a.result, asked.result) || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("another question: %s", a.body)
	}
	if a := h.builtin("operation_resume", operationArgs(id)); a.code != -31409 || a.reason != "idempotency_in_progress" {
		t.Errorf("who cannot be asked: %s", a.body)
	}
	if a := resume(strings.Replace(nameGiven, `u00221`, `u00222`, 1)); a.status != http.StatusBadRequest || a.code != -32602 {
		t.Errorf("an altered state: %d %s", a.status, a.body)
	}
	if a := resume(nameGiven, "X-API-Key", keyTwo, "Counterfoil-Permit", "prm_two"); a.reason != "idempotency_key_reused" {
		t.Errorf("a colleague's answer: %s", a.body)
	}
	if a := resume(nameGiven, "X-API-Key", keyOther); !a.isError || a.text("counterfoil/reason") != "not_found" {
		t.Errorf("a stranger's answer: %s", a.body)
	}
	if a := h.builtinModern("operation_get", operationArgs(id)+nameGiven); a.status != http.StatusBadRequest || a.code != -32602 {
		t.Errorf("an answer to a tool that asks nothing: %d %s", a.status, a.body)
	}
	if n := len(up.calls()); n != 1 {
		t.Fatalf("%d calls went up before the question was answered", n)
	}

	done := resume(nameGiven)
	if done.text("counterfoil/outcome") != "succeeded" || done.text("counterfoil/operation_id") != id || h.claims(done).Charged != price {
		t.Fatalf("the answer: %d %s", done.status, done.body)
	}
	calls := up.calls()
	if len(calls) != 2 || calls[0].key != calls[1].key || string(calls[1].Params.Arguments) != `{"n":1.5}` {
		t.Errorf("what went up: %+v", calls)
	}
	for name, a := range map[string]answer{"resumed": resume(""), "the call itself": h.ask("ask", `"arguments":{"n":1.50},"mcpContext":{`+keyed("k")+`}`)} {
		if !bytes.Equal(a.result, done.result) || a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: the replay is %s", name, a.body)
		}
	}
	if n := len(up.calls()); n != 2 {
		t.Errorf("%d calls went up", n)
	}
	h.clean()
}
