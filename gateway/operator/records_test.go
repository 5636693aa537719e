package operator_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"counterfoil/internal/jws"
	"counterfoil/ledger"
	"counterfoil/receipts"
)

func TestOperationWhileItRunsAndAfter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "run")
	claimed := b.claim(t, "run", "k1")
	path := "/v1/operations/" + claimed.Granted.ID
	a := b.must(t, 200, "GET", path, "")
	if a.text(t, "state") != "dispatching" || a.number(t, "credits_held") != 5 || a.at("outcome") != nil || a.at("finished_at") != nil {
		t.Errorf("while it runs: %s", a.raw)
	}
	_, err := b.ledger.Settle(context.Background(), &ledger.Settlement{
		Granted: claimed.Granted, Outcome: receipts.Failed, Reason: receipts.ReasonToolError, KeepCall: true, Result: []byte(`{"isError":true}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	a = b.must(t, 200, "GET", path, "")
	if a.text(t, "state") != "finished" || a.text(t, "outcome") != "failed" || a.text(t, "reason") != "tool_error" || a.number(t, "credits_held") != 0 || a.number(t, "credits_charged") != 0 {
		t.Errorf("after: %s", a.raw)
	}
	b.must(t, 200, "GET", "/v1/receipts/"+a.text(t, "receipt_id"), "")
	b.call(t, "run", "k2")
	b.claim(t, "run", "k3")
	for query, want := range map[string]int{
		"": 3, "state=finished": 2, "state=dispatching": 1, "state=reconciled": 0, "agent=agt_run": 3, "agent=agt_x": 0,
		"permit=prm_run": 3, "permit=prm_x": 0, "wallet=wal_run": 3, "wallet=wal_x": 0,
	} {
		if got := b.must(t, 200, "GET", "/v1/operations?"+query, "").items(t, "id"); len(got) != want {
			t.Errorf("%q lists %d, want %d", query, len(got), want)
		}
	}
	b.refused(t, 400, "invalid_request", "GET", "/v1/operations?state=lost", "")
	for _, id := range []string{"op_none", "op_", strings.ToUpper(claimed.Granted.ID), claimed.Granted.ID + "x", "rcp_" + claimed.Granted.ID[3:]} {
		b.refused(t, 404, "not_found", "GET", "/v1/operations/"+id, "")
	}
}

func TestOperationThatWaitsForInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "ask")
	b.claim(t, "ask", "k1")
	claimed := b.claim(t, "ask", "k2")
	_, err := b.ledger.Ask(t.Context(), &ledger.Asked{Granted: claimed.Granted, Result: []byte(`{"resultType":"input_required"}`), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	path := "/v1/operations/" + claimed.Granted.ID
	a := b.must(t, 200, "GET", path, "")
	if a.text(t, "state") != "awaiting_input" || a.number(t, "credits_held") != 5 || a.at("outcome") != nil || a.number(t, "round", "number") != 1 {
		t.Errorf("while it waits: %s", a.raw)
	}
	said := b.decide(t, 409, claimed.Granted.ID, notDelivered).text(t, "detail")
	if !strings.Contains(said, "asked for input before it acted") {
		t.Errorf("there is nothing to decide, and the reconciler is told: %s", said)
	}
	for query, want := range map[string]int{"": 2, "state=dispatching": 1, "state=awaiting_input": 1, "state=finished": 0} {
		if got := b.must(t, 200, "GET", "/v1/operations?"+query, "").items(t, "id"); len(got) != want {
			t.Errorf("%q lists %d, want %d", query, len(got), want)
		}
	}
}

func TestReceiptsAndBundlesVerifyOffline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "rcp")
	op := b.call(t, "rcp", "k1")
	a := b.must(t, 200, "GET", "/v1/receipts/"+op.ReceiptID, "")
	if a.text(t, "jws") != op.Receipt || a.text(t, "receipt", "jti") != op.ReceiptID {
		t.Errorf("receipt %s", a.raw)
	}
	raw := b.must(t, 200, "GET", "/v1/receipts/"+op.ReceiptID+"/bundle", "")
	if got := raw.header.Get("Content-Type"); got != "application/vnd.counterfoil.bundle+json" {
		t.Errorf("media type %s", got)
	}
	bundle, err := receipts.ParseBundle(raw.raw)
	if err != nil {
		t.Fatal(err)
	}
	claims, _, err := receipts.Parse(bundle.Receipt, b.keyring.Public())
	if err != nil {
		t.Fatal(err)
	}
	if claims.ArgumentsSHA256 != sum(bundle.Content.Arguments) || claims.Result.SHA256 != sum(bundle.Content.Result) || claims.PermitSHA256 != sum([]byte(bundle.Permit)) {
		t.Errorf("the bundle's content is not what its receipt says: %+v", claims)
	}
	hints, err := jws.ParseJWKS(bundle.Keys)
	if err != nil || len(hints.Keys()) != 2 {
		t.Errorf("keys of the bundle: %v %s", err, bundle.Keys)
	}
	b.refused(t, 404, "not_found", "GET", "/v1/receipts/rcp_none/bundle", "")
}

func TestBundleOfAnOutsidePermitHoldsItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "far")
	out := newOutsider(t, 41)
	out.register(t, b, jws.StatusActive, 201)
	b.must(t, 201, "POST", "/v1/permits/import", out.permit(t, "prm_out", "far"))
	op := b.callUnder(t, "prm_out", "far", "k1")
	bundle, err := receipts.ParseBundle(b.must(t, 200, "GET", "/v1/receipts/"+op.ReceiptID+"/bundle", "").raw)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := jws.ParseJWKS(bundle.Keys)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := keys.Find(out.signer.KeyID(), jws.PurposePermit); !ok {
		t.Errorf("the issuer's key is not in %s", bundle.Keys)
	}
}

func TestExportIsTheChainsInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// More than one page of the export, and no wallet on a page of its own.
	wallets := []string{"a", "b", "c"}
	for _, name := range wallets {
		b.world(t, name)
	}
	for i := range 7 {
		for _, name := range wallets {
			b.call(t, name, fmt.Sprint("k", i))
		}
	}
	chain := func(query string) []string {
		a := b.must(t, 200, "GET", "/v1/receipts/export"+query, "")
		if got := a.header.Get("Content-Type"); got != "application/jsonl" {
			t.Errorf("media type %s", got)
		}
		var got []string
		for line := range bytes.Lines(a.raw) {
			bundle, err := receipts.ParseBundle(bytes.TrimSuffix(line, []byte("\n")))
			if err != nil {
				t.Fatal(err)
			}
			claims, _, err := receipts.Parse(bundle.Receipt, b.keyring.Public())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(claims.Wallet, claims.Seq))
		}
		return got
	}
	var want []string
	for _, name := range wallets {
		for seq := range 7 {
			want = append(want, fmt.Sprint("wal_", name, seq+1))
		}
	}
	if diff := cmp.Diff(want, chain("")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[7:14], chain("?wallet=wal_b")); diff != "" {
		t.Error(diff)
	}
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if diff := cmp.Diff(want, chain("?from=2001-01-01T00:00:00Z&to="+soon)); diff != "" {
		t.Error(diff)
	}
	for _, query := range []string{"?from=" + soon, "?to=2001-01-01T00:00:00Z", "?wallet=wal_none"} {
		if got := chain(query); len(got) != 0 {
			t.Errorf("%s exports %v", query, got)
		}
	}
	b.refused(t, 400, "invalid_request", "GET", "/v1/receipts/export?from=yesterday", "")
	if got := b.must(t, 200, "GET", "/v1/receipts?wallet=wal_a&limit=3", ""); got.at("next") == nil || len(got.items(t, "id")) != 3 {
		t.Errorf("first page %s", got.raw)
	} else if rest := b.must(t, 200, "GET", "/v1/receipts?wallet=wal_a&after="+got.text(t, "next"), ""); len(rest.items(t, "id")) != 4 {
		t.Errorf("the rest %s", rest.raw)
	}
}

func TestAuditHoldsActsAndOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "aud")
	op := b.call(t, "aud", "k1")
	b.must(t, 200, "POST", "/v1/permits/prm_aud/revoke", `{"note":"end of term"}`)
	b.claim(t, "aud", "k2")
	b.refused(t, 404, "not_found", "POST", "/v1/permits/prm_none/revoke", "")
	a := b.must(t, 200, "GET", "/v1/audit", "")
	want := []string{
		"wallet.created", "wallet.deposited", "agent.created", "agent_key.created", "permit.issued", "call.succeeded", "permit.revoked", "call.denied",
	}
	if diff := cmp.Diff(want, a.items(t, "action")); diff != "" {
		t.Error(diff)
	}
	outcome, _ := a.json["items"].([]any)[5].(map[string]any)
	if outcome["id"] != "evt_"+op.ID[3:] || outcome["actor"] != "agt_aud" || outcome["subject"] != op.ID {
		t.Errorf("event of the call: %v", outcome)
	}
	revoked, _ := a.json["items"].([]any)[6].(map[string]any)
	if diff := cmp.Diff(map[string]any{"note": "end of term"}, revoked["detail"]); diff != "" {
		t.Error(diff)
	}
}
