package jws_test

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// claims draws the JSON of a token: strings and small integers, nested.
func claims() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		out := []byte(`{"v":1`)
		for i, text := range rapid.SliceOfN(rapid.String(), 0, 6).Draw(t, "texts") {
			out = append(out, `,"t`...)
			out = append(out, byte('a'+i))
			out = append(out, `":{"s":`...)
			out = canon.AppendString(out, text)
			out = append(out, `}`...)
		}
		return string(append(out, '}'))
	})
}

func TestWhatIsSignedVerifiesAndIsReadBack(t *testing.T) {
	t.Parallel()
	keys := receiptKeys(t)
	rapid.Check(t, func(r *rapid.T) {
		want := claims().Draw(r, "claims")
		token := sign(t, want)
		got, _, err := jws.Verify(token, testType, jws.PurposeReceipt, keys, len(token))
		if err != nil || string(got.Payload) != want {
			r.Fatalf("%s, %v; want %s", got.Payload, err, want)
		}
	})
}

// Any edit of a token, however made, is found.
func TestEveryEditIsFound(t *testing.T) {
	t.Parallel()
	keys := receiptKeys(t)
	rapid.Check(t, func(r *rapid.T) {
		token := sign(t, claims().Draw(r, "claims"))
		at := rapid.IntRange(0, len(token)-1).Draw(r, "at")
		to := rapid.IntRange(at, min(len(token), at+50)).Draw(r, "to")
		with := rapid.OneOf(
			rapid.StringOfN(rapid.RuneFrom([]rune("ABCXYZabcxyz0189-_.")), 0, 50, -1), rapid.String()).Draw(r, "with")
		edited := token[:at] + with + token[to:]
		if edited == token {
			r.Skip("no edit")
		}
		if _, _, err := jws.Verify(edited, testType, jws.PurposeReceipt, keys, testMax); err == nil {
			r.Fatalf("accepted %s for %s", edited, token)
		}
	})
}

// Parts of two good tokens do not make a third.
func TestPartsDoNotMix(t *testing.T) {
	t.Parallel()
	keys := receiptKeys(t)
	rapid.Check(t, func(r *rapid.T) {
		a := strings.Split(sign(t, claims().Draw(r, "a")), ".")
		b := strings.Split(sign(t, claims().Draw(r, "b")), ".")
		pick := rapid.IntRange(0, 7).Draw(r, "pick")
		var parts []string
		for i := range 3 {
			parts = append(parts, [][]string{a, b}[pick>>i&1][i])
		}
		mixed := strings.Join(parts, ".")
		_, _, err := jws.Verify(mixed, testType, jws.PurposeReceipt, keys, testMax)
		whole := mixed == strings.Join(a, ".") || mixed == strings.Join(b, ".")
		if (err == nil) != whole {
			r.Fatalf("whole: %v, %v", whole, err)
		}
	})
}

func TestKeySetSurvivesItsJWKS(t *testing.T) {
	t.Parallel()
	keyGen := rapid.Custom(func(t *rapid.T) jws.Key {
		seed := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "seed")
		return jws.Key{
			Public:    ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey),
			Purpose:   rapid.SampledFrom([]jws.Purpose{jws.PurposeReceipt, jws.PurposePermit, jws.PurposeCheckpoint, ""}).Draw(t, "purpose"),
			Status:    rapid.SampledFrom([]jws.Status{jws.StatusNext, jws.StatusActive, jws.StatusRetired, jws.StatusRevoked, ""}).Draw(t, "status"),
			NotBefore: rapid.Int64Range(0, 1<<53-1).Draw(t, "nbf"), Expires: rapid.Int64Range(0, 1<<53-1).Draw(t, "exp"),
		}
	})
	rapid.Check(t, func(r *rapid.T) {
		set, err := jws.NewKeySet(rapid.SliceOfN(keyGen, 0, 5).Draw(r, "keys")...)
		if errors.Is(err, jws.ErrKey) {
			r.Skip("one key twice")
		}
		again, err := jws.ParseJWKS(set.JWKS())
		if err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(set.Keys(), again.Keys()); diff != "" {
			r.Fatal(diff)
		}
		for _, k := range set.Keys() {
			if k.ID != jws.Thumbprint(k.Public) {
				r.Fatal("name is not the thumbprint")
			}
		}
	})
}
