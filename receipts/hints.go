package receipts

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/permits"
)

// ErrHint says that a key in a bundle is not what it says.
var ErrHint = errors.New("bad key in the bundle")

// The pointers tell a member that is absent from one that is empty.
type wireHints struct {
	Keys []wireHint `json:"keys"`
}

type wireHint struct {
	Kty       string  `json:"kty"`
	Crv       string  `json:"crv"`
	X         string  `json:"x"`
	Kid       string  `json:"kid"`
	Use       string  `json:"use"`
	Purpose   *string `json:"cf_purpose"`
	Status    *string `json:"cf_status"`
	NotBefore *int64  `json:"nbf"`
	Expires   *int64  `json:"exp"`
}

// ParseHints reads the keys of a bundle. They say which key to look for, and are
// good for nothing else: a caller must never verify with one.
func ParseHints(jwks []byte) ([]jws.Key, error) {
	w, ok := scanHints(jwks)
	if !ok {
		w = wireHints{}
		if err := canon.Decode(jwks, &w); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrHint, err)
		}
		if w.Keys == nil {
			return nil, fmt.Errorf("%w: no keys member", ErrHint)
		}
	}
	keys := make([]jws.Key, 0, len(w.Keys))
	for i := range w.Keys {
		key, err := w.Keys[i].key()
		if err != nil {
			return nil, fmt.Errorf("%w: key %d: %w", ErrHint, i, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// scanHints reads the form that hints writes, quickly; see scanClaims. All that
// stands between the values is literal, so what it accepts has one meaning.
func scanHints(jwks []byte) (wireHints, bool) {
	s := &scanner{rest: string(jwks)}
	w := wireHints{Keys: []wireHint{}}
	s.literal(`{"keys":[`)
	for !s.failed && !s.has(`]`) {
		if len(w.Keys) > 0 {
			s.literal(`,`)
		}
		purpose := s.text(`{"cf_purpose":`)
		w.Keys = append(w.Keys, wireHint{
			Kty: "OKP", Crv: "Ed25519", Use: "sig", Purpose: &purpose,
			Kid: s.text(`,"crv":"Ed25519","kid":`), X: s.text(`,"kty":"OKP","use":"sig","x":`),
		})
		s.literal(`}`)
	}
	s.literal(`]}`)
	return w, !s.failed && s.rest == ""
}

func (h *wireHint) key() (jws.Key, error) {
	x, err := base64.RawURLEncoding.Strict().DecodeString(h.X)
	switch {
	case h.Kty != "OKP" || h.Crv != "Ed25519" || h.Use != "sig":
		return jws.Key{}, errors.New("not an Ed25519 signature key")
	case err != nil || len(x) != ed25519.PublicKeySize || len(h.X) != base64.RawURLEncoding.EncodedLen(len(x)):
		return jws.Key{}, errors.New("x is not 32 bytes")
	case jws.Thumbprint(x) != h.Kid:
		return jws.Key{}, errors.New("kid is not the thumbprint")
	}
	key := jws.Key{ID: h.Kid, Public: x}
	if h.Purpose != nil {
		switch key.Purpose = jws.Purpose(*h.Purpose); key.Purpose {
		case jws.PurposeReceipt, jws.PurposePermit, jws.PurposeCheckpoint:
		default:
			return jws.Key{}, errors.New("unknown cf_purpose")
		}
	}
	if h.Status != nil {
		switch key.Status = jws.Status(*h.Status); key.Status {
		case jws.StatusNext, jws.StatusActive, jws.StatusRetired, jws.StatusRevoked:
		default:
			return jws.Key{}, errors.New("unknown cf_status")
		}
	}
	if h.NotBefore != nil {
		key.NotBefore = *h.NotBefore
	}
	if h.Expires != nil {
		key.Expires = *h.Expires
	}
	return key, nil
}

// hints writes the keys that the bundle's tokens are signed with. A status or an
// end would be old news by the time somebody reads the bundle.
func (b *Bundle) hints() []byte {
	all, err := ParseHints(b.Keys)
	if err != nil {
		all = nil
	}
	used := b.kids()
	out := []byte(`{"keys":[`)
	first := true
	for _, key := range all {
		if !used[key.ID] {
			continue
		}
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(out, '{')
		if key.Purpose != "" {
			out = appendString(out, `"cf_purpose":`, string(key.Purpose))
			out = append(out, ',')
		}
		out = appendString(out, `"crv":"Ed25519","kid":`, key.ID)
		out = appendString(out, `,"kty":"OKP","use":"sig","x":`, base64.RawURLEncoding.EncodeToString(key.Public))
		out = append(out, '}')
	}
	return append(out, `]}`...)
}

func (b *Bundle) kids() map[string]bool {
	kids := map[string]bool{}
	if t, err := jws.Guard(b.Permit, permits.Type, permits.MaxTokenBytes); err == nil {
		kids[t.Header.Kid] = true
	}
	for _, token := range append([]string{b.Receipt}, b.Related...) {
		if t, err := jws.Guard(token, Type, MaxTokenBytes); err == nil {
			kids[t.Header.Kid] = true
		}
	}
	return kids
}
