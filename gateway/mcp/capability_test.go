package mcp_test

import (
	"net/http"
	"strings"
	"testing"
)

// missing is an upstream's refusal, in bytes that no encoder would choose.
const missing = `{ "code":-32021,"message":"sampling\u0021","data":{"requiredCapabilities":{"sampling":{}},"n":1.10}}`

func TestAMissingCapabilityIsTheCallersError(t *testing.T) {
	t.Parallel()
	up, add := newScript(t, map[string]func(http.ResponseWriter, *http.Request, wire){
		"needs": func(w http.ResponseWriter, _ *http.Request, q wire) {
			if q.Params.Meta.ProgressToken != nil {
				q.progress(w, `,"progress":1`)
				event(w, `{"jsonrpc":"2.0","id":`+string(q.ID)+`,"error":`+missing+`}`)
				return
			}
			w.WriteHeader(http.StatusBadRequest)
			q.fail(w, missing)
		},
		"wordless": func(w http.ResponseWriter, _ *http.Request, q wire) { q.fail(w, `{"code":-32021,"message":7}`) },
		"header":   func(w http.ResponseWriter, _ *http.Request, q wire) { q.fail(w, `{"code":-32020,"message":"no"}`) },
	})
	h := newHouse(t, add)
	h.permitFor("needs", "wordless", "header")
	want := `{"jsonrpc":"2.0","id":"m","error":` + missing + `}`
	first := h.ask("needs", underKey("k"))
	again := h.ask("needs", underKey("k"))
	if first.status != 400 || first.body != want || again.status != 400 || again.body != want || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d %s\nand %d %v %s", first.status, first.body, again.status, again.header, again.body)
	}
	// The record is an outcome like any other, and who has no such error reads that.
	old := h.post(callBody("needs", "{}", keyed("k")))
	if old.status != 200 || old.text("counterfoil/outcome") != "failed" || old.text("counterfoil/reason") != "upstream_rejected" || h.claims(old).Charged != 0 || !strings.Contains(old.texts[0], `"sampling!"`) {
		t.Errorf("a handshake caller: %s", old.body)
	}
	h.restart(nil)
	if a := h.ask("needs", underKey("k")); a.status != 400 || a.body != want {
		t.Errorf("after a restart: %d %s", a.status, a.body)
	}
	body, headers := modernCall("needs", underKey("p"))
	a := h.post(strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":1,`, 1), headers...)
	if list := events(t, a.body); a.status != 200 || len(list) != 2 || list[1] != want {
		t.Errorf("after progress: %d %s", a.status, a.body)
	}
	for _, tool := range []string{"wordless", "header"} {
		if a := h.ask(tool, underKey(tool)); a.status != 200 || a.text("counterfoil/reason") != "upstream_rejected" {
			t.Errorf("%s: %d %s", tool, a.status, a.body)
		}
	}
	if n := len(up.calls()); n != 4 {
		t.Errorf("%d calls went up, want 4", n)
	}
	h.clean()
}

// What an upstream says when it refuses is quoted: in one line, bounded, and as somebody else's words.
func TestARejectionIsQuoted(t *testing.T) {
	t.Parallel()
	_, add := newScript(t, map[string]func(http.ResponseWriter, *http.Request, wire){
		"words": func(w http.ResponseWriter, _ *http.Request, q wire) {
			q.fail(w, `{"code":-32602,"message":"no\u0000 such\r\n\taccount\u202e \u2028 é🙂 key `+q.key+`"}`)
		},
		"long": func(w http.ResponseWriter, _ *http.Request, q wire) {
			q.fail(w, `{"code":-32602,"message":"`+strings.Repeat("é", 9000)+`"}`)
		},
		"silent": func(w http.ResponseWriter, _ *http.Request, q wire) { q.fail(w, `{"code":-32602,"message":"\u0007 "}`) },
		"broken": func(w http.ResponseWriter, _ *http.Request, q wire) {
			q.fail(w, `{"code":-32603,"message":"half done"}`)
		},
		"capable": func(w http.ResponseWriter, _ *http.Request, q wire) {
			q.result(w, `{"content":[],"structuredContent":`+string(q.Params.Meta.Capabilities)+`}`)
		},
	})
	h := newHouse(t, add)
	h.permitFor("words", "long", "silent", "broken", "capable")
	a := h.ask("words", underKey("w"))
	if len(a.texts) != 1 || !strings.HasSuffix(a.texts[0], ` Its server's message: "no such account é🙂 key `+a.text("counterfoil/operation_id")+`"`) || !a.isError {
		t.Errorf("quoted: %q", a.texts)
	}
	if a = h.ask("long", underKey("l")); len([]rune(a.texts[0])) > 1000 || !strings.HasSuffix(a.texts[0], `é…"`) {
		t.Errorf("a long message: %d characters, %.300s", len([]rune(a.texts[0])), a.texts[0])
	}
	for _, tool := range []string{"silent", "broken"} { // of what may have run, the receipt says what is known
		if a = h.ask(tool, underKey(tool)); strings.Contains(a.body, "server's message") || !a.isError {
			t.Errorf("%s: %s", tool, a.body)
		}
	}
	// What a caller can do is told as it says it, and of others nothing.
	body, headers := modernCall("capable", underKey("c"))
	if a = h.post(strings.Replace(body, caps, `"io.modelcontextprotocol/clientCapabilities":{"sampling":{},"x":1.50}`, 1), headers...); !strings.Contains(a.body, `"structuredContent":{"sampling":{},"x":1.50}`) {
		t.Errorf("capabilities: %s", a.body)
	}
	if a = h.post(callBody("capable", "{}", keyed("c2"))); !strings.Contains(a.body, `"structuredContent":{}`) {
		t.Errorf("capabilities of a handshake caller: %s", a.body)
	}
}
