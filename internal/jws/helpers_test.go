package jws_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"testing"

	"counterfoil/internal/jws"
)

const (
	testType = "vnd.counterfoil.receipt+jwt"
	testMax  = 8192
)

var b64 = base64.RawURLEncoding

// key is a key pair that is the same in every run.
func key(t testing.TB, name string) (ed25519.PrivateKey, string) {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	priv := ed25519.NewKeyFromSeed(seed[:])
	return priv, jws.Thumbprint(priv.Public().(ed25519.PublicKey))
}

func keySet(t testing.TB, keys ...jws.Key) jws.KeySet {
	t.Helper()
	s, err := jws.NewKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// receiptKeys is the set with the one key that sign uses.
func receiptKeys(t testing.TB) jws.KeySet {
	t.Helper()
	priv, _ := key(t, "receipt")
	return keySet(t, jws.Key{Public: priv.Public().(ed25519.PublicKey), Purpose: jws.PurposeReceipt, Status: jws.StatusActive})
}

func header(t testing.TB) string {
	t.Helper()
	_, kid := key(t, "receipt")
	return fmt.Sprintf(`{"alg":"EdDSA","typ":"%s","kid":"%s"}`, testType, kid)
}

const payload = `{"v":1,"jti":"rcp_1","act":{"sub":"agt_1"},"seq":[1,2]}`

// forge signs any header and payload with the right key: whatever refuses it, the signature does not.
func forge(t testing.TB, header, payload string) string {
	t.Helper()
	return forgeSegments(t, b64.EncodeToString([]byte(header)), b64.EncodeToString([]byte(payload)))
}

func forgeSegments(t testing.TB, header, payload string) string {
	t.Helper()
	priv, _ := key(t, "receipt")
	input := header + "." + payload
	return input + "." + b64.EncodeToString(ed25519.Sign(priv, []byte(input)))
}

func verify(t testing.TB, token string) error {
	t.Helper()
	_, _, err := jws.Verify(token, testType, jws.PurposeReceipt, receiptKeys(t), testMax)
	return err
}
