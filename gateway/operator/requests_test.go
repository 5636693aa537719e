package operator_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRepeatOfAKeyAnswersTheFirstAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.must(t, 201, "POST", "/v1/wallets", `{"name":"Ops"}`, "Idempotency-Key", "w-1")
	for _, key := range []string{"w-1", `"w-1"`} {
		again := b.must(t, 201, "POST", "/v1/wallets", "{ \"name\" : \"Ops\" }", "Idempotency-Key", key)
		if string(again.raw) != string(first.raw) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("again: %s %v", again.raw, again.header)
		}
	}
	if first.header.Get("Idempotent-Replayed") != "" {
		t.Error("the first answer says it is a repeat")
	}
	b.refused(t, 422, "idempotency_key_reused", "POST", "/v1/wallets", `{"name":"Other"}`, "Idempotency-Key", "w-1")
	b.refused(t, 422, "idempotency_key_reused", "POST", "/v1/agents", `{"name":"Ops","wallets":[]}`, "Idempotency-Key", "w-1")
	if got := b.must(t, 200, "GET", "/v1/wallets", "").items(t, "id"); len(got) != 1 {
		t.Errorf("wallets %v", got)
	}
	if got := b.must(t, 200, "GET", "/v1/audit", "").items(t, "action"); !cmp.Equal(got, []string{"wallet.created"}) {
		t.Errorf("events %v", got)
	}
}

func TestARefusedRequestIsNotKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.refused(t, 404, "not_found", "POST", "/v1/wallets/wal_a/deposits", `{"credits":5,"reference":"r"}`, "Idempotency-Key", "d-1")
	b.must(t, 201, "POST", "/v1/wallets", `{"id":"wal_a","name":"A"}`)
	b.must(t, 201, "POST", "/v1/wallets/wal_a/deposits", `{"credits":5,"reference":"r"}`, "Idempotency-Key", "d-1")
}

func TestKeysOfRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, key := range []string{"", " ", "\t", strings.Repeat("x", 129), `""`, "a\x01b", "\xff"} {
		b.refused(t, 400, "idempotency_key_invalid", "POST", "/v1/wallets", `{"name":"A"}`, "Idempotency-Key", key)
	}
	b.refused(t, 400, "idempotency_key_conflict", "POST", "/v1/wallets", `{"name":"A"}`, "Idempotency-Key", "a", "Idempotency-Key", "b")
	b.must(t, 201, "POST", "/v1/wallets", `{"name":"A"}`, "Idempotency-Key", "a", "Idempotency-Key", "a")
	b.must(t, 201, "POST", "/v1/wallets", `{"name":"A"}`, "Idempotency-Key", strings.Repeat("é", 128))
}

func TestRacersOnOneKeyMakeOneWallet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, body := range map[string]string{"made-id": `{"name":"A"}`, "own-id": `{"id":"wal_own","name":"A"}`} {
		bodies := make([]string, 16)
		var all sync.WaitGroup
		for i := range bodies {
			all.Go(func() {
				a := b.send(t, request{method: "POST", path: "/v1/wallets", token: operatorToken, body: body, header: []string{"Idempotency-Key", name}})
				bodies[i] = fmt.Sprint(a.status, string(a.raw))
			})
		}
		all.Wait()
		for _, got := range bodies {
			if got != bodies[0] || !strings.HasPrefix(got, "201") {
				t.Errorf("%s: answers differ: %s and %s", name, bodies[0], got)
			}
		}
	}
	if got := b.must(t, 200, "GET", "/v1/wallets", "").items(t, "id"); len(got) != 2 {
		t.Errorf("wallets %v", got)
	}
}

func TestASecretIsShownOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "once")
	first := b.must(t, 201, "POST", "/v1/agents/agt_once/keys", `{}`, "Idempotency-Key", "k")
	again := b.must(t, 201, "POST", "/v1/agents/agt_once/keys", `{}`, "Idempotency-Key", "k")
	if again.text(t, "id") != first.text(t, "id") || again.at("key") != nil {
		t.Errorf("a repeat answers %s", again.raw)
	}
	if first.header.Get("Cache-Control") != "no-store" {
		t.Error("an answer with a secret may be cached")
	}
}

func TestTransportRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, mime := range []string{"text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""} {
		r := request{method: "POST", path: "/v1/wallets", token: operatorToken, body: `{"name":"A"}`}
		if a := b.sendTyped(t, r, mime); a.status != 415 {
			t.Errorf("%q: %d %s", mime, a.status, a.raw)
		}
	}
	if a := b.sendTyped(t, request{method: "POST", path: "/v1/wallets", token: operatorToken, body: `{"name":"A"}`}, "Application/JSON; charset=utf-8"); a.status != 201 {
		t.Errorf("essence: %d %s", a.status, a.raw)
	}
	b.refused(t, 413, "request_too_large", "POST", "/v1/wallets", `{"name":"`+strings.Repeat("x", 1<<20)+`"}`)
	b.refused(t, 404, "not_found", "GET", "/v1/nothing", "")
	// What no store takes is not asked of it.
	for _, path := range []string{"/v1/agents/%00", "/v1/wallets/a%ffb", "/v1/permits/" + strings.Repeat("x", 5000)} {
		b.refused(t, 404, "not_found", "GET", path, "")
	}
	for _, path := range []string{"/v1/operations?wallet=%00", "/v1/wallets?after=%ff", "/v1/permits?agent=a%0ab"} {
		b.refused(t, 400, "invalid_request", "GET", path, "")
	}
	b.must(t, 405, "PUT", "/v1/wallets", `{}`)
}

func (b *bundle) sendTyped(t testing.TB, r request, mime string) answer {
	t.Helper()
	r.header = append(r.header, "Content-Type", mime)
	return b.send(t, r)
}

func TestListsHavePages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []string
	for i := range 7 {
		id := fmt.Sprintf("wal_%d", i)
		want = append(want, id)
		b.must(t, 201, "POST", "/v1/wallets", fmt.Sprintf(`{"id":%q,"name":"W"}`, id))
	}
	for _, path := range []string{"/v1/wallets", "/v1/audit", "/v1/tools"} {
		whole := b.must(t, 200, "GET", path, "")
		name := "id"
		if path == "/v1/tools" {
			name = "name"
		}
		var got []string
		query := "?limit=3"
		for range 10 {
			a := b.must(t, 200, "GET", path+query, "")
			got = append(got, a.items(t, name)...)
			next, more := a.json["next"]
			if !more {
				break
			}
			query = fmt.Sprintf("?limit=3&after=%s", next)
		}
		if diff := cmp.Diff(whole.items(t, name), got); diff != "" {
			t.Errorf("%s by pages:\n%s", path, diff)
		}
	}
	if got := b.must(t, 200, "GET", "/v1/wallets?limit=7", ""); got.at("next") != nil || !cmp.Equal(got.items(t, "id"), want) {
		t.Errorf("a full last page: %s", got.raw)
	}
	for _, query := range []string{"limit=0", "limit=501", "limit=-1", "limit=1.0", "limit=x", "limit=", "limit=1&limit=2", "page=2", "after=", "limit=%zz"} {
		b.refused(t, 400, "invalid_request", "GET", "/v1/wallets?"+query, "")
	}
	for _, path := range []string{"/v1/operations", "/v1/receipts", "/v1/audit"} {
		b.refused(t, 400, "invalid_request", "GET", path+"?after=wal_1", "")
	}
}
