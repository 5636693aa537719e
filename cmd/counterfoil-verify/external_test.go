package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Tools that know nothing of Counterfoil come to the same verdict, from the
// receipt and the published keys alone.

func write(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// receiptAndKey returns a receipt, and in PEM the key of the JWKS that it names.
func receiptAndKey(t *testing.T) (token string, key []byte) {
	t.Helper()
	token = strings.TrimSpace(string(body(t, "valid-receipt")))
	header, err := base64.RawURLEncoding.DecodeString(token[:strings.IndexByte(token, '.')])
	if err != nil {
		t.Fatal(err)
	}
	var named struct{ Kid string }
	if err := json.Unmarshal(header, &named); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(vectorDir, "trust.jwks"))
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Keys []struct{ Kid, X string } }
	if err := json.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	for _, k := range set.Keys {
		if k.Kid != named.Kid {
			continue
		}
		x, err := base64.RawURLEncoding.DecodeString(k.X)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(x))
		if err != nil {
			t.Fatal(err)
		}
		return token, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}
	t.Fatal("the JWKS does not have the receipt's key")
	return "", nil
}

func TestReceiptVerifiesWithOpenSSL(t *testing.T) {
	t.Parallel()
	token, key := receiptAndKey(t)
	dot := strings.LastIndexByte(token, '.')
	sig, err := base64.RawURLEncoding.DecodeString(token[dot+1:])
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "pub.pem", key)
	write(t, dir, "sig.bin", sig)
	for input, good := range map[string]bool{token[:dot]: true, exchanged(token[:dot]): false} {
		write(t, dir, "signing_input", []byte(input))
		cmd := exec.Command("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "pub.pem", "-rawin",
			"-in", "signing_input", "-sigfile", "sig.bin")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if (err == nil) != good {
			t.Errorf("openssl: %v, want success %v\n%s", err, good, out)
		}
	}
}

// A PEM key is a trust file as well.
func TestPEMIsATrustFile(t *testing.T) {
	t.Parallel()
	token, key := receiptAndKey(t)
	trusted := write(t, t.TempDir(), "pub.pem", key)
	for text, want := range map[string]int{token: exitOK, string(body(t, "valid-bundle")): exitOK, string(body(t, "bad-signature")): 1} {
		var out bytes.Buffer
		if got := run([]string{"--trust", trusted, "-"}, strings.NewReader(text), &out, &out); got != want {
			t.Errorf("exit %d, want %d\n%s", got, want, &out)
		}
	}
}

const joseScript = `
import { readFileSync } from 'node:fs'
import { compactVerify, createLocalJWKSet } from 'jose'
const keys = createLocalJWKSet(JSON.parse(readFileSync('jwks.json', 'utf8')))
const { payload, protectedHeader } = await compactVerify(readFileSync('receipt.jws', 'utf8').trim(), keys, { algorithms: ['EdDSA'] })
const claims = JSON.parse(new TextDecoder().decode(payload))
console.log(protectedHeader.typ, claims.jti, claims.outcome, claims.credits.charged)
`

func TestReceiptVerifiesWithJose(t *testing.T) {
	t.Parallel()
	token, _ := receiptAndKey(t)
	keys, err := os.ReadFile(filepath.Join(vectorDir, "trust.jwks"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "package.json", []byte(`{"private":true,"type":"module"}`))
	write(t, dir, "verify.mjs", []byte(joseScript))
	write(t, dir, "jwks.json", keys)
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", filepath.Join(dir, "cache"), "jose@6.2.0")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm install jose: %v\n%s", err, out)
	}
	const want = "vnd.counterfoil.receipt+jwt rcp_1 succeeded 5\n"
	for text, good := range map[string]bool{token: true, exchanged(token): false} {
		write(t, dir, "receipt.jws", []byte(text))
		node := exec.Command("node", "verify.mjs")
		node.Dir = dir
		out, err := node.CombinedOutput()
		if (err == nil && string(out) == want) != good {
			t.Errorf("jose: %v, want success %v\n%s", err, good, out)
		}
	}
}

// exchanged is the text with one character of the payload replaced.
func exchanged(text string) string {
	i := strings.IndexByte(text, '.') + 40
	c := "A"
	if text[i] == 'A' {
		c = "B"
	}
	return text[:i] + c + text[i+1:]
}
