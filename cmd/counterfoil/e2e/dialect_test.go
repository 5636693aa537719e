package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// dialect is how a client speaks: in which era, and with what beside the call.
type dialect struct {
	modern       bool
	capabilities string // raw object; {}
	meta, params string // more members, raw, each list with a comma before it
}

const (
	metaVersion      = `"io.modelcontextprotocol/protocolVersion"`
	metaCapabilities = `"io.modelcontextprotocol/clientCapabilities"`
)

// say writes a call, and the headers that repeat it in the modern era.
func (d dialect) say(c call) (body string, headers []string) {
	if !d.modern {
		meta := ""
		if d.meta != "" {
			meta = `,"_meta":{` + d.meta[1:] + `}`
		}
		return withParams(c, d.params+meta), nil
	}
	if d.capabilities == "" {
		d.capabilities = "{}"
	}
	meta := fmt.Sprintf(`,"_meta":{%s:"2026-07-28",%s:%s%s}`, metaVersion, metaCapabilities, d.capabilities, d.meta)
	return withParams(c, d.params+meta), []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", c.tool}
}

// withParams adds members to the params of a call.
func withParams(c call, more string) string {
	return strings.TrimSuffix(c.body(), "}}") + more + "}}"
}

// saying makes a call in a dialect.
func (x tenant) saying(t *testing.T, d dialect, c call, headers ...string) answer {
	t.Helper()
	body, own := d.say(c)
	return x.s.post(t, x.key, body, append(own, headers...)...)
}

// trySaying is saying at any gateway, for races.
func (x tenant) trySaying(url string, d dialect, c call) (answer, error) {
	body, headers := d.say(c)
	return x.s.send(context.Background(), x.s.raw, url+"/mcp", x.key, body, headers...)
}
