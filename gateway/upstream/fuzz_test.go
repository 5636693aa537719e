package upstream_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway/upstream"
)

// What is left of a result is JSON, has the tool's members as the tool sent them, and none of ours.
func FuzzUndress(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, paid, `{"resultType":"complete"}`, `{"a":1, "ttlMs":2 ,"b":[{"ttlMs":3}]}`, `{"_meta":{"counterfoil/x":1}}`,
		`{"_meta":{"a":"\\\"","counterfoil\/x":{}},"content":[],"isError":false,"cacheScope":"x"}`, `{"resul\u0074Type":"x","":0}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, result []byte) {
		out := upstream.Undress(result)
		if out == nil {
			return
		}
		if !jsontext.Value(out).IsValid() {
			t.Fatalf("%s became %s", result, out)
		}
		if again := upstream.Undress(out); !bytes.Equal(again, out) {
			t.Fatalf("%s, then %s", out, again)
		}
		var before, after map[string]json.RawMessage
		if json.Unmarshal(result, &before) != nil || json.Unmarshal(out, &after) != nil {
			t.Fatalf("%s became %s", result, out)
		}
		for name := range before {
			if name == "resultType" || name == "ttlMs" || name == "cacheScope" || name == "_meta" || strings.EqualFold(name[:min(len(name), 12)], "counterfoil/") {
				delete(before, name)
			}
		}
		delete(after, "_meta")
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatal(diff)
		}
	})
}

// However it is escaped, a secret does not come through; and where there is none, nothing is touched.
func FuzzScrub(f *testing.F) {
	for _, seed := range []string{
		`{"a":"cfk-1/x"}`, `{"a":"\u0063fk-1\/x"}`, `{"a":"{\"b\":\"\\u0063fk-1\\/x\"}"}`, `{"a":"\\\\u0063fk-1/x"}`, `"\ud83d\ude00cfk-1/x\\"`,
		`["cfk-cfk-1/x1/x"]`, `{"a":"cfk-1","b":"/x"}`,
	} {
		f.Add([]byte(seed))
	}
	const secret = "cfk-1/x"
	c, err := upstream.New(upstream.Config{URL: "http://127.0.0.1:1/"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !jsontext.Value(text).IsValid() {
			return
		}
		clean, scrubbed, ok := upstream.Scrub(c, bytes.Clone(text), upstream.Call{OperationKey: secret, Handle: "op_1"})
		switch {
		case !ok:
			return
		case !scrubbed && !bytes.Equal(clean, text):
			t.Fatalf("%s became %s", text, clean)
		case !jsontext.Value(clean).IsValid():
			t.Fatalf("%s became %s", text, clean)
		}
		var tree any
		if json.Unmarshal(clean, &tree) != nil {
			return // deeper than encoding/json goes
		}
		if plain := flatten(tree); strings.Contains(plain, secret) {
			t.Fatalf("%s became %s", text, clean)
		}
	})
}

// flatten joins every string of a value.
func flatten(tree any) string {
	switch v := tree.(type) {
	case string:
		return v + "\x00"
	case []any:
		var all strings.Builder
		for _, e := range v {
			all.WriteString(flatten(e))
		}
		return all.String()
	case map[string]any:
		var all strings.Builder
		for name, e := range v {
			all.WriteString(name + "\x00" + flatten(e))
		}
		return all.String()
	}
	return ""
}
