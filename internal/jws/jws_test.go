package jws_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"counterfoil/internal/jws"
)

func signer(t testing.TB) jws.Signer {
	t.Helper()
	priv, _ := key(t, "receipt")
	s, err := jws.SignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sign(t testing.TB, payload string) string {
	t.Helper()
	s := signer(t)
	input := jws.SigningInput(testType, s.KeyID(), []byte(payload))
	sig, err := s.Sign(input)
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + sig
}

func TestSignedTokenIsExactlyTheContracts(t *testing.T) {
	t.Parallel()
	token := sign(t, payload)
	if want := forge(t, header(t), payload); token != want {
		t.Errorf("got  %s\nwant %s", token, want)
	}
	got, k, err := jws.Verify(token, testType, jws.PurposeReceipt, receiptKeys(t), testMax)
	if err != nil {
		t.Fatal(err)
	}
	want := jws.Header{Alg: "EdDSA", Typ: testType, Kid: signer(t).KeyID()}
	if got.Header != want || string(got.Payload) != payload || got.SigningInput+"."+got.Signature != token || k.ID != want.Kid {
		t.Errorf("got %+v, key %+v", got, k)
	}
	if again := sign(t, payload); again != token {
		t.Error("a second signature differs")
	}
}

func TestLimitIsInBytesOfTheToken(t *testing.T) {
	t.Parallel()
	token := sign(t, payload)
	for limit, ok := range map[int]bool{len(token): true, len(token) - 1: false, 0: false, -1: false} {
		if _, err := jws.Guard(token, testType, limit); (err == nil) != ok {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

// An outside issuer's library may order and space the header as it likes: its bytes are signed.
func TestHeaderMembersMayComeInAnyOrder(t *testing.T) {
	t.Parallel()
	_, kid := key(t, "receipt")
	if err := verify(t, forge(t, fmt.Sprintf(`{ "kid":"%s", "typ":"%s", "alg":"EdDSA" }`, kid, testType), " "+payload+"\n")); err != nil {
		t.Error(err)
	}
}

func TestNothingVerifiesUnderNoType(t *testing.T) {
	t.Parallel()
	token := forge(t, strings.Replace(header(t), testType, "", 1), payload)
	if _, err := jws.Guard(token, "", testMax); !errors.Is(err, jws.ErrType) {
		t.Error(err)
	}
}

func TestSignerRefuses(t *testing.T) {
	t.Parallel()
	if _, err := (jws.Signer{}).Sign("x"); err == nil {
		t.Error("the zero signer signed")
	}
	if _, err := jws.SignerFromKey(make([]byte, 31)); !errors.Is(err, jws.ErrKey) {
		t.Error(err)
	}
	small := make(ed25519.PrivateKey, 64) // a private key whose public half, the last 32 bytes, is no good
	small[32] = 1
	if _, err := jws.SignerFromKey(small); !errors.Is(err, jws.ErrKey) {
		t.Error(err)
	}
}

// The outside check an auditor can make with what is on every machine.
func TestOpenSSLVerifiesAToken(t *testing.T) {
	t.Parallel()
	token := sign(t, payload)
	dot := strings.LastIndexByte(token, '.')
	sig, err := b64.DecodeString(token[dot+1:])
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(signer(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pub := write("pub.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	sigFile := write("sig.bin", sig)
	run := func(input string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "openssl", "pkeyutl", "-verify", "-pubin", "-inkey", pub,
			"-rawin", "-in", write("signing_input", []byte(input)), "-sigfile", sigFile).CombinedOutput()
		return string(out), err
	}
	if out, err := run(token[:dot]); err != nil {
		t.Errorf("openssl must be installed and accept the token: %v\n%s", err, out)
	}
	if out, err := run(token[:dot-1] + "A"); err == nil {
		t.Errorf("openssl accepts a changed token: %s", out)
	}
}

func ExampleVerify() {
	signer, err := jws.SignerFromKey(ed25519.NewKeyFromSeed(make([]byte, 32)))
	if err != nil {
		panic(err)
	}
	input := jws.SigningInput("example+jwt", signer.KeyID(), []byte(`{"sub":"wal_ops"}`))
	sig, err := signer.Sign(input)
	if err != nil {
		panic(err)
	}
	keys, err := jws.NewKeySet(jws.Key{Public: signer.Public(), Purpose: jws.PurposeReceipt})
	if err != nil {
		panic(err)
	}
	token, key, err := jws.Verify(input+"."+sig, "example+jwt", jws.PurposeReceipt, keys, 4096)
	fmt.Println(string(token.Payload), key.ID, err)
	_, _, err = jws.Verify(input+".\n"+sig, "example+jwt", jws.PurposeReceipt, keys, 4096)
	fmt.Println(err)
	// Output:
	// {"sub":"wal_ops"} 9ZP03Nu8GrXPAUkbKNxHOKBzxPX83SShgFkRNK-f2lw <nil>
	// malformed token: not three base64url segments with a 64-byte signature
}
