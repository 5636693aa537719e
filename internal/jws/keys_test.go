package jws_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"counterfoil/internal/jws"

	"filippo.io/edwards25519"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
)

func public(t testing.TB, name string) ed25519.PublicKey {
	t.Helper()
	priv, _ := key(t, name)
	return priv.Public().(ed25519.PublicKey)
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// RFC 8037, appendix A.3.
func TestThumbprint(t *testing.T) {
	t.Parallel()
	pub, err := b64.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	if err != nil {
		t.Fatal(err)
	}
	if got := jws.Thumbprint(pub); got != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Error(got)
	}
}

// weakKeys are public keys under which a signature proves less than it seems to: tests 19 and 20.
func weakKeys(t testing.TB) map[string]ed25519.PublicKey {
	t.Helper()
	keys := map[string]ed25519.PublicKey{
		"19 identity":                    unhex(t, "0100000000000000000000000000000000000000000000000000000000000000"),
		"19 order 2":                     unhex(t, "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
		"19 order 4":                     unhex(t, "0000000000000000000000000000000000000000000000000000000000000000"),
		"19 order 4, other sign":         unhex(t, "0000000000000000000000000000000000000000000000000000000000000080"),
		"19 order 8":                     unhex(t, "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
		"19 order 8, other sign":         unhex(t, "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"),
		"19 order 8, second":             unhex(t, "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
		"19 order 8, second, other sign": unhex(t, "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
		"20 identity with a sign":        unhex(t, "0100000000000000000000000000000000000000000000000000000000000080"),
		"20 order 2 with a sign":         unhex(t, "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"),
		"not on the curve":               unhex(t, "0200000000000000000000000000000000000000000000000000000000000000"),
		"31 bytes":                       public(t, "receipt")[:31],
		"33 bytes":                       append(slices.Clone(public(t, "receipt")), 0),
		"none":                           nil,
	}
	for k := range 19 { // y and y + p are one point where y + p still fits 255 bits
		for _, sign := range []byte{0x7f, 0xff} {
			raw := bytes.Repeat([]byte{0xff}, 32)
			raw[0], raw[31] = byte(0xed+k), sign
			keys[fmt.Sprintf("20 y = p + %d, %02x", k, sign)] = raw
		}
	}
	torsion, err := new(edwards25519.Point).SetBytes(keys["19 order 8"])
	if err != nil {
		t.Fatal(err)
	}
	mixed, err := new(edwards25519.Point).SetBytes(public(t, "receipt"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		keys[fmt.Sprintf("mixed order %d", i)] = mixed.Add(mixed, torsion).Bytes()
	}
	return keys
}

func TestWeakKeysEnterNoSet(t *testing.T) {
	t.Parallel()
	for name, pub := range weakKeys(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := jws.CheckPublic(pub); !errors.Is(err, jws.ErrKey) {
				t.Errorf("CheckPublic: %v", err)
			}
			if _, err := jws.NewKeySet(jws.Key{Public: pub}); !errors.Is(err, jws.ErrKey) {
				t.Errorf("NewKeySet: %v", err)
			}
			set := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"%s"}]}`, b64.EncodeToString(pub))
			if _, err := jws.ParseJWKS([]byte(set)); !errors.Is(err, jws.ErrKey) {
				t.Errorf("ParseJWKS: %v", err)
			}
		})
	}
	for i := range 50 {
		if err := jws.CheckPublic(public(t, fmt.Sprint(i))); err != nil {
			t.Errorf("a good key: %v", err)
		}
	}
}

// The vectors are those of novifinancial/ed25519-speccheck (Apache-2.0; testdata/README.md).
func TestSpeccheck(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/speccheck.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Number    int
		Comment   string
		Message   string
		PubKey    string `json:"pub_key"`
		Signature string
	}
	if err := json.Unmarshal(data, &vectors); err != nil || len(vectors) != 12 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	const ( // one letter a vector, V being accepted
		lenient = "VVVVVVXXXVVV" // cofactored, any encoding: what ZIP 215 accepts; shows the vectors intact
		plain   = "VVVVXXXXXXXV" // golang-jwt, that is crypto/ed25519
		ours    = "XXXXXXXXXXXX" // with our key check: no key but that of 6 and 7 has prime order
	)
	for i, v := range vectors {
		t.Run(fmt.Sprintf("21 %d %s", i, v.Comment), func(t *testing.T) {
			t.Parallel()
			msg, pub, sig := unhex(t, v.Message), unhex(t, v.PubKey), unhex(t, v.Signature)
			if got := cofactored(t, pub, msg, sig); got != (lenient[i] == 'V') {
				t.Errorf("cofactored: %v", got)
			}
			verified := jwt.SigningMethodEdDSA.Verify(string(msg), sig, ed25519.PublicKey(pub)) == nil
			if verified != (plain[i] == 'V') {
				t.Errorf("golang-jwt: %v", verified)
			}
			goodKey := jws.CheckPublic(pub) == nil
			if got := verified && goodKey; got != (ours[i] == 'V') {
				t.Errorf("with our key check: %v", got)
			}
			if goodKey != (i == 6 || i == 7) {
				t.Errorf("key: %v", jws.CheckPublic(pub))
			}
		})
	}
}

// The cases are of C2SP/wycheproof (Apache-2.0; testdata/README.md).
func TestWycheproof(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/wycheproof.json")
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		PK    string
		Tests []struct {
			TcID                      int
			Comment, Msg, Sig, Result string
		}
	}
	if err := json.Unmarshal(data, &groups); err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, g := range groups {
		pub := ed25519.PublicKey(unhex(t, g.PK))
		if err := jws.CheckPublic(pub); err != nil {
			t.Errorf("key %s: %v", g.PK, err)
		}
		for _, c := range g.Tests {
			cases++
			t.Run(fmt.Sprintf("21 %d %s", c.TcID, c.Comment), func(t *testing.T) {
				t.Parallel()
				err := jwt.SigningMethodEdDSA.Verify(string(unhex(t, c.Msg)), unhex(t, c.Sig), pub)
				if (err == nil) != (c.Result == "valid") {
					t.Errorf("%v, want %s", err, c.Result)
				}
			})
		}
	}
	if cases != 145 {
		t.Errorf("%d cases, want 145", cases)
	}
}

// cofactored is the most lenient rule in use: [8]([S]B − R − [k]A) = 0, S < L, any encodings.
func cofactored(t *testing.T, pub, msg, sig []byte) bool {
	t.Helper()
	a, errA := new(edwards25519.Point).SetBytes(pub)
	r, errR := new(edwards25519.Point).SetBytes(sig[:32])
	s, errS := edwards25519.NewScalar().SetCanonicalBytes(sig[32:])
	if errA != nil || errR != nil || errS != nil {
		return false
	}
	digest := sha512.Sum512(slices.Concat(sig[:32], pub, msg))
	k, err := edwards25519.NewScalar().SetUniformBytes(digest[:])
	if err != nil {
		t.Fatal(err)
	}
	p := new(edwards25519.Point).VarTimeDoubleScalarBaseMult(k, new(edwards25519.Point).Negate(a), s)
	p.Subtract(p, r).MultByCofactor(p)
	return p.Equal(edwards25519.NewIdentityPoint()) == 1
}

func TestJWKSIsExactlyTheContracts(t *testing.T) {
	t.Parallel()
	pub := public(t, "receipt")
	set := keySet(t,
		jws.Key{Public: public(t, "permit"), Purpose: jws.PurposePermit, Status: jws.StatusNext},
		jws.Key{Public: pub, Purpose: jws.PurposeReceipt, Status: jws.StatusRetired, NotBefore: 5, Expires: 9})
	_, kid := key(t, "receipt")
	_, permitKid := key(t, "permit")
	want := fmt.Sprintf(`{"keys":[`+
		`{"kty":"OKP","crv":"Ed25519","x":"%s","kid":"%s","use":"sig","cf_purpose":"receipt","cf_status":"retired","nbf":5,"exp":9},`+
		`{"kty":"OKP","crv":"Ed25519","x":"%s","kid":"%s","use":"sig","cf_purpose":"permit","cf_status":"next"}]}`,
		b64.EncodeToString(pub), kid, b64.EncodeToString(public(t, "permit")), permitKid)
	if diff := cmp.Diff(want, string(set.JWKS())); diff != "" {
		t.Error(diff)
	}
	again, err := jws.ParseJWKS(set.JWKS())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(set.Keys(), again.Keys()); diff != "" {
		t.Error(diff)
	}
	if got := string(jws.KeySet{}.JWKS()); got != `{"keys":[]}` {
		t.Error(got)
	}
}

func TestParseJWKS(t *testing.T) {
	t.Parallel()
	x := b64.EncodeToString(public(t, "receipt"))
	_, kid := key(t, "receipt")
	base := `"kty":"OKP","crv":"Ed25519","x":"` + x + `"`
	for name, set := range map[string]string{
		"foreign":           `{"keys":[{` + base + `}]}`,
		"foreign, with alg": `{"keys":[{` + base + `,"alg":"EdDSA","use":"sig","key_ops":["verify"],"kid":"` + kid + `"}]}`,
		"RFC 9864's alg":    ` {"keys" : [ {` + base + `,"alg":"Ed25519"} ] } `,
	} {
		s, err := jws.ParseJWKS([]byte(set))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, p := range []jws.Purpose{jws.PurposeReceipt, jws.PurposePermit, jws.PurposeCheckpoint} {
			if _, ok := s.Find(kid, p); !ok {
				t.Errorf("%s: not found for %s", name, p)
			}
		}
	}
	stranger := b64.EncodeToString(public(t, "stranger"))
	for name, set := range map[string]string{
		"private": `{"keys":[{` + base + `,"d":"` + x + `"}]}`, "unknown member": `{"keys":[{` + base + `,"x5c":[]}]}`,
		"unknown outer member": `{"keys":[],"more":1}`, "no keys": `{}`, "null keys": `{"keys":null}`, "one JWK": `{` + base + `}`,
		"twice": `{"keys":[{` + base + `},{` + base + `}]}`, "twice, two purposes": `{"keys":[{` + base + `,"cf_purpose":"permit"},{` + base + `,"cf_purpose":"receipt"}]}`,
		"other kid": `{"keys":[{` + base + `,"kid":"key-1"}]}`, "kid of another": `{"keys":[{` + strings.Replace(base, x, stranger, 1) + `,"kid":"` + kid + `"}]}`,
		"RSA": `{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`, "other curve": `{"keys":[{` + strings.Replace(base, "Ed25519", "X25519", 1) + `}]}`,
		"use enc": `{"keys":[{` + base + `,"use":"enc"}]}`, "other alg": `{"keys":[{` + base + `,"alg":"ES256"}]}`,
		"key_ops sign": `{"keys":[{` + base + `,"key_ops":["sign"]}]}`, "padded x": `{"keys":[{` + strings.Replace(base, x, x+"=", 1) + `}]}`,
		"x with a line break": `{"keys":[{` + strings.Replace(base, x, x[:5]+`\n`+x[5:], 1) + `}]}`,
		"x trailing bits":     `{"keys":[{` + strings.Replace(base, x, x[:42]+nextLetter(x[42]), 1) + `}]}`,
		"unknown purpose":     `{"keys":[{` + base + `,"cf_purpose":"all"}]}`, "unknown status": `{"keys":[{` + base + `,"cf_status":"ACTIVE"}]}`,
		"negative time": `{"keys":[{` + base + `,"nbf":-1}]}`, "float time": `{"keys":[{` + base + `,"exp":1.5}]}`,
		"duplicate member": `{"keys":[{` + base + `,"x":"` + x + `"}]}`, "folded member": `{"keys":[{` + base + `,"X":"` + x + `"}]}`,
		"trailing": `{"keys":[]}{}`, "BOM": "\xef\xbb\xbf{\"keys\":[]}", "nothing": ``, "not JSON": `-----BEGIN`,
	} {
		if _, err := jws.ParseJWKS([]byte(set)); !errors.Is(err, jws.ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	pub := public(t, "receipt")
	_, kid := key(t, "receipt")
	foreign := keySet(t, jws.Key{Public: pub})
	receipt := keySet(t, jws.Key{Public: pub, Purpose: jws.PurposeReceipt, Status: jws.StatusActive, NotBefore: 10})
	permit := keySet(t, jws.Key{Public: pub, Purpose: jws.PurposePermit, Status: jws.StatusActive})
	revoked := keySet(t, jws.Key{Public: pub, Status: jws.StatusRevoked, Expires: 50})
	for name, c := range map[string]struct {
		set  jws.KeySet
		want jws.Key
	}{
		"a stated purpose beats none":       {foreign.Merge(receipt), jws.Key{Purpose: jws.PurposeReceipt, Status: jws.StatusActive, NotBefore: 10}},
		"whichever comes first":             {receipt.Merge(foreign), jws.Key{Purpose: jws.PurposeReceipt, Status: jws.StatusActive, NotBefore: 10}},
		"of two purposes the receiver's":    {receipt.Merge(permit), jws.Key{Purpose: jws.PurposeReceipt, Status: jws.StatusActive, NotBefore: 10}},
		"revoked anywhere is revoked":       {receipt.Merge(revoked), jws.Key{Purpose: jws.PurposeReceipt, Status: jws.StatusRevoked, NotBefore: 10, Expires: 50}},
		"revoked anywhere is revoked, also": {revoked.Merge(permit), jws.Key{Purpose: jws.PurposePermit, Status: jws.StatusRevoked, Expires: 50}},
		"with nothing":                      {jws.KeySet{}.Merge(permit), jws.Key{Purpose: jws.PurposePermit, Status: jws.StatusActive}},
	} {
		c.want.ID, c.want.Public = kid, pub
		if diff := cmp.Diff([]jws.Key{c.want}, c.set.Keys()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, ok := receipt.Merge(permit).Find(kid, jws.PurposePermit); ok {
		t.Error("a receipt key must not become a permit key")
	}
	if got := foreign.Keys(); got[0].Purpose != "" || len(foreign.Merge(receipt).Merge(keySet(t, jws.Key{Public: public(t, "other")})).Keys()) != 2 {
		t.Error("a set must not change by being merged")
	}
}

func TestParsePEM(t *testing.T) {
	t.Parallel()
	const good = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n" // RFC 8410, 10.1
	s, err := jws.ParsePEM([]byte(good))
	if err != nil || len(s.Keys()) != 1 || s.Keys()[0].Purpose != "" {
		t.Fatalf("%+v, %v", s, err)
	}
	for name, data := range map[string]string{
		"nothing": "", "twice": good + good, "trailing": good + "x", "private": strings.ReplaceAll(good, "PUBLIC", "PRIVATE"),
		"RSA":        "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\n-----END PUBLIC KEY-----\n",
		"cut":        strings.Replace(good, "MCow", "MCo", 1),
		"JSON":       `{"keys":[]}`,
		"small":      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n-----END PUBLIC KEY-----\n",
		"then a key": good + strings.ReplaceAll(good, "PUBLIC", "PRIVATE"),
	} {
		if _, err := jws.ParsePEM([]byte(data)); !errors.Is(err, jws.ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
