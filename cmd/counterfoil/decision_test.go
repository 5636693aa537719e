package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"
)

var update = flag.Bool("update", false, "write docs/example/decided anew")

const (
	decidedDir = "docs/example/decided"
	// What the reconciler wrote; its hash is in the receipt.
	decidedEvidence  = "Bank statement of 2026-11-30: no payment for INV-204. Support says the request never arrived."
	decidedReference = "case 88213"
)

// TestDecidedExample makes the example of a decision anew: its keys come from fixed seeds, so that every
// byte is the same.
func TestDecidedExample(t *testing.T) {
	t.Parallel()
	for name, want := range decidedFiles(t) {
		path := filepath.Join(top, decidedDir, name)
		if *update {
			if err := os.WriteFile(path, want, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(read(t, path), want) {
			t.Errorf("%s is not what this test makes; run it with -update and read the difference", path)
		}
	}
}

// TestFormatShowsTheDecision: the page shows the payloads of the example, its evidence, and what two
// programs say about them.
func TestFormatShowsTheDecision(t *testing.T) {
	t.Parallel()
	page := string(read(t, filepath.Join(top, formatPage)))
	lines := strings.Split(strings.TrimSpace(string(decidedFiles(t)["receipts.jsonl"])), "\n")
	for _, line := range lines[1:3] {
		bundle, err := receipts.ParseBundle([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		payload, err := base64.RawURLEncoding.DecodeString(strings.Split(bundle.Receipt, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page, "\n```json\n"+string(payload)+"\n```\n") {
			t.Errorf("the page does not show\n%s", payload)
		}
	}
	for words, want := range map[string]string{
		"sh verify-decided": "", "sh evidence": receipts.EvidenceSHA256(decidedEvidence, decidedReference),
	} {
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", block(t, formatPage, words))
		cmd.Dir = top
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(page, "\n```\n"+string(out)+"```\n") || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v; the page shows other output than\n%s", words, err, out)
		}
	}
}

// scribe writes the example's chain.
type scribe struct {
	t         *testing.T
	key       jws.Signer
	permitKey jws.Signer
	keys      jws.KeySet
	permit    string
	seq       int64
	prev      string
}

func newScribe(t *testing.T) *scribe {
	t.Helper()
	s := &scribe{t: t}
	s.key, s.permitKey = fixedSigner(t, 40), fixedSigner(t, 41)
	keys := []jws.Key{
		{Public: s.key.Public(), Purpose: jws.PurposeReceipt, Status: jws.StatusActive, NotBefore: 1795990000},
		{Public: s.permitKey.Public(), Purpose: jws.PurposePermit, Status: jws.StatusActive, NotBefore: 1795990000},
	}
	var err error
	if s.keys, err = jws.NewKeySet(keys...); err != nil {
		t.Fatal(err)
	}
	s.permit = s.sign(s.permitKey, jws.SigningInput(permits.Type, s.permitKey.KeyID(), (&permits.Permit{
		ID: "prm_q4", Issuer: "https://counterfoil.example", Audience: "https://counterfoil.example", Wallet: "wal_ops", Agent: "agt_ap",
		IssuedAt: 1795991549, NotBefore: 1795991549, Expires: 1798583549, Scopes: []string{"payments.write"},
		Grant: permits.Grant{Tools: []string{"payout"}, Limits: permits.Limits{Credits: 50}},
	}).Payload()))
	return s
}

func fixedSigner(t *testing.T, seed byte) jws.Signer {
	t.Helper()
	signer, err := jws.SignerFromKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func (s *scribe) sign(key jws.Signer, input string) string {
	s.t.Helper()
	sig, err := key.Sign(input)
	if err != nil {
		s.t.Fatal(err)
	}
	return input + "." + sig
}

// decidedCall is a payout that began at so many milliseconds; n is the last digit of its ids.
func decidedCall(n string, started int64, arguments, result string) *receipts.Claims {
	id := "01a2297f-0000-7000-8000-00000000000" + n
	request := `{"agent":"agt_ap","arguments":` + arguments + `,"permit":"prm_q4","tool":"payout","wallet":"wal_ops"}`
	return &receipts.Claims{
		Issuer: "https://counterfoil.example", ID: "rcp_" + id, Wallet: "wal_ops", Agent: "agt_ap",
		PermitID: "prm_q4", Operation: "op_" + id, Tool: "payout", ToolSHA256: canon.SHA256Hex([]byte("the tool's definition")),
		KeySource: "context", StartedMS: started, EndedMS: started + 58, AuditEvent: "evt_" + id,
		ArgumentsSHA256: canon.SHA256Hex([]byte(arguments)), RequestHash: canon.SHA256Hex([]byte(request)),
		Value:  &permits.Value{Currency: "USD", Amount: 1200},
		Result: &receipts.Result{SHA256: canon.SHA256Hex([]byte(result)), Bytes: int64(len(result))},
	}
}

// write chains and signs a receipt.
func (s *scribe) write(c *receipts.Claims) string {
	s.t.Helper()
	s.seq++
	c.IssuedAt, c.PermitSHA256, c.Seq, c.Prev = c.EndedMS/1000, canon.SHA256Hex([]byte(s.permit)), s.seq, s.prev
	if err := c.Consistent(); err != nil {
		s.t.Fatal(err)
	}
	input, err := receipts.SigningInput(s.key.KeyID(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.prev = receipts.ChainHash(input)
	return s.sign(s.key, input)
}

// decidedFiles is the example: a payout without an answer; another one for the same invoice, denied; the
// decision that the first was not delivered; and the payout that then went through.
func decidedFiles(t *testing.T) map[string][]byte {
	t.Helper()
	const (
		first     = `{"amount":1200,"invoice_id":"INV-204","to":"ap@vendor.example"}`
		silent    = `{"content":[{"type":"text","text":"The call was sent, and no answer came back. 5 credits are kept."}],"isError":true}`
		refused   = `{"content":[{"type":"text","text":"Another operation holds this reference. Nothing was charged."}],"isError":true}`
		returned  = `{"content":[{"type":"text","text":"It was found out that the tool did not act. 5 credits came back."}],"isError":true}`
		succeeded = `{"content":[{"type":"text","text":"paid"}]}`
		begin     = 1795992000000
	)
	s := newScribe(t)
	uncertain := decidedCall("1", begin, first, silent)
	uncertain.Outcome, uncertain.Reason, uncertain.EndedMS = receipts.Uncertain, receipts.ReasonNoResponse, begin+30004
	uncertain.Authorized, uncertain.Charged, uncertain.LedgerEntry = 5, 5, "txn"+strings.TrimPrefix(uncertain.ID, "rcp")
	denied := decidedCall("2", begin+41000, first, refused)
	denied.Outcome, denied.Reason, denied.DuplicateOf = receipts.Denied, receipts.ReasonOperationRefReused, uncertain.Operation
	paid := decidedCall("4", begin+5460000, first, succeeded)
	paid.Outcome, paid.Authorized, paid.Charged, paid.LedgerEntry = receipts.Succeeded, 5, 5, "txn"+strings.TrimPrefix(paid.ID, "rcp")

	bundles := []*receipts.Bundle{
		{Receipt: s.write(uncertain), Content: &receipts.Content{Arguments: []byte(first), Result: []byte(silent)}},
		{Receipt: s.write(denied), Content: &receipts.Content{Arguments: []byte(first), Result: []byte(refused)}},
		{Receipt: s.write(decision(uncertain, returned)), Content: &receipts.Content{Arguments: []byte(first), Result: []byte(returned)}},
		{Receipt: s.write(paid), Content: &receipts.Content{Arguments: []byte(first), Result: []byte(succeeded)}},
	}
	bundles[0].Related, bundles[2].Related = []string{bundles[2].Receipt}, []string{bundles[0].Receipt}
	var lines []byte
	for _, b := range bundles {
		b.Permit, b.Keys = s.permit, s.keys.JWKS()
		lines = append(append(lines, b.JSON()...), '\n')
	}
	return map[string][]byte{"receipts.jsonl": lines, "trust.json": append(s.keys.JWKS(), '\n')}
}

// decision is the receipt of the decision that a call was not delivered: what the call fixed, it keeps.
func decision(call *receipts.Claims, result string) *receipts.Claims {
	c := *call
	own := decidedCall("3", call.StartedMS, "", result)
	c.ID, c.AuditEvent, c.LedgerEntry = own.ID, own.AuditEvent, "txn"+strings.TrimPrefix(own.ID, "rcp")
	c.EndedMS, c.Outcome, c.Charged, c.Result = call.StartedMS+5400000, receipts.Reconciled, 0, own.Result
	c.Reconciles = &receipts.Reconciles{
		ID: call.ID, Resolution: receipts.NotDelivered, ChargedBefore: call.Charged,
		EvidenceSHA256: receipts.EvidenceSHA256(decidedEvidence, decidedReference),
	}
	return &c
}
