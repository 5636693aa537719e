package verify_test

import (
	"crypto/ed25519"
	"testing"

	"counterfoil/permits"
	"counterfoil/verify"
)

// What judging costs beside the one signature verification that it cannot do
// without (BenchmarkSignature).
func BenchmarkJudge(b *testing.B) {
	w := newWorld(b)
	w.grant(func(p *permits.Permit) { p.Grant.Limits = permits.Limits{Credits: 1000000} })
	v := w.verifier(func(*verify.Options) {})
	for name, text := range map[string][]byte{"receipt": []byte(w.receipt(plain)), "bundle": w.bundle(plain).JSON()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := v.Judge(verify.Entry{Data: text}); d.State != verify.Valid {
					b.Fatal(d.Checks)
				}
			}
		})
	}
}

func BenchmarkSignature(b *testing.B) {
	message := make([]byte, 1500)
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	sig := ed25519.Sign(key, message)
	pub, _ := key.Public().(ed25519.PublicKey)
	for b.Loop() {
		if !ed25519.Verify(pub, message, sig) {
			b.Fatal("signature")
		}
	}
}
