package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"counterfoil/gateway"
	"counterfoil/gateway/upstream"
	"counterfoil/internal/canon"
	"counterfoil/permits"
)

// eras runs a test against an upstream of each era.
func eras(t *testing.T, test func(t *testing.T, modern bool)) {
	t.Helper()
	for name, modern := range map[string]bool{"modern": true, "handshake": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, modern)
		})
	}
}

// sentBody is the whole message that an upstream gets for a call of the tool "up".
func sentBody(modern bool, id, args, trace string) string {
	meta := strings.TrimSuffix(trace, ",")
	if modern {
		meta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
			`"io.modelcontextprotocol/clientInfo":{"name":"counterfoil","version":"1"}`
		if trace != "" {
			meta += "," + strings.TrimSuffix(trace, ",")
		}
	}
	if meta != "" {
		meta = `,"_meta":{` + meta + `}`
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"up","arguments":` + args + meta + `}}`
}

func (c sentCall) id() string {
	var m struct{ ID json.RawMessage }
	_ = json.Unmarshal([]byte(c.body), &m)
	return string(m.ID)
}

// Contract 8: what is accepted keeps its value, and goes up as the bytes that were hashed.
func TestArgumentsGoUpAsTheyWereHashed(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, modern bool) {
		u := newPlainTool(t, modern, defined("up", ""))
		h := newHouse(t, u.of(gateway.Tool{Name: "echo", UpstreamTool: "up", Price: 1}))
		for i, c := range []struct{ args, up string }{
			{`{}`, `{}`},
			{`{ "b" : 1 , "a" : [ ] }`, `{"a":[],"b":1}`},
			{`{"n":[1.10,1.0,1e3,0.1,-0,1e21,1e23,5e-324,1.7976931348623157e308]}`, `{"n":[1.1,1,1000,0.1,0,1e+21,1e+23,5e-324,1.7976931348623157e+308]}`},
			{`{"n":[9007199254740991,-9007199254740991,9007199254740992,0.000001,1e-7]}`, `{"n":[9007199254740991,-9007199254740991,9007199254740992,0.000001,1e-7]}`},
			{`{"s":"<>&\u00e9\u20ac\ud83d\ude00\u2028\/\u0000\u001f\t\"\\"}`, `{"s":"<>&é€😀` + "\u2028" + `/\u0000\u001f\t\"\\"}`},
			{`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`, `{"\r":2,"1":4,"` + "\u0080" + `":6,"ö":7,"€":1,"😀":5,"` + "\ufb33" + `":3}`},
			{`{"deep":` + strings.Repeat("[", 61) + strings.Repeat("]", 61) + `}`, `{"deep":` + strings.Repeat("[", 61) + strings.Repeat("]", 61) + `}`},
			{`{"":null,"t":true,"f":false,"o":{"":{}}}`, `{"":null,"f":false,"o":{"":{}},"t":true}`},
			{`{"long":"` + strings.Repeat("é", 100_000) + `"}`, `{"long":"` + strings.Repeat("é", 100_000) + `"}`},
			{`{"__proto__":{"constructor":1},"$ref":"#","name":"x","arguments":{}}`, `{"$ref":"#","__proto__":{"constructor":1},"arguments":{},"name":"x"}`},
		} {
			a := h.post(callBody("echo", c.args, keyed(fmt.Sprint(i))))
			sent := u.sent()
			if a.text("counterfoil/outcome") != "succeeded" || len(sent) != i+1 {
				t.Fatalf("%.200s: %d calls, %.300s", c.args, len(sent), a.body)
			}
			if want := sentBody(modern, sent[i].id(), c.up, ""); sent[i].body != want {
				t.Errorf("%.200s went up as\n%.500s, want\n%.500s", c.args, sent[i].body, want)
			}
			if claims := h.claims(a); claims.ArgumentsSHA256 != canon.SHA256Hex([]byte(c.up)) {
				t.Errorf("%.200s: the receipt hashes other bytes", c.args)
			}
		}
		before := len(u.sent())
		for _, args := range []string{
			`{"n":9007199254740993}`, `{"n":1e400}`, `{"n":1e-400}`, `{"n":0.12345678901234567}`, `{"a":1,"a":1}`, `{"a":1,"A":2}`,
			`{"s":"\ud800"}`, `{"s":"` + "\xff" + `"}`, `{"n":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`,
		} {
			if a := h.post(callBody("echo", args, keyed("refused"))); a.code == 0 && a.status == 200 {
				t.Errorf("%.100q was accepted: %s", args, a.body)
			}
		}
		if len(u.sent()) != before {
			t.Error("what was refused was sent")
		}
	})
}

// Nothing of a client goes up but the arguments, the name of the tool and the three keys of a trace.
func TestNothingOfTheClientGoesUp(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, modern bool) {
		u := newPlainTool(t, modern, defined("up", ""))
		h := newHouse(t, u.of(gateway.Tool{Name: "echo", UpstreamTool: "up", Price: 1}))
		a := h.post(`{"jsonrpc":"2.0","id":"client-id-77","method":"tools/call","params":{"name":"echo","arguments":{"a":1},"task":{"ttl":1},`+
			`"mcpContext":{"idempotency_key":"key-77","wallet_id":"wal_1"},"_meta":{`+version+`,`+caps+`,"io.modelcontextprotocol/clientInfo":{"name":"client-77","version":"7"},`+
			`"io.modelcontextprotocol/logLevel":"debug","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=1","baggage":"b=2",`+
			`"x-codex-turn-metadata":{"workspace":"/home/client-77"},"openai/session":"session-77","counterfoil/context":{"permit_id":"prm_1"},"vendor":{"secret":77}}}}`,
			"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "echo", "Cookie", "session=cookie-77",
			"Authorization", "Bearer "+keyOne, "X-Forwarded-For", "10.0.0.77", "Forwarded", "for=77", "X-Custom", "custom-77", "Accept-Language", "xx-77",
			"User-Agent", "client-77", "Mcp-Session-Id", "session-77", "Last-Event-ID", "77", "Prefer", "wait=1", "Idempotency-Key", "key-77",
			"Counterfoil-Wallet", "wal_1", "Origin", "https://app.test", "Referer", "https://app.test/77", "Traceparent", "header-77", "Mcp-Param-A", "param-77", "Accept-Encoding", "gzip")
		sent := u.sent()
		if a.text("counterfoil/outcome") != "succeeded" || len(sent) != 1 {
			t.Fatalf("%d calls: %s", len(sent), a.body)
		}
		trace := `"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=1","baggage":"b=2"`
		if want := sentBody(modern, sent[0].id(), `{"a":1}`, trace); sent[0].body != want {
			t.Errorf("sent\n%s\nwant\n%s", sent[0].body, want)
		}
		want := map[string][]string{
			"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}, "Content-Length": {fmt.Sprint(len(sent[0].body))},
			"X-Upstream-Key": {"upstream-secret-1"}, "Mcp-Protocol-Version": {"2025-11-25"},
		}
		if modern {
			want["Mcp-Protocol-Version"], want["Mcp-Method"], want["Mcp-Name"] = []string{"2026-07-28"}, []string{"tools/call"}, []string{"up"}
		}
		got := maps.Clone(map[string][]string(sent[0].header))
		for _, own := range []string{"User-Agent", "Accept-Encoding"} {
			if strings.Contains(strings.Join(got[own], ""), "77") || strings.Join(got[own], "") == "gzip" {
				t.Errorf("%s: %q", own, got[own])
			}
			delete(got, own)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
	})
}

// results are kept to the byte. ours are added, of theirs none is lost; what would pass for ours is dropped.
func TestResultsAreTheBytesThatCame(t *testing.T) {
	t.Parallel()
	const content = `"content":[{"type":"text","text":"é\u00e9<>&\/\ud83d\ude00"}]`
	eras(t, func(t *testing.T, modern bool) {
		u := newPlainTool(t, modern, defined("up", `,"outputSchema":{"type":"object"}`))
		h := newHouse(t, u.of(gateway.Tool{Name: "echo", UpstreamTool: "up", Price: 1}))
		for i, c := range []struct{ came, kept, meta string }{
			{came: `{` + content + `}`},
			{came: `{"zeta":1, "content" :[ ],` + "\n\t" + `"alpha":{"b":1,"a":2}}`},
			{came: `{"content":[],"structuredContent":{"n":[12345678901234567890,1.10,1e400,0.12345678901234567890,-0,1E+2],"z":1,"a":2}}`},
			{came: `{"content":[{"type":"image","data":"aGk=","mimeType":"image/png","annotations":{"audience":["user"],"priority":0.50}},` +
				`{"type":"audio","data":"aGk=","mimeType":"audio/wav"},{"type":"resource_link","uri":"file:///a b","name":"n","size":10000000000000000000,"icons":[{"src":"data:,"}]},` +
				`{"type":"resource","resource":{"uri":"x:y","text":"\u0000","_meta":{"k":1}},"_meta":{"l":2}},{"type":"resource","resource":{"uri":"x:z","blob":"aGk="}},` +
				`{"type":"tool_use","of":"tomorrow"}],"isError":false}`},
			{came: `{"content":[],"_meta":{"theirs/one":{"n":1.0},"progressToken":"p"}}`, meta: `"theirs/one":{"n":1.0},"progressToken":"p"`},
			{
				came: `{"content":[],"_meta":{"counterfoil/receipt":"forged","theirs":1,"Counterfoil/outcome":"forged","counter\u0066oil/x":1,"io.modelcontextprotocol/serverInfo":{}},"counterfoil/receipt":"x"}`,
				kept: `{"content":[],"_meta":{"theirs":1}}`, meta: `"theirs":1`,
			},
			{came: `{"content":[],"ttlMs":5,"cacheScope":"public","x":"` + strings.Repeat("\\u00e9", 50_000) + `"}`, kept: `{"content":[],"x":"` + strings.Repeat("\\u00e9", 50_000) + `"}`},
		} {
			kept := c.kept
			if kept == "" {
				kept = c.came
			}
			if modern { // said by a modern server, and no business of the caller's
				u.answer(`{"resultType":"complete",` + c.came[1:])
			} else {
				u.answer(c.came)
			}
			key := keyed(fmt.Sprint(i))
			a := h.post(callBody("echo", "{}", key))
			claims := h.claims(a)
			if claims.Result == nil || claims.Result.SHA256 != canon.SHA256Hex([]byte(kept)) || claims.Result.Bytes != int64(len(kept)) {
				t.Errorf("%.300s: the receipt hashes other bytes: %+v", c.came, claims.Result)
			}
			ours := `"counterfoil/operation_id":`
			_, rest, _ := strings.Cut(string(a.result), ours)
			rest, _, _ = strings.Cut(rest, `}`)
			spliced := `{"_meta":{` + ours + rest + `},` + kept[1:]
			if c.meta != "" {
				spliced = strings.Replace(kept, c.meta, c.meta+`,`+ours+rest, 1)
			}
			if got := string(a.result); got != spliced {
				t.Errorf("answered\n%.600s\nwant\n%.600s", got, spliced)
			}
			again := h.post(callBody("echo", "{}", key))
			if again.body != a.body {
				t.Errorf("%.300s: the repeat is\n%.300s", c.came, again.body)
			}
			modernly := h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"mcpContext":{`+key+`},"_meta":{`+version+`,`+caps+`}}}`,
				"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "echo")
			if !strings.HasPrefix(string(modernly.result), `{"resultType":"complete",`) || !strings.Contains(modernly.body, `"io.modelcontextprotocol/serverInfo":{"name":"counterfoil"`) {
				t.Errorf("%.300s: a modern caller gets\n%.300s", c.came, modernly.body)
			}
		}
	})
}

func TestResultsUpToTheLimit(t *testing.T) {
	t.Parallel()
	const most = 200_000
	eras(t, func(t *testing.T, modern bool) {
		u := newPlainTool(t, modern, defined("up", ""))
		h := newHouse(t, u.of(gateway.Tool{Name: "echo", UpstreamTool: "up", Price: price, MaxResponseBytes: most}))
		// The limit is of the message that comes; its id has one digit or two.
		message := func(size, id int) string {
			body := `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","content":[],"x":"`
			return body + strings.Repeat("x", size-len(body)-len(`"}}`)-len(fmt.Sprint(id))+len("ID")) + `"}}`
		}
		h.post(callBody("echo", "{}", keyed("first")))
		id := 0
		_, _ = fmt.Sscan(u.sent()[0].id(), &id)
		u.answer(message(most, id+1))
		a := h.post(callBody("echo", "{}", keyed("at the limit")))
		if a.text("counterfoil/outcome") != "succeeded" || len(a.body) < most-100 {
			t.Errorf("at the limit: %.300s (%d bytes)", a.body, len(a.body))
		}
		u.answer(message(most+1, id+2))
		a = h.post(callBody("echo", "{}", keyed("over it")))
		if a.text("counterfoil/outcome") != "delivery_uncertain" || a.text("counterfoil/reason") != "response_rejected" || a.meta["counterfoil/credits_charged"] != float64(price) {
			t.Errorf("one byte over it: %.300s", a.body)
		}
		if again := h.post(callBody("echo", "{}", keyed("over it"))); again.body != a.body || len(u.sent()) != 3 {
			t.Errorf("the repeat: %.300s, %d calls", again.body, len(u.sent()))
		}
	})
}

func TestDefinitionsAreListedAsTheyCame(t *testing.T) {
	t.Parallel()
	const entry = `{ "title":"Pay \u00e9é <b>","na\u006de" : "%s",` + "\n\t" + `"inputSchema":{"type":"object","properties":{"z":{"type":"number","default":1.50,"maximum":1e3},"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"enum":[null,"\/"]}},"required":["z"],"$schema":"https://json-schema.org/draft/2020-12/schema"},` +
		`"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}}},"annotations":{"readOnlyHint":false,"destructiveHint":true,"title":"T"},` +
		`"icons":[{"src":"data:image/png;base64,aGk=","mimeType":"image/png","sizes":["48x48"],"theme":"dark"}],"execution":{"taskSupport":"optional"},"_meta":{"vendor/x":[1.0]},"x-future":{"k":1E2} }`
	eras(t, func(t *testing.T, modern bool) {
		u := newPlainTool(t, modern, fmt.Sprintf(entry, "up"))
		h := newHouse(t, u.of(gateway.Tool{Name: "echo", UpstreamTool: "up", Price: 1}))
		want := fmt.Sprintf(entry, "echo")
		for _, a := range []answer{h.post(plainList), h.post(fmt.Sprintf(modernList, ""), modernly()...)} {
			if !strings.Contains(a.body, `"tools":[`+want+`,`) {
				t.Errorf("listed as\n%.1500s\nwant\n%s", a.body, want)
			}
		}
		canonical, err := canon.Canonical([]byte(want))
		if err != nil {
			t.Fatal(err)
		}
		tool := h.toolNamed("echo")
		if tool.SHA256 != canon.SHA256Hex(canonical) || h.kept(tool.SHA256) != string(canonical) {
			t.Errorf("hashed and kept is\n%s\nwant\n%s", h.kept(tool.SHA256), canonical)
		}
	})
}

// A real server with every type of content says the same through the gateway as without it.
func TestEveryTypeOfContentOfARealServer(t *testing.T) {
	t.Parallel()
	server := sdk.NewServer(&sdk.Implementation{Name: "real", Version: "1"}, nil)
	server.AddTool(&sdk.Tool{
		Name: "all", Title: "All", Description: "every type", InputSchema: json.RawMessage(`{"type":"object"}`), OutputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		Annotations: &sdk.ToolAnnotations{Title: "All of it", ReadOnlyHint: true}, Icons: []sdk.Icon{{Source: "data:,", MIMEType: "image/png"}},
	}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		size := int64(7)
		return &sdk.CallToolResult{
			Meta: sdk.Meta{"theirs": "kept"}, StructuredContent: json.RawMessage(`{"n":9007199254740993,"echo":` + string(r.Params.Arguments) + `}`),
			Content: []sdk.Content{
				&sdk.TextContent{Text: "<é>", Annotations: &sdk.Annotations{Priority: 0.5}}, &sdk.ImageContent{Data: []byte("i"), MIMEType: "image/png"},
				&sdk.AudioContent{Data: []byte("a"), MIMEType: "audio/wav"}, &sdk.ResourceLink{URI: "file:///x", Name: "x", Size: &size},
				&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "x:t", Text: "t"}}, &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "x:b", Blob: []byte("b")}},
			},
		}, nil
	})
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	t.Cleanup(web.Close)
	h := newHouse(t, func(c *gateway.Config) {
		c.Upstreams = []upstream.Config{{Name: "u", URL: web.URL}}
		c.Tools = []gateway.Tool{{Name: "all", Upstream: "u", Price: 1}}
	})
	h.permit("prm_all", func(p *permits.Permit) { p.Grant.Tools = []string{"all"} })
	h.defaultPermit("prm_all")
	call := callBody("all", `{"a":1.5}`, keyed("k"))
	direct := *h
	direct.base = web.URL
	for name, body := range map[string]string{"call": call, "list": plainList} {
		straight := direct.straight(body)
		through := h.post(body).result
		members := func(raw []byte) map[string]string {
			out := map[string]string{}
			gateway.Members(raw, func(name, value []byte) bool {
				out[string(name)] = string(value)
				return true
			})
			return out
		}
		want, got := members(straight), members(through)
		if name == "call" {
			if !strings.HasPrefix(got["_meta"], `{"theirs":"kept","counterfoil/operation_id"`) || want["_meta"] != `{"theirs":"kept"}` {
				t.Errorf("_meta %s, straight %s", got["_meta"], want["_meta"])
			}
			delete(want, "_meta")
			delete(got, "_meta")
		} else {
			got["tools"] = strings.Replace(got["tools"], strings.TrimSuffix(want["tools"], "]")+",", "", 1)
			if strings.Contains(got["tools"], `"name":"all"`) || !strings.HasPrefix(got["tools"], `{"`) {
				t.Errorf("listed as %s, straight %s", got["tools"], want["tools"])
			}
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" || len(slices.Collect(maps.Keys(want))) < 2 {
			t.Errorf("%s (-straight +through):\n%s", name, diff)
		}
	}
}

// straight asks a server without the gateway.
func (h *house) straight(body string) json.RawMessage {
	h.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, h.base, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := h.plain.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	var m struct{ Result json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		h.t.Fatal(err)
	}
	return m.Result
}
