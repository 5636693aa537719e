package mcp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"counterfoil/gateway"
)

// row is one case of the protocol: what is posted, and what comes back.
type row struct {
	body   string
	pairs  []string
	status int
	code   int    // 0: no JSON-RPC error
	has    string // in the body
}

func (h *house) check(rows map[string]row) {
	h.t.Helper()
	for name, r := range rows {
		a := h.post(r.body, r.pairs...)
		if a.status != r.status || a.code != r.code || !strings.Contains(a.body, r.has) {
			h.t.Errorf("%s: got HTTP %d, code %d, want %d, %d and %q:\n%s", name, a.status, a.code, r.status, r.code, r.has, a.body)
		}
		if r.code != 0 && (a.reason == "" || a.retry == "") {
			h.t.Errorf("%s: the error has no reason or no advice: %s", name, a.body)
		}
		if r.status == 202 && a.body != "" {
			h.t.Errorf("%s: 202 with a body: %s", name, a.body)
		}
	}
}

// modernBody is a modern request; modernPairs are the headers that go with it.
func modernBody(method, members string) string {
	if members != "" {
		members += ","
	}
	return `{"jsonrpc":"2.0","id":"m","method":"` + method + `","params":{` + members + `"_meta":{` + version + `,` + caps + `}}}`
}

func modernPairs(method string, more ...string) []string {
	return append([]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}, more...)
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// The transport comes before the message, and each check of it before the next: Origin, method, credential, media
// type, size, JSON.
func TestOrderOfTheTransport(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *gateway.Config) { c.MaxBody = 2048 })
	long := callBody("pay", `{"a":"`+strings.Repeat("x", 4096)+`"}`, keyed("k"))
	const text, evil = "text/plain", "https://evil.test"
	h.check(map[string]row{
		"Origin before credential":      {ping, []string{"Origin", evil, "X-API-Key", ""}, 403, 0, `"reason":"forbidden"`},
		"Host before credential":        {ping, []string{"Host", "evil.test", "X-API-Key", ""}, 403, 0, `"reason":"forbidden"`},
		"Host with any port":            {ping, []string{"Host", "localhost:1"}, 200, 0, `{}`},
		"Host of IPv6":                  {ping, []string{"Host", "[::1]:8080"}, 200, 0, `{}`},
		"credential before media type":  {ping, []string{"X-API-Key", "", "Content-Type", text}, 401, 0, `"reason":"unauthenticated"`},
		"credential before size":        {long, []string{"X-API-Key", "cf_none"}, 401, 0, `"reason":"unauthenticated"`},
		"credential before JSON":        {`{`, []string{"X-API-Key", "cf_none"}, 401, 0, `"reason":"unauthenticated"`},
		"media type before size":        {long, []string{"Content-Type", text}, 415, 0, `"reason":"invalid_request"`},
		"size before JSON":              {strings.Repeat("{", 4096), nil, 413, -31413, `"reason":"request_too_large"`},
		"JSON before the version":       {`{`, []string{"MCP-Protocol-Version", "1999-01-01"}, 400, -32700, ``},
		"envelope before the version":   {`{"jsonrpc":"2.0","id":1}`, []string{"MCP-Protocol-Version", "1999-01-01"}, 400, -32600, `"id":1`},
		"session id ignored":            {ping, []string{"Mcp-Session-Id", "none", "Last-Event-ID", "1", "Accept", "image/png"}, 200, 0, `{}`},
		"session id ignored, modern":    {modernBody("server/discover", ""), modernPairs("server/discover", "Mcp-Session-Id", "x", "Last-Event-ID", "1", "Accept", "text/html"), 200, 0, `supportedVersions`},
		"media type without parameters": {ping, []string{"Content-Type", "application/json;"}, 200, 0, `{}`},
		"media type of a suffix":        {ping, []string{"Content-Type", "application/vnd.x+json"}, 415, 0, ``},
	})
	for _, method := range []string{"GET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "PROPFIND"} {
		for _, path := range []string{"/mcp", "/mcp/messages"} {
			if resp := h.request(method, path); resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
				t.Errorf("%s %s: %d, Allow %q", method, path, resp.StatusCode, resp.Header.Get("Allow"))
			}
		}
	}
	for _, path := range []string{
		"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server",
		"/.well-known/openid-configuration", "/register", "/authorize", "/token", "/sse", "/mcp/other",
	} {
		for _, method := range []string{"GET", "POST"} {
			resp := h.request(method, path)
			if resp.StatusCode != 404 || !json.Valid([]byte(resp.Header.Get("X-Test-Body"))) || resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s: %d %v", method, path, resp.StatusCode, resp.Header)
			}
		}
	}
	req, err := http.NewRequestWithContext(context.Background(), "GET", h.base+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", evil)
	resp, err := h.plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != 403 {
		t.Errorf("Origin before method: %d", resp.StatusCode)
	}
}

// What stops says so: to some clients one 404 means that the server is gone for good.
func TestStoppingIsNever404(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []row{{body: ping}, {modernBody("tools/list", ""), modernPairs("tools/list"), 0, 0, ""}, {body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`}} {
		req := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(r.body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-API-Key", keyOne)
		for i := 0; i < len(r.pairs); i += 2 {
			req.Header.Set(r.pairs[i], r.pairs[i+1])
		}
		w := h.spec.Do(t, h.gateway.Echo(), req)
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"reason":"store_unavailable"`) {
			t.Errorf("%s: %d %v %s", r.body, w.Code, w.Header(), w.Body)
		}
	}
}

// Envelopes are judged alike in both eras; only what answers nothing is taken from one and refused from the other.
func TestEnvelopesOfBothEras(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	inner := `"method":"tools/list","params":{"_meta":{` + version + `,` + caps + `}}}`
	for era, pairs := range map[string][]string{"handshake": nil, "modern": modernPairs("tools/list")} {
		params := inner
		if pairs == nil {
			params = `"method":"tools/list"}`
		}
		h.check(map[string]row{
			era + ": BOM":                {"\ufeff" + `{"jsonrpc":"2.0","id":1,` + params, pairs, 400, -32700, ``},
			era + ": bad UTF-8":          {"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"," + params, pairs, 400, -32700, ``},
			era + ": trailing data":      {`{"jsonrpc":"2.0","id":1,` + params + `{}`, pairs, 400, -32700, ``},
			era + ": empty":              {``, pairs, 400, -32700, ``},
			era + ": batch":              {`[{"jsonrpc":"2.0","id":1,` + params + `]`, pairs, 400, -32600, ``},
			era + ": empty batch":        {`[]`, pairs, 400, -32600, ``},
			era + ": a string":           {`"tools/list"`, pairs, 400, -32600, ``},
			era + ": id string":          {`{"jsonrpc":"2.0","id":"","` + params[1:], pairs, 200, 0, `"id":""`},
			era + ": id 0":               {`{"jsonrpc":"2.0","id":0,` + params, pairs, 200, 0, `"id":0,`},
			era + ": id -5":              {`{"jsonrpc":"2.0","id":-5,` + params, pairs, 200, 0, `"id":-5,`},
			era + ": id 2^53+1":          {`{"jsonrpc":"2.0","id":9007199254740993,` + params, pairs, 200, 0, `"id":9007199254740993,`},
			era + ": id 2^64+1":          {`{"jsonrpc":"2.0","id":18446744073709551617,` + params, pairs, 200, 0, `"id":18446744073709551617,`},
			era + ": id escaped":         {`{"jsonrpc":"2.0","id":"\u0061\/",` + params, pairs, 200, 0, `"id":"\u0061\/",`},
			era + ": id 1.5":             {`{"jsonrpc":"2.0","id":1.5,` + params, pairs, 400, -32600, ``},
			era + ": id 1.0":             {`{"jsonrpc":"2.0","id":1.0,` + params, pairs, 400, -32600, ``},
			era + ": id null":            {`{"jsonrpc":"2.0","id":null,` + params, pairs, 400, -32600, ``},
			era + ": id object":          {`{"jsonrpc":"2.0","id":{},` + params, pairs, 400, -32600, ``},
			era + ": id true":            {`{"jsonrpc":"2.0","id":true,` + params, pairs, 400, -32600, ``},
			era + ": two ids":            {`{"jsonrpc":"2.0","id":1,"id":1,` + params, pairs, 400, -31400, ``},
			era + ": jsonrpc 1.0":        {`{"jsonrpc":"1.0","id":1,` + params, pairs, 400, -32600, `"id":1`},
			era + ": jsonrpc missing":    {`{"id":1,` + params, pairs, 400, -32600, `"id":1`},
			era + ": jsonrpc number":     {`{"jsonrpc":2.0,"id":1,` + params, pairs, 400, -32600, `"id":1`},
			era + ": method missing":     {`{"jsonrpc":"2.0","id":1}`, pairs, 400, -32600, `"id":1`},
			era + ": method number":      {`{"jsonrpc":"2.0","id":1,"method":1}`, pairs, 400, -32600, `"id":1`},
			era + ": method empty":       {`{"jsonrpc":"2.0","id":1,"method":""}`, pairs, 400, -32600, `"id":1`},
			era + ": Params":             {`{"jsonrpc":"2.0","id":1,"method":"tools/list","Params":{}}`, pairs, 400, -32600, `"id":1`},
			era + ": duplicate":          {`{"jsonrpc":"2.0","id":1,"a":1,"a":1,` + params, pairs, 200, -31400, `"id":1`},
			era + ": lone surrogate":     {`{"jsonrpc":"2.0","id":1,"a":"\ud800",` + params, pairs, 200, -31400, `"reason":"arguments_invalid"`},
			era + ": big number":         {`{"jsonrpc":"2.0","id":1,"a":9007199254740993,` + params, pairs, 200, -31400, `"reason":"arguments_invalid"`},
			era + ": notification":       {`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`, pairs, 202, 0, ``},
			era + ": cancelled":          {`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"x"}}`, pairs, 202, 0, ``},
			era + ": own notification":   {`{"jsonrpc":"2.0","method":"notifications/none"}`, pairs, 202, 0, ``},
			era + ": call that asks for": {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"pay","arguments":` + payArgs + `,"mcpContext":{"idempotency_key":"n"}}}`, pairs, 202, 0, ``},
		})
	}
	status, code := map[bool]int{false: 202, true: 400}, map[bool]int{false: 0, true: -32600}
	for _, isModern := range []bool{false, true} {
		var pairs []string
		if isModern {
			pairs = modernPairs("x")
		}
		h.check(map[string]row{
			"stray result":          {`{"jsonrpc":"2.0","id":1,"result":{}}`, pairs, status[isModern], code[isModern], ``},
			"stray error":           {`{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"m"}}`, pairs, status[isModern], code[isModern], ``},
			"stray error, id null":  {`{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}`, pairs, status[isModern], code[isModern], ``},
			"stray error, no id":    {`{"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}`, pairs, status[isModern], code[isModern], ``},
			"stray, jsonrpc absent": {`{"id":1,"result":{}}`, pairs, 400, -32600, ``},
		})
	}
	if h.tool.count() != 0 {
		t.Errorf("%d effects", h.tool.count())
	}
}

// The version decides the era, for each request by itself.
func TestVersionsOfRequests(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	list := func(meta string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + meta + `}}}`
	}
	ver := func(v string) string { return `"io.modelcontextprotocol/protocolVersion":` + v }
	head := func(v string, more ...string) []string {
		return append([]string{"MCP-Protocol-Version", v, "Mcp-Method", "tools/list"}, more...)
	}
	supported := `"supported":["2026-07-28","2025-11-25","2025-06-18"],"requested":`
	h.check(map[string]row{
		"modern":                           {list(version + "," + caps), head("2026-07-28"), 200, 0, `"resultType":"complete","ttlMs":`},
		"modern, blanks":                   {list(version + "," + caps), head(" 2026-07-28 "), 200, 0, `"resultType":"complete"`},
		"modern, optional members":         {list(version + "," + caps + `,"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/logLevel":"debug","progressToken":1`), head("2026-07-28"), 200, 0, ``},
		"modern, capabilities of all":      {list(version + `,"io.modelcontextprotocol/clientCapabilities":{"sampling":{},"elicitation":{"form":{}},"roots":{}}`), head("2026-07-28"), 200, 0, ``},
		"no header":                        {list(version + "," + caps), []string{"Mcp-Method", "tools/list"}, 400, -32020, `"id":1`},
		"no _meta version":                 {list(caps), head("2026-07-28"), 400, -32602, `protocolVersion`},
		"no _meta":                         {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, head("2026-07-28"), 400, -32602, ``},
		"no params":                        {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, head("2026-07-28"), 400, -32602, ``},
		"params array":                     {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`, head("2026-07-28"), 400, -32602, ``},
		"_meta array":                      {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":[]}}`, head("2026-07-28"), 400, -32602, ``},
		"_meta version number":             {list(ver("20260728") + "," + caps), head("2026-07-28"), 400, -32602, ``},
		"header differs":                   {list(version + "," + caps), head("2025-11-25"), 400, -32020, ``},
		"header differs, later":            {list(version + "," + caps), head("2027-01-01"), 400, -32020, ``},
		"header twice":                     {list(version + "," + caps), head("2026-07-28", "MCP-Protocol-Version", "2025-11-25"), 400, -32020, ``},
		"header twice, equal":              {list(version + "," + caps), head("2026-07-28", "MCP-Protocol-Version", "2026-07-28"), 200, 0, ``},
		"to come, not in _meta":            {list(caps), head("2027-01-01"), 400, -32602, ``},
		"to come":                          {list(ver(`"2027-01-01"`) + "," + caps), head("2027-01-01"), 400, -32022, supported + `"2027-01-01"`},
		"never was":                        {list(ver(`"2026-07-29"`) + "," + caps), head("2026-07-29"), 400, -32022, supported + `"2026-07-29"`},
		"draft":                            {list(ver(`"DRAFT-2026-v1"`) + "," + caps), head("DRAFT-2026-v1"), 400, -32022, supported + `"DRAFT-2026-v1"`},
		"served before capabilities":       {list(ver(`"2027-01-01"`)), head("2027-01-01"), 400, -32022, ``},
		"capabilities missing":             {list(version), head("2026-07-28"), 400, -32602, `clientCapabilities`},
		"capabilities array":               {list(version + `,"io.modelcontextprotocol/clientCapabilities":[]`), head("2026-07-28"), 400, -32602, `clientCapabilities`},
		"capabilities null":                {list(version + `,"io.modelcontextprotocol/clientCapabilities":null`), head("2026-07-28"), 400, -32602, `clientCapabilities`},
		"capabilities before Mcp-Method":   {list(version), []string{"MCP-Protocol-Version", "2026-07-28"}, 400, -32602, `clientCapabilities`},
		"Mcp-Method missing":               {list(version + "," + caps), []string{"MCP-Protocol-Version", "2026-07-28"}, 400, -32020, `Mcp-Method`},
		"Mcp-Method in other case":         {list(version + "," + caps), []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "Tools/List"}, 400, -32020, `Mcp-Method`},
		"Mcp-Method in base64":             {list(version + "," + caps), []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "=?base64?dG9vbHMvbGlzdA==?="}, 400, -32020, `Mcp-Method`},
		"Mcp-Method in blanks":             {list(version + "," + caps), []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", " tools/list\t"}, 200, 0, ``},
		"Mcp-Method twice":                 {list(version + "," + caps), head("2026-07-28", "Mcp-Method", "tools/call"), 400, -32020, `Mcp-Method`},
		"Mcp-Name where none is due":       {list(version + "," + caps), head("2026-07-28", "Mcp-Name", "anything"), 200, 0, ``},
		"Mcp-Method before unknown method": {modernBody("none", ""), modernPairs("tools/list"), 400, -32020, `Mcp-Method`},
		"handshake, no header":             {list(""), nil, 200, 0, `{"tools":[`},
		"handshake, 2025-06-18":            {list(""), []string{"MCP-Protocol-Version", "2025-06-18"}, 200, 0, `{"tools":[`},
		"handshake, 2025-11-25":            {list(""), []string{"MCP-Protocol-Version", "2025-11-25"}, 200, 0, `{"tools":[`},
		"handshake, version in both":       {list(ver(`"2025-11-25"`)), []string{"MCP-Protocol-Version", "2025-11-25"}, 200, 0, `{"tools":[`},
		"handshake, Mcp-* ignored":         {list(""), []string{"Mcp-Method", "other", "Mcp-Name", "=?base64?!?=", "Mcp-Param-A", "b"}, 200, 0, `{"tools":[`},
		"2025-03-26":                       {list(""), []string{"MCP-Protocol-Version", "2025-03-26"}, 400, -32022, supported + `"2025-03-26"`},
		"2024-11-05":                       {ping, []string{"MCP-Protocol-Version", "2024-11-05"}, 400, -32022, supported + `"2024-11-05"`},
		"no date":                          {list(""), []string{"MCP-Protocol-Version", "latest"}, 400, -32022, supported + `"latest"`},
		"almost a date":                    {list(""), []string{"MCP-Protocol-Version", "2026-07-2x"}, 400, -32022, supported + `"2026-07-2x"`},
		"not UTF-8":                        {list(""), []string{"MCP-Protocol-Version", "2025\xff"}, 400, -32022, supported},
		"not UTF-8, high":                  {list(""), []string{"MCP-Protocol-Version", "\xff"}, 400, -32022, supported},
	})
	a := h.post(list(""))
	for _, dress := range []string{"resultType", "ttlMs", "cacheScope", "serverInfo", "nextCursor"} {
		if strings.Contains(a.body, dress) {
			t.Errorf("the handshake's list is dressed: it has %s", dress)
		}
	}
	m := h.post(list(version+","+caps), head("2026-07-28")...)
	for _, dress := range []string{`"ttlMs":`, `"cacheScope":"private"`, `"io.modelcontextprotocol/serverInfo":{"name":"counterfoil"`} {
		if !strings.Contains(m.body, dress) {
			t.Errorf("the modern list lacks %s: %.300s", dress, m.body)
		}
	}
}

func TestMethodsOfBothEras(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	rows := map[string]row{
		"server/discover, modern":   {modernBody("server/discover", ""), modernPairs("server/discover"), 200, 0, `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18"],"capabilities":{"tools":{}},"ttlMs":`},
		"tools/list, modern":        {modernBody("tools/list", ""), modernPairs("tools/list"), 200, 0, `"tools":[`},
		"tools/list, cursor":        {modernBody("tools/list", `"cursor":"x"`), modernPairs("tools/list"), 400, -32602, ``},
		"tools/list, cursor number": {modernBody("tools/list", `"cursor":1`), modernPairs("tools/list"), 400, -32602, ``},
		"tools/list, handshake":     {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`, nil, 200, -32602, ``},
		"prompts/get, no name":      {modernBody("prompts/get", ""), modernPairs("prompts/get"), 400, -32602, ``},
		"prompts/get, no Mcp-Name":  {modernBody("prompts/get", `"name":"p"`), modernPairs("prompts/get"), 400, -32020, ``},
		"prompts/get":               {modernBody("prompts/get", `"name":"p"`), modernPairs("prompts/get", "Mcp-Name", "p"), 404, -32601, ``},
		"resources/read, other uri": {modernBody("resources/read", `"uri":"a://b"`), modernPairs("resources/read", "Mcp-Name", "a://c"), 400, -32020, ``},
		"resources/read":            {modernBody("resources/read", `"uri":"a://b"`), modernPairs("resources/read", "Mcp-Name", "a://b"), 404, -32601, ``},
		"ping, handshake":           {ping, nil, 200, 0, `"result":{}`},
		"no such tool":              {modernBody("tools/call", `"name":"none","mcpContext":{"idempotency_key":"k"}`), modernPairs("tools/call", "Mcp-Name", "none"), 200, -32602, `"reason":"tool_unknown"`},
		"no key":                    {modernBody("tools/call", `"name":"pay"`), modernPairs("tools/call", "Mcp-Name", "pay"), 200, -31400, `"reason":"idempotency_key_required"`},
		"arguments array":           {modernBody("tools/call", `"name":"pay","arguments":[]`), modernPairs("tools/call", "Mcp-Name", "pay"), 400, -32602, `"reason":"arguments_invalid"`},
		"name number":               {modernBody("tools/call", `"name":1`), modernPairs("tools/call", "Mcp-Name", "1"), 400, -32602, `"reason":"arguments_invalid"`},
	}
	for _, method := range []string{
		"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "subscriptions/listen", "prompts/list", "resources/list",
		"resources/templates/list", "completion/complete", "tasks/get", "tasks/list", "sampling/createMessage", "elicitation/create", "roots/list", "Tools/List", "none",
	} {
		rows[method+", modern"] = row{modernBody(method, ""), modernPairs(method), 404, -32601, `"id":"m"`}
	}
	for _, method := range []string{
		"server/discover", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "subscriptions/listen", "prompts/list", "prompts/get", "resources/list",
		"resources/read", "completion/complete", "tasks/get", "sampling/createMessage", "notifications/cancelled", "Ping", "none",
	} {
		rows[method+", handshake"] = row{`{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`, nil, 200, -32601, `"id":1`}
	}
	for asked, got := range map[string]string{
		`"2025-06-18"`: "2025-06-18", `"2025-11-25"`: "2025-11-25", `"2025-03-26"`: "2025-11-25", `"2024-11-05"`: "2025-11-25",
		`"2026-07-28"`: "2025-11-25", `"2099-01-01"`: "2025-11-25", `5`: "2025-11-25",
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":` + asked + `,"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
		rows["initialize "+asked] = row{body, nil, 200, 0, `"result":{"protocolVersion":"` + got + `","capabilities":{"tools":{}},"serverInfo":{"name":"counterfoil"`}
	}
	h.check(rows)
}

// What a proxy may have decided by is what the body says.
func TestHeadersRepeatTheBody(t *testing.T) {
	t.Parallel()
	_, add := newScript(t, map[string]func(http.ResponseWriter, *http.Request, wire){
		"params": func(w http.ResponseWriter, _ *http.Request, q wire) { q.result(w, `{"content":[]}`) },
	})
	h := newHouse(t, add, func(c *gateway.Config) {
		for i := range c.Upstreams {
			if c.Upstreams[i].Name == "script" {
				c.Upstreams[i].URL += "?schema=params"
			}
		}
	})
	h.permitFor("params")
	encoded := func(s string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
	call := func(name string, pairs ...string) row {
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		return row{modernBody("tools/call", `"name":`+string(quoted)+`,"mcpContext":{`+keyed("n")+`}`), modernPairs("tools/call", pairs...), 0, 0, ""}
	}
	// A name that is agreed upon is an unknown tool; one that is not is refused before.
	rows := map[string]row{}
	for name, pairs := range map[string][]string{
		"none": {"Mcp-Name", "none"}, "Ünïcode": {"Mcp-Name", encoded("Ünïcode")}, "näme": {"Mcp-Name", "näme"}, " blanks ": {"Mcp-Name", encoded(" blanks ")},
		"tab\t": {"Mcp-Name", encoded("tab\t")}, "bell\a": {"Mcp-Name", encoded("bell\a")}, "line\nbreak": {"Mcp-Name", encoded("line\nbreak")},
		"=?base64?bm9uZQ==?=": {"Mcp-Name", encoded("=?base64?bm9uZQ==?=")}, "=?base64?": {"Mcp-Name", "=?base64?"}, "plain": {"Mcp-Name", "  plain\t"},
		"twice": {"Mcp-Name", "twice", "Mcp-Name", "twice"},
	} {
		r := call(name, pairs...)
		r.status, r.code, r.has = 200, -32602, `"reason":"tool_unknown"`
		rows["agreed "+name] = r
	}
	for name, pairs := range map[string][]string{
		"missing": nil, "other": {"Mcp-Name", "another"}, "Case": {"Mcp-Name", "case"}, " outer ": {"Mcp-Name", " outer "}, "bad": {"Mcp-Name", "=?base64?YmFk=?="},
		"open": {"Mcp-Name", "=?base64?b3Blbg?="}, "=?base64?bG9va3M=?=": {"Mcp-Name", "=?base64?bG9va3M=?="}, "latin": {"Mcp-Name", "=?base64?/w==?="}, "bytes": {"Mcp-Name", "\xff"},
		"differ": {"Mcp-Name", "differ", "Mcp-Name", "differs"}, "empty": {"Mcp-Name", ""}, "q": {"Mcp-Name", "=?utf-8?q?q?="},
	} {
		r := call(name, pairs...)
		r.status, r.code, r.has = 400, -32020, `Mcp-Name`
		rows["refused "+name] = r
	}
	keys := 0
	param := func(args string, status, code int, pairs ...string) row {
		keys++
		return row{
			modernBody("tools/call", `"name":"params","arguments":`+args+`,"mcpContext":{`+keyed(fmt.Sprint("k", keys))+`}`),
			modernPairs("tools/call", append([]string{"Mcp-Name", "params"}, pairs...)...), status, code, "",
		}
	}
	for name, r := range map[string]row{
		"all agree":            param(`{"region":"eu","n":5,"yes":true,"deep":{"x":"é"}}`, 200, 0, "Mcp-Param-Region", "eu", "Mcp-Param-N", "5", "Mcp-Param-Yes", "true", "Mcp-Param-Deep", encoded("é")),
		"number by value":      param(`{"n":1000}`, 200, 0, "Mcp-Param-N", "1e3"),
		"number by value, 5.0": param(`{"n":5.0}`, 200, 0, "Mcp-Param-N", "5"),
		"number in blanks":     param(`{"n":-7}`, 200, 0, "Mcp-Param-N", " -7 "),
		"number differs":       param(`{"n":1001}`, 400, -32020, "Mcp-Param-N", "1e3"),
		"number not rounded":   param(`{"n":9007199254740992}`, 400, -32020, "Mcp-Param-N", "9007199254740993"),
		"number with zero":     param(`{"n":50}`, 400, -32020, "Mcp-Param-N", "050"),
		"number quoted":        param(`{"n":51}`, 400, -32020, "Mcp-Param-N", `"51"`),
		"string missing":       param(`{"region":"us"}`, 400, -32020),
		"string in other case": param(`{"region":"us"}`, 400, -32020, "Mcp-Param-Region", "US"),
		"string in blanks":     param(`{"region":" us"}`, 400, -32020, "Mcp-Param-Region", " us"),
		"string of blanks":     param(`{"region":" us "}`, 200, 0, "Mcp-Param-Region", encoded(" us ")),
		"string bad base64":    param(`{"region":"us"}`, 400, -32020, "Mcp-Param-Region", "=?base64?dXM?="),
		"string looks encoded": param(`{"region":"=?base64?dXM=?="}`, 400, -32020, "Mcp-Param-Region", "=?base64?dXM=?="),
		"boolean differs":      param(`{"yes":true}`, 400, -32020, "Mcp-Param-Yes", "false"),
		"boolean in words":     param(`{"yes":true}`, 400, -32020, "Mcp-Param-Yes", "True"),
		"absent":               param(`{}`, 200, 0),
		"absent, header":       param(`{"other":1}`, 400, -32020, "Mcp-Param-Region", "eu"),
		"null":                 param(`{"region":null}`, 200, 0),
		"null, header":         param(`{"region":null}`, 400, -32020, "Mcp-Param-Region", "null"),
		"below an array":       param(`{"list":[{"x":1}]}`, 200, 0),
		"header of nobody":     param(`{"other":2}`, 200, 0, "Mcp-Param-Else", "x"),
		"twice":                param(`{"region":"eu"}`, 400, -32020, "Mcp-Param-Region", "eu", "Mcp-Param-Region", "us"),
	} {
		rows["param: "+name] = r
	}
	h.check(rows)
}
