package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"counterfoil/gateway/upstream"
	"counterfoil/internal/canon"
)

// definition is one tool definition and whether it is in force. It is never changed, only replaced.
type definition struct {
	listed     []byte          // as the upstream wrote it, but for the name
	json       []byte          // canonical
	sha256     string          // of json
	properties map[string]bool // every property name anywhere in the input schema
	params     []ParamHeader
	described  bool   // by its upstream, now or before a restart
	withheld   string // why no new call may use it, in words for agents; "": it is in force
}

// ParamHeader is an argument that modern callers repeat in a header.
type ParamHeader struct {
	Header  string // Mcp-Param-…
	Pointer string // RFC 6901, into the arguments
}

// permissive stands in until the upstream has answered: it promises nothing.
func permissive(name string) *definition {
	b := append([]byte(`{"inputSchema":{"type":"object"},"name":`), canon.AppendString(nil, name)...)
	b = append(b, '}')
	return &definition{listed: b, json: b, sha256: canon.SHA256Hex(b)}
}

// remembered is what was in force before a restart, until the upstream has answered.
func remembered(name, text string) (*definition, error) {
	schema, _ := canon.Lookup([]byte(text), "/inputSchema")
	return mirrored(name, upstream.Tool{Name: name, Entry: []byte(text), Definition: []byte(text), InputSchema: schema})
}

// mirrored is the upstream's definition under the name that agents see.
func mirrored(name string, t upstream.Tool) (*definition, error) {
	if t.Fault != nil {
		return nil, t.Fault
	}
	var schema map[string]any
	if err := json.Unmarshal(t.InputSchema, &schema); err != nil {
		return nil, fmt.Errorf("read input schema: %w", err)
	}
	if schema["type"] != "object" {
		return nil, errors.New("the input schema is not of type object")
	}
	params, err := paramHeaders(schema, "", nil)
	if err != nil {
		return nil, err
	}
	def := renamed(t.Definition, name)
	d := &definition{
		listed: renamed(t.Entry, name), json: def, sha256: canon.SHA256Hex(def), properties: map[string]bool{},
		params: params, described: true,
	}
	collectProperties(schema, d.properties)
	return d, nil
}

// renamed changes the value of one member and no other byte, so that a canonical form stays one.
func renamed(def []byte, name string) []byte {
	start, end := find(def, "name")
	out := append(make([]byte, 0, len(def)+len(name)), def[:start]...)
	return append(canon.AppendString(out, name), def[end:]...)
}

// withhold is the same definition, of which no new call may make use. It asks for no headers: a repeat of an
// earlier call is answered, whatever the definition has become.
func (d *definition) withhold(why string) *definition {
	out := *d
	out.withheld, out.params = why, nil
	return &out
}

// collectProperties looks below every keyword, so that a name in a branch of
// anyOf or in $defs counts as the tool's own.
func collectProperties(node any, into map[string]bool) {
	switch n := node.(type) {
	case map[string]any:
		if props, ok := n["properties"].(map[string]any); ok {
			for name := range props {
				into[name] = true
			}
		}
		for _, v := range n {
			collectProperties(v, into)
		}
	case []any:
		for _, v := range n {
			collectProperties(v, into)
		}
	}
}

// paramHeaders finds x-mcp-header, which counts only where it is reached by
// properties alone and stands on a string, integer or boolean.
func paramHeaders(schema map[string]any, at string, out []ParamHeader) ([]ParamHeader, error) {
	props, _ := schema["properties"].(map[string]any)
	for name, v := range props {
		prop, ok := v.(map[string]any)
		if !ok {
			continue
		}
		pointer := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		if h, there := prop["x-mcp-header"]; there {
			header, ok := h.(string)
			kind, _ := prop["type"].(string)
			if !ok || !headerToken(header) || (kind != "string" && kind != "integer" && kind != "boolean") {
				return nil, fmt.Errorf("the x-mcp-header of property %s is not valid", pointer)
			}
			for _, o := range out {
				if strings.EqualFold(o.Header, "Mcp-Param-"+header) {
					return nil, fmt.Errorf("two properties share one x-mcp-header")
				}
			}
			out = append(out, ParamHeader{Header: "Mcp-Param-" + header, Pointer: pointer})
		}
		var err error
		if out, err = paramHeaders(prop, pointer, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func headerToken(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}
