package operator_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"counterfoil/ledger"
)

func TestAgentBodies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(t, 201, "POST", "/v1/wallets", `{"id":"wal_a","name":"A"}`)
	b.must(t, 201, "POST", "/v1/wallets", `{"id":"wal_b","name":"B"}`)
	for name, body := range map[string]string{
		"no name":                   `{"wallets":["wal_a"]}`,
		"blank name":                `{"name":"  ","wallets":["wal_a"]}`,
		"no wallets":                `{"name":"x"}`,
		"null wallets":              `{"name":"x","wallets":null}`,
		"bad id":                    `{"id":"Agent 1","name":"x","wallets":[]}`,
		"empty id":                  `{"id":"","name":"x","wallets":[]}`,
		"id with line break":        `{"id":"agt_x\n","name":"x","wallets":[]}`,
		"too long id":               `{"id":"agt_` + strings.Repeat("x", 65) + `","name":"x","wallets":[]}`,
		"unknown member":            `{"name":"x","wallets":[],"wallet":"wal_a"}`,
		"other case":                `{"Name":"x","wallets":[]}`,
		"twice the same wallet":     `{"name":"x","wallets":["wal_a","wal_a"]}`,
		"unknown wallet":            `{"name":"x","wallets":["wal_none"]}`,
		"default not among them":    `{"name":"x","wallets":["wal_a"],"default_wallet_id":"wal_b"}`,
		"duplicate member":          `{"name":"x","name":"y","wallets":[]}`,
		"trailing data":             `{"name":"x","wallets":[]} {}`,
		"an array":                  `[]`,
		"not JSON":                  `{`,
		"invalid UTF-8":             "{\"name\":\"\xff\",\"wallets\":[]}",
		"lone surrogate":            `{"name":"\ud800","wallets":[]}`,
		"NUL, which no store takes": `{"name":"a\u0000b","wallets":[]}`,
	} {
		a := b.send(t, request{method: "POST", path: "/v1/agents", token: operatorToken, body: body})
		if a.status != 400 || a.text(t, "reason") != "invalid_request" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	if got := b.must(t, 200, "GET", "/v1/agents", "").items(t, "id"); len(got) != 0 {
		t.Errorf("a refused body left agents: %v", got)
	}
}

func TestAgentLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(t, 201, "POST", "/v1/wallets", `{"id":"wal_a","name":"A"}`)
	b.must(t, 201, "POST", "/v1/wallets", `{"id":"wal_b","name":"B"}`)
	made := b.must(t, 201, "POST", "/v1/agents", `{"name":"Ops","wallets":["wal_a"],"default_wallet_id":"wal_a","default_permit_id":"prm_later"}`)
	id := made.text(t, "id")
	if !strings.HasPrefix(id, "agt_") {
		t.Errorf("id %s", id)
	}
	path := "/v1/agents/" + id

	b.refused(t, 400, "invalid_request", "PATCH", path, `{"default_wallet_id":"wal_b"}`)
	b.refused(t, 400, "invalid_request", "PATCH", path, `{"default_permit_id":"prm_none"}`)
	b.refused(t, 400, "invalid_request", "PATCH", path, `{"wallets":["wal_none"]}`)
	b.refused(t, 404, "not_found", "PATCH", "/v1/agents/agt_none", `{"wallets":[]}`)
	b.refused(t, 409, "conflict", "POST", "/v1/agents", fmt.Sprintf(`{"id":%q,"name":"again","wallets":[]}`, id))

	got := b.must(t, 200, "PATCH", path, `{"wallets":["wal_b"]}`)
	if diff := cmp.Diff([]any{"wal_b"}, got.at("wallets")); diff != "" {
		t.Error(diff)
	}
	if got.text(t, "default_permit_id") != "prm_later" || got.text(t, "default_wallet_id") != "wal_a" {
		t.Errorf("a change of wallets changed more: %s", got.raw)
	}
	if got := b.must(t, 200, "PATCH", path, `{"default_permit_id":null}`); got.at("default_permit_id") != nil {
		t.Errorf("null did not take the default permit away: %s", got.raw)
	}
	b.must(t, 201, "POST", "/v1/permits", fmt.Sprintf(`{"id":"prm_other","wallet_id":"wal_a","agent_id":%q,"scope":"","expires_at":%q,"grant":{"tools":["balance"],"limits":{"credits":1}}}`,
		id, time.Now().Add(time.Hour).Format(time.RFC3339)))
	b.must(t, 201, "POST", "/v1/agents", `{"id":"agt_other","name":"Other","wallets":[]}`)
	b.refused(t, 400, "invalid_request", "PATCH", "/v1/agents/agt_other", `{"default_permit_id":"prm_other"}`)
	b.must(t, 200, "PATCH", path, `{"default_permit_id":"prm_other"}`)
}

func TestKeysOfAnAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "keys")
	path := "/v1/agents/agt_keys/keys"
	made := b.must(t, 201, "POST", path, `{"roles":["executor"]}`)
	key := made.text(t, "key")
	who, err := b.ledger.AgentByKey(context.Background(), sha256.Sum256([]byte(key)))
	if err != nil || who.ID != "agt_keys" || !who.MayUse("wal_keys") || who.MayUse("wal_other") {
		t.Fatalf("the key is of %+v, %v", who, err)
	}
	if diff := cmp.Diff([]string{"executor"}, who.Roles); diff != "" {
		t.Error(diff)
	}
	for _, a := range []answer{b.must(t, 200, "GET", "/v1/agents/agt_keys", ""), b.must(t, 200, "GET", "/v1/agents", ""), b.must(t, 200, "GET", "/v1/audit", "")} {
		if strings.Contains(string(a.raw), key) {
			t.Errorf("a key was shown again: %s", a.raw)
		}
	}
	b.refused(t, 400, "invalid_request", "POST", path, `{"roles":["root"]}`)
	b.refused(t, 400, "invalid_request", "POST", path, `{"expires_at":"tomorrow"}`)
	b.refused(t, 400, "invalid_request", "POST", path, `{"expires_at":"2001-01-01T00:00:00Z"}`)
	b.refused(t, 404, "not_found", "POST", "/v1/agents/agt_none/keys", `{}`)
	b.refused(t, 404, "not_found", "DELETE", path+"/key_none", "")
	b.refused(t, 404, "not_found", "DELETE", "/v1/agents/agt_other/keys/"+made.text(t, "id"), "")

	// Gone at once for the gateway that deleted it, whatever it had kept.
	b.must(t, 204, "DELETE", path+"/"+made.text(t, "id"), "")
	if _, err := b.ledger.AgentByKey(context.Background(), sha256.Sum256([]byte(key))); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a deleted key finds its agent: %v", err)
	}
	if a := b.send(t, request{method: "GET", path: "/v1/operations", token: key}); a.status != 401 {
		t.Errorf("a deleted key is answered %d", a.status)
	}
	b.must(t, 204, "DELETE", path+"/"+made.text(t, "id"), "")
}

func TestAKeyEndsWhenItExpires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "short")
	end := time.Now().Add(1500 * time.Millisecond)
	key := b.must(t, 201, "POST", "/v1/agents/agt_short/keys", fmt.Sprintf(`{"expires_at":%q}`, end.UTC().Format(time.RFC3339Nano))).text(t, "key")
	if a := b.send(t, request{method: "GET", path: "/v1/operations", token: key}); a.status != 200 {
		t.Fatalf("a fresh key is answered %d", a.status)
	}
	deadline := time.After(10 * time.Second)
	for {
		if a := b.send(t, request{method: "GET", path: "/v1/operations", token: key}); a.status == 401 {
			break
		}
		select {
		case <-deadline:
			t.Fatal("an expired key is still honoured")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if time.Now().Before(end) {
		t.Error("the key ended too early")
	}
}
