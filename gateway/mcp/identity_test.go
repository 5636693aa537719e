package mcp_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"counterfoil/gateway"
	"counterfoil/gateway/mcp"
	"counterfoil/ledger"
	"counterfoil/permits"
)

func TestIdentityHasExactlyOneSource(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("c", 128)
	enabled := []string{"acme", "hubu"}
	for name, c := range map[string]struct {
		meta         string
		platform, id string
		reason       string
		says         string
	}{
		"codex":                      {meta: `{"callId":"call_Ab3"}`, platform: "codex", id: "call_Ab3"},
		"codex among the rest":       {meta: `{"itemId":"i","threadId":"t","sessionId":"s","progressToken":7,"callId":"call_1","x-codex-turn-metadata":{"cwd":"/home"}}`, platform: "codex", id: "call_1"},
		"claude code":                {meta: `{"claudecode/toolUseId":"toolu_01A","progressToken":1}`, platform: "claude_code", id: "toolu_01A"},
		"own envelope":               {meta: `{"counterfoil/platform-invocation":{"platform":"acme","call_id":"c"}}`, platform: "acme", id: "c"},
		"hubu's envelope":            {meta: `{"hubu.dev/platform-invocation":{"call_id":"c:1/2","platform":"hubu"}}`, platform: "hubu", id: "c:1/2"},
		"every character":            {meta: `{"callId":"AZaz09._:/-"}`, platform: "codex", id: "AZaz09._:/-"},
		"128 characters":             {meta: `{"callId":"` + long + `"}`, platform: "codex", id: long},
		"escaped":                    {meta: `{"call\u0049d":"c\u0061ll"}`, platform: "codex", id: "call"},
		"beside a foreign envelope":  {meta: `{"callId":"c","hubu.dev/platform-invocation":{"platform":"other","call_id":"c"}}`, platform: "codex", id: "c"},
		"beside another's spelling":  {meta: `{"callId":"c","ClaudeCode/ToolUseID":"t"}`, platform: "codex", id: "c"},
		"none":                       {meta: ``, reason: "idempotency_key_required", says: "Codex sends callId, Claude Code sends claudecode/toolUseId"},
		"no members":                 {meta: `{}`, reason: "idempotency_key_required", says: "enabled here: acme, hubu"},
		"session and progress":       {meta: `{"openai/session":"v1/x","progressToken":"p","sessionId":"s","itemId":"i"}`, reason: "idempotency_key_required", says: "do not name a call"},
		"other harnesses":            {meta: `{"io.opengsd/idempotency-key":"k","vscode.requestId":"v"}`, reason: "idempotency_key_required"},
		"CallID of nobody":           {meta: `{"CallID":"c"}`, reason: "idempotency_key_required", says: `a member "CallID"`},
		"platform not enabled":       {meta: `{"counterfoil/platform-invocation":{"platform":"other","call_id":"c"}}`, reason: "idempotency_key_required", says: `the platform "other", which is not enabled`},
		"platform in other case":     {meta: `{"counterfoil/platform-invocation":{"platform":"Acme","call_id":"c"}}`, reason: "idempotency_key_required", says: `"Acme"`},
		"envelope for codex":         {meta: `{"counterfoil/platform-invocation":{"platform":"codex","call_id":"c"}}`, reason: "idempotency_key_required", says: `"codex"`},
		"hostile platform":           {meta: `{"counterfoil/platform-invocation":{"platform":"\u001b[2J` + strings.Repeat("x", 500) + `","call_id":"c"}}`, reason: "idempotency_key_required", says: `"\x1b[2J` + strings.Repeat("x", 60) + `"…`},
		"empty id":                   {meta: `{"callId":""}`, reason: "idempotency_key_invalid", says: "callId must be a string of 1 to 128"},
		"129 characters":             {meta: `{"callId":"` + long + `c"}`, reason: "idempotency_key_invalid"},
		"number":                     {meta: `{"callId":5}`, reason: "idempotency_key_invalid"},
		"null":                       {meta: `{"callId":null}`, reason: "idempotency_key_invalid"},
		"object":                     {meta: `{"claudecode/toolUseId":{}}`, reason: "idempotency_key_invalid", says: "claudecode/toolUseId"},
		"blank":                      {meta: `{"callId":"a b"}`, reason: "idempotency_key_invalid"},
		"control":                    {meta: `{"callId":"a\u001fb"}`, reason: "idempotency_key_invalid"},
		"letter beyond ASCII":        {meta: `{"callId":"\u00e9"}`, reason: "idempotency_key_invalid"},
		"bar":                        {meta: `{"callId":"call_1|fc_2"}`, reason: "idempotency_key_invalid"},
		"envelope of text":           {meta: `{"hubu.dev/platform-invocation":"hubu"}`, reason: "idempotency_key_invalid", says: "hubu.dev/platform-invocation must be an object"},
		"envelope without platform":  {meta: `{"hubu.dev/platform-invocation":{"call_id":"c"}}`, reason: "idempotency_key_invalid", says: "must name its platform"},
		"envelope without id":        {meta: `{"hubu.dev/platform-invocation":{"platform":"hubu"}}`, reason: "idempotency_key_invalid", says: "no good call_id"},
		"envelope, id in other case": {meta: `{"hubu.dev/platform-invocation":{"platform":"hubu","Call_ID":"c"}}`, reason: "idempotency_key_invalid"},
		"envelope with more":         {meta: `{"hubu.dev/platform-invocation":{"platform":"hubu","call_id":"c","session":"s"}}`, reason: "idempotency_key_invalid", says: "platform and call_id only"},
	} {
		got, refusal := mcp.Identify([]byte(c.meta), enabled)
		if want := (mcp.Identity{Platform: c.platform, CallID: c.id}); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		switch {
		case refusal == nil && c.reason != "":
			t.Errorf("%s: accepted", name)
		case refusal != nil && (string(refusal.Reason) != c.reason || !strings.Contains(refusal.Detail, c.says) || !strings.Contains(refusal.Detail, "nothing was charged")):
			t.Errorf("%s: refused as %s: %s", name, refusal.Reason, refusal.Detail)
		case refusal != nil && strings.Contains(refusal.Detail, "\x1b"):
			t.Errorf("%s: a control character is told", name)
		}
	}
}

// Two sources are ambiguous, whichever they are, whatever they say, and however they are written.
func TestTwoIdentitiesAreAmbiguous(t *testing.T) {
	t.Parallel()
	sources := map[string]string{
		"callId": `"same"`, "claudecode/toolUseId": `"same"`,
		"counterfoil/platform-invocation": `{"platform":"acme","call_id":"same"}`, "hubu.dev/platform-invocation": `{"platform":"acme","call_id":"same"}`,
	}
	names := slices.Sorted(maps.Keys(sources))
	pairs := 0
	for i, a := range names {
		for _, b := range names[i+1:] {
			for _, second := range []string{sources[b], `null`} {
				meta := fmt.Sprintf(`{%q:%s,%q:%s}`, a, sources[a], b, second)
				_, refusal := mcp.Identify([]byte(meta), []string{"acme"})
				if refusal == nil || refusal.Reason != "identity_ambiguous" || !strings.Contains(refusal.Detail, a+" and "+b) {
					t.Errorf("%s: %+v", meta, refusal)
				}
				pairs++
			}
		}
	}
	if pairs != 12 {
		t.Errorf("%d pairs were tried", pairs)
	}
}

// metaBody is a call of pay that has this `_meta`, in the handshake era; id is the JSON-RPC id.
func metaBody(id int, args, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"pay","arguments":%s,"_meta":{%s}}}`, id, args, meta)
}

// modernly sends the same call as a client of 2026-07-28 does.
func (h *house) modernly(id int, args, meta string, pairs ...string) answer {
	h.t.Helper()
	return h.post(metaBody(id, args, meta+","+version+","+caps), append(pairs, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "pay")...)
}

// The same call redelivered is the stored answer; a new one that looks the same is a second charge.
func TestAHarnessNamesItsCalls(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *gateway.Config) { c.Platforms = []string{"acme"} })
	for source, meta := range map[string]func(id string) string{
		"codex":       func(id string) string { return `"callId":"` + id + `"` },
		"claude_code": func(id string) string { return `"claudecode/toolUseId":"` + id + `","progressToken":1` },
		"acme": func(id string) string {
			return `"hubu.dev/platform-invocation":{"platform":"acme","call_id":"` + id + `"}`
		},
	} {
		before := h.state("wal_1")
		first := h.post(metaBody(1, payArgs, meta("call_1")))
		if first.text("counterfoil/outcome") != "succeeded" || first.header.Get("Idempotent-Replayed") != "" {
			t.Fatalf("%s: %d %s", source, first.status, first.body)
		}
		if c := h.claims(first); c.KeySource != source {
			t.Errorf("%s: the receipt's key_source is %q", source, c.KeySource)
		}
		for name, again := range map[string]answer{
			"another JSON-RPC id": h.post(metaBody(77, payArgs, meta("call_1"))),
			"another progress":    h.post(metaBody(3, payArgs, meta("call_1")+`,"sessionId":"other","traceparent":"00-1-1-00"`)),
			"the modern era":      h.modernly(4, payArgs, meta("call_1")),
			"a session header":    h.post(metaBody(5, payArgs, meta("call_1")), "Mcp-Session-Id", "s"),
			"its twin envelope":   h.post(metaBody(6, payArgs, strings.Replace(meta("call_1"), "hubu.dev/", "counterfoil/", 1))),
		} {
			if again.header.Get("Idempotent-Replayed") != "true" || again.text("counterfoil/receipt") != first.text("counterfoil/receipt") {
				t.Errorf("%s, redelivered with %s: %d %s", source, name, again.status, again.body)
			}
		}
		if other := h.post(metaBody(8, `{"to":"ap@vendor.example","amount":1201}`, meta("call_1"))); other.reason != "idempotency_key_reused" {
			t.Errorf("%s, other arguments: %d %s", source, other.status, other.body)
		}
		second := h.post(metaBody(1, payArgs, meta("call_2")))
		if second.text("counterfoil/outcome") != "succeeded" || second.text("counterfoil/operation_id") == first.text("counterfoil/operation_id") {
			t.Errorf("%s, a second call: %d %s", source, second.status, second.body)
		}
		after := h.state("wal_1")
		if after.Effects-before.Effects != 2 || before.Available-after.Available != 2*price || after.Receipts-before.Receipts != 2 {
			t.Errorf("%s: from %+v to %+v", source, before, after)
		}
	}
	// The same id of two harnesses is two calls: six effects of three pairs.
	if h.tool.count() != 6 {
		t.Errorf("%d effects", h.tool.count())
	}
	h.clean()
}

func TestAHarnessCallSurvivesRestartRotationAndAnotherGateway(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	first := h.post(metaBody(1, payArgs, `"callId":"call_1"`))
	same := func(what string, a answer) {
		t.Helper()
		if a.header.Get("Idempotent-Replayed") != "true" || a.text("counterfoil/receipt") != first.text("counterfoil/receipt") || h.tool.count() != 1 {
			t.Errorf("%s: %d effects, %d %s", what, h.tool.count(), a.status, a.body)
		}
	}
	installation := h.ledger.Installation()
	h.restart(nil)
	if h.ledger.Installation() != installation {
		t.Errorf("the installation was %s and is %s", installation, h.ledger.Installation())
	}
	same("after a restart", h.post(metaBody(2, payArgs, `"callId":"call_1"`)))
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.CreateAgentKey(ctx, "agt_1", sha256.Sum256([]byte("cf_rotated")), nil, nil)
		return err
	})
	same("under a new API key", h.post(metaBody(3, payArgs, `"callId":"call_1"`), "X-API-Key", "cf_rotated"))
	h.clean()
}

// Whose call it is, and where, is part of its name.
func TestTheSameCallIDElsewhereIsAnotherCall(t *testing.T) {
	t.Parallel()
	one, two := newHouse(t), newHouse(t)
	for _, h := range []*house{one, two} {
		h.permit("prm_2", func(p *permits.Permit) { p.Agent = "agt_2" })
	}
	meta := `"callId":"call_1"`
	answers := []answer{
		one.post(metaBody(1, payArgs, meta)),
		one.post(metaBody(1, payArgs, meta), "X-API-Key", keyTwo, "Counterfoil-Permit", "prm_2"),
		two.post(metaBody(1, payArgs, meta)),
	}
	operations := map[string]bool{}
	for i, a := range answers {
		if a.text("counterfoil/outcome") != "succeeded" || a.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("call %d: %d %s", i, a.status, a.body)
		}
		operations[a.text("counterfoil/operation_id")] = true
	}
	if len(operations) != 3 || one.tool.count() != 2 || two.tool.count() != 1 {
		t.Errorf("%d operations, %d and %d effects", len(operations), one.tool.count(), two.tool.count())
	}
	// An installation is part of the key: the record of one is none of the other's.
	if one.ledger.Installation() == two.ledger.Installation() || one.gateway.HarnessKey("agt_1", "codex", "c") == two.gateway.HarnessKey("agt_1", "codex", "c") {
		t.Error("two installations have the same id")
	}
}

// An explicit key is the key, and what the harness says beside it is not looked at.
func TestAnExplicitKeyWins(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for name, meta := range map[string]string{
		"none": `"a":1`, "one": `"callId":"call_1"`, "two": `"callId":"call_1","claudecode/toolUseId":"t"`, "malformed": `"callId":7`,
	} {
		a := h.post(metaBody(1, payArgs, meta), "Idempotency-Key", "explicit")
		if a.text("counterfoil/outcome") != "succeeded" {
			t.Fatalf("%s: %d %s", name, a.status, a.body)
		}
		if c := h.claims(a); c.KeySource != "header" {
			t.Errorf("%s: key_source %s", name, c.KeySource)
		}
	}
	// Neither can be written as the other: the parts of a harness's key are joined by what no key may hold.
	forged := `"counterfoil/context":{"idempotency_key":"codex\u001f` + h.ledger.Installation() + `\u001fagt_1\u001fcall_1"}`
	if a := h.post(metaBody(1, payArgs, forged)); a.reason != "idempotency_key_invalid" {
		t.Errorf("a forged key: %d %s", a.status, a.body)
	}
	if h.tool.count() != 1 {
		t.Errorf("%d effects", h.tool.count())
	}
}

// What is refused leaves nothing; a name in another case is refused where it is ours to name.
func TestRefusedIdentitiesLeaveNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	before := h.state("wal_1")
	for name, c := range map[string]struct{ meta, reason string }{
		"none":             {`"progressToken":"p"`, "idempotency_key_required"},
		"two":              {`"callId":"a","claudecode/toolUseId":"a"`, "identity_ambiguous"},
		"malformed":        {`"callId":["a"]`, "idempotency_key_invalid"},
		"not enabled":      {`"counterfoil/platform-invocation":{"platform":"acme","call_id":"c"}`, "idempotency_key_required"},
		"ours, other case": {`"Counterfoil/Platform-Invocation":{"platform":"acme","call_id":"c"}`, "arguments_invalid"},
		"case twins":       {`"callId":"a","callid":"b"`, "arguments_invalid"},
		"twice":            {`"callId":"a","callId":"a"`, "arguments_invalid"},
	} {
		for era, a := range map[string]answer{"handshake": h.post(metaBody(1, payArgs, c.meta)), "modern": h.modernly(1, payArgs, c.meta)} {
			if a.reason != c.reason || a.code != -31400 || a.status != 200 || a.retry != "never" {
				t.Errorf("%s, %s: got %d %s, want %s", name, era, a.status, a.body, c.reason)
			}
		}
	}
	if got := h.state("wal_1"); got != before {
		t.Errorf("state is %+v, was %+v", got, before)
	}
}
