package jws

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
)

// Signer signs with one key, of which it knows no more than crypto.Signer does, so that the key may
// live elsewhere. The zero Signer signs nothing.
type Signer struct {
	kid    string
	public ed25519.PublicKey
	key    crypto.Signer
}

// NewSigner wraps an Ed25519 key that signs messages themselves, not digests.
func NewSigner(key crypto.Signer) (Signer, error) {
	pub, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return Signer{}, fmt.Errorf("%w: not an Ed25519 key", ErrKey)
	}
	if err := CheckPublic(pub); err != nil {
		return Signer{}, err
	}
	return Signer{kid: Thumbprint(pub), public: pub, key: key}, nil
}

// SignerFromKey is NewSigner for a private key in memory.
func SignerFromKey(priv ed25519.PrivateKey) (Signer, error) {
	if len(priv) != ed25519.PrivateKeySize {
		return Signer{}, fmt.Errorf("%w: not an Ed25519 private key", ErrKey)
	}
	return NewSigner(priv)
}

// KeyID is the thumbprint of the public key.
func (s Signer) KeyID() string { return s.kid }

// Public is the key the signatures verify under.
func (s Signer) Public() ed25519.PublicKey { return s.public }

// Sign returns the third segment for a signing input. The same input always gets the same signature.
func (s Signer) Sign(signingInput string) (sig string, err error) {
	if s.key == nil {
		return "", errors.New("sign: no key")
	}
	raw, err := s.key.Sign(rand.Reader, []byte(signingInput), crypto.Hash(0))
	if err != nil {
		return "", fmt.Errorf("sign with key %s: %w", s.kid, err)
	}
	if len(raw) != ed25519.SignatureSize {
		return "", fmt.Errorf("sign with key %s: %d bytes are no signature", s.kid, len(raw))
	}
	return b64.EncodeToString(raw), nil
}
