package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"counterfoil/internal/testdb"
)

// named is the tenant's usual call as a harness sends it: without a key, with a call id, under a JSON-RPC id of its own.
func (x tenant) named(id int, tool, args, callID string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"mcpContext":{"wallet_id":%q,"permit_id":%q},"_meta":{"callId":%q,"progressToken":%d}}}`,
		id, tool, args, x.wallet, x.permit, callID, id)
}

// pool runs "counterfoil operation keys" and gives what it printed.
func (s *system) pool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := command("counterfoil", append([]string{"operation", "keys"}, args...)...)
	cmd.Env = append(cmd.Env, "COUNTERFOIL_TOKEN="+operatorToken, "COUNTERFOIL_SERVER="+s.url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("operation keys %v: %v: %s", args, err, out)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

// echo answers a call with its private key, in every form in which a tool might.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var call struct{ ID json.RawMessage }
	_ = json.Unmarshal(body, &call)
	key := r.Header.Get("Idempotency-Key")
	inner, _ := json.Marshal(map[string]any{"key": key, "deep": []string{"<" + key + ">"}})
	text, _ := json.Marshal(string(inner))
	escaped := strings.ReplaceAll(key, "a", `\u0061`)
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(string(body), "echo-error") {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no %s","data":{"key":[%q]}}}`, call.ID, key, key)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}],"structuredContent":{"a":[{"k":"%s"}],%q:"%s"},"_meta":{"theirs":%q}}}`,
		call.ID, text, escaped, key, key, key)
}

// Calls that their harness names, by keys of a pool that its operator loaded: redelivered after a lost answer and after
// a restart they are the same call, and the private keys are seen by nobody but the tool.
func TestHarnessCallsWithKeysOfAPool(t *testing.T) {
	t.Parallel()
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), "identity: {pool: true, diagnostics: true}")
	x := s.newTenant(t, 100, anything())
	keys := []string{"acme:operation:v1:aaaa0001", "acme:operation:v1:aaaa0002", "acme:operation:v1:aaaa0003", "acme:operation:v1:aaaa0004"}
	file := filepath.Join(t.TempDir(), "keys.txt")
	writeFile(t, file, strings.Join(keys[:3], "\n")+"\n")
	for _, want := range []string{"loaded now 3 known before 0 free 3 used 0 in use here yes", "loaded now 0 known before 3 free 3 used 0 in use here yes"} {
		if got := s.pool(t, "load", file); got != want {
			t.Errorf("operation keys load: %s, want %s", got, want)
		}
	}
	seen := &strings.Builder{} // all that was ever answered
	post := func(body string) answer {
		t.Helper()
		a := s.post(t, x.key, body)
		seen.Write(a.body)
		return a
	}

	// What a tool echoes, in structured content, in JSON in text, escaped, as a name, in an error.
	s.tool.answer("echo-me", echo)
	s.tool.answer("echo-error", echo)
	echoed := post(x.named(1, "refund", `{"note":"echo-me"}`, "call_echo"))
	if claims := s.receipt(t, echoed); claims.Call.KeySource != "codex" || claims.Res == nil || !claims.Res.Scrubbed || strings.Count(string(echoed.result), echoed.meta.Operation) < 6 {
		t.Errorf("the echo: %+v, %s", claims, echoed)
	}
	if again := post(x.named(2, "refund", `{"note":"echo-me"}`, "call_echo")); !again.replayed() || string(again.result) != string(echoed.result) {
		t.Errorf("redelivered: %s", again)
	}
	refused := post(x.named(3, "refund", `{"note":"echo-error"}`, "call_error"))
	if refused.meta.Reason != "upstream_rejected" || refused.meta.Receipt == "" {
		t.Errorf("an error that shows the key: %s", refused)
	}

	// The answer is lost with its connection: the same call under another JSON-RPC id is its answer.
	release := s.tool.keep(x.marker())
	leaving, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := s.send(leaving, s.raw, s.url+"/mcp", x.key, x.named(4, "payout", x.payoutArgs(), "call_lost"))
		gone <- err
	}()
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, x.marker())) == 1 })
	leave()
	if err := receive(t, gone, "the end of the connection"); err == nil {
		t.Error("the answer was not lost")
	}
	if running := post(x.named(5, "payout", x.payoutArgs(), "call_lost")); running.reason() != "idempotency_in_progress" {
		t.Errorf("while it runs: %s", running)
	}
	release()
	var first answer
	eventually(t, "the outcome", func() bool {
		first = post(x.named(6, "payout", x.payoutArgs(), "call_lost"))
		return first.reason() != "idempotency_in_progress"
	})
	if !first.replayed() || first.meta.Outcome != "succeeded" {
		t.Errorf("redelivered after a lost answer: %s", first)
	}
	if other := post(x.named(7, "payout", strings.Replace(x.payoutArgs(), "1200", "1300", 1), "call_lost")); other.reason() != "idempotency_key_reused" {
		t.Errorf("other arguments: %s", other)
	}

	// The pool is empty: a new call is refused in words, and leaves nothing. After a restart all is as it was.
	log := s.first.logged()
	s.restart(t)
	if again := post(x.named(8, "payout", x.payoutArgs(), "call_lost")); !again.replayed() || again.meta.Receipt != first.meta.Receipt {
		t.Errorf("redelivered after a restart: %s", again)
	}
	empty := post(x.named(9, "payout", x.payoutArgs(), "call_second"))
	if empty.reason() != "store_unavailable" || empty.refusal.Data.Retry != "same_key" || !strings.Contains(empty.refusal.Message, "pool of operation keys is empty") {
		t.Errorf("without a key: %s", empty)
	}
	writeFile(t, file, keys[0]+"\n"+keys[3]+"\n")
	if got := s.pool(t, "load", file); got != "loaded now 1 known before 1 free 1 used 3 in use here yes" {
		t.Errorf("operation keys load: %s", got)
	}
	// The same call runs now, and is a second charge for the same thing.
	if second := post(x.named(10, "payout", x.payoutArgs(), "call_second")); second.meta.Outcome != "succeeded" || second.replayed() {
		t.Errorf("the same again, as a new call: %s", second)
	}
	if st := x.state(t); st.Effects != 2 || st.Charges != 3 || st.Balance != 100-2*payoutPrice-3 || st.Open != 0 {
		t.Errorf("after all: %+v", st)
	}
	if got := s.pool(t, "list"); got != "free 0 used 4 in use here yes" {
		t.Errorf("operation keys list: %s", got)
	}

	// Nobody but the tool and the operator has seen a key.
	for _, path := range []string{"/v1/operations", "/v1/receipts", "/v1/receipts/export", "/v1/receipts/" + echoed.meta.ReceiptID + "/bundle"} {
		status, data := s.ask(t, s.url, x.key, http.MethodGet, path, nil)
		if status != http.StatusOK || len(data) < 100 {
			t.Errorf("%s: HTTP %d %s", path, status, data)
		}
		seen.Write(data)
	}
	_, audit := s.ask(t, s.url, operatorToken, http.MethodGet, "/v1/audit", nil)
	_, metrics := s.ask(t, s.url, operatorToken, http.MethodGet, "/metrics", nil)
	for where, text := range map[string]string{"answers": seen.String(), "the log": log + s.first.logged(), "the audit": string(audit), "metrics": string(metrics)} {
		for _, form := range []string{"acme:operation", "aaaa000", `operation:v1:\u0061`} {
			if strings.Contains(text, form) {
				t.Errorf("%s show a private key", where)
			}
		}
	}
	if call := s.operator(t, http.MethodGet, "/v1/operations/"+first.meta.Operation, nil, http.StatusOK); call["operation_key"] == nil || call["idempotency_key"] != nil ||
		fmt.Sprint(call["call_identity"]) != "map[call_id:call_lost platform:codex]" {
		t.Errorf("to the operator it is %v", call)
	}
}
