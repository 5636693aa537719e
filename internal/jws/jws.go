// Package jws signs and checks compact JWS so strictly that a statement has exactly one accepted text.
//
// JWT libraries forgive: a line break in the signature, a repeated member, another letter case, an
// unknown critical extension. Each pardon gives one signed statement a second text, or two readers of
// one text. Guard therefore refuses, before golang-jwt sees a token, all that the contract does not
// spell out; Verify then leaves the signature to golang-jwt with the algorithm pinned.
//
// Keys come from a KeySet by thumbprint and purpose, never from the token, and every one that enters a
// set is a canonically encoded point of prime order: under any other, one signature can fit two
// messages. Time is not judged here: whether a permit is in its window is a verdict, with a receipt.
package jws

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"counterfoil/internal/canon"

	"github.com/golang-jwt/jwt/v5"
)

// A refused token is exactly one of these, by errors.Is.
var (
	ErrMalformed  = errors.New("malformed token")
	ErrType       = errors.New("token of another type")
	ErrCritical   = errors.New("token with a critical extension")
	ErrDuplicate  = errors.New("token with a repeated member")
	ErrKeyUnknown = errors.New("unknown key")
	ErrKeyRevoked = errors.New("revoked key")
	ErrSignature  = errors.New("signature does not verify")
)

const (
	algorithm     = "EdDSA"
	maxTokenDepth = 8
	signatureLen  = 86 // base64url of 64 bytes
)

var b64 = base64.RawURLEncoding.Strict()

// Header is the protected header; nothing else may stand in it.
type Header struct{ Alg, Typ, Kid string }

// Token is a token that has passed Guard. Payload is the signed JSON, byte for byte.
type Token struct {
	Header       Header
	Payload      []byte
	SigningInput string // the first two segments and the dot between them
	Signature    string // the third segment
}

// Guard takes a compact JWS of type typ and at most maxBytes apart. It needs no key and proves no
// signature, but what it passes has one spelling and one meaning: strict base64url, a header of
// exactly alg, typ and kid, and as payload one strict JSON object whose numbers are all integers.
func Guard(token, typ string, maxBytes int) (Token, error) {
	if len(token) > maxBytes {
		return Token{}, fmt.Errorf("%w: longer than %d bytes", ErrMalformed, maxBytes)
	}
	header, payload, signature, ok := segments(token)
	if !ok {
		return Token{}, fmt.Errorf("%w: not three base64url segments with a 64-byte signature", ErrMalformed)
	}
	t := Token{SigningInput: token[:len(header)+1+len(payload)], Signature: signature}
	headerJSON, err := object(header, "header")
	if err != nil {
		return Token{}, err
	}
	if t.Header, err = parseHeader(headerJSON, typ); err != nil {
		return Token{}, err
	}
	if t.Payload, err = object(payload, "payload"); err != nil {
		return Token{}, err
	}
	if _, err := b64.DecodeString(signature); err != nil {
		return Token{}, fmt.Errorf("%w: signature is not strict base64url", ErrMalformed)
	}
	return t, nil
}

// segments is \A[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{86}\z.
func segments(token string) (header, payload, signature string, ok bool) {
	for i := range len(token) {
		c := token[i]
		if !('A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.') {
			return "", "", "", false
		}
	}
	header, rest, _ := strings.Cut(token, ".")
	payload, signature, _ = strings.Cut(rest, ".")
	ok = header != "" && payload != "" && len(signature) == signatureLen && !strings.Contains(signature, ".")
	return header, payload, signature, ok
}

func object(segment, part string) ([]byte, error) {
	// golang-jwt, like most decoders, would take a segment with line breaks or with other trailing
	// bits for the same bytes; the alphabet check and Strict leave one spelling.
	data, err := b64.DecodeString(segment)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not strict base64url", ErrMalformed, part)
	}
	if err := canon.CheckClaims(data, maxTokenDepth); err != nil {
		if errors.Is(err, canon.ErrDuplicate) {
			return nil, fmt.Errorf("%w: %s: %w", ErrDuplicate, part, err)
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, part, err)
	}
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); trimmed[0] != '{' { // not empty, being JSON
		return nil, fmt.Errorf("%w: %s is not an object", ErrMalformed, part)
	}
	return data, nil
}

func parseHeader(data []byte, typ string) (Header, error) {
	if _, found := canon.Lookup(data, "/crit"); found {
		return Header{}, fmt.Errorf("%w: crit", ErrCritical)
	}
	var wire struct {
		Alg string `json:"alg"`
		Typ string `json:"typ"`
		Kid string `json:"kid"`
	}
	if err := canon.Decode(data, &wire); err != nil {
		return Header{}, fmt.Errorf("%w: header: %w", ErrMalformed, err)
	}
	if wire.Alg != algorithm {
		return Header{}, fmt.Errorf("%w: alg is not %s", ErrMalformed, algorithm)
	}
	if wire.Typ == "" || wire.Typ != typ {
		return Header{}, fmt.Errorf("%w: typ is not %s", ErrType, typ)
	}
	if !isThumbprint(wire.Kid) {
		return Header{}, fmt.Errorf("%w: kid is not a key thumbprint", ErrMalformed)
	}
	return Header(wire), nil
}

// Verify is Guard, and then: the key that kid names is in keys for purpose p, and has signed the
// token. On ErrKeyRevoked, which is judged last, token and key are returned as well.
func Verify(token, typ string, p Purpose, keys KeySet, maxBytes int) (Token, Key, error) {
	t, err := Guard(token, typ, maxBytes)
	if err != nil {
		return Token{}, Key{}, err
	}
	key, ok := keys.Find(t.Header.Kid, p)
	if !ok {
		return Token{}, Key{}, fmt.Errorf("%w: %s, for a %s", ErrKeyUnknown, t.Header.Kid, p)
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{algorithm}),
		jwt.WithStrictDecoding(),
		jwt.WithoutClaimsValidation())
	// The key is typed: golang-jwt would take a []byte for an HMAC secret.
	_, err = parser.ParseWithClaims(token, &unread{}, func(*jwt.Token) (any, error) { return key.Public, nil })
	if err != nil {
		return Token{}, Key{}, fmt.Errorf("%w by key %s", ErrSignature, key.ID)
	}
	if key.Status == StatusRevoked {
		return t, key, fmt.Errorf("%w: %s", ErrKeyRevoked, key.ID)
	}
	return t, key, nil
}

// unread keeps golang-jwt from interpreting claims, which it would do leniently.
type unread struct{ jwt.RegisteredClaims }

func (*unread) UnmarshalJSON([]byte) error { return nil }

// SigningInput is what is signed: the header with its members in the contract's order, a dot, the payload.
func SigningInput(typ, kid string, payload []byte) string {
	header := make([]byte, 0, 160)
	header = append(header, `{"alg":"`+algorithm+`","typ":`...)
	header = canon.AppendString(header, typ)
	header = append(header, `,"kid":`...)
	header = canon.AppendString(header, kid)
	header = append(header, '}')
	out := make([]byte, 0, b64.EncodedLen(len(header))+1+b64.EncodedLen(len(payload)))
	out = b64.AppendEncode(out, header)
	out = append(out, '.')
	out = b64.AppendEncode(out, payload)
	return string(out)
}

func isThumbprint(kid string) bool {
	if len(kid) != 43 {
		return false
	}
	_, err := b64.DecodeString(kid)
	return err == nil && !strings.ContainsAny(kid, "\r\n") // which the decoder would skip
}

// publicKey is the only way from bytes to a key that verifies anything.
func publicKey(raw []byte) (ed25519.PublicKey, error) {
	pub := ed25519.PublicKey(raw)
	if err := CheckPublic(pub); err != nil {
		return nil, err
	}
	return pub, nil
}
