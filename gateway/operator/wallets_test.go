package operator_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"counterfoil/gateway/operator"
	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/receipts"
)

func TestCreditsAreIntegerLiterals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(t, 201, "POST", "/v1/wallets", `{"id":"wal_a","name":"A"}`)
	for _, credits := range []string{"5.0", "5e3", `"5"`, "-5", "-0", "0", "9007199254740992", "9223372036854775808", "1e400", "null", "true", "[5]"} {
		a := b.send(t, request{method: "POST", path: "/v1/wallets/wal_a/deposits", token: operatorToken, body: `{"credits":` + credits + `,"reference":"r"}`})
		if a.status != 400 || a.text(t, "reason") != "invalid_request" {
			t.Errorf("%s: %d %s", credits, a.status, a.raw)
		}
	}
	if got := b.must(t, 200, "GET", "/v1/wallets/wal_a", "").number(t, "balance"); got != 0 {
		t.Errorf("balance %d after refused deposits", got)
	}
}

func TestDepositIsMadeOnceForItsReference(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(t, 201, "POST", "/v1/wallets", `{"id":"wal_a","name":"A"}`)
	path := "/v1/wallets/wal_a/deposits"
	first := b.must(t, 201, "POST", path, `{"credits":100,"reference":"bank-1"}`)
	b.must(t, 201, "POST", path, `{"credits":11,"reference":"bank-2"}`)
	again := b.must(t, 201, "POST", path, `{"reference":"bank-1","credits":100}`)
	if diff := cmp.Diff(string(first.raw), string(again.raw)); diff != "" {
		t.Errorf("the same reference is answered otherwise:\n%s", diff)
	}
	if got := first.number(t, "balance"); got != 100 {
		t.Errorf("balance %d in the answer", got)
	}
	b.refused(t, 409, "conflict", "POST", path, `{"credits":101,"reference":"bank-1"}`)
	b.refused(t, 404, "not_found", "POST", "/v1/wallets/wal_none/deposits", `{"credits":1,"reference":"r"}`)
	b.refused(t, 409, "conflict", "POST", path, `{"credits":9007199254740991,"reference":"bank-3"}`)
	w := b.must(t, 200, "GET", "/v1/wallets/wal_a", "")
	if w.number(t, "balance") != 111 || w.number(t, "available") != 111 || w.number(t, "held") != 0 {
		t.Errorf("wallet %s", w.raw)
	}
	transfers := b.must(t, 200, "GET", "/v1/wallets/wal_a/transfers", "")
	if got := transfers.items(t, "reference"); !cmp.Equal(got, []string{"bank-1", "bank-2"}) {
		t.Errorf("transfers %v", got)
	}
	b.refused(t, 404, "not_found", "GET", "/v1/wallets/wal_none/transfers", "")
}

func TestRacingDepositsOfOneReferencePayOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(t, 201, "POST", "/v1/wallets", `{"id":"wal_a","name":"A"}`)
	bodies := make([]string, 20)
	var all sync.WaitGroup
	for i := range bodies {
		all.Go(func() {
			a := b.send(t, request{method: "POST", path: "/v1/wallets/wal_a/deposits", token: operatorToken, body: `{"credits":7,"reference":"race"}`})
			bodies[i] = fmt.Sprint(a.status, string(a.raw))
		})
	}
	all.Wait()
	for _, body := range bodies {
		if body != bodies[0] || !strings.HasPrefix(body, "201") {
			t.Errorf("answers differ: %s and %s", bodies[0], body)
		}
	}
	if got := b.must(t, 200, "GET", "/v1/wallets/wal_a", "").number(t, "balance"); got != 7 {
		t.Errorf("balance %d", got)
	}
}

func TestFrozenWalletAdmitsNoCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "ice")
	if a := b.must(t, 200, "POST", "/v1/wallets/wal_ice/freeze", `{"note":"audit"}`); a.at("frozen") != true {
		t.Errorf("%s", a.raw)
	}
	b.must(t, 200, "POST", "/v1/wallets/wal_ice/freeze", "")
	if c := b.claim(t, "ice", "k1"); c.Denied == nil || c.Denied.Reason != receipts.ReasonWalletFrozen {
		t.Errorf("a call of a frozen wallet: %+v", c)
	}
	if a := b.must(t, 200, "POST", "/v1/wallets/wal_ice/unfreeze", ""); a.at("frozen") != false {
		t.Errorf("%s", a.raw)
	}
	if c := b.claim(t, "ice", "k2"); c.Granted == nil {
		t.Errorf("a call after the thaw: %+v", c)
	}
	w := b.must(t, 200, "GET", "/v1/wallets/wal_ice", "")
	if w.number(t, "held") != 5 || w.number(t, "available") != 95 || w.number(t, "balance") != 100 {
		t.Errorf("with one open hold: %s", w.raw)
	}
	b.refused(t, 404, "not_found", "POST", "/v1/wallets/wal_none/freeze", "")
	var acts []string
	for _, act := range b.must(t, 200, "GET", "/v1/audit", "").items(t, "action") {
		if strings.HasSuffix(act, "frozen") {
			acts = append(acts, act)
		}
	}
	if diff := cmp.Diff([]string{"wallet.frozen", "wallet.unfrozen"}, acts); diff != "" {
		t.Errorf("what changed nothing is no event:\n%s", diff)
	}
}

func TestStatementAddsUpAndIsSigned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "sum")
	for i := range 4 {
		b.call(t, "sum", fmt.Sprint("k", i))
	}
	b.must(t, 201, "POST", "/v1/wallets/wal_sum/deposits", `{"credits":30,"reference":"later"}`)
	whole := b.must(t, 200, "GET", "/v1/wallets/wal_sum/statement", "")
	_, _, err := jws.Verify(whole.text(t, "jws"), operator.StatementType, jws.PurposeReceipt, b.keyring.Public(), 8192)
	if err != nil {
		t.Errorf("the statement's signature: %v", err)
	}
	want := map[string]any{
		"v": 1.0, "iss": issuer, "wallet": "wal_sum", "from_seq": 1.0, "to_seq": 4.0, "count": 4.0,
		"opening": 0.0, "deposited": 130.0, "charged_total": 20.0, "closing": 110.0, "checkpoint": nil,
		"outcomes": map[string]any{"succeeded": 4.0, "denied": 0.0, "failed": 0.0, "delivery_uncertain": 0.0, "reconciled": 0.0},
	}
	moving := cmpopts.IgnoreMapEntries(func(name string, _ any) bool {
		return name == "iat" || name == "head" || name == "opened_ms" || name == "closed_ms"
	})
	if diff := cmp.Diff(want, whole.at("statement"), moving); diff != "" {
		t.Error(diff)
	}
	if got, want := whole.text(t, "statement", "head"), b.lastChainHash(t, "wal_sum"); got != want {
		t.Errorf("head %s, want %s", got, want)
	}
	first := b.must(t, 200, "GET", "/v1/wallets/wal_sum/statement?from_seq=1&to_seq=2", "")
	second := b.must(t, 200, "GET", "/v1/wallets/wal_sum/statement?from_seq=3", "")
	if first.number(t, "statement", "closing") != second.number(t, "statement", "opening") {
		t.Errorf("two statements do not join: %s %s", first.raw, second.raw)
	}
	if second.number(t, "statement", "closing") != 110 {
		t.Errorf("closing of %s", second.raw)
	}
	for _, query := range []string{"from_seq=0", "from_seq=3&to_seq=2", "to_seq=5", "from_seq=6", "from_seq=01", "to_seq=x", "seq=1"} {
		b.refused(t, 400, "invalid_request", "GET", "/v1/wallets/wal_sum/statement?"+query, "")
	}
	b.refused(t, 404, "not_found", "GET", "/v1/wallets/wal_none/statement", "")
	b.must(t, 201, "POST", "/v1/wallets", `{"id":"wal_new","name":"New"}`)
	if a := b.must(t, 200, "GET", "/v1/wallets/wal_new/statement", ""); a.number(t, "statement", "count") != 0 {
		t.Errorf("an empty chain: %s", a.raw)
	}
}

func (b *bundle) lastChainHash(t testing.TB, wallet string) string {
	t.Helper()
	list := b.must(t, 200, "GET", "/v1/receipts?wallet="+wallet, "").items(t, "jws")
	token := list[len(list)-1]
	return canon.SHA256Hex([]byte(token[:strings.LastIndex(token, ".")]))
}
