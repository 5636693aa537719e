package operator_test

import (
	"strings"
	"testing"
)

// each fills the parameters of a documented route.
func each(b *bundle, do func(method, path string)) {
	for _, route := range b.spec.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if strings.HasPrefix(path, "/v1/") {
			do(method, strings.NewReplacer("{id}", "any_1", "{key_id}", "key_1").Replace(path))
		}
	}
}

func TestNobodyComesInWithoutACredential(t *testing.T) {
	t.Parallel()
	b := setup(t)
	each(b, func(method, path string) {
		for _, token := range []string{"", "wrong", "cf_wrong", operatorToken + "x"} {
			a := b.send(t, request{method: method, path: path, token: token})
			if a.status != 401 || a.header.Get("WWW-Authenticate") != `Bearer realm="counterfoil"` {
				t.Errorf("%s %s with %q: %d", method, path, token, a.status)
			}
		}
	})
}

func TestRolesMayDoOneThing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	agentKey := b.world(t, "roles")
	own := map[string]string{"/v1/approvals": approverToken, "/resolve": approverToken, "/reconcile": reconcilerToken}
	each(b, func(method, path string) {
		allowed := operatorToken
		for part, token := range own {
			if strings.Contains(path, part) {
				allowed = token
			}
		}
		reads := method == "GET" && (strings.HasPrefix(path, "/v1/operations") || strings.HasPrefix(path, "/v1/receipts"))
		for _, token := range []string{operatorToken, approverToken, reconcilerToken, agentKey} {
			a := b.send(t, request{method: method, path: path, token: token})
			forbidden := token != allowed && (token != agentKey || !reads) && (token != reconcilerToken || path != "/v1/reconciliations")
			if (a.status == 403 && a.text(t, "reason") == "forbidden") != forbidden {
				t.Errorf("%s %s: status %d for a credential that may: %v", method, path, a.status, !forbidden)
			}
		}
	})
}

func TestAgentReadsItsOwnWalletsOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine, theirs := b.world(t, "mine"), b.world(t, "theirs")
	b.must(t, 201, "POST", "/v1/agents", `{"id":"agt_bare","name":"Without wallets","wallets":[]}`)
	bare := b.must(t, 201, "POST", "/v1/agents/agt_bare/keys", `{}`).text(t, "key")
	op := b.call(t, "mine", "invoice-1")
	for _, path := range []string{
		"/v1/operations/" + op.ID, "/v1/receipts/" + op.ReceiptID, "/v1/receipts/" + op.ReceiptID + "/bundle",
		"/v1/operations?wallet=wal_mine", "/v1/receipts?wallet=wal_mine", "/v1/receipts/export?wallet=wal_mine",
	} {
		if a := b.send(t, request{method: "GET", path: path, token: mine}); a.status != 200 {
			t.Errorf("%s with the wallet's own agent: %d %s", path, a.status, a.raw)
		}
		a := b.send(t, request{method: "GET", path: path, token: theirs})
		if a.status != 404 || a.text(t, "reason") != "not_found" {
			t.Errorf("%s with another wallet's agent: %d %s", path, a.status, a.raw)
		}
		if without := b.send(t, request{method: "GET", path: path, token: bare}); string(without.raw) != string(a.raw) {
			t.Errorf("%s with an agent without wallets: %d %s", path, without.status, without.raw)
		}
		// What is somebody else's must look like what is not there.
		none := b.send(t, request{method: "GET", path: "/v1/operations/op_01890000-0000-7000-8000-000000000000", token: theirs})
		if string(none.raw) != string(a.raw) {
			t.Errorf("%s: %s, but what does not exist: %s", path, a.raw, none.raw)
		}
	}
	for _, path := range []string{"/v1/operations", "/v1/receipts"} {
		if got := b.send(t, request{method: "GET", path: path, token: mine}).items(t, "id"); len(got) != 1 {
			t.Errorf("%s of the own wallet: %v", path, got)
		}
		for _, token := range []string{theirs, bare} {
			if got := b.send(t, request{method: "GET", path: path, token: token}).items(t, "id"); len(got) != 0 {
				t.Errorf("%s shows another's: %v", path, got)
			}
		}
	}
	for _, token := range []string{theirs, bare} {
		if a := b.send(t, request{method: "GET", path: "/v1/receipts/export", token: token}); len(a.raw) != 0 {
			t.Errorf("the export shows another's: %s", a.raw)
		}
	}
}

func TestASecondAgentOfTheWalletDoesNotSeeTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.world(t, "shared")
	b.must(t, 201, "POST", "/v1/agents", `{"id":"agt_second","name":"Second","wallets":["wal_shared"]}`)
	second := b.must(t, 201, "POST", "/v1/agents/agt_second/keys", `{}`).text(t, "key")
	op := b.call(t, "shared", "secret-key")
	path := "/v1/operations/" + op.ID
	if got := b.send(t, request{method: "GET", path: path, token: first}).text(t, "idempotency_key"); got != "secret-key" {
		t.Errorf("its own agent sees the key %q", got)
	}
	a := b.send(t, request{method: "GET", path: path, token: second})
	if a.status != 200 || strings.Contains(string(a.raw), "secret-key") {
		t.Errorf("a second agent sees %d %s", a.status, a.raw)
	}
	if got := b.must(t, 200, "GET", path, "").text(t, "idempotency_key"); got != "secret-key" {
		t.Errorf("the operator sees the key %q", got)
	}
}

func TestWhatIsNotInThisVersionSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, token := range map[string]string{
		"GET /v1/approvals":                approverToken,
		"POST /v1/approvals/apr_1/resolve": approverToken,
	} {
		method, path, _ := strings.Cut(path, " ")
		a := b.send(t, request{method: method, path: path, token: token})
		if a.status != 501 || !strings.Contains(a.text(t, "detail"), "not in this version") || a.text(t, "retry") != "never" {
			t.Errorf("%s %s: %d %s", method, path, a.status, a.raw)
		}
	}
}
