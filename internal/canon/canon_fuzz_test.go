package canon_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"strings"
	"testing"

	"counterfoil/internal/canon"

	"github.com/go-json-experiment/json/jsontext"
)

// seed adds all vectors. A fuzz target without seeds passes and tests nothing.
func seed(f *testing.F) {
	f.Helper()
	n := 0
	for _, v := range vectors() {
		if len(v.in) < 1000 {
			f.Add([]byte(v.in))
			n++
		}
	}
	if n < 90 {
		f.Fatalf("only %d seeds", n)
	}
}

// FuzzCanonical: what is accepted is strict JSON to others too, means the same in its canonical form,
// and that form is stable.
func FuzzCanonical(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		out, err := canon.Canonical(data)
		if !bytes.Equal(before, data) {
			t.Fatal("input changed")
		}
		if checked := canon.Check(data); (checked == nil) != (err == nil) {
			t.Fatalf("Check: %v, Canonical: %v", checked, err)
		}
		if err != nil {
			return
		}
		if !jsontext.Value(data).IsValid() || !json.Valid(data) {
			t.Fatal("accepted what is not JSON")
		}
		again, err := canon.Canonical(out)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("not stable: %q became %q, %v", out, again, err)
		}
		sameMeaning(t, data, out)
		var v jsontext.Value
		if err := canon.Decode(data, &v); err != nil {
			t.Fatalf("Decode: %v", err)
		}
	})
}

// sameMeaning compares two texts as the standard library reads them, numbers as rationals.
func sameMeaning(t *testing.T, a, b []byte) {
	t.Helper()
	var x, y any
	for text, into := range map[string]*any{string(a): &x, string(b): &y} {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(into); err != nil {
			t.Fatal(err)
		}
		if _, err := dec.Token(); err != io.EOF {
			t.Fatal("something follows the value")
		}
	}
	if string(a) != string(b) && !equal(x, y) {
		t.Fatalf("%q became %q", a, b)
	}
}

func equal(x, y any) bool {
	switch x := x.(type) {
	case json.Number:
		y, ok := y.(json.Number)
		return ok && (isZero(x) && isZero(y) || !isZero(x) && !isZero(y) && rational(x).Cmp(rational(y)) == 0)
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for name := range x {
			if other, ok := y[name]; !ok || !equal(x[name], other) {
				return false
			}
		}
		return true
	}
	return x == y
}

// isZero spares big.Rat the likes of 0e999999999.
func isZero(n json.Number) bool {
	digits, _, _ := strings.Cut(strings.ToLower(string(n)), "e")
	return strings.Trim(digits, "-0.") == ""
}

func rational(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		panic("not a number: " + string(n))
	}
	return r
}

// FuzzLookup: no input makes it panic, and what it returns is part of the input.
func FuzzLookup(f *testing.F) {
	n := 0
	for _, v := range vectors() {
		if len(v.in) > 1000 {
			continue
		}
		for _, pointer := range []string{"", "/", "/a", "/0", "/0/1", "/a~1b~0", "/string"} {
			f.Add([]byte(v.in), pointer)
			n++
		}
	}
	if n < 500 {
		f.Fatalf("only %d seeds", n)
	}
	f.Fuzz(func(t *testing.T, data []byte, pointer string) {
		raw, ok := canon.Lookup(data, pointer)
		if ok && !bytes.Contains(data, raw) {
			t.Fatal("made up a value")
		}
		if ok && canon.Check(data) == nil && canon.Check(raw) != nil {
			t.Fatalf("%q in %q: %q is not a value", pointer, data, raw)
		}
	})
}
