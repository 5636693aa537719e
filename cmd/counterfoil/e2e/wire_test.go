package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
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
