package canon_test

import (
	"errors"
	"testing"

	"counterfoil/internal/canon"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

type named int64

type target struct {
	Credits int64          `json:"credits"`
	Most    *int64         `json:"most"`
	Small   int32          `json:"small"`
	Count   named          `json:"count"`
	Unsign  uint64         `json:"unsign"`
	Name    string         `json:"name"`
	Tools   []string       `json:"tools"`
	Calls   map[string]int `json:"calls"`
	Raw     jsontext.Value `json:"raw"`
	Inner   *struct {
		On bool `json:"on"`
	} `json:"inner"`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	seven := int64(7)
	for in, want := range map[string]target{
		`{}`: {},
		`{"credits":9007199254740991,"most":7,"small":-5,"name":"x","tools":["a"],"calls":{"b":2}}`: {
			Credits: 1<<53 - 1, Most: &seven, Small: -5, Name: "x", Tools: []string{"a"}, Calls: map[string]int{"b": 2},
		},
		`{"most":null,"inner":null,"credits":3,"count":4}`: {Credits: 3, Count: 4},
		`{"raw":{"a":-0,"b":null}}`:                        {Raw: jsontext.Value(`{"a":-0,"b":null}`)},
		`{"raw":-0,"credits":12,"unsign":1}`:               {Raw: jsontext.Value(`-0`), Credits: 12, Unsign: 1},
	} {
		var got target
		if err := canon.Decode([]byte(in), &got); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", in, diff)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		`{"credits":5.0}`, `{"credits":5e3}`, `{"credits":"5"}`, `{"credits":-0}`, `{"credits":0.0}`, `{"credits":1.5}`,
		`{"credits":9223372036854775808}`, `{"credits":1e400}`, `{"credits":true}`, `{"credits":[5]}`, `{"credits":null}`,
		`{"most":-0}`, `{"most":"7"}`, `{"most":7.0}`, `{"count":-0}`, `{"count":5.0}`, `{"unsign":-0}`, `{"unsign":-1}`,
		`{"small":2147483648}`, `{"calls":{"a":-0}}`, `{"calls":{"a":null}}`, `{"calls":{"a":1.0}}`, `{"calls":null}`,
		`{"Credits":5}`, `{"CREDITS":5}`, `{"credit` + "\u017f" + `":5}`, `{"unknown":1}`, `{"inner":{"off":true}}`,
		`{"inner":{"on":null}}`, `{"name":null}`, `{"name":5}`, `{"tools":null}`, `{"tools":[null]}`, `{"tools":"a"}`,
		`{"credits":1,"credits":2}`, `{"credits":1,"Credits":2}`, `{"credits":1} x`, `{"credits":1}{}`, `null`, `[]`, `"x"`, ``,
		"\xef\xbb\xbf{}",
	} {
		var got target
		if err := canon.Decode([]byte(in), &got); !errors.Is(err, canon.ErrInvalid) {
			t.Errorf("%s: %v, %+v", in, err, got)
		}
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	const doc = ` {"foo":["bar", "baz"],"":0,"a/b":1,"c%d":2,"m~n":8," ":7,"k\"l":6,"\u00e9":9,
		"deep":{"list":[[],[1,{"x":null}],"]"],"s":"}"},"empty":[],"arr":[[ ],5]} `
	for pointer, want := range map[string]string{
		"/foo": `["bar", "baz"]`, "/foo/0": `"bar"`, "/foo/1": `"baz"`, "/": "0", "/a~1b": "1", "/c%d": "2", "/m~0n": "8",
		"/ ": "7", `/k"l`: "6", "/é": "9", "/deep/list/1/1/x": "null", "/deep/list/0": "[]", "/deep/list/2": `"]"`,
		"/deep/s": `"}"`, "/arr/1": "5", "/arr/0": "[ ]",
	} {
		if got, ok := canon.Lookup([]byte(doc), pointer); !ok || string(got) != want {
			t.Errorf("%s: %s %v, want %s", pointer, got, ok, want)
		}
	}
	for _, pointer := range []string{
		"foo", "/Foo", "/nope", "/foo/2", "/foo/-", "/foo/00", "/foo/01", "/foo/+1", "/foo/-1", "/foo/0x0", "/foo/", "/foo/0/0",
		"/m~n", "/m~2n", "/m~", "/a/b", "/empty/0", "/deep/list/0/0", "/deep/list/0/1", "/arr/0/1", "/foo/99999999999999999999", "/foo/1e0",
	} {
		if got, ok := canon.Lookup([]byte(doc), pointer); ok {
			t.Errorf("%s: found %s", pointer, got)
		}
	}
	if got, ok := canon.Lookup([]byte(" 5 "), ""); !ok || string(got) != "5" {
		t.Errorf("whole document: %s %v", got, ok)
	}
	if _, ok := canon.Lookup(nil, ""); ok {
		t.Error("nothing in nothing")
	}
}
