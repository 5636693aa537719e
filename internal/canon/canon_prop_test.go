package canon_test

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"

	"counterfoil/internal/canon"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// The oracle is exact arithmetic: the literal and its RFC 8785 form are the same rational number.
func TestNumberRuleIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		literal := numberLiteral().Draw(t, "literal")
		want, ok := new(big.Rat).SetString(literal)
		if !ok {
			t.Skip("not a number")
		}
		f, err := strconv.ParseFloat(literal, 64)
		kept := false
		if err == nil {
			form := string(jsontext.AppendFloat(nil, f, 64))
			got, _ := new(big.Rat).SetString(form)
			kept = got.Cmp(want) == 0
		}
		out, err := canon.Canonical([]byte(literal))
		if (err == nil) != kept {
			t.Fatalf("%s: %v, but kept is %v", literal, err, kept)
		}
		if err != nil {
			return
		}
		if got, _ := new(big.Rat).SetString(string(out)); got.Cmp(want) != 0 {
			t.Fatalf("%s became %s", literal, out)
		}
	})
}

func TestEveryDoublePasses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64().Draw(t, "f")
		if f == 0 {
			f = 0 // -0 has the form 0
		}
		form := string(jsontext.AppendFloat(nil, f, 64))
		if out, err := canon.Canonical([]byte(form)); err != nil || string(out) != form {
			t.Fatalf("%s: %s, %v", form, out, err)
		}
	})
}

func numberLiteral() *rapid.Generator[string] {
	digits := rapid.StringMatching(`(0|[1-9][0-9]{0,18})(\.[0-9]{1,20})?`)
	edge := rapid.SampledFrom([]string{
		"9007199254740992", "9007199254740993", "1.7976931348623157", "2.2250738585072014", "4.9406564584124654", "5", "1", "0.0001",
	})
	return rapid.Custom(func(t *rapid.T) string {
		s := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign")
		s += rapid.OneOf(digits, edge).Draw(t, "digits")
		switch rapid.IntRange(0, 3).Draw(t, "exponent") {
		case 0:
			s += fmt.Sprintf("e%d", rapid.IntRange(-345, 345).Draw(t, "e"))
		case 1:
			s += fmt.Sprintf("E%+d", rapid.SampledFrom([]int{-324, -323, -308, -307, -300, -291, -290, 22, 23, 290, 291, 307, 308, 309}).Draw(t, "e"))
		}
		return s
	})
}

// node is a JSON value, written in two ways: as a sender might, and as RFC 8785 says.
type node struct {
	scalar  string // canonical
	items   []node
	members map[string]node
}

func tree(depth int) *rapid.Generator[node] {
	return rapid.Custom(func(t *rapid.T) node {
		kind := rapid.IntRange(0, 3).Draw(t, "kind")
		if depth == 0 {
			kind %= 2
		}
		switch kind {
		case 0:
			return node{scalar: rapid.SampledFrom([]string{"null", "true", "false", "0", "-17", "0.25", "1e+30"}).Draw(t, "literal")}
		case 1:
			return node{scalar: string(canon.AppendString(nil, rapid.String().Draw(t, "string")))}
		case 2:
			return node{items: append([]node{}, rapid.SliceOfN(tree(depth-1), 0, 4).Draw(t, "items")...)}
		}
		n := node{members: map[string]node{}}
		for _, name := range rapid.SliceOfN(rapid.String(), 0, 15).Draw(t, "names") {
			if !n.holds(name) {
				n.members[name] = tree(depth-1).Draw(t, "member")
			}
		}
		return n
	})
}

func (n node) holds(name string) bool {
	for have := range n.members {
		if strings.EqualFold(have, name) {
			return true
		}
	}
	return false
}

// sent writes n with blanks, escapes and an order of the sender's own.
func (n node) sent(t *rapid.T) string {
	gap := rapid.SampledFrom([]string{"", "", " ", "\n\t"})
	switch {
	case n.scalar != "":
		return gap.Draw(t, "gap") + escapeSome(t, n.scalar)
	case n.items != nil:
		var parts []string
		for _, item := range n.items {
			parts = append(parts, item.sent(t))
		}
		return "[" + strings.Join(parts, ",") + gap.Draw(t, "gap") + "]"
	}
	var parts []string
	for name, value := range n.members {
		parts = append(parts, gap.Draw(t, "gap")+escapeSome(t, string(canon.AppendString(nil, name)))+":"+value.sent(t))
	}
	return "{" + strings.Join(parts, ",") + gap.Draw(t, "gap") + "}"
}

// escapeSome spells letters of a string literal as \uXXXX.
func escapeSome(t *rapid.T, literal string) string {
	if literal[0] != '"' || strings.Contains(literal, `\`) || !rapid.Bool().Draw(t, "escape") {
		return literal
	}
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(literal[1 : len(literal)-1])) {
		fmt.Fprintf(&b, `\u%04X`, u)
	}
	return `"` + b.String() + `"`
}

func (n node) canonical() string {
	var parts []string
	switch {
	case n.scalar != "":
		return n.scalar
	case n.items != nil:
		for _, item := range n.items {
			parts = append(parts, item.canonical())
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	var names []string
	for name := range n.members {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b))) })
	for _, name := range names {
		parts = append(parts, string(canon.AppendString(nil, name))+":"+n.members[name].canonical())
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestCanonicalFormOfAnyTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := tree(3).Draw(t, "tree")
		sent, want := n.sent(t), n.canonical()
		got, err := canon.Canonical([]byte(sent))
		if err != nil || string(got) != want {
			t.Fatalf("%q:\n got %s, %v\nwant %s", sent, got, err, want)
		}
		again, err := canon.Canonical(got)
		if err != nil || string(again) != want {
			t.Fatalf("not stable: %s, %v", again, err)
		}
	})
}

func TestLookupFindsEveryMember(t *testing.T) {
	t.Parallel()
	escaper := strings.NewReplacer("~", "~0", "/", "~1")
	rapid.Check(t, func(t *rapid.T) {
		n := tree(3).Draw(t, "tree")
		sent := []byte(n.sent(t))
		var walk func(n node, pointer string)
		walk = func(n node, pointer string) {
			raw, ok := canon.Lookup(sent, pointer)
			if !ok {
				t.Fatalf("%q not found in %q", pointer, sent)
			}
			if got, err := canon.Canonical(raw); err != nil || string(got) != n.canonical() {
				t.Fatalf("%q: got %q, %v", pointer, raw, err)
			}
			for i, item := range n.items {
				walk(item, fmt.Sprintf("%s/%d", pointer, i))
			}
			for name, value := range n.members {
				walk(value, pointer+"/"+escaper.Replace(name))
			}
			if n.items != nil {
				if _, ok := canon.Lookup(sent, fmt.Sprintf("%s/%d", pointer, len(n.items))); ok {
					t.Fatalf("%q has no element after its last", pointer)
				}
			}
		}
		walk(n, "")
	})
}

func TestFoldedNamesAreDuplicates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, 12, -1).Draw(t, "name")
		other := strings.Map(func(r rune) rune {
			for range rapid.IntRange(0, 3).Draw(t, "steps") {
				r = unicode.SimpleFold(r)
			}
			return r
		}, name)
		n := node{members: map[string]node{}}
		for _, extra := range rapid.SliceOfN(rapid.String(), 0, 20).Draw(t, "others") {
			n.members[extra] = node{scalar: "1"}
		}
		n.members[name], n.members[other] = node{scalar: "1"}, node{scalar: "1"}
		sent := n.sent(t)
		if name == other {
			sent = sent[:len(sent)-1] + "," + string(canon.AppendString(nil, name)) + ":2}"
		}
		if err := canon.Check([]byte(sent)); !errors.Is(err, canon.ErrDuplicate) {
			t.Fatalf("%q: %v", sent, err)
		}
	})
}
