// Package jws signs and checks compact JWS so strictly that a statement has exactly one accepted text.
package jws

import (
	"crypto"
	"crypto/ed25519"
	"errors"
	"time"
)

type Purpose string

const (
	PurposeReceipt    Purpose = "receipt"
	PurposePermit     Purpose = "permit"
	PurposeCheckpoint Purpose = "checkpoint"
)

type Status string

const (
	StatusNext    Status = "next"
	StatusActive  Status = "active"
	StatusRetired Status = "retired"
	StatusRevoked Status = "revoked"
)

var (
	ErrMalformed  = errors.New("malformed token")
	ErrType       = errors.New("token of another type")
	ErrCritical   = errors.New("critical header extension")
	ErrDuplicate  = errors.New("duplicate member in token")
	ErrKeyUnknown = errors.New("unknown key")
	ErrKeyRevoked = errors.New("revoked key")
	ErrSignature  = errors.New("signature does not verify")
	ErrKey        = errors.New("unacceptable key")
	ErrNoKey      = errors.New("no such key in the keyring")
)

type Key struct {
	ID                 string
	Public             ed25519.PublicKey
	Purpose            Purpose
	Status             Status
	NotBefore, Expires int64
}

// InUse reports whether the key was meant to sign at that time (Unix seconds).
func (k Key) InUse(at int64) bool {
	return at >= k.NotBefore && (k.Expires == 0 || at < k.Expires)
}

type Header struct{ Alg, Typ, Kid string }

type Token struct {
	Header                  Header
	Payload                 []byte
	SigningInput, Signature string
}

type KeySet struct{ keys []Key }

type Signer struct {
	kid string
	key crypto.Signer
}

type Keyring struct{ dir string }

func Thumbprint(pub ed25519.PublicKey) string { panic("later") }

func CheckPublic(pub ed25519.PublicKey) error { panic("later") }

func NewKeySet(keys ...Key) (KeySet, error) { panic("later") }

func ParseJWKS(data []byte) (KeySet, error) { panic("later") }

func ParsePEM(data []byte) (KeySet, error) { panic("later") }

func (s KeySet) JWKS() []byte { panic("later") }

func (s KeySet) Find(kid string, p Purpose) (Key, bool) { panic("later") }

func (s KeySet) Keys() []Key { panic("later") }

func (s KeySet) Merge(o KeySet) KeySet { panic("later") }

func Guard(token, typ string, maxBytes int) (Token, error) { panic("later") }

func Verify(token, typ string, p Purpose, keys KeySet, maxBytes int) (Token, Key, error) {
	panic("later")
}

func (s Signer) KeyID() string { return s.kid }

func (s Signer) Public() ed25519.PublicKey { panic("later") }

func (s Signer) Sign(signingInput string) (string, error) { panic("later") }

func SigningInput(typ, kid string, payload []byte) string { panic("later") }

func SignerFromKey(priv ed25519.PrivateKey) (Signer, error) { panic("later") }

func OpenKeyring(dir string) (*Keyring, error) { panic("later") }

func CreateMissing(dir string, now time.Time) (*Keyring, []Key, error) { panic("later") }

func (k *Keyring) Reload() error { panic("later") }

func (k *Keyring) Rotate(p Purpose, now time.Time) (Key, error) { panic("later") }

func (k *Keyring) AddNext(p Purpose, now time.Time) (Key, error) { panic("later") }

func (k *Keyring) Active(p Purpose) (Signer, error) { panic("later") }

func (k *Keyring) Signer(kid string) (Signer, bool) { panic("later") }

func (k *Keyring) Public() KeySet { panic("later") }
