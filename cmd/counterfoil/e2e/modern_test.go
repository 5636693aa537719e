package e2e_test

import (
	"strings"
	"testing"
)

// modern makes a call into one of the era without sessions, by a client with these capabilities: a body and its headers.
func (c call) modern(capabilities string) (body string, pairs []string) {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + capabilities + `},`
	body = strings.Replace(c.body(), `"params":{`, `"params":{`+meta, 1)
	return body, []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", c.tool}
}

// doModern is do in the era without sessions.
func (x tenant) doModern(t *testing.T, c call, pairs ...string) answer {
	t.Helper()
	body, own := c.modern("{}")
	return x.s.post(t, x.key, body, append(own, pairs...)...)
}
