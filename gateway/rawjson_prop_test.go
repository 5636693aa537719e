package gateway_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"counterfoil/gateway"
)

// values draws JSON values of every kind, strings full of what could be taken
// for structure.
func values(depth int) *rapid.Generator[any] {
	text := rapid.StringOf(rapid.RuneFrom([]rune("\"\\{}[]:, \n\tué𝄞")))
	kinds := []*rapid.Generator[any]{
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }),
		rapid.SampledFrom([]any{nil, true, false, 0}),
	}
	if depth > 0 {
		kinds = append(kinds,
			rapid.Map(rapid.SliceOfN(values(depth-1), 0, 3), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(text, values(depth-1), 0, 3), func(m map[string]any) any { return m }))
	}
	return rapid.OneOf(kinds...)
}

func TestMembersFindsWhatAParserFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(rapid.String(), values(3), 0, 5).Draw(t, "object")
		var indented bytes.Buffer
		encoder := json.NewEncoder(&indented)
		encoder.SetEscapeHTML(rapid.Bool().Draw(t, "escape"))
		encoder.SetIndent("", rapid.SampledFrom([]string{"", " ", "\t"}).Draw(t, "indent"))
		if err := encoder.Encode(object); err != nil {
			t.Fatal(err)
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(indented.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		gateway.Members(indented.Bytes(), func(name, value []byte) bool {
			got[string(name)] = value
			return true
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-parser +members):\n%s", indented.Bytes(), diff)
		}
	})
}

// A string of a million escapes must cost what it weighs, and no more.
func TestEscapesAreReadOnce(t *testing.T) {
	t.Parallel()
	const n = 1 << 19
	for _, escape := range []string{`\n`, `\"`, `\\`} {
		body := []byte(`{"a":"` + strings.Repeat(escape, n) + `","b":1}`)
		began := time.Now()
		members := 0
		gateway.Members(body, func(_, _ []byte) bool { members++; return true })
		if members != 2 {
			t.Errorf("%s: %d members", escape, members)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: reading took %v", escape, took)
		}
	}
}

func TestMembersOfWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `[]`, `"{}"`, `{`, `{"a`, `{"a"`, `{"a":`, `{"a":"`, `{"a":[`, `{"a":1`, `{"a":"\`, "null"} {
		gateway.Members([]byte(text), func(_, _ []byte) bool { return true }) // it must only come back
	}
}
