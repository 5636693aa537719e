package gateway_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway"
	"counterfoil/gateway/upstream"
)

func TestMirroredDefinition(t *testing.T) {
	t.Parallel()
	schema := `{"$defs":{"d":{"properties":{"task_id":{"type":"string"}}}},"properties":{"a":{"type":"string","x-mcp-header":"Who"},"b/c":{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}}},"type":"object"}`
	def := `{"description":"\"name\"","inputSchema":` + schema + `,"name":"up"}`
	got, properties, headers, err := gateway.Mirrored("pay.out", upstream.Tool{Name: "up", Definition: []byte(def), InputSchema: []byte(schema)})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"description":"\"name\"","inputSchema":` + schema + `,"name":"pay.out"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("definition (-want +got):\n%s", diff)
	}
	names := slices.Sorted(maps.Keys(properties))
	if diff := cmp.Diff([]string{"a", "b/c", "n", "task_id"}, names); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
	slices.SortFunc(headers, func(a, b gateway.ParamHeader) int { return len(a.Header) - len(b.Header) })
	if diff := cmp.Diff([]gateway.ParamHeader{{"Mcp-Param-N", "/b~1c/n"}, {"Mcp-Param-Who", "/a"}}, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestMirroredRefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{}`, `{"type":"string"}`, `{"type":["object"]}`, `[]`, `null`,
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":1}}}`,
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":""}}}`,
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`,
		`{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"A"}}}`,
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`,
	} {
		if _, _, _, err := gateway.Mirrored("t", upstream.Tool{Definition: []byte(`{"name":"t"}`), InputSchema: []byte(schema)}); err == nil {
			t.Errorf("%s was taken over", schema)
		}
	}
}
