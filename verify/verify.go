// Package verify judges receipts and bundles offline, and never calls valid what
// it could not check with a key that its caller trusts.
//
// It opens no file and no socket and knows no clock. What it needs of a receipt's
// surroundings is passed in: the trusted keys, and the content whose hashes the
// receipt holds. Each receipt is judged alone (Verifier), then as a member of the
// set that it came in (Set).
package verify

import (
	"crypto/sha256"
	"errors"
	"strings"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/receipts"
)

// Options says what is asked of each receipt.
type Options struct {
	Trust  *Trust
	Issuer string // "" = any
	// Arguments and Result are content given beside the receipt; nil = none.
	Arguments, Result []byte
	// Require lists checks, by name, that must pass.
	Require []string
}

// Verifier judges one receipt at a time. It may be used by many goroutines.
type Verifier struct {
	opts    Options
	permits permitCache
}

// New returns a Verifier that trusts nothing but o.Trust.
func New(o Options) *Verifier { return &Verifier{opts: o} }

// Judge says all that can be said of one entry by itself.
func (v *Verifier) Judge(e Entry) *Verdict {
	d := &Verdict{File: e.File, Line: e.Line}
	v.judge(d, e)
	d.conclude(v.opts.Require)
	return d
}

func (v *Verifier) judge(d *Verdict, e Entry) {
	if e.Fault != "" {
		d.add(CheckForm, NotChecked, e.Fault, e.Detail)
		return
	}
	b, code, detail := open(e.Data)
	if code != OK {
		d.add(CheckForm, NotChecked, code, detail)
		return
	}
	hints, code := v.hints(b)
	if code != OK {
		d.add(CheckForm, NotChecked, code, "")
		return
	}
	d.pass(CheckForm, "")
	if !v.receipt(d, b.Receipt, hints) {
		return
	}
	v.issuer(d)
	v.permit(d, b.Permit)
	v.content(d, b.Content)
	v.related(d, b.Related, hints)
	proof(d, b.Proof)
}

// open takes a bundle, or a bare receipt as a bundle of itself alone.
func open(data []byte) (*receipts.Bundle, Code, string) {
	if len(data) > 0 && data[0] == '{' {
		b, err := receipts.ParseBundle(data)
		switch {
		case errors.Is(err, receipts.ErrVersion):
			return nil, Version, err.Error()
		case err != nil:
			return nil, Malformed, err.Error()
		case !isCompact(b.Receipt):
			return nil, Malformed, "the receipt is not a compact JWS"
		}
		return b, OK, ""
	}
	token := string(data)
	if strings.HasPrefix(token, `"`) {
		if err := canon.Decode(data, &token); err != nil {
			return nil, Malformed, err.Error()
		}
	}
	if !isCompact(token) {
		return nil, Malformed, "neither JSON nor a compact JWS"
	}
	return &receipts.Bundle{Receipt: token}, OK, ""
}

// isCompact tells a damaged receipt, which is evidence, from a text that is none:
// cut off, or something else.
func isCompact(token string) bool {
	const signatureLength = 86
	if len(token) > receipts.MaxTokenBytes {
		return false
	}
	header, rest, _ := strings.Cut(token, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	return header != "" && payload != "" && len(signature) == signatureLength &&
		isBase64URL(header) && isBase64URL(payload) && isBase64URL(signature)
}

func isBase64URL(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alnum && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// hints returns the ids of the bundle's keys, if none contradicts a trusted one.
func (v *Verifier) hints(b *receipts.Bundle) (map[string]bool, Code) {
	ids := make(map[string]bool, len(b.Hints))
	for _, hint := range b.Hints {
		if v.opts.Trust.contradicts(hint) {
			return nil, KeyHint
		}
		ids[hint.ID] = true
	}
	return ids, OK
}

// receipt checks signature and claims, and reports whether there are claims that
// are worth comparing with anything.
func (v *Verifier) receipt(d *Verdict, token string, hints map[string]bool) bool {
	r, code, detail := v.read(token, hints)
	if r.key.ID == "" {
		d.add(CheckSignature, code.status(), code, detail)
		return false
	}
	d.Key = &KeyUse{ID: r.key.ID, Status: string(r.key.Status), Source: v.opts.Trust.source[r.key.ID]}
	d.Claims, d.head = r.claims, r.head
	if d.Claims != nil && r.key.Expires != 0 && d.Claims.IssuedAt > r.key.Expires {
		// A gateway may sign a while with the key that it was started with. A leaked
		// key is taken out of the trust files or revoked; its end alone says little,
		// since whoever has the key also chooses iat.
		d.add(CheckSignature, Pass, KeyWindow, "")
	} else {
		d.pass(CheckSignature, "")
	}
	d.add(CheckClaims, code.status(), code, detail)
	return d.Claims != nil
}

// signed is a receipt as far as it could be read: without a key its signature did
// not verify, without claims its payload is none of ours.
type signed struct {
	key    jws.Key
	claims *receipts.Claims
	head   [sha256.Size]byte // of the signing input
}

func (v *Verifier) read(token string, hints map[string]bool) (signed, Code, string) {
	tok, key, err := jws.Verify(token, receipts.Type, jws.PurposeReceipt, v.opts.Trust.keys, receipts.MaxTokenBytes)
	if err != nil {
		return signed{}, v.tokenCode(err, token, hints), err.Error()
	}
	r := signed{key: key, head: sha256.Sum256([]byte(tok.SigningInput))}
	r.claims, err = receipts.ParseClaims(tok.Payload)
	switch {
	case errors.Is(err, receipts.ErrVersion):
		return r, Version, err.Error()
	case err != nil:
		return r, BadClaims, err.Error()
	}
	if err := r.claims.Consistent(); err != nil {
		return r, Inconsistent, err.Error()
	}
	return r, OK, ""
}

// tokenCode turns a refusal of the token into its code.
func (v *Verifier) tokenCode(err error, token string, hints map[string]bool) Code {
	switch {
	case !isCompact(token):
		return Malformed
	case errors.Is(err, jws.ErrKeyRevoked):
		return KeyRevoked
	case errors.Is(err, jws.ErrKeyUnknown):
		t, guardErr := jws.Guard(token, receipts.Type, receipts.MaxTokenBytes)
		if guardErr == nil && v.heardOf(t.Header.Kid, hints) {
			return KeyUntrusted
		}
		return KeyUnknown
	case errors.Is(err, jws.ErrSignature):
		return SigBad
	case errors.Is(err, jws.ErrCritical):
		return HdrCrit
	case errors.Is(err, jws.ErrDuplicate):
		return DupMember
	case errors.Is(err, jws.ErrType):
		return Typ
	}
	return NotCanonical
}

func (v *Verifier) heardOf(kid string, hints map[string]bool) bool {
	_, otherPurpose := v.opts.Trust.byID[kid]
	return otherPurpose || hints[kid]
}

func (v *Verifier) issuer(d *Verdict) {
	switch v.opts.Issuer {
	case "":
		d.add(CheckIssuer, NotSupplied, IssuerAny, "")
	case d.Claims.Issuer:
		d.pass(CheckIssuer, "")
	default:
		d.add(CheckIssuer, Fail, Issuer, "")
	}
}

func proof(d *Verdict, text string) {
	if text != "" {
		d.add(CheckInclusion, NotChecked, ProofUnsupported, "")
		d.add(CheckWitness, NotChecked, ProofUnsupported, "")
		return
	}
	d.add(CheckInclusion, NotSupplied, ProofMissing, "")
	d.add(CheckWitness, NotSupplied, ProofMissing, "")
}
