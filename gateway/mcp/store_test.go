package mcp_test

import (
	"context"
	"crypto/ed25519"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"counterfoil/internal/jws"
	"counterfoil/ledger"
	"counterfoil/permits"
)

// outage takes the database away from everybody, and gives it back.
func (h *house) outage() (end func()) {
	h.t.Helper()
	u, err := url.Parse(h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		h.t.Fatal(err)
	}
	run := func(statement string, args ...any) {
		h.t.Helper()
		if _, err := conn.Exec(ctx, statement, args...); err != nil {
			h.t.Fatal(err)
		}
	}
	quoted := pgx.Identifier{name}.Sanitize()
	run("alter database " + quoted + " with allow_connections false")
	run("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)
	return func() {
		run("alter database " + quoted + " with allow_connections true")
		_ = conn.Close(ctx)
	}
}

func TestStoreAway(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.pay("before")
	answers := make(chan answer, 1)
	go func() {
		a, err := h.try(context.Background(), callBody("slow", "{}", keyed("running")))
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}()
	<-h.tool.started
	effects := h.tool.count()
	back := h.outage()
	for range 2 {
		a := h.pay("during")
		if a.status != 200 || a.code != -31503 || a.reason != "store_unavailable" || a.retry != "same_key" || a.header.Get("Retry-After") != "1" {
			t.Errorf("without its store: %d %s", a.status, a.body)
		}
	}
	if resp := h.request("GET", "/readyz"); resp.StatusCode != 503 {
		t.Errorf("readyz without the store: %d", resp.StatusCode)
	}
	close(h.tool.gate)
	back()
	if a := <-answers; a.text("counterfoil/outcome") != "succeeded" {
		t.Errorf("the call that ran through the outage: %d %s", a.status, a.body)
	}
	if h.tool.count() != effects {
		t.Errorf("%d effects, want %d", h.tool.count(), effects)
	}
	if a := h.pay("during"); a.text("counterfoil/outcome") != "succeeded" || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the same key after the outage: %d %s", a.status, a.body)
	}
	h.clean()
}

func TestOutsidePermitLivesAsLongAsItsKey(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jws.SignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key := jws.Key{ID: signer.KeyID(), Public: signer.Public(), Purpose: jws.PurposePermit, Status: jws.StatusActive}
	register := func() {
		h.admin(func(ctx context.Context, a *ledger.Admin) error {
			_, _, err := a.RegisterIssuer(ctx, "https://issuer.test", []jws.Key{key})
			return err
		})
	}
	register()
	now := time.Now().Unix()
	permit, err := (&permits.Permit{
		ID: "prm_outside", Issuer: "https://issuer.test", Audience: issuer, Wallet: "wal_1", Agent: "agt_1", IssuedAt: now - 60, NotBefore: now - 60, Expires: now + 600,
		Grant: permits.Grant{Tools: []string{"echo"}, Limits: permits.Limits{Credits: 100}},
	}).Issue(signer, permits.Expect{Issuers: []string{"https://issuer.test"}, Audience: issuer, MaxLifetime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.ImportPermit(ctx, permit.Token, h.gateway.PermitTrust(), func(*permits.Permit) error { return nil })
		return err
	})
	call := func(key string) answer {
		return h.post(callBody("echo", "{}", keyed(key)+`,"permit_id":"prm_outside"`))
	}
	if a := call("k1"); a.text("counterfoil/outcome") != "succeeded" {
		t.Fatalf("under an outside permit: %s", a.body)
	}
	key.Status = jws.StatusRevoked
	register()
	if a := call("k2"); a.code != -31403 || a.reason != "permit_invalid" {
		t.Errorf("after the issuer's key was revoked: %s", a.body)
	}
	if a := call("k1"); a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the replay after the revocation: %s", a.body)
	}
}
