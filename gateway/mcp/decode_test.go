package mcp_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway/mcp"
)

func TestDecodeAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body string
		want mcp.Decoded
	}{
		{`{"jsonrpc":"2.0","id":"a","method":"ping"}`, mcp.Decoded{ID: `"a"`, Method: "ping"}},
		{` {"jsonrpc":"2.0", "id" : 0 ,"method":"ping","params":{ "a":1.10 } } ` + "\n", mcp.Decoded{ID: `0`, Method: "ping", Params: `{ "a":1.10 }`}},
		{`{"method":"p\u0069ng","id":-7,"jsonrpc":"2.0"}`, mcp.Decoded{ID: `-7`, Method: "ping"}},
		{`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, mcp.Decoded{ID: `9007199254740993`, Method: "ping"}},
		{`{"jsonrpc":"2.0","id":12345678901234567890,"method":"ping","params":{}}`, mcp.Decoded{ID: `12345678901234567890`, Method: "ping", Params: "{}"}},
		{`{"jsonrpc":"2.0","id":"\u00e9","method":"ping"}`, mcp.Decoded{ID: `"\u00e9"`, Method: "ping"}},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, mcp.Decoded{Method: "notifications/initialized"}},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, mcp.Decoded{ID: "1"}},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","trace":1}`, mcp.Decoded{ID: "1", Method: "ping"}},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":[0.1,1.10,1e3,1e23,-0.5]}}`, mcp.Decoded{ID: "1", Method: "m", Params: `{"n":[0.1,1.10,1e3,1e23,-0.5]}`}},
	} {
		if diff := cmp.Diff(c.want, mcp.Decode([]byte(c.body))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.body, diff)
		}
	}
}

// refusal is a request with something in its arguments.
func refusal(inner string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":` + inner + `}}`
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const parse, form, strict = -32700, -32600, -31400
	for name, c := range map[string]struct {
		body         string
		status, code int
		id           string
	}{
		"empty":                 {``, 400, parse, ""},
		"not JSON":              {`{"jsonrpc":"2.0","id":1,"method":"ping"`, 400, parse, ""},
		"words":                 {`hello`, 400, parse, ""},
		"BOM":                   {"\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 400, parse, ""},
		"bad UTF-8":             {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", 400, parse, ""},
		"trailing data":         {`{"jsonrpc":"2.0","id":1,"method":"ping"} {}`, 400, parse, ""},
		"trailing garbage":      {`{"jsonrpc":"2.0","id":1,"method":"ping"}x`, 400, parse, ""},
		"NaN":                   {refusal(`{"a":NaN}`), 400, parse, ""},
		"leading zero":          {refusal(`{"a":01}`), 400, parse, ""},
		"batch":                 {`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 400, form, ""},
		"a string":              {`"ping"`, 400, form, ""},
		"null":                  {`null`, 400, form, ""},
		"null id":               {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, 400, form, ""},
		"fractional id":         {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, 400, form, ""},
		"exponent id":           {`{"jsonrpc":"2.0","id":1e3,"method":"ping"}`, 400, form, ""},
		"object id":             {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, 400, form, ""},
		"version":               {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, 400, form, "1"},
		"no version":            {`{"id":1,"method":"ping"}`, 400, form, "1"},
		"no method":             {`{"jsonrpc":"2.0","id":1}`, 400, form, "1"},
		"method number":         {`{"jsonrpc":"2.0","id":1,"method":1}`, 400, form, "1"},
		"Method":                {`{"jsonrpc":"2.0","id":1,"method":"ping","Params":{}}`, 400, form, "1"},
		"two ids":               {`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, 200, strict, ""},
		"duplicate":             {refusal(`{"a":1,"a":1}`), 200, strict, "7"},
		"escaped duplicate":     {refusal(`{"a":1,"\u0061":2}`), 200, strict, "7"},
		"case twins":            {refusal(`{"to":1,"To":2}`), 200, strict, "7"},
		"folded twins":          {refusal(`{"s":1,"ſ":2}`), 200, strict, "7"},
		"lone surrogate":        {refusal(`{"a":"\ud800"}`), 200, strict, "7"},
		"lone surrogate name":   {refusal(`{"\udc00":1}`), 200, strict, "7"},
		"2^53+1":                {refusal(`{"a":9007199254740993}`), 200, strict, "7"},
		"2^60+1":                {refusal(`{"a":1152921504606846977}`), 200, strict, "7"},
		"12345678901234567890":  {refusal(`{"a":12345678901234567890123}`), 200, strict, "7"},
		"1e400":                 {refusal(`{"a":1e400}`), 200, strict, "7"},
		"1e-400":                {refusal(`{"a":1e-400}`), 200, strict, "7"},
		"seventeen digits":      {refusal(`{"a":0.12345678901234567}`), 200, strict, "7"},
		"depth 65":              {refusal(strings.Repeat(`{"a":`, 63) + `1` + strings.Repeat(`}`, 63)), 200, strict, "7"},
		"long id, bad argument": {`{"jsonrpc":"2.0","id":9007199254740993,"method":"m","params":{"a":9007199254740993}}`, 200, strict, "9007199254740993"},
	} {
		got := mcp.Decode([]byte(c.body))
		if got.Status != c.status || got.Code != c.code || got.ID != c.id {
			t.Errorf("%s: got HTTP %d, code %d, id %q; want %d, %d, %q", name, got.Status, got.Code, got.ID, c.status, c.code, c.id)
		}
	}
	if got := mcp.Decode([]byte(refusal(strings.Repeat(`{"a":`, 62) + `1` + strings.Repeat(`}`, 62)))); got.Code != 0 {
		t.Errorf("depth 64 was refused: %+v", got)
	}
}

func FuzzDecode(f *testing.F) {
	seeds := []string{
		`{"jsonrpc":"2.0","id":"a","method":"ping"}`, refusal(`{"a":[1,"x",{"b":null}]}`), `[]`, ``, `{"id":1e3}`, `{"id":9007199254740993}`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"m","params":{"_meta":{"counterfoil/context":{"wallet_id":"w"}}}}`, "\xff", `{"a":"\ud800"}`,
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d := mcp.Decode(body)
		if d.Code == 0 && d.Params != "" && !strings.Contains(string(body), d.Params) {
			t.Errorf("params %q are not bytes of the body", d.Params)
		}
		if d.ID != "" && !strings.Contains(string(body), d.ID) {
			t.Errorf("id %q is not of the body", d.ID)
		}
	})
}
