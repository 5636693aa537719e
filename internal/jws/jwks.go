package jws

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"

	"counterfoil/internal/canon"
)

// jwk holds the members of a JSON Web Key that are understood; any other is refused, "d" above all.
type jwk struct {
	Kty       string   `json:"kty"`
	Crv       string   `json:"crv"`
	X         string   `json:"x"`
	Kid       string   `json:"kid"`
	Use       string   `json:"use"`
	Alg       string   `json:"alg"`
	KeyOps    []string `json:"key_ops"`
	Purpose   Purpose  `json:"cf_purpose"`
	Status    Status   `json:"cf_status"`
	NotBefore int64    `json:"nbf"`
	Expires   int64    `json:"exp"`
}

// ParseJWKS reads a key set, ours or somebody else's, of Ed25519 public keys. A kid may be absent but
// must otherwise be the thumbprint. A set of no keys is a set.
func ParseJWKS(data []byte) (KeySet, error) {
	var wire struct {
		Keys *[]jwk `json:"keys"`
	}
	if err := canon.Decode(data, &wire); err != nil {
		return KeySet{}, fmt.Errorf("%w: key set: %w", ErrKey, err)
	}
	if wire.Keys == nil {
		return KeySet{}, fmt.Errorf("%w: key set has no keys member", ErrKey)
	}
	keys := make([]Key, 0, len(*wire.Keys))
	for i, w := range *wire.Keys {
		k, err := w.key()
		if err != nil {
			return KeySet{}, fmt.Errorf("key %d: %w", i, err)
		}
		keys = append(keys, k)
	}
	return NewKeySet(keys...)
}

func (w jwk) key() (Key, error) {
	if w.Kty != "OKP" || w.Crv != "Ed25519" {
		return Key{}, fmt.Errorf("%w: not an Ed25519 key", ErrKey)
	}
	if (w.Use != "" && w.Use != "sig") || (w.KeyOps != nil && !slices.Contains(w.KeyOps, "verify")) {
		return Key{}, fmt.Errorf("%w: not for signatures", ErrKey)
	}
	if w.Alg != "" && w.Alg != "EdDSA" && w.Alg != "Ed25519" {
		return Key{}, fmt.Errorf("%w: for another algorithm", ErrKey)
	}
	x, err := b64.DecodeString(w.X)
	if err != nil || b64.EncodeToString(x) != w.X {
		return Key{}, fmt.Errorf("%w: x is not strict base64url", ErrKey)
	}
	return Key{
		ID: w.Kid, Public: ed25519.PublicKey(x), Purpose: w.Purpose, Status: w.Status,
		NotBefore: w.NotBefore, Expires: w.Expires,
	}, nil
}

// JWKS is the set as it is published. It has no alg: a key that says "EdDSA" makes some verifiers
// refuse its tokens, one that says "Ed25519" others.
func (s KeySet) JWKS() []byte {
	out := []byte(`{"keys":[`)
	for i, k := range s.Keys() {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, `{"kty":"OKP","crv":"Ed25519"`...)
		out = appendText(out, "x", b64.EncodeToString(k.Public))
		out = appendText(out, "kid", k.ID)
		out = append(out, `,"use":"sig"`...)
		out = appendText(out, "cf_purpose", string(k.Purpose))
		out = appendText(out, "cf_status", string(k.Status))
		out = appendTime(out, "nbf", k.NotBefore)
		out = appendTime(out, "exp", k.Expires)
		out = append(out, '}')
	}
	return append(out, `]}`...)
}

func appendText(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(dst, `,"`+name+`":`...)
	return canon.AppendString(dst, value)
}

func appendTime(dst []byte, name string, value int64) []byte {
	if value == 0 {
		return dst
	}
	return strconv.AppendInt(append(dst, `,"`+name+`":`...), value, 10)
}

// ParsePEM reads one or more SPKI public keys, each good for any purpose.
func ParsePEM(data []byte) (KeySet, error) {
	var keys []Key
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		data = rest
		if block.Type != "PUBLIC KEY" {
			return KeySet{}, fmt.Errorf("%w: PEM block is not a PUBLIC KEY", ErrKey)
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return KeySet{}, fmt.Errorf("%w: PEM block is not a public key", ErrKey)
		}
		pub, ok := parsed.(ed25519.PublicKey)
		if !ok {
			return KeySet{}, fmt.Errorf("%w: not an Ed25519 key", ErrKey)
		}
		keys = append(keys, Key{Public: pub})
	}
	if len(keys) == 0 || len(bytes.TrimSpace(data)) > 0 {
		return KeySet{}, fmt.Errorf("%w: not PEM, or something else beside it", ErrKey)
	}
	return NewKeySet(keys...)
}
