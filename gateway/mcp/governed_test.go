package mcp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway"
	"counterfoil/ledger"
	"counterfoil/permits"
)

func TestGovernedCall(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	a := h.pay("k1")
	if a.status != 200 || a.isError || a.text("counterfoil/outcome") != "succeeded" || a.meta["counterfoil/credits_charged"] != float64(price) {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	for _, absent := range []string{"counterfoil/reason", "counterfoil/retry", "counterfoil/receipt_pending"} {
		if _, there := a.meta[absent]; there {
			t.Errorf("a success has %s", absent)
		}
	}
	c := h.claims(a)
	if c.Wallet != "wal_1" || c.Agent != "agt_1" || c.PermitID != "prm_1" || c.Tool != "pay" || c.KeySource != "context" ||
		c.Charged != price || c.Value == nil || c.Value.Amount != 1200 || c.Seq != 1 || c.LedgerEntry == "" {
		t.Errorf("receipt says %+v", c)
	}
	if got := h.tool.effects; len(got) != 1 || got[0] != `{"amount":1200,"to":"ap@vendor.example"}` {
		t.Errorf("effects: %v", got)
	}
	for _, d := range h.gateway.Tools() {
		if d.Name == "pay" && (d.SHA256 != c.ToolSHA256 || !d.Described) {
			t.Errorf("tool_sha256 is %s, the definition in force has %s (mirrored: %v)", c.ToolSHA256, d.SHA256, d.Described)
		}
	}
	// The receipt hashes the result as stored: the answer without our members.
	stored := strings.Replace(string(a.result), a.metaText(), "", 1)
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(stored))); c.Result.SHA256 != sum || c.Result.Bytes != int64(len(stored)) {
		t.Errorf("res says %+v, the stored bytes have %s, %d", c.Result, sum, len(stored))
	}
	if want := (state{Available: 1_000_000 - price, Receipts: 1, Effects: 1, Transfers: 2}); h.state("wal_1") != want {
		t.Errorf("state %+v, want %+v", h.state("wal_1"), want)
	}
}

// metaText is the text that was spliced into a result without `_meta`.
func (a answer) metaText() string {
	_, after, _ := strings.Cut(string(a.result), `{"_meta":`)
	end := strings.Index(after, `"},`)
	return `"_meta":` + after[:end+len(`"},`)]
}

func TestSameCallTwice(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	first := h.pay("k1")
	if first.header.Get("Idempotent-Replayed") != "" {
		t.Error("the first answer says that it is a replay")
	}
	want := h.state("wal_1")
	same := func(name string, again answer) {
		t.Helper()
		if again.status != 200 || !bytes.Equal(first.result, again.result) {
			t.Errorf("%s: another result:\n%s\n%s", name, first.result, again.body)
		}
		if again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: no Idempotent-Replayed header", name)
		}
		if got := h.state("wal_1"); got != want {
			t.Errorf("%s: state is %+v, was %+v", name, got, want)
		}
	}
	same("again", h.pay("k1"))
	same("other order and spelling", h.post(callBody("pay", `{ "amount" : 1.2e3, "\u0074o":"ap@vendor.example" }`, keyed("k1"))))
	same("context in headers", h.post(`{"jsonrpc":"2.0","id":"other","method":"tools/call","params":{"name":"pay","arguments":`+payArgs+`}}`,
		"Idempotency-Key", `"k1"`, "Counterfoil-Wallet", "wal_1", "Counterfoil-Permit", "prm_1"))
	same("context in _meta", h.post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"pay","arguments":`+payArgs+
		`,"_meta":{"counterfoil/context":{"wallet_id":"wal_1","permit_id":"prm_1","idempotency_key":"k1"}}}}`))
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.CreateAgentKey(ctx, "agt_1", sha256.Sum256([]byte("cf_rotated")), nil, nil)
		return err
	})
	same("rotated key", h.pay("k1", "X-API-Key", "cf_rotated"))
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.RevokePermit(ctx, "prm_1", "")
		return err
	})
	same("permit revoked", h.pay("k1"))
	h.permit("prm_new", nil)
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		permit := "prm_new"
		_, err := a.UpdateAgent(ctx, "agt_1", ledger.AgentChange{DefaultPermit: &permit})
		return err
	})
	same("new default permit", h.pay("k1"))
	h.restart(func(c *gateway.Config) { c.Tools = c.Tools[1:] })
	same("restarted, and the tool has left the catalogue", h.pay("k1"))
	if a := h.pay("k2"); a.code != -32602 || a.reason != "tool_unknown" {
		t.Errorf("a new call of a tool that has left: %s", a.body)
	}
}

func TestReplayFromTheOtherEra(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	first := h.pay("k1")
	body := `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"pay","arguments":` + payArgs + `,"mcpContext":{"idempotency_key":"k1"},"_meta":{` + version + `,` + caps + `}}}`
	again := h.post(body, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "pay")
	if again.text("counterfoil/receipt") != first.text("counterfoil/receipt") || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d %s", again.status, again.body)
	}
	if !strings.HasPrefix(string(again.result), `{"resultType":"complete",`) || again.meta["io.modelcontextprotocol/serverInfo"] == nil {
		t.Errorf("the answer is not dressed for its era: %s", again.result)
	}
	if strings.Contains(first.body, "resultType") || strings.Contains(first.body, "serverInfo") {
		t.Errorf("the handshake's answer is dressed for the other era: %s", first.body)
	}
}

func TestUsedKeyIsNoOracle(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.permit("prm_2", nil)
	h.permit("prm_agent2", func(p *permits.Permit) { p.Agent = "agt_2" })
	h.pay("k1")
	before := h.state("wal_1")
	for name, c := range map[string]struct{ body, key string }{
		"another tool":                   {callBody("fail", payArgs, keyed("k1")), keyOne},
		"an unknown tool":                {callBody("nothing", payArgs, keyed("k1")), keyOne},
		"another argument":               {callBody("pay", `{"to":"ap@vendor.example","amount":1201}`, keyed("k1")), keyOne},
		"another permit":                 {callBody("pay", payArgs, keyed("k1")+`,"permit_id":"prm_2"`), keyOne},
		"an unknown permit":              {callBody("pay", payArgs, keyed("k1")+`,"permit_id":"prm_none"`), keyOne},
		"another agent":                  {callBody("pay", payArgs, keyed("k1")+`,"permit_id":"prm_agent2"`), keyTwo},
		"another agent, the same permit": {callBody("pay", payArgs, keyed("k1")+`,"permit_id":"prm_1"`), keyTwo},
	} {
		a := h.post(c.body, "X-API-Key", c.key)
		if a.status != 200 || a.code != -31422 || a.reason != "idempotency_key_reused" || a.retry != "never" {
			t.Errorf("%s: got %d %s", name, a.status, a.body)
		}
		if strings.Contains(a.body, "op_") || strings.Contains(a.body, "paid") {
			t.Errorf("%s: something is revealed: %s", name, a.body)
		}
	}
	// Other wallets know nothing of the key, and other agents nothing of the wallet.
	for _, wallet := range []string{"wal_1", "wal_none", ""} {
		a := h.post(callBody("pay", payArgs, keyed("k1")+`,"wallet_id":"`+wallet+`"`), "X-API-Key", keyOther)
		if a.code != -31403 || a.reason != "wallet_forbidden" {
			t.Errorf("wallet %q of somebody else: %s", wallet, a.body)
		}
	}
	if got := h.state("wal_1"); got != before {
		t.Errorf("state is %+v, was %+v", got, before)
	}
	h.permit("prm_w2", func(p *permits.Permit) { p.Wallet = "wal_2" })
	if a := h.post(callBody("pay", payArgs, keyed("k1")+`,"wallet_id":"wal_2","permit_id":"prm_w2"`)); a.text("counterfoil/outcome") != "succeeded" {
		t.Errorf("the same key in another wallet: %s", a.body)
	}
}

func TestRefusalsHaveNoReceipt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.permit("prm_w2", func(p *permits.Permit) { p.Wallet = "wal_2" })
	h.permit("prm_agent2", func(p *permits.Permit) { p.Agent = "agt_2" })
	plain := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":` + payArgs + `}}`
	before := h.state("wal_1")
	for name, c := range map[string]struct {
		body   string
		pairs  []string
		code   int
		reason string
	}{
		"no key":                 {plain, nil, -31400, "idempotency_key_required"},
		"two harness identities": {strings.Replace(plain, `"name"`, `"_meta":{"callId":"call_1","claudecode/toolUseId":"t"},"name"`, 1), nil, -31400, "identity_ambiguous"},
		"key number":             {callBody("pay", payArgs, `"idempotency_key":7`), nil, -31400, "idempotency_key_invalid"},
		"key blank":              {callBody("pay", payArgs, keyed(" ")), nil, -31400, "idempotency_key_invalid"},
		"keys disagree":          {callBody("pay", payArgs, keyed("a")), []string{"Idempotency-Key", "b"}, -31400, "idempotency_key_conflict"},
		"permits disagree":       {callBody("pay", payArgs, keyed("a")+`,"permit_id":"prm_1"`), []string{"Counterfoil-Permit", "prm_2"}, -31400, "context_conflict"},
		"no wallet":              {callBody("pay", payArgs, keyed("a")), []string{"X-API-Key", keyOther}, -31400, "context_missing"},
		"another's wallet":       {callBody("pay", payArgs, keyed("a")+`,"wallet_id":"wal_x"`), nil, -31403, "wallet_forbidden"},
		"no such wallet":         {callBody("pay", payArgs, keyed("a")+`,"wallet_id":"wal_none"`), nil, -31403, "wallet_forbidden"},
		"no such tool":           {callBody("nothing", payArgs, keyed("a")), nil, -32602, "tool_unknown"},
		"tool in other case":     {callBody("Pay", payArgs, keyed("a")), nil, -32602, "tool_unknown"},
		"no permit":              {callBody("pay", payArgs, keyed("a")), []string{"X-API-Key", keyTwo}, -31400, "permit_required"},
		"no such permit":         {callBody("pay", payArgs, keyed("a")+`,"permit_id":"prm_none"`), nil, -31404, "permit_not_found"},
		"permit with NUL":        {callBody("pay", payArgs, keyed("a")+`,"permit_id":"prm_\u0000"`), nil, -31404, "permit_not_found"},
		"permit empty":           {callBody("pay", payArgs, keyed("a")+`,"permit_id":""`), nil, -31404, "permit_not_found"},
		"another wallet's":       {callBody("pay", payArgs, keyed("a")+`,"permit_id":"prm_w2"`), nil, -31403, "permit_wallet_mismatch"},
		"another agent's":        {callBody("pay", payArgs, keyed("a")+`,"permit_id":"prm_agent2"`), nil, -31403, "permit_agent_mismatch"},
		"identity in arguments":  {callBody("pay", `{"x":[{"idempotency_key":"a"}]}`, keyed("a")), nil, -31400, "identity_in_arguments"},
		"platform at the top":    {callBody("pay", `{"platform":"codex"}`, keyed("a")), nil, -31400, "identity_in_arguments"},
		"arguments no object":    {callBody("pay", `[]`, keyed("a")), nil, -32602, "arguments_invalid"},
		"arguments null":         {callBody("pay", `null`, keyed("a")), nil, -32602, "arguments_invalid"},
		"no name":                {strings.Replace(plain, `"name":"pay",`, "", 1), nil, -32602, "arguments_invalid"},
		"input round":            {strings.Replace(callBody("pay", payArgs, keyed("a")), `"name"`, `"requestState":"s","name"`, 1), nil, -32602, "arguments_invalid"},
	} {
		a := h.post(c.body, c.pairs...)
		if a.status != 200 || a.code != c.code || a.reason != c.reason || a.retry == "" || a.message == "" {
			t.Errorf("%s: got %d %s, want %d %s", name, a.status, a.body, c.code, c.reason)
		}
	}
	if got := h.state("wal_1"); got != before {
		t.Errorf("state is %+v, was %+v", got, before)
	}
}

func TestBadInputIsRefusedBeforeAnythingIsStored(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	before := h.state("wal_1")
	for name, args := range map[string]string{
		"duplicate": `{"a":1,"a":1}`, "escaped duplicate": `{"a":1,"\u0061":1}`, "case twins": `{"a":{"to":1,"TO":1}}`, "Kelvin": `{"k":1,"\u212a":1}`,
		"lone surrogate": `{"a":"\ud800"}`, "swapped surrogates": `{"a":"\udc00\ud800"}`, "9007199254740993": `{"a":9007199254740993}`,
		"1152921504606846977": `{"a":1152921504606846977}`, "1e400": `{"a":1e400}`, "1e-400": `{"a":1e-400}`, "-1e400": `{"a":[-1e400]}`,
		"seventeen digits": `{"a":0.12345678901234567}`, "depth": strings.Repeat(`{"a":`, 63) + "1" + strings.Repeat("}", 63),
		"bad UTF-8": "{\"a\":\"\xff\"}", "control": "{\"a\":\"\x01\"}", "trailing": `{}}`, "NaN": `{"a":NaN}`, "single quotes": `{'a':1}`,
		"comment": `{/**/}`, "trailing comma": `{"a":1,}`, "plus": `{"a":+1}`, "hex": `{"a":0x1}`, "leading zero": `{"a":01}`,
	} {
		a := h.post(callBody("pay", args, keyed("bad-"+name)))
		if a.reason != "arguments_invalid" || a.code == 0 || (a.status != 200 && a.status != 400) {
			t.Errorf("%s: got %d %s", name, a.status, a.body)
		}
	}
	for name, body := range map[string]string{"BOM": "\ufeff" + callBody("pay", "{}", keyed("b")), "trailing": callBody("pay", "{}", keyed("b")) + "null"} {
		if a := h.post(body); a.status != 400 || a.code != -32700 || a.reason != "arguments_invalid" {
			t.Errorf("%s: got %d %s", name, a.status, a.body)
		}
	}
	if got := h.state("wal_1"); got != before {
		t.Errorf("state is %+v, was %+v", got, before)
	}
	for name, args := range map[string]string{"0.1": `{"n":0.1}`, "1.10": `{"n":1.10}`, "1e3": `{"n":1e3}`, "1e23": `{"n":1e23}`, "html": `{"n":"<>&\u2028"}`, "empty": `{}`} {
		if a := h.post(callBody("echo", args, keyed("good-"+name))); a.text("counterfoil/outcome") != "succeeded" {
			t.Errorf("%s: got %d %s", name, a.status, a.body)
		}
	}
	want := map[string]bool{`{"n":0.1}`: true, `{"n":1.1}`: true, `{"n":1000}`: true, `{"n":1e+23}`: true, "{\"n\":\"<>&\u2028\"}": true, `{}`: true}
	got := map[string]bool{}
	for _, e := range h.tool.effects {
		got[e] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what went upstream (-want +got):\n%s", diff)
	}
}

func TestTransportRefusals(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *gateway.Config) { c.MaxBody = 4096 })
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, c := range map[string]struct {
		pairs  []string
		status int
	}{
		"good":               {nil, 200},
		"bearer":             {[]string{"X-API-Key", "", "Authorization", "Bearer " + keyOne}, 200},
		"both, equal":        {[]string{"Authorization", "bearer " + keyOne}, 200},
		"both, different":    {[]string{"Authorization", "Bearer " + keyTwo}, 401},
		"unknown key":        {[]string{"X-API-Key", "cf_nobody"}, 401},
		"operator token":     {[]string{"X-API-Key", "operator-token"}, 401},
		"basic":              {[]string{"X-API-Key", "", "Authorization", "Basic Y2ZfOng="}, 401},
		"charset":            {[]string{"Content-Type", "application/json; charset=utf-8"}, 200},
		"upper case":         {[]string{"Content-Type", "Application/JSON"}, 200},
		"text":               {[]string{"Content-Type", "text/plain"}, 415},
		"no type":            {[]string{"Content-Type", ""}, 415},
		"allowed origin":     {[]string{"Origin", "https://app.test"}, 200},
		"issuer's origin":    {[]string{"Origin", "http://gateway.test"}, 200},
		"local origin":       {[]string{"Origin", "http://localhost:5173"}, 200},
		"foreign origin":     {[]string{"Origin", "https://evil.test"}, 403},
		"origin with port":   {[]string{"Origin", "https://app.test:8443"}, 403},
		"null origin":        {[]string{"Origin", "null"}, 403},
		"origin of a name":   {[]string{"Origin", "app.test"}, 403},
		"look-alike":         {[]string{"Origin", "http://localhost.evil.test"}, 403},
		"rebound host":       {[]string{"Host", "evil.test"}, 403},
		"host of the issuer": {[]string{"Host", "gateway.test:9999"}, 200},
	} {
		a := h.post(ping, c.pairs...)
		if a.status != c.status {
			t.Errorf("%s: got %d %s, want %d", name, a.status, a.body, c.status)
		}
		if a.status == 401 && (a.header.Get("WWW-Authenticate") != `Bearer realm="counterfoil"` || a.reason != "unauthenticated") {
			t.Errorf("%s: %v %s", name, a.header, a.body)
		}
	}
	large := callBody("pay", `{"a":"`+strings.Repeat("x", 4096)+`"}`, keyed("k"))
	if a := h.post(large); a.status != 413 || a.code != -31413 || a.reason != "request_too_large" || strings.Contains(a.body, `"id"`) {
		t.Errorf("large body: %d %s", a.status, a.body)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut} {
		for _, path := range []string{"/mcp", "/mcp/messages"} {
			if resp := h.request(method, path); resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
				t.Errorf("%s %s: %d, Allow %q", method, path, resp.StatusCode, resp.Header.Get("Allow"))
			}
		}
	}
	if strings.Contains(h.log.String(), keyOne) || strings.Contains(h.log.String(), "operator-token") {
		t.Error("a secret is in the log")
	}
}

func (h *house) request(method, path string) *http.Response {
	h.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, h.base+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := h.plain.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	var body bytes.Buffer
	_, _ = body.ReadFrom(resp.Body)
	resp.Body.Close()
	resp.Header.Set("X-Test-Body", body.String())
	return resp
}
