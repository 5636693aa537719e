package receipts_test

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// key is a signer made from a byte, and the set that trusts it for a purpose.
func key(t testing.TB, seed byte, p jws.Purpose) (jws.Signer, jws.KeySet) {
	t.Helper()
	signer, err := jws.SignerFromKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	set, err := jws.NewKeySet(jws.Key{Public: signer.Public(), Purpose: p, Status: jws.StatusActive})
	if err != nil {
		t.Fatal(err)
	}
	return signer, set
}

func hash(c string) string { return strings.Repeat(c, 64) }

func sample() *receipts.Claims {
	return &receipts.Claims{
		Issuer: "http://127.0.0.1:8080", IssuedAt: 1790000000, ID: "rcp_01", Wallet: "wal_ops", Agent: "agt_1",
		PermitID: "prm_q4", PermitSHA256: hash("a"),
		Operation: "op_01", Tool: "payout", ToolSHA256: hash("b"), KeySource: "context",
		StartedMS: 1790000000000, EndedMS: 1790000000120,
		Outcome: receipts.Succeeded, Authorized: 5, Charged: 5, LedgerEntry: "txn_01", AuditEvent: "evt_01",
		ArgumentsSHA256: hash("c"), RequestHash: hash("d"),
		Result: &receipts.Result{SHA256: hash("e"), Bytes: 99},
		Seq:    2, Prev: hash("f"),
	}
}

func sign(t testing.TB, s jws.Signer, typ string, payload []byte) string {
	t.Helper()
	input := jws.SigningInput(typ, s.KeyID(), payload)
	sig, err := s.Sign(input)
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + sig
}

// anyClaims draws claims that are well formed, not ones that make sense.
func anyClaims() *rapid.Generator[*receipts.Claims] {
	id := rapid.StringMatching(`[a-z]{2,4}_[A-Za-z0-9._-]{1,64}`)
	sha := rapid.StringMatching(`[0-9a-f]{64}`)
	text := rapid.StringN(1, 40, -1)
	n := rapid.Int64Range(0, receipts.MaxInteger)
	return rapid.Custom(func(t *rapid.T) *receipts.Claims {
		c := &receipts.Claims{
			Issuer: text.Draw(t, "iss"), IssuedAt: n.Draw(t, "iat"), ID: id.Draw(t, "jti"),
			Wallet: id.Draw(t, "sub"), Agent: id.Draw(t, "act"),
			PermitID: id.Draw(t, "permit"), PermitSHA256: sha.Draw(t, "permit_sha"),
			Operation: id.Draw(t, "op"), Tool: text.Draw(t, "tool"), ToolSHA256: sha.Draw(t, "tool_sha"),
			KeySource: text.Draw(t, "source"), StartedMS: n.Draw(t, "start"), EndedMS: n.Draw(t, "end"),
			Outcome: rapid.SampledFrom([]receipts.Outcome{
				receipts.Succeeded, receipts.Denied, receipts.Failed, receipts.Uncertain, receipts.Reconciled,
			}).Draw(t, "outcome"),
			Reason:     rapid.SampledFrom(append(receipts.Reasons(), "")).Draw(t, "reason"),
			Authorized: n.Draw(t, "authorized"), Charged: n.Draw(t, "charged"),
			AuditEvent: id.Draw(t, "evt"), ArgumentsSHA256: sha.Draw(t, "args"), RequestHash: sha.Draw(t, "req"),
			Seq: 1,
		}
		maybe := rapid.Bool()
		switch rapid.SampledFrom([]string{"", "numbers", "operation"}).Draw(t, "detail") {
		case "numbers":
			c.Detail = &permits.Detail{Limit: n.Draw(t, "l"), Needed: n.Draw(t, "n"), Remaining: n.Draw(t, "r")}
		case "operation":
			c.DuplicateOf = rapid.StringMatching(`op_[A-Za-z0-9._-]{1,64}`).Draw(t, "duplicate")
		}
		if maybe.Draw(t, "value?") {
			c.Value = &permits.Value{Currency: text.Draw(t, "cur"), Amount: n.Draw(t, "amount")}
		}
		if maybe.Draw(t, "ledger?") {
			c.LedgerEntry = id.Draw(t, "txn")
		}
		if maybe.Draw(t, "res?") {
			c.Result = &receipts.Result{SHA256: sha.Draw(t, "res"), Bytes: n.Draw(t, "bytes"), Scrubbed: maybe.Draw(t, "scrubbed")}
		}
		if maybe.Draw(t, "later?") {
			c.Seq, c.Prev = rapid.Int64Range(2, receipts.MaxInteger).Draw(t, "seq"), sha.Draw(t, "prev")
		}
		if maybe.Draw(t, "reconciles?") {
			c.Reconciles = &receipts.Reconciles{
				ID: id.Draw(t, "rec"), EvidenceSHA256: sha.Draw(t, "evidence"), ChargedBefore: n.Draw(t, "before"),
				Resolution: rapid.SampledFrom([]string{receipts.Delivered, receipts.NotDelivered}).Draw(t, "resolution"),
			}
		}
		return c
	})
}
