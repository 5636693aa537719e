package verify_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"
	"counterfoil/verify"
)

const (
	issuer  = "http://127.0.0.1:8080"
	startMS = 1790000000000
)

// world is a gateway that can be made to lie. Its keys come from fixed seeds, so
// that everything it signs is the same in every run.
type world struct {
	t                                testing.TB
	receiptKey, permitKey, strangers jws.Signer
	keys                             jws.KeySet
	permit                           string
	seq                              int64
	prev                             string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, receiptKey: signer(t, 1), permitKey: signer(t, 2), strangers: signer(t, 3)}
	w.keys = keySet(t,
		jws.Key{Public: w.receiptKey.Public(), Purpose: jws.PurposeReceipt, Status: jws.StatusActive, NotBefore: 1789000000},
		jws.Key{Public: w.permitKey.Public(), Purpose: jws.PurposePermit, Status: jws.StatusActive, NotBefore: 1789000000})
	w.grant(func(*permits.Permit) {})
	return w
}

func signer(t testing.TB, seed byte) jws.Signer {
	t.Helper()
	s, err := jws.SignerFromKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keySet(t testing.TB, keys ...jws.Key) jws.KeySet {
	t.Helper()
	set, err := jws.NewKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return set
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

func ptr(n int64) *int64 { return &n }

// grant signs the permit under which the following calls run.
func (w *world) grant(edit func(*permits.Permit)) {
	w.t.Helper()
	p := &permits.Permit{
		ID: "prm_q4", Issuer: issuer, Audience: issuer, Wallet: "wal_ops", Agent: "agt_1",
		IssuedAt: 1789999000, NotBefore: 1789999000, Expires: 1790086400, Scopes: []string{"payments.write"},
		Grant: permits.Grant{
			Tools: []string{"payout"},
			Limits: permits.Limits{
				Credits: 50, CallsTotal: ptr(20), Calls: map[string]int64{"payout": 10}, CreditsPerCall: ptr(5),
				Value: &permits.ValueLimit{Currency: "USD", Total: ptr(500000), PerCall: ptr(100000)},
			},
		},
	}
	edit(p)
	w.permit = sign(w.t, w.permitKey, permits.Type, p.Payload())
}

func arguments() []byte { return []byte(`{"amount":1200,"to":"ap@vendor.example"}`) }
func result() []byte    { return []byte(`{"content":[{"text":"paid","type":"text"}]}`) }

// claims are those of the wallet's next receipt: a success, before edit.
func (w *world) claims(edit func(*receipts.Claims)) *receipts.Claims {
	w.seq++
	c := &receipts.Claims{
		Issuer: issuer, IssuedAt: startMS/1000 + w.seq, ID: fmt.Sprintf("rcp_%d", w.seq), Wallet: "wal_ops", Agent: "agt_1",
		PermitID: "prm_q4", PermitSHA256: canon.SHA256Hex([]byte(w.permit)),
		Operation: fmt.Sprintf("op_%d", w.seq), Tool: "payout", ToolSHA256: strings.Repeat("b", 64), KeySource: "context",
		StartedMS: startMS + w.seq*1000, EndedMS: startMS + w.seq*1000 + 120,
		Outcome: receipts.Succeeded, Authorized: 5, Charged: 5, Value: &permits.Value{Currency: "USD", Amount: 1200},
		LedgerEntry: fmt.Sprintf("txn_%d", w.seq), AuditEvent: fmt.Sprintf("evt_%d", w.seq),
		ArgumentsSHA256: canon.SHA256Hex(arguments()), RequestHash: strings.Repeat("d", 64),
		Result: &receipts.Result{SHA256: canon.SHA256Hex(result()), Bytes: int64(len(result()))},
		Seq:    w.seq, Prev: w.prev,
	}
	edit(c)
	return c
}

// receipt signs the wallet's next receipt and adds it to the chain.
func (w *world) receipt(edit func(*receipts.Claims)) string {
	w.t.Helper()
	token := sign(w.t, w.receiptKey, receipts.Type, w.claims(edit).AppendPayload(nil))
	w.prev = receipts.ChainHash(token[:strings.LastIndexByte(token, '.')])
	return token
}

// rewind begins the chain again, so that a receipt can be made in another way.
func (w *world) rewind() { w.seq, w.prev = 0, "" }

func (w *world) bundle(edit func(*receipts.Claims)) *receipts.Bundle {
	w.t.Helper()
	return &receipts.Bundle{
		Receipt: w.receipt(edit), Permit: w.permit, Keys: w.keys.JWKS(),
		Content: &receipts.Content{Arguments: arguments(), Result: result()},
	}
}

// pair makes the bundles of an uncertain operation and of its reconciliation, each
// with the other beside it.
func (w *world) pair(edit func(*receipts.Claims)) (first, later *receipts.Bundle) {
	w.t.Helper()
	first = w.bundle(uncertain)
	op, id := fmt.Sprintf("op_%d", w.seq), fmt.Sprintf("rcp_%d", w.seq)
	started := startMS + w.seq*1000
	later = w.bundle(func(c *receipts.Claims) {
		c.Operation, c.Outcome, c.Charged, c.StartedMS = op, receipts.Reconciled, 0, started
		c.Reconciles = &receipts.Reconciles{
			ID: id, Resolution: receipts.NotDelivered, EvidenceSHA256: strings.Repeat("1", 64), ChargedBefore: 5,
		}
		edit(c)
	})
	first.Related, later.Related = []string{later.Receipt}, []string{first.Receipt}
	return first, later
}

func plain(*receipts.Claims) {}

func uncertain(c *receipts.Claims) {
	c.Outcome, c.Reason = receipts.Uncertain, receipts.ReasonNoResponse
}

func denied(c *receipts.Claims) {
	c.Outcome, c.Reason, c.Charged, c.LedgerEntry = receipts.Denied, receipts.ReasonExpired, 0, ""
}

// trust believes the keys.
func trust(t testing.TB, keys jws.KeySet) *verify.Trust {
	t.Helper()
	tr := &verify.Trust{}
	if err := tr.Add("trust.jwks", keys.JWKS()); err != nil {
		t.Fatal(err)
	}
	return tr
}

func (w *world) verifier(edit func(*verify.Options)) *verify.Verifier {
	w.t.Helper()
	o := verify.Options{Trust: trust(w.t, w.keys), Issuer: issuer}
	edit(&o)
	return verify.New(o)
}

// judge verifies the texts as one set.
func (w *world) judge(texts ...[]byte) ([]*verify.Verdict, verify.Summary) {
	w.t.Helper()
	v := w.verifier(func(*verify.Options) {})
	set := verify.NewSet()
	var verdicts []*verify.Verdict
	for _, text := range texts {
		d := v.Judge(verify.Entry{Data: text})
		verdicts = append(verdicts, d)
		set.Add(d)
	}
	return verdicts, set.Summary(nil)
}

func check(t testing.TB, checks []verify.Check, name string) verify.Check {
	t.Helper()
	for _, c := range checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q in %v", name, checks)
	return verify.Check{}
}
