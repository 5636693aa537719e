package jws_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"counterfoil/internal/jws"
)

// FuzzVerify: what Guard accepts has this one spelling; and no token verifies but the one signed.
func FuzzVerify(f *testing.F) {
	// The fuzzer has no key, so it cannot sign: only what is signed here may verify.
	ours := map[string]bool{sign(f, payload): true, sign(f, `{}`): true}
	for token := range ours {
		f.Add(token)
	}
	seeds := len(ours)
	for _, r := range refusals(f) {
		f.Add(r.token)
		seeds++
	}
	if seeds < 120 { // a target without seeds passes and tests nothing
		f.Fatalf("only %d seeds", seeds)
	}
	keys := receiptKeys(f)
	f.Fuzz(func(t *testing.T, token string) {
		tok, err := jws.Guard(token, testType, testMax)
		if err != nil {
			if _, _, err := jws.Verify(token, testType, jws.PurposeReceipt, keys, testMax); err == nil {
				t.Fatal("verified what the guard refuses")
			}
			return
		}
		parts := strings.Split(token, ".")
		if b64.EncodeToString(tok.Payload) != parts[1] || tok.SigningInput != parts[0]+"."+parts[1] || tok.Signature != parts[2] {
			t.Fatalf("%s is not the one spelling", token)
		}
		if !json.Valid(tok.Payload) || tok.Header.Alg != "EdDSA" || tok.Header.Typ != testType {
			t.Fatalf("accepted %+v", tok)
		}
		if _, _, err := jws.Verify(token, testType, jws.PurposeReceipt, keys, testMax); err == nil && !ours[token] {
			t.Fatalf("forged: %s", token)
		}
	})
}

// FuzzParseJWKS: an accepted set reads back the same from its own form, and no key in it is weak.
func FuzzParseJWKS(f *testing.F) {
	seeds := 0
	add := func(set string) { f.Add([]byte(set)); seeds++ }
	add(string(receiptKeys(f).JWKS()))
	add(`{"keys":[]}`)
	for _, pub := range weakKeys(f) {
		add(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + b64.EncodeToString(pub) + `"}]}`)
	}
	x := b64.EncodeToString(public(f, "receipt"))
	for _, member := range []string{`"alg":"EdDSA"`, `"use":"enc"`, `"cf_purpose":"permit"`, `"cf_status":"revoked"`, `"nbf":5`, `"exp":1.0`, `"d":"x"`} {
		add(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + x + `",` + member + `}]}`)
	}
	if seeds < 50 {
		f.Fatalf("only %d seeds", seeds)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := jws.ParseJWKS(data)
		if err != nil {
			return
		}
		for _, k := range set.Keys() {
			if err := jws.CheckPublic(k.Public); err != nil || k.ID != jws.Thumbprint(k.Public) {
				t.Fatalf("%+v: %v", k, err)
			}
		}
		again, err := jws.ParseJWKS(set.JWKS())
		if err != nil || !bytes.Equal(again.JWKS(), set.JWKS()) {
			t.Fatalf("%s: %v", set.JWKS(), err)
		}
	})
}
