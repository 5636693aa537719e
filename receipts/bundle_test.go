package receipts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// bundle is well formed; its permit only looks like one.
func bundle(t testing.TB) *receipts.Bundle {
	t.Helper()
	receiptKey, receiptKeys := key(t, 1, jws.PurposeReceipt)
	permitKey, permitKeys := key(t, 2, jws.PurposePermit)
	_, unused := key(t, 3, jws.PurposeReceipt)
	return &receipts.Bundle{
		Receipt: sign(t, receiptKey, receipts.Type, sample().AppendPayload(nil)),
		Related: []string{sign(t, receiptKey, receipts.Type, sample().AppendPayload(nil))},
		Permit:  sign(t, permitKey, permits.Type, []byte(`{}`)),
		Keys:    receiptKeys.Merge(permitKeys).Merge(unused).JWKS(),
		Content: &receipts.Content{Arguments: []byte(`{"to":"a"}`), Result: []byte(`{"content":[]}`)},
	}
}

func TestBundleReadsBack(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*receipts.Bundle){
		"whole":           func(*receipts.Bundle) {},
		"no content":      func(b *receipts.Bundle) { b.Content = nil },
		"no result":       func(b *receipts.Bundle) { b.Content.Result = nil },
		"no arguments":    func(b *receipts.Bundle) { b.Content.Arguments = nil },
		"no related":      func(b *receipts.Bundle) { b.Related = nil },
		"several related": func(b *receipts.Bundle) { b.Related = append(b.Related, b.Related...) },
		"proof":           func(b *receipts.Bundle) { b.Proof = "c2sp.org/tlog-proof@v1\n" },
		"no keys":         func(b *receipts.Bundle) { b.Keys = []byte(`{"keys":[]}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := bundle(t)
			edit(want)
			text := want.JSON()
			canonical, err := canon.Canonical(text)
			if err != nil || !bytes.Equal(canonical, text) {
				t.Fatalf("not canonical (%v): %s", err, text)
			}
			var indented bytes.Buffer
			if err := json.Indent(&indented, text, "", "  "); err != nil {
				t.Fatal(err)
			}
			for _, spelling := range [][]byte{text, indented.Bytes()} {
				got, err := receipts.ParseBundle(spelling)
				if err != nil {
					t.Fatal(err)
				}
				want.Keys, want.Hints = got.Keys, got.Hints
				if len(want.Related) == 0 {
					want.Related = got.Related
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("bundle changed (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(string(text), string(got.JSON())); diff != "" {
					t.Errorf("written again, it differs (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestBundleKeepsOnlyTheKeysItNeeds(t *testing.T) {
	t.Parallel()
	b, err := receipts.ParseBundle(bundle(t).JSON())
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Hints) != 2 {
		t.Errorf("%d keys, want the receipt's and the permit's", len(b.Hints))
	}
	for _, member := range []string{"cf_status", "nbf", `"exp"`} {
		if strings.Contains(string(b.Keys), member) {
			t.Errorf("keys hold %s, which changes with time: %s", member, b.Keys)
		}
	}
}

func TestParseBundleRefuses(t *testing.T) {
	t.Parallel()
	text := string(bundle(t).JSON())
	for _, tc := range []struct{ name, old, with string }{
		{"unknown member", `"mediaType":`, `"x":1,"mediaType":`},
		{"unknown member of content", `"arguments_b64":`, `"x":"","arguments_b64":`},
		{"unknown member of a key", `"kty":"OKP"`, `"d":"AA","kty":"OKP"`},
		{"duplicate member", `"mediaType":`, `"permit":"x","mediaType":`},
		{"folded member", `"permit":`, `"Permit":"x","permit":`},
		{"missing member", `,"related":[`, `,"other":[`},
		{"null related", `"related":[`, `"related":null,"r":[`},
		{"null content", `{"content":{`, `{"content":null,"c":{`},
		{"empty content", `{"content":{"arguments_b64":"eyJ0byI6ImEifQ==","result_b64":"eyJjb250ZW50IjpbXX0="}`, `{"content":{}`},
		{"other media type", `"application/vnd`, `"application/x-vnd`},
		{"empty permit", `"permit":"`, `"permit":"","p":"`},
		{"empty proof", `"receipt":`, `"proof":"","receipt":`},
		{"line break in base64", `"arguments_b64":"eyJ0`, `"arguments_b64":"eyJ0\n`},
		{"trailing bits in base64", `XX0="`, `XX1="`},
		{"unpadded base64", `XX0="`, `XX0"`},
		{"key of another name", `"kid":"`, `"kid":"A`},
		{"key of another kind", `"crv":"Ed25519","kid"`, `"crv":"Ed448","kid"`},
		{"key without use", `"use":"sig",`, ``},
		{"key for anything", `"cf_purpose":"permit"`, `"cf_purpose":"all"`},
		{"byte order mark", `{"content"`, "\ufeff" + `{"content"`},
		{"trailing data", `"]}`, `"]}{}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(text, tc.old) {
				t.Fatalf("%q is not in the bundle", tc.old)
			}
			changed := strings.Replace(text, tc.old, tc.with, 1)
			if _, err := receipts.ParseBundle([]byte(changed)); !errors.Is(err, receipts.ErrBundle) {
				t.Errorf("ParseBundle = %v, want ErrBundle", err)
			}
		})
	}
	for end := range text {
		if _, err := receipts.ParseBundle([]byte(text[:end])); err == nil {
			t.Errorf("a bundle cut after %d bytes was read", end)
		}
	}
}

func TestParseBundleTellsAnotherVersion(t *testing.T) {
	t.Parallel()
	text := strings.Replace(string(bundle(t).JSON()), "bundle.v1+json", "bundle.v2+json", 1)
	if _, err := receipts.ParseBundle([]byte(text)); !errors.Is(err, receipts.ErrVersion) {
		t.Errorf("ParseBundle = %v, want ErrVersion", err)
	}
}

func TestParseBundleHasALimit(t *testing.T) {
	t.Parallel()
	if _, err := receipts.ParseBundle(make([]byte, receipts.MaxBundleBytes+1)); !errors.Is(err, receipts.ErrBundle) {
		t.Errorf("ParseBundle = %v, want ErrBundle", err)
	}
}
