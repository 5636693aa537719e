package jws

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"filippo.io/edwards25519"
)

// ErrKey is wrapped by every refusal of key material.
var ErrKey = errors.New("unacceptable key")

// Purpose keeps kinds of signature apart: a key signs for one.
type Purpose string

// The purposes of the contract. A key from a PEM file, or from somebody else's JWKS, has none (""),
// and stands for any.
const (
	PurposeReceipt    Purpose = "receipt"
	PurposePermit     Purpose = "permit"
	PurposeCheckpoint Purpose = "checkpoint"
)

// Status is where a key is in its life.
type Status string

// The statuses of the contract. "" is a key that came without one.
const (
	StatusNext    Status = "next"    // published ahead of its use
	StatusActive  Status = "active"  // signs
	StatusRetired Status = "retired" // signs nothing new; what it has signed stays valid
	StatusRevoked Status = "revoked" // nothing it has signed can be relied on
)

var (
	purposes = []Purpose{PurposeReceipt, PurposePermit, PurposeCheckpoint, ""}
	statuses = []Status{"", StatusNext, StatusActive, StatusRetired, StatusRevoked} // each stricter than the one before
)

// Key is a public key and what its publisher says of it.
type Key struct {
	ID                 string // RFC 7638 thumbprint; NewKeySet fills it in
	Public             ed25519.PublicKey
	Purpose            Purpose
	Status             Status
	NotBefore, Expires int64 // Unix seconds: taken into use, retired; 0 is none
}

// InUse reports whether the key was in use at that Unix second, as its publisher tells it.
func (k Key) InUse(at int64) bool {
	return at >= k.NotBefore && (k.Expires == 0 || at < k.Expires)
}

// Thumbprint is the RFC 7638 name of a public key.
func Thumbprint(pub ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + b64.EncodeToString(pub) + `"}`))
	return b64.EncodeToString(sum[:])
}

// CheckPublic refuses what is not the canonical encoding of a point of prime order. Under a key of
// small or mixed order one signature may fit several messages, and verifiers disagree about it.
func CheckPublic(pub ed25519.PublicKey) error {
	a, err := new(edwards25519.Point).SetBytes(pub)
	if err != nil {
		return fmt.Errorf("%w: not a point of the curve", ErrKey)
	}
	if !slices.Equal(a.Bytes(), pub) {
		return fmt.Errorf("%w: not the canonical encoding of its point", ErrKey)
	}
	identity := edwards25519.NewIdentityPoint()
	if new(edwards25519.Point).MultByCofactor(a).Equal(identity) == 1 {
		return fmt.Errorf("%w: a point of small order", ErrKey)
	}
	// [L]A as [L−1]A + A, since a scalar is kept modulo L.
	one, err := edwards25519.NewScalar().SetCanonicalBytes(append([]byte{1}, make([]byte, 31)...))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKey, err)
	}
	la := new(edwards25519.Point).ScalarMult(edwards25519.NewScalar().Negate(one), a)
	if la.Add(la, a).Equal(identity) != 1 {
		return fmt.Errorf("%w: a point of mixed order", ErrKey)
	}
	return nil
}

// KeySet is an unchanging set of keys, one for each thumbprint. The zero set is empty.
type KeySet struct{ byID map[string]Key }

// NewKeySet checks each key, names it by its own thumbprint, and refuses a key that is there twice.
func NewKeySet(keys ...Key) (KeySet, error) {
	s := KeySet{byID: make(map[string]Key, len(keys))}
	for i, k := range keys {
		pub, err := publicKey(slices.Clone(k.Public))
		if err != nil {
			return KeySet{}, fmt.Errorf("key %d: %w", i, err)
		}
		id := Thumbprint(pub)
		if k.ID != "" && k.ID != id {
			return KeySet{}, fmt.Errorf("key %d: %w: its name is not its thumbprint", i, ErrKey)
		}
		if _, twice := s.byID[id]; twice {
			return KeySet{}, fmt.Errorf("key %d: %w: there twice", i, ErrKey)
		}
		if !slices.Contains(purposes, k.Purpose) || !slices.Contains(statuses, k.Status) || k.NotBefore < 0 || k.Expires < 0 {
			return KeySet{}, fmt.Errorf("key %d: %w: unknown purpose, status or time", i, ErrKey)
		}
		k.ID, k.Public = id, pub
		s.byID[id] = k
	}
	return s, nil
}

// Find returns the key of that thumbprint, if it may serve that purpose.
func (s KeySet) Find(kid string, p Purpose) (Key, bool) {
	k, ok := s.byID[kid]
	if !ok || (k.Purpose != p && k.Purpose != "") {
		return Key{}, false
	}
	return k, true
}

// Keys returns the keys in a stable order: by purpose, then time of use, then thumbprint.
func (s KeySet) Keys() []Key {
	return slices.SortedFunc(maps.Values(s.byID), func(a, b Key) int {
		return cmp.Or(
			cmp.Compare(slices.Index(purposes, a.Purpose), slices.Index(purposes, b.Purpose)),
			cmp.Compare(a.NotBefore, b.NotBefore),
			cmp.Compare(a.ID, b.ID))
	})
}

// Merge returns the keys of both sets. Where both have a key, a stated purpose beats none, s's purpose
// beats o's, and of status and times the stricter ones hold.
func (s KeySet) Merge(o KeySet) KeySet {
	out := KeySet{byID: make(map[string]Key, len(s.byID)+len(o.byID))}
	maps.Copy(out.byID, s.byID)
	for id, k := range o.byID {
		if mine, both := out.byID[id]; both {
			k = stricter(mine, k)
		}
		out.byID[id] = k
	}
	return out
}

func stricter(a, b Key) Key {
	a.Purpose = cmp.Or(a.Purpose, b.Purpose)
	if slices.Index(statuses, b.Status) > slices.Index(statuses, a.Status) {
		a.Status = b.Status
	}
	a.NotBefore = max(a.NotBefore, b.NotBefore)
	if a.Expires == 0 || (b.Expires != 0 && b.Expires < a.Expires) {
		a.Expires = b.Expires
	}
	return a
}
