package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// badInput are whole bodies that strict decoding refuses. ARGS stands for the members of good arguments.
func badInput() map[string]string {
	call := func(args string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"payout","arguments":{"to":"MARKvendor.example","amount":1` + args + `},"mcpContext":CONTEXT}}`
	}
	number := func(n string) string { return call(`,"n":` + n) }
	deep := func(n int) string { return call(`,"n":` + strings.Repeat("[", n) + strings.Repeat("]", n)) }
	good := call("")
	return map[string]string{
		"empty":                         "",
		"cut short":                     good[:len(good)-1],
		"a byte order mark":             "\ufeff" + good,
		"UTF-16":                        "{\x00\"\x00",
		"bad UTF-8 in a value":          call(",\"n\":\"\xff\""),
		"bad UTF-8 in a name":           call(",\"\xc3\":1"),
		"an overlong form":              call(",\"n\":\"\xc0\xaf\""),
		"a surrogate in UTF-8":          call(",\"n\":\"\xed\xa0\x80\""),
		"a lone surrogate":              call(`,"n":"\ud800"`),
		"a lone surrogate, the low":     call(`,"n":"\udc00x"`),
		"a lone surrogate in a name":    call(`,"\ud800":1`),
		"surrogates in the wrong order": call(`,"n":"\udc00\ud800"`),
		"a control in a text":           call(",\"n\":\"a\nb\""),
		"trailing data":                 good + " x",
		"two values":                    good + good,
		"a NUL at the end":              good + "\x00",
		"a batch":                       "[" + good + "]",
		"a name twice":                  call(`,"amount":1`),
		"a name twice, escaped":         call(`,"amoun\u0074":2`),
		"a name twice, deep":            call(`,"n":{"a":1,"a":1}`),
		"a name in two cases":           call(`,"Amount":2`),
		"a name folded":                 call(`,"s":1,"\u017f":2`),
		"a name folded, Kelvin":         call(`,"k":1,"` + "\u212a" + `":2`),
		"the envelope twice":            strings.Replace(good, `"id":1`, `"id":1,"id":1`, 1),
		"the method twice":              strings.Replace(good, `"id":1`, `"id":1,"Method":"ping"`, 1),
		"the context twice":             strings.Replace(good, `"mcpContext"`, `"mcpContext":CONTEXT,"mcpcontext"`, 1),
		"the context in another case":   strings.Replace(good, `"mcpContext"`, `"McpContext"`, 1),
		"params in another case":        strings.Replace(good, `"params"`, `"Params"`, 1),
		"arguments in another case":     strings.Replace(good, `"arguments"`, `"Arguments"`, 1),
		"depth 65":                      deep(62 + 1),
		"depth 5000":                    deep(5000),
		"2^53+1":                        number("9007199254740993"),
		"2^60+1":                        number("1152921504606846977"),
		"1e400":                         number("1e400"),
		"-1e400":                        number("-1e400"),
		"1e-400":                        number("1e-400"),
		"seventeen digits that change":  number("0.12345678901234567"),
		"a long fraction":               number("1.00000000000000000001"),
		"NaN":                           number("NaN"),
		"a leading zero":                number("01"),
		"a leading plus":                number("+1"),
		"a bare point":                  number(".5"),
		"hex":                           number("0x10"),
		"a comma at the end":            call(","),
		"a comment":                     call("/* */"),
		"single quotes":                 call(`,'n':1`),
		"arguments that are a list":     strings.Replace(good, `{"to":"MARKvendor.example","amount":1}`, `[1]`, 1),
		"arguments that are text":       strings.Replace(good, `{"to":"MARKvendor.example","amount":1}`, `"x"`, 1),
		"arguments that are null":       strings.Replace(good, `{"to":"MARKvendor.example","amount":1}`, `null`, 1),
		"a fractional id":               strings.Replace(good, `"id":1`, `"id":1.5`, 1),
		"a null id":                     strings.Replace(good, `"id":1`, `"id":null`, 1),
		"another JSON-RPC":              strings.Replace(good, `"2.0"`, `"2.1"`, 1),
		"no JSON-RPC":                   strings.Replace(good, `"jsonrpc":"2.0",`, "", 1),
		"a name that is a number":       strings.Replace(good, `"payout"`, `7`, 1),
		"no name":                       strings.Replace(good, `"name":"payout",`, "", 1),
	}
}

// TestBadInput: what strict decoding refuses leaves no trace, and its key is still free.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	fill := func(text string) string {
		named := fmt.Sprintf(`{"wallet_id":%q,"permit_id":%q,"idempotency_key":"k"}`, x.wallet, x.permit)
		return strings.NewReplacer("CONTEXT", named, "MARK", x.marker()).Replace(text)
	}
	before := x.state(t)
	for name, body := range badInput() {
		a := s.post(t, x.key, fill(body))
		if a.refusal == nil || a.reason() != "arguments_invalid" || a.result != nil {
			t.Errorf("%s: want arguments_invalid: %s", name, a)
			continue
		}
		switch a.refusal.Code {
		case -31400, -32602:
			if a.status != http.StatusOK && a.id != nil {
				t.Errorf("%s: HTTP %d: %s", name, a.status, a)
			}
		case -32700, -32600:
			if a.status != http.StatusBadRequest {
				t.Errorf("%s: HTTP %d: %s", name, a.status, a)
			}
		default:
			t.Errorf("%s: code %d: %s", name, a.refusal.Code, a)
		}
		if a.id == nil && a.status == http.StatusOK {
			t.Errorf("%s: HTTP 200 without an id leaves a client waiting", name)
		}
	}
	unchanged(t, "after bad input", before, x.state(t))
	for name, c := range map[string]struct {
		want  int
		body  string
		pairs []string
	}{
		"a body over the limit":       {413, fill(x.payout("k").body()) + strings.Repeat(" ", 1<<20), nil},
		"another media type":          {415, x.payout("k").body(), []string{"Content-Type", "", "Content-Type", "text/plain"}},
		"no media type":               {415, x.payout("k").body(), []string{"Content-Type", ""}},
		"another Origin":              {403, x.payout("k").body(), []string{"Origin", "https://evil.example"}},
		"no Origin that has a name":   {403, x.payout("k").body(), []string{"Origin", "null"}},
		"two credentials":             {401, x.payout("k").body(), []string{"Authorization", "Bearer cf_other"}},
		"no credential":               {401, x.payout("k").body(), []string{"X-API-Key", ""}},
		"an unknown key":              {401, x.payout("k").body(), []string{"X-API-Key", "", "X-API-Key", "cf_" + strings.Repeat("A", 43)}},
		"the operator's token":        {401, x.payout("k").body(), []string{"X-API-Key", "", "Authorization", "Bearer " + operatorToken}},
		"a key in a Basic credential": {401, x.payout("k").body(), []string{"X-API-Key", "", "Authorization", "Basic " + x.key}},
	} {
		a := s.post(t, x.key, c.body, c.pairs...)
		if a.status != c.want || a.result != nil {
			t.Errorf("%s: want HTTP %d: %s", name, c.want, a)
		}
		if c.want == 413 && (a.refusal == nil || a.refusal.Code != -31413 || a.reason() != "request_too_large" || a.id != nil) {
			t.Errorf("%s: %s", name, a)
		}
		if c.want == 401 && a.header.Get("WWW-Authenticate") != `Bearer realm="counterfoil"` {
			t.Errorf("%s: WWW-Authenticate: %q", name, a.header.Get("WWW-Authenticate"))
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		req, err := http.NewRequest(method, s.url+"/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-API-Key", x.key)
		resp, err := s.raw.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
			t.Errorf("%s: HTTP %d, Allow %q", method, resp.StatusCode, resp.Header.Get("Allow"))
		}
	}
	unchanged(t, "after all", before, x.state(t))
	x.succeed(t, x.payout("k"))
}

// TestGoodInput: what only looks bad is taken, and reaches the tool in its canonical form.
func TestGoodInput(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 1000, anything())
	i := 0
	for name, c := range map[string]struct {
		args, want string
		pairs      []string
	}{
		"1e3":                    {`"amount":1e3`, `"amount":1000`, nil},
		"1.0":                    {`"amount":1.0`, `"amount":1`, nil},
		"2^53":                   {`"amount":9007199254740992`, `"amount":9007199254740992`, nil},
		"escapes":                {`"amount":1,"invoice_id":"\u00e9\/\u003c>&"`, `"amount":1,"invoice_id":"é/<>&"`, nil},
		"a pair of surrogates":   {`"amount":1,"invoice_id":"\ud83d\ude00"`, `"amount":1,"invoice_id":"😀"`, nil},
		"a media type with more": {`"amount":2`, `"amount":2`, []string{"Content-Type", "", "Content-Type", "Application/JSON; charset=utf-8"}},
		"its own Origin":         {`"amount":3`, `"amount":3`, []string{"Origin", s.url}},
		"both credentials":       {`"amount":4`, `"amount":4`, []string{"Authorization", "Bearer " + x.key}},
	} {
		i++
		call := x.payout(fmt.Sprintf(" Ключ %d ", i))
		call.args = fmt.Sprintf(`{"to":"%d%svendor.example",%s}`, i, x.marker(), c.args)
		a := s.post(t, x.key, call.body(), c.pairs...)
		if a.meta.Outcome != "succeeded" {
			t.Errorf("%s: %s", name, a)
			continue
		}
		effects := s.tool.effects(t, fmt.Sprintf(`"%d%s`, i, x.marker()))
		if len(effects) != 1 || !strings.Contains(string(effects[0].Arguments), c.want) {
			t.Errorf("%s: the tool got %s", name, effects)
		}
		if got := s.receipt(t, a).Req.SHA256; len(effects) == 1 && got != sum(effects[0].Arguments) {
			t.Errorf("%s: the receipt's hash is not of what was sent", name)
		}
	}
	// Depth 64, and fractions that stay what they are: the tool itself refuses them, so nothing is charged.
	before := x.state(t)
	for j, more := range []string{strings.Repeat("[", 61) + strings.Repeat("]", 61), "0.1", "1.10", "1e23"} {
		call := x.payout(fmt.Sprintf("refused %d", j))
		call.args = strings.TrimSuffix(x.payoutArgs(), "}") + `,"n":` + more + "}"
		if a := x.do(t, call); a.meta.Outcome != "failed" || a.meta.Reason != "upstream_rejected" || *a.meta.Charged != 0 || s.receipt(t, a).Ledger != nil {
			t.Errorf("%s: %s", more, a)
		}
	}
	after := x.state(t)
	before.Receipts, before.Operations = after.Receipts, after.Operations
	unchanged(t, "after refusals by the tool", before, after)
}

// TestStrictOperatorAPI: credits are integer literals, members are known, and nothing is stored otherwise.
func TestStrictOperatorAPI(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	before := x.state(t)
	for _, credits := range []string{"5.0", "5e3", `"5"`, "-5", "-0", "0", "null", "9007199254740992", "9007199254740993", "1e400", "true", "[5]"} {
		for _, body := range []string{`{"credits":%s,"reference":"r"}`, `{"reference":"r","credits":1,"Credits":%s}`} {
			p := s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/deposits", fmt.Sprintf(body, credits), http.StatusBadRequest)
			if p["reason"] != "invalid_request" {
				t.Errorf("%s: %v", credits, p)
			}
		}
	}
	for _, body := range []string{"", "{}", "[]", `{"credits":5}`, `{"reference":"r"}`, `{"credits":5,"reference":"r","extra":1}`, `{"credits":5,"reference":"r"} x`, "\ufeff{}", `{"credits":5,"credits":5,"reference":"r"}`} {
		s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/deposits", body, http.StatusBadRequest)
	}
	// The total of a wallet is an integer of the same range.
	s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/deposits", object{"credits": int64(9007199254740991), "reference": "too much"}, http.StatusConflict)
	unchanged(t, "after bad deposits", before, x.state(t))

	deposit := object{"credits": 7, "reference": "twice"}
	first := s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/deposits", deposit, http.StatusCreated)
	again := s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/deposits", deposit, http.StatusCreated)
	if first.text(t, "transfer_id") != again.text(t, "transfer_id") || x.state(t).Balance != 107 {
		t.Errorf("the same reference again: %v, %v", first, again)
	}
	deposit["credits"] = 8
	s.operator(t, http.MethodPost, "/v1/wallets/"+x.wallet+"/deposits", deposit, http.StatusConflict)

	for _, token := range []string{x.key, approverToken, reconcilerToken, "wrong", ""} {
		want := http.StatusForbidden
		if token == "wrong" || token == "" {
			want = http.StatusUnauthorized
		}
		for _, path := range []string{"/v1/wallets", "/v1/permits", "/v1/agents"} {
			if status, data := s.ask(t, s.url, token, http.MethodPost, path, object{"name": "x"}); status != want {
				t.Errorf("POST %s with %.8s: %d %s", path, token, status, data)
			}
		}
	}
}
