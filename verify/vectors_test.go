package verify_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"
	"counterfoil/verify"
)

var update = flag.Bool("update", false, "write the vectors anew")

const vectorDir = "testdata/vectors"

// vector is one file: a header for whoever implements the format, and the input.
type vector struct {
	expect string // "valid", or the code of the check that decides
	exit   int
	says   string
	body   []byte
}

func (v vector) text() []byte {
	return fmt.Appendf(nil, "expect: %s\nexit: %d\ncomment: %s\n\n%s", v.expect, v.exit, v.says, v.body)
}

func readVector(t testing.TB, name string) vector {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(vectorDir, name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := bytes.Cut(data, []byte("\n\n"))
	if !ok {
		t.Fatalf("%s has no header", name)
	}
	v := vector{body: body}
	if _, err := fmt.Sscanf(string(head), "expect: %s\nexit: %d\n", &v.expect, &v.exit); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// Each vector says the same to the verifier as to its reader, and is what the
// generator makes.
func TestVectors(t *testing.T) {
	t.Parallel()
	made := vectors(t)
	trusted := newWorld(t).keys.JWKS()
	if *update {
		writeVectors(t, made, trusted)
	}
	if got, err := os.ReadFile(filepath.Join(vectorDir, "trust.jwks")); err != nil || !bytes.Equal(got, trusted) {
		t.Errorf("trust.jwks is not what the generator makes (%v)", err)
	}
	files, err := filepath.Glob(filepath.Join(vectorDir, "*.txt"))
	if err != nil || len(files) != len(made) || len(files) < 40 {
		t.Fatalf("%d vectors, %d made, %v", len(files), len(made), err)
	}
	for name, want := range made {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := readVector(t, name)
			if !bytes.Equal(v.body, want.body) || v.expect != want.expect || v.exit != want.exit {
				t.Error("the file is not what the generator makes; run with -update and read the difference")
			}
			judgeVector(t, v)
		})
	}
}

func judgeVector(t *testing.T, vec vector) {
	t.Helper()
	tr := &verify.Trust{}
	data, err := os.ReadFile(filepath.Join(vectorDir, "trust.jwks"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Add("trust.jwks", data); err != nil {
		t.Fatal(err)
	}
	v, set := verify.New(verify.Options{Trust: tr}), verify.NewSet()
	codes := map[string]bool{}
	for e := range verify.Entries("vector", bytes.NewReader(vec.body)) {
		d := v.Judge(e)
		set.Add(d)
		for _, c := range d.Checks {
			codes[string(c.Code)] = true
		}
	}
	sum := set.Summary(nil)
	for _, c := range sum.Set {
		codes[string(c.Code)] = true
	}
	if sum.Exit != vec.exit {
		t.Errorf("exit %d, want %d; codes %v", sum.Exit, vec.exit, slices.Sorted(maps.Keys(codes)))
	}
	if vec.expect != "valid" && !codes[vec.expect] {
		t.Errorf("no %s in %v", vec.expect, slices.Sorted(maps.Keys(codes)))
	}
}

func writeVectors(t *testing.T, made map[string]vector, trusted []byte) {
	t.Helper()
	old, err := filepath.Glob(filepath.Join(vectorDir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(vectorDir, "trust.jwks"), trusted, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, v := range made {
		if err := os.WriteFile(filepath.Join(vectorDir, name+".txt"), v.text(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func vectors(t *testing.T) map[string]vector {
	t.Helper()
	out := map[string]vector{}
	for _, family := range []func(*testing.T) map[string]vector{validVectors, damagedVectors, tokenVectors, permitVectors, setVectors, decisionVectors} {
		for name, v := range family(t) {
			if _, twice := out[name]; twice {
				t.Fatalf("two vectors are called %s", name)
			}
			out[name] = v
		}
	}
	return out
}

func validVectors(t *testing.T) map[string]vector {
	t.Helper()
	w := newWorld(t)
	b := w.bundle(plain)
	var indented bytes.Buffer
	if err := json.Indent(&indented, b.JSON(), "", "  "); err != nil {
		t.Fatal(err)
	}
	bare := *b
	bare.Content = nil
	first, later := w.pair(plain)
	alone := *first
	alone.Related = nil
	return map[string]vector{
		"valid-bundle":          {"valid", 0, "everything that a bundle can hold in this version", b.JSON()},
		"valid-bundle-indented": {"valid", 0, "spacing between members means nothing", indented.Bytes()},
		"valid-bundle-bare":     {"valid", 0, "content is optional", bare.JSON()},
		"valid-receipt":         {"valid", 0, "a bare receipt", []byte(b.Receipt + "\n")},
		"valid-denied":          {"valid", 0, "a denial need not fit the permit", w.bundle(denied).JSON()},
		"valid-uncertain":       {"valid", 0, "valid, and it says that the tool may have acted", alone.JSON()},
		"valid-superseded":      {"E_SUPERSEDED", 0, "an uncertain receipt with its reconciliation beside it", first.JSON()},
		"valid-reconciliation":  {"valid", 0, "the same pair from the other side", later.JSON()},
		"valid-chain":           {"valid", 0, "JSONL of bundles", lines(newWorld(t).chain(3)...)},
		"valid-strange-permit":  {"E_KEY_UNKNOWN", 0, "the permit's key is trusted by nobody; the receipt vouches for its hash", strangePermit(t)},
	}
}

func strangePermit(t *testing.T) []byte {
	t.Helper()
	w := newWorld(t)
	w.permitKey = w.strangers
	w.grant(func(*permits.Permit) {})
	return w.bundle(plain).JSON()
}

func damagedVectors(t *testing.T) map[string]vector {
	t.Helper()
	w := newWorld(t)
	b := w.bundle(plain)
	text := string(b.JSON())
	changed := func(edit func(*receipts.Bundle)) []byte {
		c := *b
		c.Content = &receipts.Content{Arguments: arguments(), Result: result()}
		edit(&c)
		return c.JSON()
	}
	payload := strings.Index(b.Receipt, ".") + 20
	return map[string]vector{
		"empty":           {"E_EMPTY", 3, "no receipt is not a valid receipt", nil},
		"blank":           {"E_EMPTY", 3, "nor is white space", []byte("\n\n")},
		"garbage":         {"E_MALFORMED", 3, "neither JSON nor a token", []byte("hello\n")},
		"trimmed":         {"E_MALFORMED", 3, "cut in the middle", []byte(text[:len(text)/2])},
		"trimmed-receipt": {"E_MALFORMED", 3, "a bare receipt, cut", []byte(b.Receipt[:len(b.Receipt)-9])},
		"no-permit":       {"E_MALFORMED", 3, "a bundle always has its permit", []byte(strings.Replace(text, `"permit":"`+b.Permit+`",`, "", 1))},
		"bundle-version":  {"E_VERSION", 3, "a newer bundle", []byte(strings.Replace(text, "bundle.v1", "bundle.v2", 1))},
		"proof":           {"E_PROOF_UNSUPPORTED", 3, "a log proof, which this version cannot judge", changed(func(c *receipts.Bundle) { c.Proof = "c2sp.org/tlog-proof@v1\n" })},
		"altered":         {"E_NOT_CANONICAL", 1, "one character of the payload exchanged", changed(func(c *receipts.Bundle) { c.Receipt = exchange(c.Receipt, payload) })},
		"bad-signature":   {"E_SIG_BAD", 1, "one character of the signature exchanged", changed(func(c *receipts.Bundle) { c.Receipt = exchange(c.Receipt, len(c.Receipt)-20) })},
		"other-arguments": {"E_CONTENT_REQ", 1, "the arguments are others", changed(func(c *receipts.Bundle) { c.Content.Arguments = []byte(`{"amount":1}`) })},
		"other-result":    {"E_CONTENT_RES", 1, "the result is another", changed(func(c *receipts.Bundle) { c.Content.Result = []byte(`{"content":[]}`) })},
		"other-operation": {"E_RELATED", 1, "a receipt of another operation beside it", changed(func(c *receipts.Bundle) { c.Related = []string{w.receipt(plain)} })},
	}
}

// exchange replaces the character at i by a neighbour of the alphabet.
func exchange(s string, i int) string {
	c := byte('A')
	if s[i] == c {
		c = 'B'
	}
	return s[:i] + string(c) + s[i+1:]
}

func tokenVectors(t *testing.T) map[string]vector {
	t.Helper()
	w := newWorld(t)
	b := w.bundle(plain)
	w.rewind()
	claims := w.claims(plain).AppendPayload(nil)
	signed := func(s jws.Signer, typ string, payload []byte) []byte {
		c := *b
		c.Receipt = sign(t, s, typ, payload)
		return c.JSON()
	}
	ours := func(payload []byte) []byte { return signed(w.receiptKey, receipts.Type, payload) }
	edit := func(old, with string) []byte { return ours([]byte(strings.Replace(string(claims), old, with, 1))) }
	header := fmt.Sprintf(`{"alg":"EdDSA","typ":%q,"kid":%q,"crit":["x"],"x":1}`, receipts.Type, w.receiptKey.KeyID())
	critical := *b
	critical.Receipt = signRaw(t, w.receiptKey, header, claims)
	own := *b
	own.Receipt = sign(t, w.strangers, receipts.Type, claims)
	ownKey := keySet(t, jws.Key{Public: w.strangers.Public(), Purpose: jws.PurposeReceipt})
	own.Keys = w.keys.Merge(ownKey).JWKS()
	return map[string]vector{
		"key-unknown":        {"E_KEY_UNKNOWN", 3, "signed by a key that nobody mentions", signed(w.strangers, receipts.Type, claims)},
		"key-of-the-bundle":  {"E_KEY_UNTRUSTED", 3, "signed by a key that only the bundle vouches for", own.JSON()},
		"key-of-permits":     {"E_KEY_UNTRUSTED", 3, "signed by the trusted permit key", signed(w.permitKey, receipts.Type, claims)},
		"typ-permit":         {"E_TYP", 1, "signed as a permit", signed(w.receiptKey, permits.Type, claims)},
		"typ-jwt":            {"E_TYP", 1, "signed as any JWT", signed(w.receiptKey, "JWT", claims)},
		"crit":               {"E_HDR_CRIT", 1, "a critical extension", critical.JSON()},
		"duplicate-member":   {"E_DUP_MEMBER", 1, "one name twice in one object", edit(`"charged":5`, `"charged":5,"charged":0`)},
		"folded-member":      {"E_DUP_MEMBER", 1, "one name twice but for the case of a letter", edit(`"charged":5`, `"charged":5,"Charged":0`)},
		"fraction":           {"E_NOT_CANONICAL", 1, "5.0 is no integer literal", edit(`"charged":5`, `"charged":5.0`)},
		"too-large":          {"E_NOT_CANONICAL", 1, "2^53", edit(`"charged":5`, `"charged":9007199254740992`)},
		"unknown-member":     {"E_CLAIMS", 1, "a member that receipts do not have", edit(`"v":1`, `"v":1,"x":1`)},
		"missing-member":     {"E_CLAIMS", 1, "a member that receipts have", edit(`"iat":1790000001,`, ``)},
		"receipt-version":    {"E_VERSION", 3, "a newer receipt", edit(`"v":1`, `"v":2`)},
		"more-than-allowed":  {"E_INCONSISTENT", 1, "more charged than authorized", edit(`"charged":5`, `"charged":6`)},
		"success-for-reason": {"E_INCONSISTENT", 1, "a success with a reason", edit(`"req":`, `"reason":"tool_error","req":`)},
	}
}

func signRaw(t *testing.T, s jws.Signer, header string, payload []byte) string {
	t.Helper()
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	sig, err := s.Sign(input)
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + sig
}

func permitVectors(t *testing.T) map[string]vector {
	t.Helper()
	granted := func(edit func(*permits.Permit)) []byte {
		w := newWorld(t)
		w.grant(edit)
		return w.bundle(plain).JSON()
	}
	exchanged := func() []byte {
		w := newWorld(t)
		b := w.bundle(plain)
		w.grant(func(p *permits.Permit) { p.Grant.Limits.Credits++ })
		b.Permit = w.permit
		return b.JSON()
	}
	return map[string]vector{
		"permit-exchanged":    {"E_PERMIT_HASH", 1, "another permit of the same id", exchanged()},
		"permit-other-aud":    {"E_PERMIT_INVALID", 1, "a permit for another gateway", granted(func(p *permits.Permit) { p.Audience = "http://other.example" })},
		"permit-other-wallet": {"E_PERMIT_MISMATCH", 1, "a permit of another wallet", granted(func(p *permits.Permit) { p.Wallet = "wal_b" })},
		"permit-other-agent":  {"E_PERMIT_MISMATCH", 1, "a permit of another agent", granted(func(p *permits.Permit) { p.Agent = "agt_b" })},
		"permit-without-tool": {"E_PERMIT_TOOL", 1, "a permit that does not grant the tool", granted(func(p *permits.Permit) { p.Grant.Tools, p.Grant.Limits.Calls = []string{"refund"}, nil })},
		"permit-ended":        {"E_PERMIT_WINDOW", 1, "started in the second in which the permit ended", granted(func(p *permits.Permit) { p.Expires = startMS/1000 + 1 })},
		"permit-too-small":    {"E_PERMIT_LIMIT", 1, "dearer than the permit allows a call to be", granted(func(p *permits.Permit) { p.Grant.Limits.CreditsPerCall = ptr(4) })},
	}
}

func setVectors(t *testing.T) map[string]vector {
	t.Helper()
	chain := newWorld(t).chain(4)
	forked := newWorld(t)
	begin := forked.chain(2)
	replaced := forked.bundle(func(c *receipts.Claims) { c.Prev = strings.Repeat("0", 64) }).JSON()
	other := newWorld(t)
	other.receipt(plain)
	second := other.bundle(func(c *receipts.Claims) { c.ID = "rcp_other" }).JSON()
	poor := newWorld(t)
	poor.grant(func(p *permits.Permit) { p.Grant.Limits.Credits = 9 })
	return map[string]vector{
		"set-gap":           {"E_SEQ_GAP", 4, "number 2 is missing", lines(chain[0], chain[2], chain[3])},
		"set-replaced":      {"E_PREV", 4, "number 3 does not follow from number 2", lines(append(slices.Clone(begin), replaced)...)},
		"set-fork":          {"E_FORK", 4, "two receipts have number 2", lines(begin[0], begin[1], second)},
		"set-twice":         {"E_DUPLICATE", 4, "one receipt twice", lines(chain[0], chain[1], chain[1])},
		"set-overspent":     {"E_TOTALS", 4, "10 credits under a permit of 9", lines(poor.chain(2)...)},
		"set-invalid":       {"E_NOT_CANONICAL", 1, "what is wrong outweighs what is missing", lines(chain[0], chain[2], edited(t, chain[3]))},
		"set-unreadable":    {"E_MALFORMED", 3, "the gap may be what could not be read", lines(chain[0], []byte("x"), chain[2])},
		"set-fork-and-more": {"E_FORK", 4, "what is contradictory outweighs what is unreadable", lines(begin[0], begin[1], second, []byte("x"))},
	}
}

// decisionVectors are about a later decision, and about a denial that names the
// operation which came first.
func decisionVectors(t *testing.T) map[string]vector {
	t.Helper()
	pair := func(resolution string, charged int64) (first, later *receipts.Bundle) {
		return newWorld(t).decided(resolution, charged)
	}
	beside := func(edit func(*receipts.Claims)) []byte {
		_, later := newWorld(t).pair(edit)
		return later.JSON()
	}
	first, later := pair(receipts.Delivered, 3)
	alone := *later
	alone.Related = nil
	two := *first
	two.Related = []string{later.Receipt, later.Receipt}
	refused := func(old, with string) []byte {
		w := newWorld(t)
		b := w.bundle(duplicate)
		w.rewind()
		payload := string(w.claims(duplicate).AppendPayload(nil))
		b.Receipt = sign(t, w.receiptKey, receipts.Type, []byte(strings.Replace(payload, old, with, 1)))
		return b.JSON()
	}
	const named = `"detail":{"operation_id":"op_1"}`
	again := newWorld(t)
	again.receipt(plain)
	return map[string]vector{
		"valid-decided":          {"E_SUPERSEDED", 0, "a call and the decision that it was delivered for less, each with the other", lines(first.JSON(), later.JSON())},
		"valid-decided-receipts": {"valid", 0, "the same pair, as bare receipts", lines([]byte(first.Receipt), []byte(later.Receipt))},
		"valid-decision-alone":   {"E_RELATED_MISSING", 0, "the decision, without the receipt that it resolves", alone.JSON()},
		"valid-duplicate":        {"valid", 0, "a denial for a reference, which names the operation that holds it", again.bundle(duplicate).JSON()},
		"duplicate-of-nothing":   {"E_INCONSISTENT", 1, "a denial for a reference that names no operation", refused(named+",", "")},
		"duplicate-of-a-receipt": {"E_CLAIMS", 1, "what it names is no operation", refused(`"operation_id":"op_1"`, `"operation_id":"rcp_1"`)},
		"duplicate-with-numbers": {"E_CLAIMS", 1, "the two shapes of detail in one", refused(named, `"detail":{"limit":1,"needed":1,"operation_id":"op_1","remaining":0}`)},
		"decided-for-more": {"E_INCONSISTENT", 1, "a decision never charges more", beside(func(c *receipts.Claims) {
			c.Reconciles.ChargedBefore, c.Charged, c.Reconciles.Resolution = 4, 5, receipts.Delivered
		})},
		"decided-without-transfer": {"E_INCONSISTENT", 1, "credits came back without a transfer", beside(func(c *receipts.Claims) { c.LedgerEntry = "" })},
		"decided-another-receipt":  {"E_RECONCILES", 1, "it resolves another receipt than the one beside it", beside(func(c *receipts.Claims) { c.Reconciles.ID = "rcp_9" })},
		"decided-another-value":    {"E_RELATED", 1, "it has another value than the call", beside(func(c *receipts.Claims) { c.Value = &permits.Value{Currency: "USD", Amount: 1} })},
		"related-twice":            {"E_RECONCILES", 1, "three receipts of one operation", two.JSON()},
		"set-decided-twice":        {"E_RECONCILES", 4, "two decisions about one receipt", lines(twice(newWorld(t), false)...)},
	}
}

func edited(t *testing.T, text []byte) []byte {
	t.Helper()
	b, err := receipts.ParseBundle(text)
	if err != nil {
		t.Fatal(err)
	}
	b.Receipt = exchange(b.Receipt, strings.Index(b.Receipt, ".")+20)
	return b.JSON()
}

func lines(texts ...[]byte) []byte {
	return append(bytes.Join(texts, []byte("\n")), '\n')
}
