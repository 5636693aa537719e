package upstream_test

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

// answerOf runs one call against an upstream that answers with the given result.
func answerOf(t *testing.T, modern bool, config upstream.Config, q upstream.Call, value string) upstream.Answer {
	t.Helper()
	f := newFake(t, modern, func(c net.Conn, id string, _ int) bool { return result(c, id, value) })
	f.sessions = true
	return f.client(config).Call(context.Background(), q)
}

func TestResultBytesAreKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, sent, want string }{
		{"as it is", `{ "z":1152921504606846977, "content" : [{"type":"new","a":1.10}],"a":"\u00e9<&>\/" }`, ""},
		{"big number", `{"content":[],"structuredContent":{"n":12345678901234567890,"e":1E400}}`, ""},
		{"null content", `{"content":null,"isError":null}`, ""},
		{"empty _meta", `{"content":[],"_meta":{}}`, ""},
		{"foreign _meta", `{"content":[],"_meta":{"vendor/x": [1] }}`, ""},
		{"nested names of ours", `{"content":[],"structuredContent":{"resultType":1,"counterfoil/x":2}}`, ""},
		{"only dressing", `{"resultType":"complete"}`, `{}`},
		{
			"dressed", `{"resultType":"complete", "content":[1 ], "ttlMs":5,"x": 1e2,"cacheScope":"private"}`,
			`{"content":[1 ],"x": 1e2}`,
		},
		{"null _meta", `{"content":[],"_meta":null}`, `{"content":[]}`},
		{
			"server info", `{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}},"content":[]}`,
			`{"content":[]}`,
		},
		{
			"forged receipt", `{"content":[],"_meta":{"counterfoil/receipt":"eyJ","v/x":1, "Counterfoil\/outcome":"x"},"counterfoil/x":1}`,
			`{"content":[],"_meta":{"v/x":1}}`,
		},
		{
			"escaped forgery", `{"content":[],"_meta":{"v/x":1 ,"counter\u0066oil/receipt":"eyJ"} }`,
			`{"content":[],"_meta":{"v/x":1} }`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			if want == "" {
				want = tt.sent
			}
			for _, modern := range []bool{false, true} {
				a := answerOf(t, modern, upstream.Config{}, pay(), tt.sent)
				if diff := cmp.Diff(want, string(a.Result)); diff != "" {
					t.Errorf("modern %v: %s/%s %s", modern, a.Outcome, a.Reason, diff)
				}
				if a.Scrubbed {
					t.Error("called scrubbed")
				}
			}
		})
	}
}

func TestSecretsAreScrubbed(t *testing.T) {
	t.Parallel()
	const token, password = `tok+en/"7\Z`, "hunter2!!"
	config := upstream.Config{
		ForwardKeyHeader: "Idempotency-Key",
		Headers: http.Header{
			"Authorization": {"Bearer " + token},
			"X-Other-Auth":  {"none"},
			"X-Tenant-Key":  {"tenant-secret"},
			"Proxy-Authorization": {
				"Basic " + base64.StdEncoding.EncodeToString([]byte("gateway:"+password)),
			},
		},
	}
	unicode := ""
	for _, c := range opKey {
		unicode += `\u00` + string("0123456789abcdef"[c>>4]) + string("0123456789ABCDEF"[c&15])
	}
	doubled := strings.ReplaceAll(unicode, `\`, `\\`)
	for _, tt := range []struct{ name, sent, want string }{
		{"key", `{"content":[{"text":"done under ` + opKey + `."}],"n":12345678901234567890}`, `{"content":[{"text":"done under H."}],"n":12345678901234567890}`},
		{"key twice", `{"a":"` + opKey + opKey + `"}`, `{"a":"HH"}`},
		{"key as a name", `{"a":{"` + opKey + `":1}}`, `{"a":{"H":1}}`},
		{"key in _meta", `{"_meta":{"v/k":"` + opKey + `"}}`, `{"_meta":{"v/k":"H"}}`},
		{"key escaped", `{"a":"\n\u00e9` + unicode + `\\z"}`, `{"a":"\n\u00e9H\\z"}`},
		{"key in JSON in JSON", `{"text":"{\"k\":\"` + opKey + `\"}"}`, `{"text":"{\"k\":\"H\"}"}`},
		{"key escaped in JSON in JSON", `{"text":"{\"k\":\"` + doubled + `\"}\ud83d\ude00"}`, `{"text":"{\"k\":\"H\"}\ud83d\ude00"}`},
		{"token, and its scheme", `{"a":"Bearer tok+en/\"7\\Z"}`, `{"a":"H"}`},
		{"token as .NET writes it", `{"a":"tok\u002Ben\/\u00227\\Z"}`, `{"a":"H"}`},
		{"token in JSON in JSON", `{"a":"{\"t\":\"tok\\u002Ben/\\\"7\\\\Z\"}"}`, `{"a":"{\"t\":\"H\"}"}`},
		{"password", `{"a":"` + password + `"}`, `{"a":"H"}`},
		{"header", `{"a":["tenant-secret","none"]}`, `{"a":["H","none"]}`},
		{"session", `{"a":"session-1"}`, `{"a":"H"}`},
		{"everything", `{"a":"tenant-secret` + opKey + `","b":"` + password + `\u0041"}`, `{"a":"HH","b":"H\u0041"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := answerOf(t, false, config, pay(), tt.sent)
			if diff := cmp.Diff(strings.ReplaceAll(tt.want, "H", handle), string(a.Result)); diff != "" || !a.Scrubbed {
				t.Errorf("%s/%s scrubbed %v: %s", a.Outcome, a.Reason, a.Scrubbed, diff)
			}
		})
	}
}

// A secret that goes up in the arguments goes nowhere else, and is scrubbed like the operation key.
func TestSecretInTheArguments(t *testing.T) {
	t.Parallel()
	f := newFake(t, true, func(c net.Conn, id string, _ int) bool {
		return result(c, id, `{"content":[],"structuredContent":{"of":"private-key-1","text":"{\"k\":\"priv\\u0061te-key-1\"}"}}`)
	})
	c := f.client(upstream.Config{ForwardKeyHeader: "Idempotency-Key"})
	a := c.Call(context.Background(), upstream.Call{Tool: "status", Arguments: []byte(`{"key":"private-key-1"}`), Secret: "private-key-1", Handle: handle})
	if a.Outcome != receipts.Succeeded || !a.Scrubbed || strings.Contains(string(a.Result), "priv") || strings.Count(string(a.Result), handle) != 2 {
		t.Errorf("%s %v %s", a.Outcome, a.Scrubbed, a.Result)
	}
	call := f.last()
	if call.header.Get("Idempotency-Key") != "" || !strings.Contains(call.body, `"arguments":{"key":"private-key-1"}`) {
		t.Errorf("%v %s", call.header, call.body)
	}
}

// Where a secret cannot be taken out of the text, nothing of the text is shown.
func TestSecretInTheStructure(t *testing.T) {
	t.Parallel()
	config := upstream.Config{Headers: http.Header{"X-Pin": {"123456"}}}
	a := answerOf(t, false, config, pay(), `{"content":[],"pin":123456}`)
	if a.Outcome != receipts.Uncertain || a.Reason != receipts.ReasonResponseRejected || a.Result != nil {
		t.Errorf("got %s/%s %s", a.Outcome, a.Reason, a.Result)
	}
}

func TestErrorIsScrubbed(t *testing.T) {
	t.Parallel()
	f := newFake(t, true, func(c net.Conn, id string, _ int) bool {
		return respond(c, 400, "application/json", `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32021,"message":"`+opKey+`","data":{"requiredCapabilities":{"sampling":{}}}}}`)
	})
	a := call(t, f.client(upstream.Config{}))
	want := `{"code":-32021,"message":"` + handle + `","data":{"requiredCapabilities":{"sampling":{}}}}`
	if string(a.Error) != want || !a.Scrubbed || a.Reason != receipts.ReasonUpstreamRejected {
		t.Errorf("%s/%s %v %s", a.Outcome, a.Reason, a.Scrubbed, a.Error)
	}
	if strings.Contains(a.Note, opKey) {
		t.Errorf("note %q", a.Note)
	}
}

func TestActualCost(t *testing.T) {
	t.Parallel()
	cost := func(n int64) *int64 { return &n }
	for literal, want := range map[string]*int64{
		"3": cost(3), "0": cost(0), "9007199254740991": cost(1<<53 - 1), "9007199254740992": nil,
		"-1": nil, "1.5": nil, "3.0": nil, "3e0": nil, `"3"`: nil, "null": nil, "[3]": nil,
	} {
		q := pay()
		q.Actual = "/structuredContent/credits"
		a := answerOf(t, true, upstream.Config{}, q, `{"content":[],"resultType":"complete","structuredContent":{"credits":`+literal+`}}`)
		if diff := cmp.Diff(want, a.Actual); diff != "" {
			t.Errorf("%s: %s", literal, diff)
		}
		q.Actual = "/structuredContent/other"
		if a := answerOf(t, false, upstream.Config{}, q, `{"content":[],"structuredContent":{"credits":3}}`); a.Actual != nil {
			t.Error("a missing cost was read")
		}
	}
}
