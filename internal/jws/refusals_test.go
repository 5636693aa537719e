package jws_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/jws"
)

var sentinels = []error{
	jws.ErrMalformed, jws.ErrType, jws.ErrCritical, jws.ErrDuplicate, jws.ErrKeyUnknown, jws.ErrKeyRevoked, jws.ErrSignature,
}

// refusal is a token that differs from an accepted one in a single point, and the one error it gets.
type refusal struct {
	name  string
	token string
	want  error
}

// refusals numbers its cases as the project's list of negative tests does.
func refusals(t testing.TB) []refusal {
	t.Helper()
	all := slices.Concat(
		algorithms(t), kids(t), headerMembers(t), types(t), spellings(t), shapes(t), texts(t), numbers(t))
	if len(all) < 120 {
		t.Fatalf("only %d refusals", len(all))
	}
	return all
}

func algorithms(t testing.TB) (list []refusal) {
	t.Helper()
	h := header(t)
	for _, alg := range []string{"none", "None", "nOnE", "HS256", "ES256", "RS256", "Ed25519", "eddsa", "EDDSA", ""} {
		token := forge(t, strings.Replace(h, "EdDSA", alg, 1), payload)
		list = append(list, refusal{"01,03 alg " + alg, token, jws.ErrMalformed})
		list = append(list, refusal{"01,03 alg " + alg + ", no signature", token[:strings.LastIndexByte(token, '.')+1], jws.ErrMalformed})
	}
	priv, _ := key(t, "receipt")
	pub := priv.Public().(ed25519.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	input := b64.EncodeToString([]byte(strings.Replace(h, "EdDSA", "HS256", 1))) + "." + b64.EncodeToString([]byte(payload))
	for name, secret := range map[string][]byte{
		"raw": pub, "DER": der, "PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
	} {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(input))
		sum := mac.Sum(nil)
		list = append(list,
			refusal{"02 HS256 with the public key, " + name, input + "." + b64.EncodeToString(sum), jws.ErrMalformed},
			refusal{"02 HS256 padded to 64 bytes, " + name, input + "." + b64.EncodeToString(append(sum, sum...)), jws.ErrMalformed})
	}
	for name, header := range map[string]string{
		"04 duplicate alg":              strings.Replace(h, `"alg":`, `"alg":"none","alg":`, 1),
		"04 duplicate alg after":        strings.Replace(h, `}`, `,"alg":"none"}`, 1),
		"04 duplicate alg by case":      strings.Replace(h, `}`, `,"ALG":"none"}`, 1),
		"22 duplicate kid":              strings.Replace(h, `"kid":`, `"kid":"x","kid":`, 1),
		"23 kid by U+212A":              strings.Replace(h, `}`, ",\"\u212aid\":\"x\"}", 1),
		"22 duplicate in a member kept": strings.Replace(h, `}`, `,"x":{"a":1,"a":2}}`, 1),
	} {
		list = append(list, refusal{name, forge(t, header, payload), jws.ErrDuplicate})
	}
	for name, header := range map[string]string{
		"03 alg missing":  strings.Replace(h, `"alg":"EdDSA",`, "", 1),
		"03 alg null":     strings.Replace(h, `"EdDSA"`, "null", 1),
		"03 alg array":    strings.Replace(h, `"EdDSA"`, `["EdDSA"]`, 1),
		"03 ALG only":     strings.Replace(h, `"alg"`, `"ALG"`, 1),
		"24 header array": `["alg"]`, "24 header string": `"alg"`, "24 header null": `null`, "24 header empty object": `{}`,
	} {
		list = append(list, refusal{name, forge(t, header, payload), jws.ErrMalformed})
	}
	return list
}

func kids(t testing.TB) (list []refusal) {
	t.Helper()
	h := header(t)
	_, kid := key(t, "receipt")
	_, other := key(t, "stranger")
	quoted := `"` + kid + `"`
	for name, value := range map[string]string{
		"empty": `""`, "null": `null`, "number": `5`, "array": `[` + quoted + `]`, "object": `{}`,
		"path": `"../../../../dev/null"`, "SQL": `"x' OR '1'='1"`, "very long": `"` + strings.Repeat("A", 4000) + `"`,
		"blank after": `"` + kid + ` "`, "NUL after": `"` + kid + `\u0000"`,
		"line break inside": `"` + kid[:20] + `\n` + kid[20:] + `"`, "padded": `"` + kid + `="`, "44 long": `"` + kid + `A"`,
		"42 long": `"` + kid[:42] + `"`, "trailing bits": `"` + kid[:42] + nextLetter(kid[42]) + `"`,
	} {
		list = append(list, refusal{"06 kid " + name, forge(t, strings.Replace(h, quoted, value, 1), payload), jws.ErrMalformed})
	}
	return append(list,
		refusal{"06 kid missing", forge(t, strings.Replace(h, `,"kid":`+quoted, "", 1), payload), jws.ErrMalformed},
		refusal{"06 kid in other case", forge(t, strings.Replace(h, kid, strings.ToLower(kid[:42])+kid[42:], 1), payload), jws.ErrKeyUnknown},
		refusal{"05 kid unknown", forge(t, strings.Replace(h, kid, other, 1), payload), jws.ErrKeyUnknown})
}

func headerMembers(t testing.TB) (list []refusal) {
	t.Helper()
	with := func(member string) string {
		return forge(t, strings.Replace(header(t), `}`, ","+member+"}", 1), payload)
	}
	priv, _ := key(t, "stranger")
	x := b64.EncodeToString(priv.Public().(ed25519.PublicKey))
	for _, member := range []string{
		`"jku":"https://evil.example/jwks"`, `"x5u":"https://evil.example/cert"`, `"x5c":["MIIB"]`, `"x5t":"x"`,
		`"jwk":{"kty":"OKP","crv":"Ed25519","x":"` + x + `"}`, `"cty":"JWT"`, `"zip":"DEF"`, `"enc":"A128GCM"`, `"":""`, `"b64":false`,
	} {
		list = append(list, refusal{"10 " + member[:5], with(member), jws.ErrMalformed})
	}
	for _, member := range []string{
		`"crit":["exp"]`, `"crit":[]`, `"crit":["b64"],"b64":false`, `"crit":null`, `"crit":["https://example.com/x"],"https://example.com/x":1`,
	} {
		list = append(list, refusal{"11 " + member, with(member), jws.ErrCritical})
	}
	list = append(list, refusal{"11 Crit, which is not crit", with(`"Crit":["x"]`), jws.ErrMalformed})
	return list
}

func types(t testing.TB) (list []refusal) {
	t.Helper()
	h := header(t)
	for _, typ := range []string{
		"", "JWT", "vnd.counterfoil.permit+jwt", "VND.counterfoil.receipt+jwt", "vnd.counterfoil.receipt+JWT",
		"application/vnd.counterfoil.receipt+jwt", " vnd.counterfoil.receipt+jwt", "vnd.counterfoil.receipt+jwt\\u0000",
	} {
		list = append(list, refusal{"12 typ " + typ, forge(t, strings.Replace(h, testType, typ, 1), payload), jws.ErrType})
	}
	return append(list,
		refusal{"12 typ missing", forge(t, strings.Replace(h, `"typ":"`+testType+`",`, "", 1), payload), jws.ErrType},
		refusal{"12 typ array", forge(t, strings.Replace(h, `"`+testType+`"`, `["`+testType+`"]`, 1), payload), jws.ErrMalformed})
}

// spellings are other texts of an accepted token.
func spellings(t testing.TB) (list []refusal) {
	t.Helper()
	good := strings.Split(forge(t, header(t), payload), ".")
	for i, segment := range good {
		part := []string{"header", "payload", "signature"}[i]
		put := func(s string) string {
			other := slices.Clone(good)
			other[i] = s
			return strings.Join(other, ".")
		}
		for name, s := range map[string]string{
			"LF": "\n", "CRLF": "\r\n", "CR": "\r", "tab": "\t", "NUL": "\x00", "blank": " ", "U+00A0": "\u00a0", "U+FEFF": "\ufeff",
		} {
			for at, where := range map[int]string{0: "before", len(segment) / 2: "in", len(segment): "after"} {
				list = append(list, refusal{"13 " + name + " " + where + " " + part, put(segment[:at] + s + segment[at:]), jws.ErrMalformed})
			}
		}
		list = append(list,
			refusal{"14 padding in " + part, put(segment + "="), jws.ErrMalformed},
			refusal{"14 double padding in " + part, put(segment + "=="), jws.ErrMalformed},
			refusal{"16 plus in " + part, put("+" + segment[1:]), jws.ErrMalformed},
			refusal{"16 slash in " + part, put("/" + segment[1:]), jws.ErrMalformed},
			refusal{"16 percent in " + part, put("%2B" + segment[1:]), jws.ErrMalformed},
			refusal{"17 " + part + " empty", put(""), jws.ErrMalformed})
	}
	return append(list, trailingBits(t)...)
}

// trailingBits are segments whose last letter says more bits than there are bytes for.
func trailingBits(t testing.TB) (list []refusal) {
	t.Helper()
	h, p := header(t), payload
	for len(h)%3 == 0 {
		h = strings.Replace(h, `{`, `{ `, 1)
	}
	for len(p)%3 == 0 {
		p += " "
	}
	if err := verify(t, forge(t, h, p)); err != nil {
		t.Fatalf("control: %v", err)
	}
	bump := func(segment string) string { return segment[:len(segment)-1] + nextLetter(segment[len(segment)-1]) }
	hs, ps := b64.EncodeToString([]byte(h)), b64.EncodeToString([]byte(p))
	signed := forgeSegments(t, hs, ps)
	return append(list,
		refusal{"15 trailing bits in the header", forgeSegments(t, bump(hs), ps), jws.ErrMalformed},
		refusal{"15 trailing bits in the payload", forgeSegments(t, hs, bump(ps)), jws.ErrMalformed},
		refusal{"15 trailing bits in the signature", bump(signed), jws.ErrMalformed})
}

// nextLetter sets the lowest bit of a base64url letter that ends a segment, and so had it clear.
func nextLetter(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(alphabet[strings.IndexByte(alphabet, c)|1])
}

func shapes(t testing.TB) []refusal {
	t.Helper()
	token := forge(t, header(t), payload)
	parts := strings.Split(token, ".")
	raw, err := b64.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	signature := func(sig []byte) string { return parts[0] + "." + parts[1] + "." + b64.EncodeToString(sig) }
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	littleS := slices.Clone(raw[32:])
	slices.Reverse(littleS)
	s := new(big.Int).Add(new(big.Int).SetBytes(littleS), order)
	plusL := slices.Clone(raw)
	s.FillBytes(plusL[32:])
	slices.Reverse(plusL[32:])
	return []refusal{
		{"17 nothing", "", jws.ErrMalformed},
		{"17 dots", "..", jws.ErrMalformed},
		{"17 two segments", parts[0] + "." + parts[1], jws.ErrMalformed},
		{"17 four segments", token + ".", jws.ErrMalformed},
		{"17 four segments, full", token + "." + parts[2], jws.ErrMalformed},
		{"17 five segments, as JWE", token + ".AA.AA", jws.ErrMalformed},
		{"17 dot first", "." + token, jws.ErrMalformed},
		{"17 signature of 63 bytes", signature(raw[:63]), jws.ErrMalformed},
		{"17 signature of 65 bytes", signature(append(slices.Clone(raw), 0)), jws.ErrMalformed},
		{"17 JSON serialisation", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, jws.ErrMalformed},
		{"18 S + L", signature(plusL), jws.ErrSignature},
		{"18 all zero", signature(make([]byte, 64)), jws.ErrSignature},
		{"18 another message's", parts[0] + "." + b64.EncodeToString([]byte(`{"v":2}`)) + "." + parts[2], jws.ErrSignature},
		{"32 longer than the limit", token + strings.Repeat("A", testMax), jws.ErrMalformed},
	}
}

func texts(t testing.TB) (list []refusal) {
	t.Helper()
	h := header(t)
	for name, p := range map[string]string{
		"24 trailing JSON": payload + "{}", "24 trailing garbage": payload + "x", "24 trailing NUL": payload + "\x00",
		"24 BOM": "\xef\xbb\xbf" + payload, "24 trailing comma": `{"a":1,}`, "24 cut": payload[:len(payload)-1],
		"25 null": "null", "25 array": "[1]", "25 array around": "[" + payload + "]", "25 string": `"x"`, "25 number": "5", "25 blanks": "  ",
		"31 byte 0xff": "{\"a\":\"\xff\"}", "31 overlong": "{\"a\":\"\xc0\xaf\"}", "31 lone surrogate": `{"a":"\ud800"}`,
		"31 lone surrogate in a name": `{"\udc00":1}`, "31 CESU": "{\"a\":\"\xed\xa0\x80\"}",
		"32 depth 9": `{"a":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}`,
	} {
		list = append(list, refusal{name + " payload", forge(t, h, p), jws.ErrMalformed})
	}
	for name, p := range map[string]string{
		"22 duplicate": `{"exp":1,"exp":2}`, "22 duplicate nested": `{"a":[{"b":{"c":1,"c":1}}]}`, "22 duplicate by escape": `{"exp":1,"\u0065xp":2}`,
		"23 EXP": `{"exp":1,"EXP":2}`, "23 U+017F": "{\"iss\":\"a\",\"i\u017fs\":\"b\"}", "23 U+212A": "{\"k\":1,\"\u212a\":2}",
		"23 escaped U+017F": `{"iss":"a","i\u017fs":"b"}`,
	} {
		list = append(list, refusal{name + " in payload", forge(t, h, p), jws.ErrDuplicate})
	}
	return append(list,
		refusal{"24 header with a BOM", forge(t, "\xef\xbb\xbf"+h, payload), jws.ErrMalformed},
		refusal{"24 header with trailing JSON", forge(t, h+"{}", payload), jws.ErrMalformed},
		refusal{"31 header with bad UTF-8", forge(t, strings.Replace(h, `"alg"`, "\"\xff\":1,\"alg\"", 1), payload), jws.ErrMalformed})
}

func numbers(t testing.TB) (list []refusal) {
	t.Helper()
	for _, n := range []string{
		"2000.5", "5.0", "5e3", "1e18", "1e999", "-1", "-0", "-0.0", "9007199254740992", "9223372036854775808", "1E2", "05", "+1", "0x5", "NaN",
	} {
		list = append(list,
			refusal{"26,33 exp " + n, forge(t, header(t), `{"exp":`+n+`}`), jws.ErrMalformed},
			refusal{"26,33 credits nested " + n, forge(t, header(t), `{"limits":[{"credits":`+n+`}]}`), jws.ErrMalformed})
	}
	return list
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	if err := verify(t, forge(t, header(t), payload)); err != nil {
		t.Fatalf("control: %v", err)
	}
	for _, r := range refusals(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			err := verify(t, r.token)
			for _, s := range sentinels {
				if errors.Is(err, s) != errors.Is(r.want, s) {
					t.Fatalf("got %v, want only %q", err, r.want)
				}
			}
			_, err = jws.Guard(r.token, testType, testMax)
			needsKey := errors.Is(r.want, jws.ErrKeyUnknown) || errors.Is(r.want, jws.ErrSignature)
			if (err == nil) != needsKey {
				t.Fatalf("guard alone: %v", err)
			}
		})
	}
}

// 07, 08, 09: what a key may not do, and what one may still.
func TestKeysKeepToTheirPurposeAndStatus(t *testing.T) {
	t.Parallel()
	priv, kid := key(t, "receipt")
	pub := priv.Public().(ed25519.PublicKey)
	token := forge(t, header(t), payload)
	for name, c := range map[string]struct {
		key  jws.Key
		want error
	}{
		"07 permit key on a receipt":   {jws.Key{Purpose: jws.PurposePermit, Status: jws.StatusActive}, jws.ErrKeyUnknown},
		"07 checkpoint key":            {jws.Key{Purpose: jws.PurposeCheckpoint, Status: jws.StatusActive}, jws.ErrKeyUnknown},
		"key of any purpose":           {jws.Key{}, nil},
		"next key":                     {jws.Key{Purpose: jws.PurposeReceipt, Status: jws.StatusNext}, nil},
		"08 retired key, told with it": {jws.Key{Purpose: jws.PurposeReceipt, Status: jws.StatusRetired, NotBefore: 100, Expires: 200}, nil},
		"09 revoked key":               {jws.Key{Purpose: jws.PurposeReceipt, Status: jws.StatusRevoked}, jws.ErrKeyRevoked},
		"09 revoked key of any":        {jws.Key{Status: jws.StatusRevoked}, jws.ErrKeyRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.key.Public = pub
			tok, got, err := jws.Verify(token, testType, jws.PurposeReceipt, keySet(t, c.key), testMax)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if (err == nil || errors.Is(c.want, jws.ErrKeyRevoked)) && (got.ID != kid || !bytes.Equal(tok.Payload, []byte(payload))) {
				t.Fatalf("got key %+v, payload %s", got, tok.Payload)
			}
			if got.Expires != 0 && (!got.InUse(100) || !got.InUse(199) || got.InUse(99) || got.InUse(200)) {
				t.Error("the window is nbf ≤ t < exp")
			}
		})
	}
	t.Run("07 receipt key on a permit", func(t *testing.T) {
		t.Parallel()
		if _, _, err := jws.Verify(token, testType, jws.PurposePermit, receiptKeys(t), testMax); !errors.Is(err, jws.ErrKeyUnknown) {
			t.Fatal(err)
		}
	})
	t.Run("a bad signature of a revoked key is a bad signature", func(t *testing.T) {
		t.Parallel()
		revoked := keySet(t, jws.Key{Public: pub, Status: jws.StatusRevoked})
		bad := token[:len(token)-10] + "AAAAAAAAAA"[:9] + "A"
		if _, _, err := jws.Verify(bad, testType, jws.PurposeReceipt, revoked, testMax); !errors.Is(err, jws.ErrSignature) {
			t.Fatal(err)
		}
	})
}

// cpuTime is what the process has used: a wall clock would measure the machine's other work. Tests
// that use it run alone, not in parallel.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// maxCPU is some twenty times what the slowest case takes, and leaves the race detector room; what is
// quadratic in 10^5 takes longer.
const maxCPU = 5 * time.Second

// 32: a megabyte costs no more than a megabyte.
func TestHostileTokensAreBoundedInTime(t *testing.T) {
	const limit = 4 << 20
	var members strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&members, `,"m%d":0`, i)
	}
	for name, c := range map[string]struct{ header, payload string }{
		"depth 20,000":     {header(t), `{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}"},
		"deep header":      {`{"a":` + strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20001), payload},
		"10^5 in header":   {`{"alg":"EdDSA"` + members.String() + "}", payload},
		"1 MB of text":     {strings.Repeat("A", 1<<20), payload},
		"1 MB of a string": {header(t)[:len(header(t))-1] + `,"x":"` + strings.Repeat("A", 1<<20) + `"}`, payload},
	} {
		t.Run(name, func(t *testing.T) {
			token := forge(t, c.header, c.payload)
			start := cpuTime(t)
			_, _, err := jws.Verify(token, testType, jws.PurposeReceipt, receiptKeys(t), limit)
			if took := cpuTime(t) - start; took > maxCPU || err == nil {
				t.Fatalf("%v after %v", err, took)
			}
			if err := verify(t, token); !errors.Is(err, jws.ErrMalformed) {
				t.Fatalf("above the usual limit: %v", err)
			}
		})
	}
	t.Run("10^5 members within the limit are read", func(t *testing.T) {
		t.Parallel()
		start := cpuTime(t)
		_, _, err := jws.Verify(forge(t, header(t), "{"+members.String()[1:]+"}"), testType, jws.PurposeReceipt, receiptKeys(t), limit)
		if took := cpuTime(t) - start; err != nil || took > maxCPU {
			t.Fatalf("%v after %v", err, took)
		}
	})
}

// 35: no single bit of a token may change without notice.
func TestEveryFlippedBitIsFound(t *testing.T) {
	t.Parallel()
	token := forge(t, header(t), payload)
	keys := receiptKeys(t)
	for i := range len(token) {
		for bit := range 8 {
			flipped := []byte(token)
			flipped[i] ^= 1 << bit
			if _, _, err := jws.Verify(string(flipped), testType, jws.PurposeReceipt, keys, testMax); err == nil {
				t.Fatalf("bit %d of byte %d", bit, i)
			}
		}
	}
}
