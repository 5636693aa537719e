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

// eras are the two generations of MCP, as a client speaks them.
func eras() map[string]dialect {
	return map[string]dialect{"handshake": {}, "modern": {modern: true}}
}

// TestAnIdComesBackAsItWas: a JSON-RPC id is the client's, to the letter, and nothing but a name for its answer: calls of
// one key are one call, whatever their ids. What is no id is refused, and what has none is no request.
func TestAnIdComesBackAsItWas(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for era, d := range eras() {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			x := s.newTenant(t, 100, anything())
			c := x.payout("one")
			r := repeated{x: x, call: c, first: x.succeed(t, c)}
			r.then = x.state(t)
			for _, id := range []string{
				"0", "-1", "7", "9007199254740993", "-9007199254740993", "12345678901234567890", `""`, `"a"`, `"0"`, `"\u00e9\n\""`, `"é"`, `"null"`,
				`"` + strings.Repeat("x", 250) + `"`, strings.Repeat("7", 250),
			} {
				c.id = id
				a := x.saying(t, d, c)
				if string(a.id) != id || !a.replayed() || a.meta.ReceiptID != r.first.meta.ReceiptID {
					t.Errorf("id %s: %s", id, a)
				}
			}
			c.key = "two"
			for _, id := range []string{"1.5", "null", "1e3", "1.0", "true", "{}", "[1]", "-", `"\ud800"`, `"` + strings.Repeat("x", 300) + `"`, strings.Repeat("7", 300)} {
				c.id = id
				if a := x.saying(t, d, c); a.status != http.StatusBadRequest || a.id != nil || a.reason() != "arguments_invalid" {
					t.Errorf("id %s: %s", id, a)
				}
			}
			c.id = "1"
			body, headers := d.say(c)
			if a := s.post(t, x.key, strings.Replace(body, `"id":1,`, "", 1), headers...); a.status != http.StatusAccepted || len(a.body) != 0 {
				t.Errorf("no id: %s", a)
			}
			unchanged(t, "after all ids", r.then, x.state(t))
			if a := x.saying(t, d, c); a.meta.Outcome != "succeeded" || a.replayed() {
				t.Errorf("the key is not free: %s", a)
			}
		})
	}
}

// TestTheFirstFaultIsTold: a request in which everything is wrong is refused for one thing after the other, in the order
// of reference/mcp.md 1, until nothing is wrong. Nothing is stored before that.
func TestTheFirstFaultIsTold(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	before := x.state(t)
	const foreign = "https://evil.example"
	meta := fmt.Sprintf(`,"_meta":{%s:"2026-07-28",%s:{}}`, metaVersion, metaCapabilities)
	good := withParams(x.payout("k"), meta)
	lacks := func(part string) string { return strings.Replace(good, part, "", 1) }
	for i, c := range []struct {
		what         string
		origin, key  string
		kind, body   string
		headers      []string
		status, code int
	}{
		{"Origin", foreign, "cf_nobody", "text/plain", "{", nil, 403, 0},
		{"credential", "", "cf_nobody", "text/plain", "{", nil, 401, 0},
		{"media type", "", x.key, "text/plain", strings.Repeat("x", 1<<20+1), nil, 415, 0},
		{"size", "", x.key, "application/json", strings.Repeat("x", 1<<20+1), nil, 413, -31413},
		{"JSON", "", x.key, "application/json", "{", nil, 400, -32700},
		{"envelope", "", x.key, "application/json", "[" + good + "]", nil, 400, -32600},
		{"id", "", x.key, "application/json", strings.Replace(lacks(metaVersion+`:"2026-07-28",`), `"id":1`, `"id":null`, 1), []string{"MCP-Protocol-Version", "2027-01-01"}, 400, -32600},
		{"version header", "", x.key, "application/json", strings.Replace(good, "2026-07-28", "2027-01-01", 1), nil, 400, -32020},
		{"version in _meta", "", x.key, "application/json", lacks(metaVersion + `:"2026-07-28",`), []string{"MCP-Protocol-Version", "2027-01-01"}, 400, -32602},
		{"versions differ", "", x.key, "application/json", strings.Replace(lacks(`,`+metaCapabilities+`:{}`), "2026-07-28", "2027-01-01", 1), []string{"MCP-Protocol-Version", "2026-07-28"}, 400, -32020},
		{"version served", "", x.key, "application/json", strings.Replace(lacks(`,`+metaCapabilities+`:{}`), "2026-07-28", "2027-01-01", 1), []string{"MCP-Protocol-Version", "2027-01-01"}, 400, -32022},
		{"capabilities", "", x.key, "application/json", lacks(`,` + metaCapabilities + `:{}`), []string{"MCP-Protocol-Version", "2026-07-28"}, 400, -32602},
		{"Mcp-Method", "", x.key, "application/json", strings.Replace(good, "tools/call", "prompts/get", 1), []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "Tools/Call"}, 400, -32020},
		{"Mcp-Name", "", x.key, "application/json", strings.Replace(good, "tools/call", "prompts/get", 1), []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "prompts/get"}, 400, -32020},
		{"method", "", x.key, "application/json", strings.Replace(good, "tools/call", "prompts/get", 1), []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "prompts/get", "Mcp-Name", "payout"}, 404, -32601},
	} {
		pairs := append([]string{"Content-Type", "", "Content-Type", c.kind, "X-API-Key", "", "X-API-Key", c.key}, c.headers...)
		if c.origin != "" {
			pairs = append(pairs, "Origin", c.origin)
		}
		a := s.post(t, "", c.body, pairs...)
		code := 0
		if a.refusal != nil {
			code = a.refusal.Code
		}
		if a.status != c.status || code != c.code || a.result != nil {
			t.Errorf("%d, %s: want HTTP %d, %d: %s", i, c.what, c.status, c.code, a)
		}
		known := strings.Contains(c.body, `"id":1`) && !strings.HasPrefix(c.body, "[") && c.code != 0
		if known != (string(a.id) == "1") {
			t.Errorf("%d, %s: answered under the id %s", i, c.what, a.id)
		}
		if a.status == http.StatusUnauthorized && strings.Contains(a.header.Get("WWW-Authenticate"), "resource_metadata") {
			t.Errorf("%s: %v", c.what, a.header)
		}
	}
	unchanged(t, "after all faults", before, x.state(t))
	if a := x.saying(t, dialect{modern: true}, x.payout("k")); a.meta.Outcome != "succeeded" || a.replayed() {
		t.Errorf("without a fault: %s", a)
	}
}

// shipTool has arguments that its clients repeat in headers.
const shipTool = `{"name":"Überführung","inputSchema":{"type":"object","properties":{` +
	`"region":{"type":"string","x-mcp-header":"Region"},"amount":{"type":"integer","x-mcp-header":"Amount"},"dry":{"type":"boolean","x-mcp-header":"Dry"},` +
	`"who":{"type":"object","properties":{"name":{"type":"string","x-mcp-header":"Who"}}},"which":{}}}}`

// TestHeadersRepeatTheBody: what modern clients repeat in headers must be what the body says, whatever way it is written,
// and is written anew for the upstream, from the body.
func TestHeadersRepeatTheBody(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true, tools: shipTool})
	s := newSystemBeside(t, p.line("peer", ""), toolLines+"\n  - {name: ship, upstream: peer, upstream_tool: Überführung, credits: 5}")
	x := s.newTenant(t, 1000, anythingOf("ship"))
	before := x.state(t)
	const args = `{"region":" Zoë","amount":1200,"dry":false,"who":{"name":"=?base64?eA==?="}}`
	right := func() []string {
		return []string{
			"Mcp-Method", "tools/call", "Mcp-Name", "ship", "Mcp-Param-Region", "=?base64?IFpvw6s=?=", "Mcp-Param-Amount", "1200", "Mcp-Param-Dry", "false",
			"Mcp-Param-Who", "=?base64?PT9iYXNlNjQ/ZUE9PT89?=",
		}
	}
	with := func(name string, values ...string) []string {
		headers := append(right(), name, "")
		for _, v := range values {
			headers = append(headers, name, v)
		}
		return headers
	}
	taken := 0
	for what, c := range map[string]struct {
		headers []string
		good    bool
	}{
		"all right":               {right(), true},
		"name in base64":          {with("Mcp-Name", "=?base64?c2hpcA==?="), true},
		"name in blanks":          {with("Mcp-Name", " \t ship "), true},
		"name twice, equal":       {with("Mcp-Name", "ship", "ship"), true},
		"name of the header":      {append(with("Mcp-Name"), "mCP-nAME", "ship"), true},
		"number written as 1.2e3": {with("Mcp-Param-Amount", "1.2e3"), true},
		"number in blanks":        {with("Mcp-Param-Amount", " 1200 "), true},
		"number in base64":        {with("Mcp-Param-Amount", "=?base64?MTIwMA==?="), true},
		"a header of nothing":     {append(right(), "Mcp-Param-Other", "x"), true},

		"method in another case":   {with("Mcp-Method", "Tools/Call"), false},
		"no method":                {with("Mcp-Method"), false},
		"method in base64":         {with("Mcp-Method", "=?base64?dG9vbHMvY2FsbA==?="), false},
		"no name":                  {with("Mcp-Name"), false},
		"empty name":               {with("Mcp-Name", " "), false},
		"name in another case":     {with("Mcp-Name", "Ship"), false},
		"the upstream's name":      {with("Mcp-Name", "=?base64?w5xiZXJmw7xocnVuZw==?="), false},
		"name twice":               {with("Mcp-Name", "ship", "slow"), false},
		"name in bad base64":       {with("Mcp-Name", "=?base64?c2hpcA=?="), false},
		"name in loose base64":     {with("Mcp-Name", "=?base64?c2hpcB==?="), false},
		"name in base64 of Latin1": {with("Mcp-Name", "=?base64?6Q==?="), false},
		"name in URL base64":       {with("Mcp-Param-Who", "=?base64?PT9iYXNlNjQ_ZUE9PT89?="), false},
		"text without its blank":   {with("Mcp-Param-Region", "=?base64?Wm/Dqw==?="), false},
		"text that was trimmed":    {with("Mcp-Param-Region", " Zo\u00eb"), false},
		"text that looks encoded":  {with("Mcp-Param-Who", "=?base64?eA==?="), false},
		"another number":           {with("Mcp-Param-Amount", "1201"), false},
		"a number too exact":       {with("Mcp-Param-Amount", "1200.0000000000000000000001"), false},
		"no number":                {with("Mcp-Param-Amount", "0x4b0"), false},
		"a leading zero":           {with("Mcp-Param-Amount", "01200"), false},
		"two numbers":              {with("Mcp-Param-Amount", "1200", "1201"), false},
		"a list of numbers":        {with("Mcp-Param-Amount", "1200, 1200"), false},
		"a header missing":         {with("Mcp-Param-Dry"), false},
		"a boolean as a number":    {with("Mcp-Param-Dry", "0"), false},
		"a boolean in capitals":    {with("Mcp-Param-Dry", "False"), false},
	} {
		c2 := call{tool: "ship", args: args, wallet: x.wallet, permit: x.permit, key: "key of " + what}
		body, _ := dialect{modern: true}.say(c2)
		a := s.post(t, x.key, body, append([]string{"MCP-Protocol-Version", "2026-07-28"}, c.headers...)...)
		switch {
		case c.good && a.meta.Outcome == "succeeded":
			taken++
		case c.good || a.status != http.StatusBadRequest || a.refusal == nil || a.refusal.Code != -32020 || string(a.id) != "1":
			t.Errorf("%s: %s", what, a)
		}
	}
	after := x.state(t)
	if after.Operations != before.Operations+taken || after.Charges != taken || p.did(`"arguments"`) != taken {
		t.Errorf("%d were taken: %+v", taken, after)
	}
	// In the other era these headers mean nothing; and what is not there has no header.
	for i, c := range []call{{args: args}, {args: `{"region":null,"who":{}}`}} {
		c.tool, c.wallet, c.permit, c.key = "ship", x.wallet, x.permit, fmt.Sprintf("another-%d", i)
		a := x.do(t, c, "Mcp-Name", "slow", "Mcp-Param-Amount", "1")
		if i == 1 {
			c.key = "another-2"
			a = x.saying(t, dialect{modern: true}, c)
		}
		if a.meta.Outcome != "succeeded" {
			t.Errorf("%d: %s", i, a)
		}
	}
	for _, sent := range p.requests("tools/call", `"region":" Zo`) {
		want := map[string]string{
			"Mcp-Name": "=?base64?w5xiZXJmw7xocnVuZw==?=", "Mcp-Param-Region": "=?base64?IFpvw6s=?=", "Mcp-Param-Amount": "1200", "Mcp-Param-Dry": "false",
			"Mcp-Param-Who": "=?base64?PT9iYXNlNjQ/ZUE9PT89?=", "Mcp-Param-Other": "",
		}
		for name, v := range want {
			if got := sent.header.Get(name); got != v {
				t.Errorf("upstream: %s: %q, want %q", name, got, v)
			}
		}
	}
	for name := range p.requests("tools/call", `"region":null`)[0].header {
		if strings.HasPrefix(name, "Mcp-Param") {
			t.Errorf("upstream: %s of an argument that is not there", name)
		}
	}
}

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
		key := sent[name]
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
