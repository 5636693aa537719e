package mcp_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway"
	"counterfoil/gateway/mcp"
)

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestContextComesFromThreePlaces(t *testing.T) {
	t.Parallel()
	all := `{"wallet_id":"w","permit_id":"p","idempotency_key":"k"}`
	whole := mcp.Context{Wallet: "w", Permit: "p", Key: "k", WalletNamed: true, PermitNamed: true, KeyNamed: true, Source: "context"}
	fromHeader := whole
	fromHeader.Source = "header"
	fromHeaders := headers("Counterfoil-Wallet", "w", "Counterfoil-Permit", "p", "Idempotency-Key", "k")
	for name, c := range map[string]struct {
		params string
		h      http.Header
		want   mcp.Context
	}{
		"none":            {`{}`, nil, mcp.Context{}},
		"mcpContext":      {`{"mcpContext":` + all + `}`, nil, whole},
		"meta":            {`{"_meta":{"counterfoil/context":` + all + `}}`, nil, whole},
		"headers":         {`{}`, fromHeaders, fromHeader},
		"all, agreeing":   {`{"mcpContext":` + all + `,"_meta":{"counterfoil/context":` + all + `}}`, fromHeaders, whole},
		"spread":          {`{"mcpContext":{"wallet_id":"w"},"_meta":{"counterfoil/context":{"permit_id":"p"}}}`, headers("Idempotency-Key", "k"), fromHeader},
		"quoted key":      {`{"mcpContext":{"idempotency_key":"a \"b\" \\"}}`, headers("Idempotency-Key", `"a \"b\" \\"`), mcp.Context{Key: `a "b" \`, KeyNamed: true, Source: "context"}},
		"bare key":        {`{}`, headers("Idempotency-Key", `a"b\`), mcp.Context{Key: `a"b\`, KeyNamed: true, Source: "header"}},
		"blanks kept":     {`{}`, headers("Idempotency-Key", `" a "`), mcp.Context{Key: ` a `, KeyNamed: true, Source: "header"}},
		"repeated, equal": {`{}`, headers("Idempotency-Key", "k", "Idempotency-Key", `"k"`), mcp.Context{Key: "k", KeyNamed: true, Source: "header"}},
		"empty wallet":    {`{"mcpContext":{"wallet_id":""}}`, nil, mcp.Context{WalletNamed: true}},
		"wait":            {`{}`, headers("Prefer", "respond-async, wait=5"), mcp.Context{Wait: 5 * time.Second}},
		"wait too long":   {`{}`, headers("Prefer", "wait=600"), mcp.Context{Wait: time.Minute}},
		"wait unreadable": {`{}`, headers("Prefer", "wait=soon"), mcp.Context{}},
	} {
		if diff := cmp.Diff(c.want, mcp.ReadContext(c.params, c.h)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestContextIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		params string
		h      http.Header
		reason string
	}{
		"wallets differ":         {`{"mcpContext":{"wallet_id":"w"}}`, headers("Counterfoil-Wallet", "v"), "context_conflict"},
		"permits differ":         {`{"mcpContext":{"permit_id":"p"},"_meta":{"counterfoil/context":{"permit_id":"q"}}}`, nil, "context_conflict"},
		"keys differ":            {`{"mcpContext":{"idempotency_key":"k"}}`, headers("Idempotency-Key", "K"), "idempotency_key_conflict"},
		"keys differ in meta":    {`{"mcpContext":{"idempotency_key":"k"},"_meta":{"counterfoil/context":{"idempotency_key":"k "}}}`, nil, "idempotency_key_conflict"},
		"header twice":           {`{}`, headers("Counterfoil-Permit", "p", "Counterfoil-Permit", "q"), "context_conflict"},
		"key header twice":       {`{}`, headers("Idempotency-Key", "p", "Idempotency-Key", "q"), "idempotency_key_conflict"},
		"key number":             {`{"mcpContext":{"idempotency_key":5}}`, nil, "idempotency_key_invalid"},
		"key null":               {`{"mcpContext":{"idempotency_key":null}}`, nil, "idempotency_key_invalid"},
		"key empty":              {`{"mcpContext":{"idempotency_key":""}}`, nil, "idempotency_key_invalid"},
		"key blank":              {`{"mcpContext":{"idempotency_key":" \u2003"}}`, nil, "idempotency_key_invalid"},
		"key control":            {`{"mcpContext":{"idempotency_key":"a\u0007"}}`, nil, "idempotency_key_invalid"},
		"key NUL":                {`{"mcpContext":{"idempotency_key":"a\u0000"}}`, nil, "idempotency_key_invalid"},
		"key long":               {`{"mcpContext":{"idempotency_key":"` + strings.Repeat("k", 129) + `"}}`, nil, "idempotency_key_invalid"},
		"key header empty":       {`{}`, headers("Idempotency-Key", ""), "idempotency_key_invalid"},
		"key header half quoted": {`{}`, headers("Idempotency-Key", `"k`), "idempotency_key_invalid"},
		"key header one quote":   {`{}`, headers("Idempotency-Key", `"`), "idempotency_key_invalid"},
		"key header bad escape":  {`{}`, headers("Idempotency-Key", `"\k"`), "idempotency_key_invalid"},
		"key header open escape": {`{}`, headers("Idempotency-Key", `"k\"`), "idempotency_key_invalid"},
		"key header parameters":  {`{}`, headers("Idempotency-Key", `"k";a="b"`), "idempotency_key_invalid"},
		"key header not UTF-8":   {`{}`, headers("Idempotency-Key", "k\xff"), "idempotency_key_invalid"},
		"wallet number":          {`{"mcpContext":{"wallet_id":1}}`, nil, "arguments_invalid"},
		"permit null":            {`{"mcpContext":{"permit_id":null}}`, nil, "arguments_invalid"},
		"wallet header bad":      {`{}`, headers("Counterfoil-Wallet", "w\xff"), "arguments_invalid"},
		"unknown member":         {`{"mcpContext":{"walletId":"w"}}`, nil, "arguments_invalid"},
		"other case":             {`{"mcpContext":{"Wallet_ID":"w"}}`, nil, "arguments_invalid"},
		"no object":              {`{"mcpContext":"w"}`, nil, "arguments_invalid"},
		"MCPContext":             {`{"MCPContext":{"wallet_id":"w"}}`, nil, "arguments_invalid"},
		"Arguments":              {`{"Arguments":{}}`, nil, "arguments_invalid"},
		"meta in other case":     {`{"_Meta":{}}`, nil, "arguments_invalid"},
		"context in other case":  {`{"_meta":{"Counterfoil/Context":{}}}`, nil, "arguments_invalid"},
		"meta no object":         {`{"_meta":[]}`, nil, "arguments_invalid"},
		"params no object":       {`[]`, nil, "arguments_invalid"},
	} {
		if got := mcp.ReadContext(c.params, c.h); got.Reason != c.reason {
			t.Errorf("%s: got %+v, want %s", name, got, c.reason)
		}
	}
}

const (
	version = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	caps    = `"io.modelcontextprotocol/clientCapabilities":{}`
)

func TestHeadersOfBothEras(t *testing.T) {
	t.Parallel()
	named := `{"name":"pay","_meta":{` + version + `,` + caps + `}}`
	good := func(more ...string) http.Header {
		return headers(append([]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call"}, more...)...)
	}
	params := []gateway.ParamHeader{{Header: "Mcp-Param-To", Pointer: "/to"}, {Header: "Mcp-Param-N", Pointer: "/a/n"}}
	for name, c := range map[string]struct {
		raw, args    string
		h            http.Header
		modern       bool
		status, code int
	}{
		"handshake, no header":      {`{"name":"pay"}`, `{}`, nil, false, 0, 0},
		"handshake 2025-11-25":      {`{"name":"pay"}`, `{}`, headers("MCP-Protocol-Version", "2025-11-25"), false, 0, 0},
		"handshake 2025-06-18":      {`{"name":"pay"}`, `{}`, headers("MCP-Protocol-Version", "2025-06-18"), false, 0, 0},
		"2025-03-26":                {`{"name":"pay"}`, `{}`, headers("MCP-Protocol-Version", "2025-03-26"), false, 400, -32022},
		"modern":                    {named, `{}`, good("Mcp-Name", "pay"), true, 0, 0},
		"no version in the body":    {`{"name":"pay"}`, `{}`, good("Mcp-Name", "pay"), true, 400, -32602},
		"no version header":         {named, `{}`, headers("Mcp-Method", "tools/call", "Mcp-Name", "pay"), true, 400, -32020},
		"version header differs":    {named, `{}`, headers("MCP-Protocol-Version", "2025-11-25"), true, 400, -32020},
		"version header twice":      {named, `{}`, good("MCP-Protocol-Version", "2025-11-25"), true, 400, -32020},
		"a version to come":         {strings.ReplaceAll(named, "2026-07-28", "2027-01-01"), `{}`, headers("MCP-Protocol-Version", "2027-01-01"), true, 400, -32022},
		"version number":            {`{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}`, `{}`, good(), true, 400, -32602},
		"no capabilities":           {`{"name":"pay","_meta":{` + version + `}}`, `{}`, good("Mcp-Name", "pay"), true, 400, -32602},
		"capabilities no object":    {`{"name":"pay","_meta":{` + version + `,"io.modelcontextprotocol/clientCapabilities":[]}}`, `{}`, good("Mcp-Name", "pay"), true, 400, -32602},
		"no method header":          {named, `{}`, headers("MCP-Protocol-Version", "2026-07-28", "Mcp-Name", "pay"), true, 400, -32020},
		"method in other case":      {named, `{}`, headers("MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "Tools/call", "Mcp-Name", "pay"), true, 400, -32020},
		"no name header":            {named, `{}`, good(), true, 400, -32020},
		"name differs":              {named, `{}`, good("Mcp-Name", "Pay"), true, 400, -32020},
		"name in blanks":            {named, `{}`, good("Mcp-Name", " pay "), true, 0, 0},
		"name in base64":            {named, `{}`, good("Mcp-Name", "=?base64?cGF5?="), true, 0, 0},
		"name in bad base64":        {named, `{}`, good("Mcp-Name", "=?base64?cGF5=?="), true, 400, -32020},
		"name raw UTF-8":            {strings.Replace(named, "pay", "é", 1), `{}`, good("Mcp-Name", "é"), true, 0, 0},
		"name of base64 that isn't": {strings.Replace(named, "pay", "=?base64?x", 1), `{}`, good("Mcp-Name", "=?base64?x"), true, 0, 0},
		"params agree":              {named, `{"a":{"n":5},"to":"é"}`, good("Mcp-Name", "pay", "Mcp-Param-To", "=?base64?w6k=?=", "Mcp-Param-N", "5.0"), true, 0, 0},
		"param missing":             {named, `{"to":"x"}`, good("Mcp-Name", "pay"), true, 400, -32020},
		"param differs":             {named, `{"to":"x"}`, good("Mcp-Name", "pay", "Mcp-Param-To", "y"), true, 400, -32020},
		"param of nothing":          {named, `{"to":null}`, good("Mcp-Name", "pay", "Mcp-Param-To", "null"), true, 400, -32020},
		"param null":                {named, `{"to":null}`, good("Mcp-Name", "pay"), true, 0, 0},
		"param number differs":      {named, `{"a":{"n":5}}`, good("Mcp-Name", "pay", "Mcp-Param-N", "6"), true, 400, -32020},
	} {
		modern, status, code := mcp.Headers("tools/call", c.raw, c.args, params, c.h)
		if modern != c.modern || status != c.status || code != c.code {
			t.Errorf("%s: modern %v, HTTP %d, code %d; want %v, %d, %d", name, modern, status, code, c.modern, c.status, c.code)
		}
	}
}
