package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestEachEraGetsTheSameAnswer: the answer to a key is the same result in both eras, but for how it is dressed, whoever asked
// first, and racers of both eras at two gateways make one call.
func TestEachEraGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	_, second := s.second(t)
	x := s.newTenant(t, 1000, anythingOf("do", "payout"))
	p.on("tool-error", result(`{"resultType":"complete","content":[{"type":"text","text":"no"}],"isError":true}`))
	p.on("uncertain", breakOff)
	p.on("refused", plain(http.StatusBadRequest, "text/plain", "no"))
	p.on("cached", result(`{"resultType":"complete","ttlMs":1000,"cacheScope":"public","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"peer","version":"1"}}}`))
	undressed := func(a answer) string {
		out := strings.Replace(string(a.result), `{"resultType":"complete",`, "{", 1)
		return strings.Replace(out, `,"io.modelcontextprotocol/serverInfo":{"name":"counterfoil","version":"devel"}`, "", 1)
	}
	for i, key := range []string{"plain", "tool-error", "uncertain", "refused", "cached", "denied"} {
		for era, first := range eras() {
			c := x.doing(key + "-" + era)
			if key == "denied" {
				c.tool = "refund"
			}
			other := dialect{modern: !first.modern}
			a, b := x.saying(t, first, c), x.saying(t, other, c)
			if a.replayed() || !b.replayed() || undressed(a) != undressed(b) || a.meta.Receipt == "" {
				t.Errorf("%d %s first:\n%s\n%s", i, era, a, b)
			}
			modern, handshake := a, b
			if !first.modern {
				modern, handshake = b, a
			}
			var members struct {
				ResultType string
				Meta       map[string]json.RawMessage `json:"_meta"`
			}
			if err := json.Unmarshal(modern.result, &members); err != nil || members.ResultType != "complete" || !bytes.Contains(members.Meta["io.modelcontextprotocol/serverInfo"], []byte("counterfoil")) {
				t.Errorf("%s: modern: %v %s", key, err, modern)
			}
			for _, not := range []string{"resultType", "ttlMs", "cacheScope", "serverInfo"} {
				if strings.Contains(string(handshake.result), not) || not != "resultType" && not != "serverInfo" && strings.Contains(string(modern.result), not) {
					t.Errorf("%s: %s shows: %s", key, not, handshake)
				}
			}
		}
	}
	race := x.doing("race")
	fresh := 0
	var result string
	for _, a := range s.together(t, 60, func(i int) (answer, error) {
		return x.trySaying([]string{s.url, second}[i/2%2], dialect{modern: i%2 == 0}, race)
	}) {
		switch {
		case a.reason() == "idempotency_in_progress":
			continue
		case a.meta.Outcome != "succeeded" || result != "" && undressed(a) != result:
			t.Errorf("a racer: %s", a)
		case !a.replayed():
			fresh++
		}
		result = undressed(a)
	}
	if fresh != 1 || p.did(`"race"`) != 1 {
		t.Errorf("%d were first, %d calls", fresh, p.did(`"race"`))
	}
}

// TestAnswersThatAreNone: what else a server may answer than a result, what it means for the money, and that nobody
// follows where it points.
func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	x := s.newTenant(t, 10_000, anythingOf("do"))
	var followed atomic.Int64
	elsewhere := newPeer(t, &peer{})
	elsewhere.on("", func(w http.ResponseWriter, _ *http.Request, id string) {
		followed.Add(1)
		answerWith(w, id, `{"content":[{"type":"text","text":"from elsewhere"}]}`)
	})
	to := func(status int) act {
		return func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Location", elsewhere.server.URL+"/mcp")
			w.WriteHeader(status)
		}
	}
	unauthorised := func(w http.ResponseWriter, r *http.Request, id string) {
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://evil.example"`)
		plain(http.StatusUnauthorized, "application/json", `{"error":"invalid_token"}`)(w, r, id)
	}
	otherID := func(w http.ResponseWriter, _ *http.Request, _ string) { answerWith(w, "999999", `{"content":[]}`) }
	refused := func(code int) act {
		return func(w http.ResponseWriter, _ *http.Request, id string) {
			_, _ = w.Write([]byte(rpcError(id, code, "no", "")))
		}
	}
	const html = "<html><body>Welcome</body></html>"
	for key, c := range map[string]struct {
		do      act
		reason  string
		charged int64
	}{
		"301":       {to(301), "upstream_error", peerPrice},
		"302":       {to(302), "upstream_error", peerPrice},
		"303":       {to(303), "upstream_error", peerPrice},
		"307":       {to(307), "upstream_error", peerPrice},
		"308":       {to(308), "upstream_error", peerPrice},
		"401":       {unauthorised, "upstream_rejected", 0},
		"403":       {plain(403, "text/html", html), "upstream_rejected", 0},
		"404":       {plain(404, "text/html", html), "upstream_rejected", 0},
		"409":       {plain(409, "text/html", html), "upstream_error", peerPrice},
		"429":       {plain(429, "text/html", html), "upstream_rejected", 0},
		"500":       {plain(500, "text/html", html), "upstream_error", peerPrice},
		"504":       {plain(504, "text/html", html), "upstream_error", peerPrice},
		"html":      {plain(200, "text/html", html), "response_rejected", peerPrice},
		"nothing":   {plain(200, "application/json", ""), "no_response", peerPrice},
		"202":       {plain(202, "application/json", ""), "no_response", peerPrice},
		"204":       {plain(204, "", ""), "no_response", peerPrice},
		"batch":     {plain(200, "application/json", "[]"), "response_rejected", peerPrice},
		"other id":  {otherID, "response_rejected", peerPrice},
		"duplicate": {result(`{"content":[],"content":[]}`), "response_rejected", peerPrice},
		"task":      {result(`{"resultType":"task","content":[]}`), "response_rejected", peerPrice},
		"-32602":    {refused(-32602), "upstream_rejected", 0},
		"-32603":    {refused(-32603), "upstream_error", peerPrice},
		"-32000":    {refused(-32000), "upstream_error", peerPrice},
	} {
		p.on(`"`+key+`"`, c.do)
		before := x.state(t)
		a := x.do(t, x.doing(key))
		outcome, retry := "delivery_uncertain", "check"
		if c.charged == 0 {
			outcome, retry = "failed", "new_key"
		}
		if a.status != http.StatusOK || a.meta.Outcome != outcome || a.meta.Reason != c.reason || a.meta.Retry != retry || !a.isError || *a.meta.Charged != c.charged {
			t.Errorf("%s: want %s: %s", key, c.reason, a)
			continue
		}
		s.receipt(t, a)
		if again := x.do(t, x.doing(key)); !again.replayed() || !bytes.Equal(again.result, a.result) {
			t.Errorf("%s, again: %s", key, again)
		}
		if n := p.did(`"` + key + `"`); n != 1 {
			t.Errorf("%s was sent %d times", key, n)
		}
		after := x.state(t)
		if after.Balance != before.Balance-c.charged || after.Held != 0 || after.Receipts != before.Receipts+1 || (after.Calls == before.Calls) != (c.charged == 0) {
			t.Errorf("%s: before %+v, after %+v", key, before, after)
		}
		if strings.Contains(string(a.body), "evil.example") || a.header.Get("Location") != "" {
			t.Errorf("%s: the answer shows where the upstream pointed: %s", key, a)
		}
	}
	if followed.Load() != 0 || len(elsewhere.requests("", ""))+len(elsewhere.requests("tools/call", "")) != 0 {
		t.Error("a redirect was followed")
	}
}

// TestOurSecretsAreNotEchoed: a server that answers with the private key that it was sent, written in whatever way, or with
// the gateway's own credential, shows the caller the public handle in its place; so do replay, record and log.
func TestOurSecretsAreNotEchoed(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	x := s.newTenant(t, 1000, anythingOf("do"))
	var mu sync.Mutex
	sent := map[string]string{}
	echo := func(name, form string) act {
		return func(w http.ResponseWriter, r *http.Request, id string) {
			key := r.Header.Get("Idempotency-Key")
			mu.Lock()
			sent[name] = key
			mu.Unlock()
			escaped := ""
			for _, b := range []byte(key) {
				escaped += fmt.Sprintf(`\u%04x`, b)
			}
			answer := strings.NewReplacer("KEY", key, "ESCAPED", escaped, "ID", id).Replace(form)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
		}
	}
	ok := func(content string) string {
		return `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","content":[` + content + `]}}`
	}
	for name, form := range map[string]string{
		"text":      ok(`{"type":"text","text":"your key KEY, KEY"}`),
		"escaped":   ok(`{"type":"text","text":"ESCAPED"}`),
		"json":      ok(`{"type":"text","text":"{\"key\":\"KEY\"}"}`),
		"member":    ok(`{"type":"text","text":"x"}],"structuredContent":{"KEY":{"a":["KEY"]}},"x":[`),
		"meta":      ok(`],"_meta":{"request":"KEY"},"x":[`),
		"error":     ok(`{"type":"text","text":"KEY failed"}],"isError":true,"x":[`),
		"rpc-error": `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no KEY here","data":{"KEY":"KEY"}}}`,
		"html":      `<html>KEY</html>`,
	} {
		p.on(`"`+name+`"`, echo(name, form))
		c := x.doing(name)
		a, again := x.do(t, c), x.saying(t, dialect{modern: true}, c)
		mu.Lock()
		key := sent[name]
		mu.Unlock()
		if key == "" || key == c.key || a.meta.Operation == "" {
			t.Fatalf("%s: the key %q went up: %s", name, key, a)
		}
		stored := s.contentOf(t, a.meta.ReceiptID)
		status, record := s.ask(t, s.url, x.key, http.MethodGet, "/v1/operations/"+a.meta.Operation, nil)
		for where, text := range map[string][]byte{"answer": a.body, "replay": again.body, "bundle": stored, "record": record} {
			if bytes.Contains(text, []byte(key)) || status != http.StatusOK {
				t.Errorf("%s: the %s shows the key: %s", name, where, text)
			}
		}
		r := s.receipt(t, a)
		shown := name != "html"
		if shown != bytes.Contains(stored, []byte(a.meta.Operation)) && name != "rpc-error" || shown != r.Res.Scrubbed || r.Res.SHA256 != sum(stored) {
			t.Errorf("%s: %s; the receipt says %+v", name, stored, r.Res)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for name, key := range sent {
		if strings.Contains(s.first.logged(), key) {
			t.Errorf("%s: the log shows the key", name)
		}
	}
}

// TestAReceiptSurvivesJavaScript: parsing and writing an answer anew, as JavaScript does, rounds what numbers it likes and
// loses nothing of the receipt, which is a string.
func TestAReceiptSurvivesJavaScript(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	x := s.newTenant(t, 9007199254740991, anythingOf("do"))
	p.on("big", result(`{"resultType":"complete","content":[],"structuredContent":{"n":9007199254740993,"e":1E400,"s":"\ud83d\ude00\u2028"}}`))
	a := x.succeed(t, x.doing("big"))
	cmd := exec.CommandContext(t.Context(), "node", "-e", "process.stdout.write(JSON.stringify(JSON.parse(require('fs').readFileSync(0))))")
	cmd.Stdin = bytes.NewReader(a.body)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v", err)
	}
	var parsed struct {
		Result struct {
			Meta meta `json:"_meta"`
		}
	}
	if err := json.Unmarshal(out, &parsed); err != nil || !bytes.Contains(out, []byte("9007199254740992")) {
		t.Fatalf("JavaScript keeps more than it used to: %v %s", err, out)
	}
	if parsed.Result.Meta.Receipt != a.meta.Receipt || parsed.Result.Meta.Operation != a.meta.Operation || *parsed.Result.Meta.Charged != peerPrice {
		t.Errorf("the receipt was %s\nand is %s", a.meta.Receipt, parsed.Result.Meta.Receipt)
	}
	jws, trust := filepath.Join(s.dir, "after.jws"), filepath.Join(s.dir, "trust.json")
	writeFile(t, jws, parsed.Result.Meta.Receipt)
	writeFile(t, trust, string(s.published(t)))
	if status, out := program(t, "counterfoil-verify", "--trust", trust, jws); status != 0 {
		t.Errorf("the verifier: %d %s", status, out)
	}
}
