package receipts_test

import (
	"bytes"
	"testing"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/receipts"
)

// seed adds the seeds, of which there must be as many as the test says: a target
// that lost its seeds would still pass.
func seed(f *testing.F, want int, seeds ...[]byte) {
	f.Helper()
	for _, s := range seeds {
		f.Add(s)
	}
	if len(seeds) != want {
		f.Fatalf("%d seeds, want %d", len(seeds), want)
	}
}

func claimSeeds() [][]byte {
	var out [][]byte
	for _, edit := range []func(*receipts.Claims){
		func(*receipts.Claims) {}, denied, duplicate, failed, uncertain, reconciled,
		func(c *receipts.Claims) { c.Result = nil },
		func(c *receipts.Claims) { c.Result.Scrubbed = true },
		func(c *receipts.Claims) { c.Tool = "zahle \u20ac \"\\\u0001" },
		func(c *receipts.Claims) { c.Seq, c.Prev = 1, "" },
	} {
		c := sample()
		edit(c)
		out = append(out, c.AppendPayload(nil))
	}
	return append(out, []byte(`{"v":2}`), []byte(`{"v":1,"V":1}`))
}

func FuzzParseClaims(f *testing.F) {
	seed(f, 12, claimSeeds()...)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := receipts.ParseClaims(data)
		if err != nil {
			return
		}
		canonical, err := canon.Canonical(data)
		if err != nil {
			t.Fatalf("accepted what is no strict JSON: %v", err)
		}
		if again := c.AppendPayload(nil); !bytes.Equal(canonical, again) {
			t.Errorf("read\n%s\nwrote\n%s", canonical, again)
		}
		_ = c.Consistent()
	})
}

func FuzzParse(f *testing.F) {
	signer, keys := key(f, 1, jws.PurposeReceipt)
	var seeds [][]byte
	for _, payload := range claimSeeds() {
		seeds = append(seeds, []byte(sign(f, signer, receipts.Type, payload)))
	}
	seed(f, 12, seeds...)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := receipts.Parse(string(data), keys)
		if err != nil {
			return
		}
		known := false
		for _, payload := range claimSeeds() {
			known = known || bytes.Equal(c.AppendPayload(nil), payload)
		}
		if !known {
			t.Errorf("accepted what was never signed: %s", data)
		}
	})
}

func FuzzParseBundle(f *testing.F) {
	whole := bundle(f)
	bare := bundle(f)
	bare.Content, bare.Related = nil, nil
	foreign := bytes.Replace(whole.JSON(), []byte(`,"kty"`), []byte(`, "nbf":1,"cf_status":"active","kty"`), 1)
	seed(f, 4, whole.JSON(), bare.JSON(), foreign, []byte(`{"keys":{"keys":[]},"related":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := receipts.ParseBundle(data)
		if err != nil {
			return
		}
		text := b.JSON()
		again, err := receipts.ParseBundle(text)
		if err != nil {
			t.Fatalf("does not read its own bundle %s: %v", text, err)
		}
		if !bytes.Equal(text, again.JSON()) {
			t.Errorf("wrote\n%s\nthen\n%s", text, again.JSON())
		}
	})
}
