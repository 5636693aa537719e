package gateway_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"counterfoil/gateway"
	"counterfoil/internal/canon"
	"counterfoil/ledger"
)

func TestValidKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a", " a ", "invoice-4417", strings.Repeat("é", 128), "𝄞", "a b", "e\u0301", `"`} {
		if !gateway.ValidKey(key) {
			t.Errorf("%q was refused", key)
		}
	}
	for _, key := range []string{"", " ", "\t", "\u00a0\u2003", "a\nb", "a\x00", "\x7f", "\u0085x", strings.Repeat("é", 129), "\xff", "a\x1b"} {
		if gateway.ValidKey(key) {
			t.Errorf("%q was accepted", key)
		}
	}
}

func TestIdentityName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, known, want string }{
		{`{}`, "", ""},
		{`{"amount":1}`, "", ""},
		{`{"operation_key":1}`, "", "operation_key"},
		{`{"a":[{"b":{"callId":"x"}}]}`, "", "callId"},
		{`{"a":"wallet_id","b":["permit_id"]}`, "", ""},
		{`{"wallet_id":"x"}`, "wallet_id", ""},
		{`{"a":{"_meta":{}}}`, "", "_meta"},
		{`{"platform":"x"}`, "", "platform"},
		{`{"a":{"platform":"x","task_id":1}}`, "", ""},
		{`{"task_id":1}`, "", "task_id"},
		{`{"task_id":1}`, "task_id", ""},
		{`{"a":"\"","mcpContext":1}`, "", "mcpContext"},
		{`{"a":"{\"call_id\":1}"}`, "", ""},
		{`{"CALLID":1,"toolUseIds":1}`, "", ""},
		{`{"a":[[],{"tool_use_id":null}],"b":1}`, "", "tool_use_id"},
	} {
		if err := canon.Check([]byte(c.args)); err != nil {
			t.Fatal(err)
		}
		if got := gateway.IdentityName([]byte(c.args), map[string]bool{c.known: true}); got != c.want {
			t.Errorf("%s: found %q, want %q", c.args, got, c.want)
		}
	}
}

func TestEveryReservedName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"operation_key", "idempotency_key", "callId", "call_id", "tool_use_id", "toolUseId", "_meta", "mcpContext", "permit_id", "wallet_id",
	} {
		for _, args := range []string{`{"` + name + `":1}`, `{"a":{"b":[[{"` + name + `":{}}]]}}`} {
			if got := gateway.IdentityName([]byte(args), nil); got != name {
				t.Errorf("%s: found %q", args, got)
			}
		}
	}
}

func TestRequestHashIsOfTheCanonicalForm(t *testing.T) {
	t.Parallel()
	whole, err := canon.Canonical([]byte(`{"tool":"pay \"<é>\"","arguments":{"b":1.0,"a":["x"]},"wallet":"wal_1","permit":"prm_1","agent":"agt_1"}`))
	if err != nil {
		t.Fatal(err)
	}
	args, err := canon.Canonical([]byte(`{"b":1,"a":["x"]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := gateway.RequestHash(gateway.Request{Agent: &ledger.Agent{ID: "agt_1"}, Wallet: "wal_1", Tool: `pay "<é>"`, Arguments: args}, "prm_1")
	if got != sha256.Sum256(whole) {
		t.Error("the composed hash is not the hash of the canonical object")
	}
}
