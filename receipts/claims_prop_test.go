package receipts_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"counterfoil/internal/canon"
	"counterfoil/receipts"
)

// The writer sorts by hand; the canonicaliser sorts by rule.
func TestPayloadIsCanonical(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		payload := anyClaims().Draw(t, "claims").AppendPayload(nil)
		want, err := canon.Canonical(payload)
		if err != nil {
			t.Fatalf("payload %s: %v", payload, err)
		}
		if diff := cmp.Diff(string(want), string(payload)); diff != "" {
			t.Fatalf("not canonical (-want +got):\n%s", diff)
		}
	})
}

func TestClaimsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := anyClaims().Draw(t, "claims")
		payload := want.AppendPayload(nil)
		got, err := receipts.ParseClaims(payload)
		if err != nil {
			t.Fatalf("payload %s: %v", payload, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("claims changed (-want +got):\n%s", diff)
		}
		// A blank drives it past the quick reader, to the general one.
		general, err := receipts.ParseClaims(append([]byte(" "), payload...))
		if err != nil {
			t.Fatalf("general reader: %v", err)
		}
		if diff := cmp.Diff(got, general); diff != "" {
			t.Fatalf("the two readers differ (-quick +general):\n%s", diff)
		}
	})
}

func TestAnyFlippedBitOfAPayloadIsSeen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		payload := anyClaims().Draw(t, "claims").AppendPayload(nil)
		bit := rapid.IntRange(0, len(payload)*8-1).Draw(t, "bit")
		flipped := append([]byte(nil), payload...)
		flipped[bit/8] ^= 1 << (bit % 8)
		c, err := receipts.ParseClaims(flipped)
		if err != nil {
			return
		}
		if string(c.AppendPayload(nil)) == string(payload) {
			t.Fatalf("bit %d of %s made no difference", bit, payload)
		}
	})
}
