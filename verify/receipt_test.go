package verify_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"
	"counterfoil/verify"
)

func TestValidBundlePassesEveryCheckThereIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	verdicts, sum := w.judge(w.bundle(plain).JSON())
	d := verdicts[0]
	if d.State != verify.Valid || sum.Exit != 0 {
		t.Fatalf("state %s, exit %d: %v", d.State, sum.Exit, d.Checks)
	}
	for _, c := range d.Checks {
		want := verify.Pass
		if c.Name == verify.CheckInclusion || c.Name == verify.CheckWitness {
			want = verify.NotSupplied
		}
		if c.Status != want {
			t.Errorf("check %s is %s (%s), want %s", c.Name, c.Status, c.Code, want)
		}
	}
	if d.Key.Source != "trust.jwks" || d.Key.ID != w.receiptKey.KeyID() {
		t.Errorf("key %+v is not shown with its source", d.Key)
	}
}

func TestBareReceiptIsValidAndSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	verdicts, sum := w.judge([]byte(w.receipt(plain)))
	if sum.Exit != 0 {
		t.Fatalf("exit %d: %v", sum.Exit, verdicts[0].Checks)
	}
	for _, name := range []string{verify.CheckPermit, verify.CheckArguments, verify.CheckResult} {
		if c := check(t, verdicts[0].Checks, name); c.Status != verify.NotSupplied {
			t.Errorf("check %s is %s, want not_supplied", name, c.Status)
		}
	}
}

// Each row bends one thing of a valid bundle.
func TestJudgeFindsTheFault(t *testing.T) {
	t.Parallel()
	signedBy := func(seed byte, typ string) func(*world, *receipts.Bundle) {
		return func(w *world, b *receipts.Bundle) {
			w.rewind()
			b.Receipt = sign(w.t, signer(w.t, seed), typ, w.claims(plain).AppendPayload(nil))
		}
	}
	claimed := func(edit func(*receipts.Claims)) func(*world, *receipts.Bundle) {
		return func(w *world, b *receipts.Bundle) {
			w.rewind()
			b.Receipt = w.receipt(edit)
		}
	}
	granted := func(edit func(*permits.Permit)) func(*world, *receipts.Bundle) {
		return func(w *world, b *receipts.Bundle) {
			w.grant(edit)
			w.rewind()
			b.Receipt, b.Permit = w.receipt(plain), w.permit
		}
	}
	for _, tc := range []struct {
		name  string
		bend  func(*world, *receipts.Bundle)
		check string
		code  verify.Code
		state verify.State
	}{
		{"signature of another receipt", func(w *world, b *receipts.Bundle) {
			other := w.receipt(plain)
			b.Receipt = b.Receipt[:strings.LastIndexByte(b.Receipt, '.')] + other[strings.LastIndexByte(other, '.'):]
		}, verify.CheckSignature, verify.SigBad, verify.Invalid},
		{"a stranger's key", signedBy(3, receipts.Type), verify.CheckSignature, verify.KeyUnknown, verify.Undecided},
		{"39 a stranger's key, in the bundle", func(w *world, b *receipts.Bundle) {
			signedBy(3, receipts.Type)(w, b)
			b.Keys = keySet(w.t, jws.Key{Public: w.strangers.Public(), Purpose: jws.PurposeReceipt}).JWKS()
		}, verify.CheckSignature, verify.KeyUntrusted, verify.Undecided},
		{"7 the permit key", signedBy(2, receipts.Type), verify.CheckSignature, verify.KeyUntrusted, verify.Undecided},
		{"7 a permit's type", signedBy(1, permits.Type), verify.CheckSignature, verify.Typ, verify.Invalid},
		{"no receipt at all", func(_ *world, b *receipts.Bundle) { b.Receipt = "x" }, verify.CheckForm, verify.Malformed, verify.Undecided},
		{"receipt cut", func(_ *world, b *receipts.Bundle) { b.Receipt = b.Receipt[:len(b.Receipt)-1] }, verify.CheckForm, verify.Malformed, verify.Undecided},
		{"duplicate member", func(w *world, b *receipts.Bundle) {
			b.Receipt = sign(w.t, w.receiptKey, receipts.Type, []byte(`{"v":1,"v":1}`))
		}, verify.CheckSignature, verify.DupMember, verify.Invalid},
		{"fraction", func(w *world, b *receipts.Bundle) {
			b.Receipt = sign(w.t, w.receiptKey, receipts.Type, []byte(`{"v":1.0}`))
		}, verify.CheckSignature, verify.NotCanonical, verify.Invalid},
		{"other claims", func(w *world, b *receipts.Bundle) {
			b.Receipt = sign(w.t, w.receiptKey, receipts.Type, []byte(`{"v":1}`))
		}, verify.CheckClaims, verify.BadClaims, verify.Invalid},
		{"other version", func(w *world, b *receipts.Bundle) {
			b.Receipt = sign(w.t, w.receiptKey, receipts.Type, []byte(`{"v":2}`))
		}, verify.CheckClaims, verify.Version, verify.Undecided},
		{"contradiction", claimed(func(c *receipts.Claims) { c.Charged = 6 }), verify.CheckClaims, verify.Inconsistent, verify.Invalid},
		{"other issuer", claimed(func(c *receipts.Claims) { c.Issuer += "/" }), verify.CheckIssuer, verify.Issuer, verify.Invalid},
		{"another permit", func(w *world, b *receipts.Bundle) {
			w.grant(func(p *permits.Permit) { p.Grant.Limits.Credits++ })
			b.Permit = w.permit
		}, verify.CheckPermit, verify.PermitHash, verify.Invalid},
		{"permit of another gateway", granted(func(p *permits.Permit) { p.Audience += "/" }), verify.CheckPermit, verify.PermitInvalid, verify.Invalid},
		{"permit of another wallet", granted(func(p *permits.Permit) { p.Wallet = "wal_b" }), verify.CheckPermit, verify.PermitMismatch, verify.Invalid},
		{"permit of another agent", granted(func(p *permits.Permit) { p.Agent = "agt_b" }), verify.CheckPermit, verify.PermitMismatch, verify.Invalid},
		{"permit of another id", granted(func(p *permits.Permit) { p.ID = "prm_b" }), verify.CheckPermit, verify.PermitMismatch, verify.Invalid},
		{"permit without the tool", granted(func(p *permits.Permit) {
			p.Grant.Tools, p.Grant.Limits.Calls = []string{"refund"}, nil
		}), verify.CheckPermit, verify.PermitTool, verify.Invalid},
		{"permit begins later", granted(func(p *permits.Permit) { p.NotBefore = startMS/1000 + 2 }), verify.CheckPermit, verify.PermitWindow, verify.Invalid},
		{"permit has ended", granted(func(p *permits.Permit) { p.Expires = startMS/1000 + 1 }), verify.CheckPermit, verify.PermitWindow, verify.Invalid},
		{"too dear for the permit", granted(func(p *permits.Permit) { p.Grant.Limits.Credits = 4 }), verify.CheckPermit, verify.PermitLimit, verify.Invalid},
		{"too dear for a call", granted(func(p *permits.Permit) { p.Grant.Limits.CreditsPerCall = ptr(4) }), verify.CheckPermit, verify.PermitLimit, verify.Invalid},
		{"too much value a call", granted(func(p *permits.Permit) { p.Grant.Limits.Value.PerCall = ptr(1199) }), verify.CheckPermit, verify.PermitLimit, verify.Invalid},
		{"too much value", granted(func(p *permits.Permit) { p.Grant.Limits.Value.Total = ptr(1199) }), verify.CheckPermit, verify.PermitLimit, verify.Invalid},
		{"other currency", granted(func(p *permits.Permit) { p.Grant.Limits.Value.Currency = "EUR" }), verify.CheckPermit, verify.PermitLimit, verify.Invalid},
		{"no call granted", granted(func(p *permits.Permit) { p.Grant.Limits.Calls["payout"] = 0 }), verify.CheckPermit, verify.PermitLimit, verify.Invalid},
		{"permit's signature", func(w *world, b *receipts.Bundle) {
			good := w.permit
			w.grant(func(p *permits.Permit) { p.ID = "prm_b" })
			w.permit = good[:strings.LastIndexByte(good, '.')] + w.permit[strings.LastIndexByte(w.permit, '.'):]
			w.rewind()
			b.Receipt, b.Permit = w.receipt(plain), w.permit
		}, verify.CheckPermit, verify.PermitSig, verify.Invalid},
		{"stranger's permit", func(w *world, b *receipts.Bundle) {
			w.permitKey = w.strangers
			granted(func(*permits.Permit) {})(w, b)
		}, verify.CheckPermit, verify.KeyUnknown, verify.Valid},
		{"other arguments", func(_ *world, b *receipts.Bundle) { b.Content.Arguments = []byte(`{}`) }, verify.CheckArguments, verify.ContentReq, verify.Invalid},
		{"other result", func(_ *world, b *receipts.Bundle) { b.Content.Result = []byte(`{}`) }, verify.CheckResult, verify.ContentRes, verify.Invalid},
		{"a receipt of another operation", func(w *world, b *receipts.Bundle) { b.Related = []string{w.receipt(plain)} }, verify.CheckReconciliation, verify.Related, verify.Invalid},
		{"itself beside itself", func(_ *world, b *receipts.Bundle) { b.Related = []string{b.Receipt} }, verify.CheckReconciliation, verify.Related, verify.Invalid},
		{"a broken relation", func(_ *world, b *receipts.Bundle) { b.Related = []string{"x.y.z"} }, verify.CheckReconciliation, verify.Malformed, verify.Undecided},
		{"a stranger's relation", func(w *world, b *receipts.Bundle) {
			b.Related = []string{sign(w.t, w.strangers, receipts.Type, w.claims(plain).AppendPayload(nil))}
		}, verify.CheckReconciliation, verify.KeyUnknown, verify.Undecided},
		{"a log proof", func(_ *world, b *receipts.Bundle) { b.Proof = "c2sp.org/tlog-proof@v1\n" }, verify.CheckInclusion, verify.ProofUnsupported, verify.Undecided},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b := w.bundle(plain)
			tc.bend(w, b)
			verdicts, sum := w.judge(b.JSON())
			d := verdicts[0]
			got := check(t, d.Checks, tc.check)
			if got.Code != tc.code || d.State != tc.state {
				t.Errorf("check %s is %s %s, state %s; want %s, %s", tc.check, got.Status, got.Code, d.State, tc.code, tc.state)
			}
			if want := map[verify.State]int{verify.Valid: 0, verify.Invalid: 1, verify.Undecided: 3}[tc.state]; sum.Exit != want {
				t.Errorf("exit %d, want %d", sum.Exit, want)
			}
		})
	}
}

// A denial may be there because the permit was not kept.
func TestDenialOutsideItsPermitIsValid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grant(func(p *permits.Permit) {
		p.Expires = startMS / 1000
		p.Grant.Tools, p.Grant.Limits = []string{"refund"}, permits.Limits{}
	})
	if verdicts, sum := w.judge(w.bundle(denied).JSON()); sum.Exit != 0 {
		t.Errorf("exit %d: %v", sum.Exit, verdicts[0].Checks)
	}
}

func TestRevokedKeyLeavesUndecided(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := w.bundle(plain).JSON()
	w.keys = keySet(t,
		jws.Key{Public: w.receiptKey.Public(), Purpose: jws.PurposeReceipt, Status: jws.StatusRevoked},
		jws.Key{Public: w.permitKey.Public(), Purpose: jws.PurposePermit})
	verdicts, sum := w.judge(text)
	if c := check(t, verdicts[0].Checks, verify.CheckSignature); c.Code != verify.KeyRevoked || sum.Exit != 3 {
		t.Errorf("%s, exit %d; want E_KEY_REVOKED, 3", c.Code, sum.Exit)
	}
}

func TestEndOfAKeyIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := []byte(w.receipt(plain))
	w.keys = keySet(t, jws.Key{Public: w.receiptKey.Public(), Purpose: jws.PurposeReceipt, Status: jws.StatusRetired, Expires: startMS / 1000})
	verdicts, sum := w.judge(text)
	if c := check(t, verdicts[0].Checks, verify.CheckSignature); c.Code != verify.KeyWindow || sum.Exit != 0 {
		t.Errorf("%s, exit %d; want E_KEY_WINDOW, 0", c.Code, sum.Exit)
	}
}

// What a bundle says of a trusted key must not differ from what the trust file says.
func TestContradictingHintIsNoticed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit func(*jws.Key)
		want int
	}{
		"same":                {func(*jws.Key) {}, 0},
		"other beginning":     {func(k *jws.Key) { k.NotBefore++ }, 3},
		"other purpose":       {func(k *jws.Key) { k.Purpose = jws.PurposePermit }, 3},
		"an end":              {func(k *jws.Key) { k.Expires = 1 }, 3},
		"still next":          {func(k *jws.Key) { k.Status, k.NotBefore = jws.StatusNext, 1 }, 0},
		"status of long ago":  {func(k *jws.Key) { k.Status = jws.StatusRetired }, 0},
		"nothing but the key": {func(k *jws.Key) { *k = jws.Key{Public: k.Public} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b := w.bundle(plain)
			key, _ := w.keys.Find(w.receiptKey.KeyID(), jws.PurposeReceipt)
			tc.edit(&key)
			b.Keys = []byte(`{"keys":[]}`)
			text := strings.Replace(string(b.JSON()), `{"keys":[]}`, string(keySet(t, key).JWKS()), 1)
			if _, sum := w.judge([]byte(text)); sum.Exit != tc.want {
				t.Errorf("exit %d, want %d", sum.Exit, tc.want)
			}
		})
	}
}

func TestRequiredChecks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	content := []string{verify.CheckArguments, verify.CheckResult}
	bundle := w.bundle(plain)
	bare := []byte(bundle.Receipt)
	withoutContent := *bundle
	withoutContent.Content = nil
	noResult := w.bundle(func(c *receipts.Claims) { denied(c); c.Result = nil })
	noResult.Content.Result = nil
	w.permitKey = w.strangers
	w.grant(func(*permits.Permit) {})
	outside := w.bundle(plain)
	for _, tc := range []struct {
		name    string
		text    []byte
		require []string
		want    verify.State
	}{
		{"permit there", bundle.JSON(), []string{verify.CheckPermit}, verify.Valid},
		{"permit missing", bare, []string{verify.CheckPermit}, verify.Undecided},
		{"permit of a stranger", outside.JSON(), []string{verify.CheckPermit}, verify.Undecided},
		{"permit of a stranger, not required", outside.JSON(), nil, verify.Valid},
		{"content there", bundle.JSON(), content, verify.Valid},
		{"content missing", withoutContent.JSON(), content, verify.Undecided},
		{"content of nothing", noResult.JSON(), content, verify.Valid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := w.verifier(func(o *verify.Options) { o.Require = tc.require }).Judge(verify.Entry{Data: tc.text})
			if d.State != tc.want {
				t.Errorf("state %s, want %s: %v", d.State, tc.want, d.Checks)
			}
		})
	}
}

func TestContentGivenBesideTheReceipt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bare := []byte(w.receipt(plain))
	for _, tc := range []struct {
		name              string
		arguments, result []byte
		want              verify.State
	}{
		{"exact", arguments(), result(), verify.Valid},
		{"arguments in another order", []byte("{\n  \"to\": \"ap@vendor.example\", \"amount\": 1.2e3\n}\n"), nil, verify.Valid},
		{"other arguments", []byte(`{"amount":1201,"to":"ap@vendor.example"}`), nil, verify.Invalid},
		{"no arguments", []byte{}, nil, verify.Invalid},
		{"result with a line end", nil, append(result(), '\n'), verify.Invalid},
		{"no result", nil, []byte{}, verify.Invalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := w.verifier(func(o *verify.Options) { o.Arguments, o.Result = tc.arguments, tc.result })
			if d := v.Judge(verify.Entry{Data: bare}); d.State != tc.want {
				t.Errorf("state %s, want %s: %v", d.State, tc.want, d.Checks)
			}
		})
	}
}

// Negative test 35: a flipped bit is never exit 0, wherever it is in the bundle.
func TestAnyFlippedBitOfABundleIsNeverValid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, _ := w.pair(plain)
	text := first.JSON()
	v := w.verifier(func(*verify.Options) {})
	if d := v.Judge(verify.Entry{Data: text}); d.State != verify.Valid {
		t.Fatalf("the bundle itself is %s: %v", d.State, d.Checks)
	}
	flips := func(yield func(verify.Entry) bool) {
		for i := range len(text) * 8 {
			flipped := slices.Clone(text)
			flipped[i/8] ^= 1 << (i % 8)
			if !yield(verify.Entry{Line: i, Data: flipped}) {
				return
			}
		}
	}
	judged := 0
	err := v.Each(flips, runtime.GOMAXPROCS(0), func(d *verify.Verdict) error {
		if judged++; d.State == verify.Valid {
			at := d.Line / 8
			t.Errorf("bit %d of byte %d: still valid: …%q…", d.Line%8, at, text[max(at-20, 0):min(at+20, len(text))])
		}
		return nil
	})
	if err != nil || judged != len(text)*8 {
		t.Errorf("%d of %d flips judged: %v", judged, len(text)*8, err)
	}
}

func TestTrimmedBundleIsNeverValid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := w.bundle(plain).JSON()
	for end := range text {
		if _, sum := w.judge(text[:end]); sum.Exit != 3 {
			t.Errorf("cut after %d of %d bytes: exit %d, want 3", end, len(text), sum.Exit)
		}
	}
}
