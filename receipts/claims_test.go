package receipts_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/permits"
	"counterfoil/receipts"
)

// replaced returns the sample's payload with one part of its text exchanged.
func replaced(t *testing.T, old, with string) []byte {
	t.Helper()
	payload := string(sample().AppendPayload(nil))
	if strings.Count(payload, old) != 1 {
		t.Fatalf("%q is not once in %s", old, payload)
	}
	return []byte(strings.Replace(payload, old, with, 1))
}

// Numbers are those of the negative tests in the format's reference.
func TestParseClaimsRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, old, with string }{
		{"22 duplicate, top", `,"iat":`, `,"iss":"x","iat":`},
		{"22 duplicate, nested", `"credits":{`, `"credits":{"charged":5,`},
		{"23 folded name", `"iss":`, `"ISS":"x","iss":`},
		{"23 folded name alone", `"iss":`, `"Iss":`},
		{"23 long s", `"iss":`, `"iſs":"x","iss":`},
		{"23 kelvin", `"key_source":"context"`, `"key_source":"context","Key_source":"x"`},
		{"24 trailing object", `,"v":1}`, `,"v":1}{}`},
		{"24 trailing garbage", `,"v":1}`, `,"v":1}x`},
		{"24 byte order mark", `{"act":`, "\ufeff" + `{"act":`},
		{"31 bad UTF-8", `"iss":"http`, "\"iss\":\"\xff"},
		{"31 lone surrogate", `"iss":"http`, `"iss":"\ud800`},
		{"33 fraction", `"charged":5`, `"charged":5.0`},
		{"33 exponent", `"charged":5`, `"charged":5e0`},
		{"33 negative", `"charged":5`, `"charged":-5`},
		{"33 negative zero", `"charged":5`, `"charged":-0`},
		{"33 2^53", `"charged":5`, `"charged":9007199254740992`},
		{"33 2^63", `"charged":5`, `"charged":9223372036854775808`},
		{"33 string", `"charged":5`, `"charged":"5"`},
		{"33 leading zero", `"charged":5`, `"charged":05`},
		{"unknown member, top", `,"v":1}`, `,"v":1,"x":1}`},
		{"unknown member, nested", `"credits":{`, `"credits":{"currency":"EUR",`},
		{"missing member", `"iss":"http://127.0.0.1:8080",`, ``},
		{"missing nested member", `,"charged":5`, ``},
		{"missing result", `,"res":{"bytes":99,"sha256":"` + hash("e") + `"}`, ``},
		{"missing ledger", `,"ledger":{"entry":"txn_01"}`, ``},
		{"null for an absent reason", `,"outcome":`, `,"reason":null,"outcome":`},
		{"null for a number", `"charged":5`, `"charged":null`},
		{"empty ledger", `{"entry":"txn_01"}`, `{}`},
		{"empty reason", `,"outcome":`, `,"reason":"","outcome":`},
		{"scrubbed false", `"bytes":99`, `"bytes":99,"scrubbed":false`},
		{"unknown outcome", `"outcome":"succeeded"`, `"outcome":"fine"`},
		{"unknown reason", `"outcome":"succeeded"`, `"outcome":"failed","reason":"because"`},
		{"hash in capitals", hash("c"), hash("C")},
		{"short hash", hash("c"), hash("c")[1:]},
		{"prev absent after 1", hash("f"), ``},
		{"prev at 1", `"seq":2`, `"seq":1`},
		{"number 0", `"seq":2`, `"seq":0`},
		{"id without prefix", `"rcp_01"`, `"01"`},
		{"empty issuer", `"http://127.0.0.1:8080"`, `""`},
		{"empty detail", `,"iat":`, `,"detail":{},"iat":`},
		{"null detail", `,"iat":`, `,"detail":null,"iat":`},
		{"detail of another kind", `,"iat":`, `,"detail":"op_00","iat":`},
		{"detail without remaining", `,"iat":`, `,"detail":{"limit":1,"needed":1},"iat":`},
		{"detail of both shapes", `,"iat":`, `,"detail":{"limit":1,"needed":1,"operation_id":"op_00","remaining":1},"iat":`},
		{"detail of both shapes, zero", `,"iat":`, `,"detail":{"limit":0,"needed":0,"operation_id":"op_00","remaining":0},"iat":`},
		{"detail of both shapes, no operation", `,"iat":`, `,"detail":{"limit":0,"needed":0,"operation_id":"","remaining":0},"iat":`},
		{"detail with a further member", `,"iat":`, `,"detail":{"operation_id":"op_00","tool":"payout"},"iat":`},
		{"detail, twice an operation", `,"iat":`, `,"detail":{"operation_id":"op_00","operation_id":"op_00"},"iat":`},
		{"first operation empty", `,"iat":`, `,"detail":{"operation_id":""},"iat":`},
		{"first operation null", `,"iat":`, `,"detail":{"operation_id":null},"iat":`},
		{"first operation a number", `,"iat":`, `,"detail":{"operation_id":1},"iat":`},
		{"first operation a receipt", `,"iat":`, `,"detail":{"operation_id":"rcp_00"},"iat":`},
		{"first operation without a name", `,"iat":`, `,"detail":{"operation_id":"op_"},"iat":`},
		{"resolution of another name", `,"req":`, `,"reconciles":{"charged_before":5,"evidence_sha256":"` + hash("1") + `","jti":"rcp_00","resolution":"maybe"},"req":`},
		{"evidence in capitals", `,"req":`, `,"reconciles":{"charged_before":5,"evidence_sha256":"` + hash("A") + `","jti":"rcp_00","resolution":"delivered"},"req":`},
		{"reconciles without charged_before", `,"req":`, `,"reconciles":{"evidence_sha256":"` + hash("1") + `","jti":"rcp_00","resolution":"delivered"},"req":`},
		{"reconciles nothing", `,"req":`, `,"reconciles":null,"req":`},
		{"reconciles with the evidence", `,"req":`, `,"reconciles":{"charged_before":5,"evidence":"seen","evidence_sha256":"` + hash("1") + `","jti":"rcp_00","resolution":"delivered"},"req":`},
		{"first operation with a blank", `,"iat":`, `,"detail":{"operation_id":"op_0 0"},"iat":`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			payload := replaced(t, tc.old, tc.with)
			if c, err := receipts.ParseClaims(payload); !errors.Is(err, receipts.ErrClaims) {
				t.Errorf("ParseClaims(%s) = %v, %v; want ErrClaims", payload, c, err)
			}
		})
	}
}

func TestParseClaimsRefusesOtherValues(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for _, payload := range []string{
		``, ` `, `null`, `[]`, `"receipt"`, `1`, `{}`, `{"v":1}`, deep, `{"v":` + deep + `}`,
	} {
		if _, err := receipts.ParseClaims([]byte(payload)); !errors.Is(err, receipts.ErrClaims) {
			t.Errorf("ParseClaims(%.40s) = %v, want ErrClaims", payload, err)
		}
	}
}

// A newer receipt may look quite different; it is not a wrong one.
func TestParseClaimsTellsAnotherVersion(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{`{"v":2}`, `{"v":2,"act":7}`, string(replaced(t, `"v":1`, `"v":2`))} {
		if _, err := receipts.ParseClaims([]byte(payload)); !errors.Is(err, receipts.ErrVersion) {
			t.Errorf("ParseClaims(%.60s) = %v, want ErrVersion", payload, err)
		}
	}
}

func TestParseClaimsTakesMembersInAnyOrder(t *testing.T) {
	t.Parallel()
	payload := strings.TrimSuffix(string(replaced(t, `"act":{"sub":"agt_1"},`, ``)), "}") + ` , "act": {"sub":"agt_1"} }`
	if _, err := receipts.ParseClaims([]byte(payload)); err != nil {
		t.Error(err)
	}
}

// What was signed once stays readable only as long as it writes the same bytes.
func TestPayloadsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(*receipts.Claims){
		"succeeded": func(*receipts.Claims) {}, "scrubbed": func(c *receipts.Claims) { c.Result.Scrubbed = true },
		"denied": denied, "duplicate": duplicate, "failed": failed, "uncertain": uncertain, "reconciled": reconciled,
	}
	for name, edit := range kinds {
		want, err := os.ReadFile(filepath.Join("testdata", "payloads", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		c := sample()
		edit(c)
		if diff := cmp.Diff(string(want), string(c.AppendPayload(nil))); diff != "" {
			t.Errorf("%s changed (-want +got):\n%s", name, diff)
		}
		if read, err := receipts.ParseClaims(want); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(c, read); diff != "" {
			t.Errorf("%s reads otherwise (-want +got):\n%s", name, diff)
		}
	}
}

func TestReasonsAreTheContractsOnce(t *testing.T) {
	t.Parallel()
	reasons := receipts.Reasons()
	if got, want := len(reasons), 54; got != want {
		t.Errorf("%d reasons, want %d", got, want)
	}
	slices.Sort(reasons)
	if unique := slices.Compact(slices.Clone(reasons)); len(unique) != len(reasons) {
		t.Error("a reason is listed twice")
	}
}

// longest is a receipt of the longest ids and numbers, under a long issuer's URL and
// the longest name of a tool.
func longest() *receipts.Claims {
	id := func(prefix string) string { return prefix + "_" + hash("x") }
	return &receipts.Claims{
		Issuer: "https://" + strings.Repeat("i", 200), IssuedAt: receipts.MaxInteger, ID: id("rcp"), Wallet: id("wall"), Agent: id("agnt"),
		PermitID: id("prmt"), PermitSHA256: hash("a"),
		Operation: id("op"), Tool: strings.Repeat("t", 128), ToolSHA256: hash("b"), KeySource: "claude_code",
		StartedMS: receipts.MaxInteger, EndedMS: receipts.MaxInteger,
		Outcome: receipts.Reconciled, Reason: receipts.ReasonGatewayInterrupted, Authorized: receipts.MaxInteger, Charged: receipts.MaxInteger,
		Value:       &permits.Value{Currency: "USD", Amount: receipts.MaxInteger},
		LedgerEntry: id("txn"), AuditEvent: id("evt"), ArgumentsSHA256: hash("c"), RequestHash: hash("d"),
		Result: &receipts.Result{SHA256: hash("e"), Bytes: receipts.MaxInteger, Scrubbed: true}, Seq: receipts.MaxInteger, Prev: hash("f"),
		Reconciles: &receipts.Reconciles{
			ID: id("rcp"), Resolution: receipts.NotDelivered, EvidenceSHA256: hash("1"), ChargedBefore: receipts.MaxInteger,
		},
	}
}

func TestSigningInputHasALimit(t *testing.T) {
	t.Parallel()
	c := longest()
	if _, err := receipts.SigningInput(hash("k")[:43], c); err != nil {
		t.Errorf("the longest reconciliation does not fit: %v", err)
	}
	duplicate(c)
	c.Reconciles, c.DuplicateOf = nil, "op_"+hash("x")
	if _, err := receipts.SigningInput(hash("k")[:43], c); err != nil {
		t.Errorf("the longest denial of a reference does not fit: %v", err)
	}
	c.Tool = strings.Repeat("x", receipts.MaxSigningInput)
	if _, err := receipts.SigningInput("kid", c); !errors.Is(err, receipts.ErrTooLong) {
		t.Errorf("SigningInput = %v, want ErrTooLong", err)
	}
}
