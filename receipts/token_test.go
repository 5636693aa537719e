package receipts_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"
)

func TestParseReadsWhatWasSigned(t *testing.T) {
	t.Parallel()
	signer, keys := key(t, 1, jws.PurposeReceipt)
	want := sample()
	input, err := receipts.SigningInput(signer.KeyID(), want)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := signer.Sign(input)
	if err != nil {
		t.Fatal(err)
	}
	got, used, err := receipts.Parse(input+"."+sig, keys)
	if err != nil {
		t.Fatal(err)
	}
	if used.ID != signer.KeyID() {
		t.Errorf("key %s, want %s", used.ID, signer.KeyID())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims changed (-want +got):\n%s", diff)
	}
}

// Negative test 7 of the format's reference, and its neighbours.
func TestParseKeepsKindsAndKeysApart(t *testing.T) {
	t.Parallel()
	signer, receiptKeys := key(t, 1, jws.PurposeReceipt)
	_, permitKeys := key(t, 1, jws.PurposePermit)
	_, others := key(t, 2, jws.PurposeReceipt)
	revoked, err := jws.NewKeySet(jws.Key{Public: signer.Public(), Purpose: jws.PurposeReceipt, Status: jws.StatusRevoked})
	if err != nil {
		t.Fatal(err)
	}
	payload := sample().AppendPayload(nil)
	good := sign(t, signer, receipts.Type, payload)
	for _, tc := range []struct {
		name  string
		token string
		keys  jws.KeySet
		want  error
	}{
		{"good", good, receiptKeys, nil},
		{"permit key", good, permitKeys, jws.ErrKeyUnknown},
		{"another key", good, others, jws.ErrKeyUnknown},
		{"no key", good, jws.KeySet{}, jws.ErrKeyUnknown},
		{"revoked key", good, revoked, jws.ErrKeyRevoked},
		{"signed as a permit", sign(t, signer, permits.Type, payload), receiptKeys, jws.ErrType},
		{"typ in capitals", sign(t, signer, strings.ToUpper(receipts.Type), payload), receiptKeys, jws.ErrType},
		{"payload null", sign(t, signer, receipts.Type, []byte("null")), receiptKeys, jws.ErrMalformed},
		{"payload array", sign(t, signer, receipts.Type, []byte("[]")), receiptKeys, jws.ErrMalformed},
		{"payload string", sign(t, signer, receipts.Type, []byte(`"x"`)), receiptKeys, jws.ErrMalformed},
		{"other claims", sign(t, signer, receipts.Type, []byte(`{"v":1}`)), receiptKeys, receipts.ErrClaims},
		{"other version", sign(t, signer, receipts.Type, []byte(`{"v":2}`)), receiptKeys, receipts.ErrVersion},
		{"too long", sign(t, signer, receipts.Type, []byte(`{"v":2,"x":"`+strings.Repeat("x", 4000)+`"}`)), receiptKeys, jws.ErrMalformed},
		{"empty", "", receiptKeys, jws.ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := receipts.Parse(tc.token, tc.keys); !errors.Is(err, tc.want) {
				t.Errorf("Parse = %v, want %v", err, tc.want)
			}
		})
	}
}

func TestAnyFlippedBitOfAReceiptIsRefused(t *testing.T) {
	t.Parallel()
	signer, keys := key(t, 1, jws.PurposeReceipt)
	token := sign(t, signer, receipts.Type, sample().AppendPayload(nil))
	for i := range len(token) * 8 {
		flipped := []byte(token)
		flipped[i/8] ^= 1 << (i % 8)
		if _, _, err := receipts.Parse(string(flipped), keys); err == nil {
			t.Errorf("bit %d of byte %d made no difference", i%8, i/8)
		}
	}
}

func TestChainHashIsOfTheSigningInput(t *testing.T) {
	t.Parallel()
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-2, "abc"
	if got := receipts.ChainHash("abc"); got != want {
		t.Errorf("ChainHash = %s, want %s", got, want)
	}
}
