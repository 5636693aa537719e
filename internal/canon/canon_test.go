package canon_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/canon"
)

type vector struct {
	name, in string
	want     string // canonical form; "" is refused
}

func vectors() []vector {
	return append(append(accepted(), refused()...), numbers()...)
}

func accepted() []vector {
	return []vector{
		{"null", `null`, `null`},
		{"blank around", " \t\r\n[ 1 , 2 ]\n", `[1,2]`},
		{"empty object", `{}`, `{}`},
		{"empty name", `{"":1}`, `{"":1}`},
		{
			"RFC 8785 3.2.2", `{"numbers":[333333333.3333333,1E30,4.50,2e-3,0.000000000000000000000000001],
			"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		{
			"RFC 8785 3.2.3, UTF-16 order",
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",` +
				`"\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis",` +
				`"€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`,
		},
		{"surrogate pair", `"\uD83D\uDE00"`, `"😀"`},
		{"escaped backslash before u", `"\\ud800"`, `"\\ud800"`},
		{"U+FFFE, U+FFFF, NUL", `"\ufffe\uffff\u0000"`, "\"\ufffe\uffff\\u0000\""},
		{"not normalised", `["\u0065\u0301","\u00e9"]`, "[\"e\u0301\",\"\u00e9\"]"},
		{"same name in two objects", `{"a":{"s":1},"b":{"s":1}}`, `{"a":{"s":1},"b":{"s":1}}`},
		{"same name as a value", `{"a":"A","b":"a"}`, `{"a":"A","b":"a"}`},
		{"sharp s is not ss", `{"ss":1,"ß":2}`, `{"ss":1,"ß":2}`},
		{"dotted and dotless i do not fold simply", `{"i":1,"İ":2,"ı":3}`, `{"i":1,"İ":2,"ı":3}`},
		{"depth 64", nested(64), nested(64)},
		{"duplicates in a string", `"{\"a\":1,\"a\":2}"`, `"{\"a\":1,\"a\":2}"`},
		{"brackets in a string", `["[[[","}}}"]`, `["[[[","}}}"]`},
	}
}

func refused() []vector {
	list := []vector{
		{name: "nothing", in: ""},
		{name: "blanks", in: " \n"},
		{name: "byte order mark", in: "\xef\xbb\xbf{}"},
		{name: "UTF-16", in: "{\x00}\x00"},
		{name: "two values", in: `{}{}`},
		{name: "trailing value after blank", in: "1 2"},
		{name: "trailing garbage", in: `{"a":1}x`},
		{name: "trailing NUL", in: "{}\x00"},
		{name: "trailing comma", in: `[1,]`},
		{name: "trailing comma in object", in: `{"a":1,}`},
		{name: "comment", in: `[1/*2*/]`},
		{name: "single quotes", in: `{'a':1}`},
		{name: "bare name", in: `{a:1}`},
		{name: "no value", in: `{"a"}`},
		{name: "wrong bracket", in: `[1}`},
		{name: "never closed", in: `[1`},
		{name: "closed first", in: `]`},
		{name: "closed twice", in: `[1]]`},
		{name: "string never closed", in: `"a`},
		{name: "escape cut", in: `"\`},
		{name: "escape unknown", in: `"\x41"`},
		{name: "escape not hex", in: `"\u00g0"`},
		{name: "control in string", in: "\"\x01\""},
		{name: "line break in string", in: "\"a\nb\""},
		{name: "byte 0xff", in: "\"\xff\""},
		{name: "overlong slash", in: "\"\xc0\xaf\""},
		{name: "CESU surrogate", in: "\"\xed\xa0\x80\""},
		{name: "lone high surrogate", in: `"\ud800"`},
		{name: "lone low surrogate", in: `"\udc00"`},
		{name: "surrogates swapped", in: `"\ude00\ud83d"`},
		{name: "low surrogate twice", in: `"\udc00\udc00"`},
		{name: "high surrogate twice", in: `"\ud83d\ud83d\ude00"`},
		{name: "high surrogate before a letter", in: `"\ud83dx\ude00"`},
		{name: "lone surrogate in a name", in: `{"\ud800":1}`},
		{name: "literal in capitals", in: `True`},
		{name: "depth 65", in: nested(65)},
		{name: "depth 65 by objects", in: strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)},
	}
	return append(list, duplicates()...)
}

func duplicates() []vector {
	return []vector{
		{name: "duplicate", in: `{"a":1,"a":2}`},
		{name: "duplicate nested", in: `[{"x":{"a":1,"b":2,"a":1}}]`},
		{name: "duplicate after a nested object", in: `{"a":{"b":1},"c":[{"a":1}],"a":2}`},
		{name: "duplicate by escape", in: `{"a":1,"\u0061":2}`},
		{name: "duplicate by letter case", in: `{"exp":1,"EXP":2}`},
		{name: "duplicate by U+017F", in: `{"iss":1,"i` + "\u017f" + `s":2}`},
		{name: "duplicate by escaped U+017F", in: `{"iss":1,"i\u017fs":2}`},
		{name: "duplicate by U+212A", in: `{"kid":1,"` + "\u212a" + `id":2}`},
		{name: "duplicate by Greek sigma", in: `{"σ":1,"ς":2}`},
		{name: "duplicate by sharp s", in: `{"ß":1,"ẞ":2}`},
		{name: "duplicate beyond ASCII", in: `{"É":1,"é":2}`},
		{name: "duplicate among many", in: `{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"k":0,"l":0,"m":0,"n":0,"M":0}`},
		{name: "duplicate empty name", in: `{"":1,"":2}`},
	}
}

func numbers() []vector {
	list := []vector{
		{name: "saturates", in: `1e400`},
		{name: "saturates, capital", in: `1E400`},
		{name: "vanishes", in: `1e-400`},
		{name: "2^53+1", in: `9007199254740993`},
		{name: "2^60+1", in: `1152921504606846977`},
		{name: "largest int64", in: `9223372036854775807`},
		{name: "seventeen digits that change", in: `0.12345678901234567`},
		{name: "sixteen digits that change", in: `9007199254740993.0`},
		{name: "RFC 8785's own rounding example", in: `333333333.33333329`},
		{name: "fifteen digits of a subnormal", in: `1.23456789012345e-315`},
		{name: "subnormal rounded", in: `4.9e-324`},
		{name: "just above the largest", in: `1.7976931348623159e308`},
		{name: "forty digits", in: `0.1000000000000000055511151231257827021182`},
		{name: "exponent beyond int64", in: `1e99999999999999999999`},
		{name: "exponent strconv does not count", in: `0.` + strings.Repeat("0", 110000) + `1e110001`},
		{name: "leading zero", in: `01`},
		{name: "leading zero, negative", in: `-01`},
		{name: "plus", in: `+1`},
		{name: "point first", in: `.5`},
		{name: "point last", in: `1.`},
		{name: "exponent empty", in: `1e`},
		{name: "two points", in: `1.2.3`},
		{name: "minus alone", in: `-`},
		{name: "minus twice", in: `--1`},
		{name: "NaN", in: `NaN`},
		{name: "Infinity", in: `-Infinity`},
		{name: "hexadecimal", in: `0x10`},
		{name: "underscore", in: `1_000`},
	}
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "-0.0": "0", "0e0": "0", "0e99999999999999999999": "0", "-1": "-1",
		"0.1": "0.1", "1.10": "1.1", "1.0": "1", "1e0": "1", "1e3": "1000", "1E+3": "1000", "100e-2": "1",
		"1e23": "1e+23", "1e21": "1e+21", "1e20": "100000000000000000000", "1e-6": "0.000001", "1e-7": "1e-7",
		"9007199254740991": "9007199254740991", "9007199254740992": "9007199254740992",
		"-9007199254740992": "-9007199254740992", "9007199254740994": "9007199254740994",
		"0.30000000000000004": "0.30000000000000004", "295147905179352830000": "295147905179352830000",
		"123456789012345.0": "123456789012345", "5e-324": "5e-324", "1e-310": "1e-310",
		"1.7976931348623157e308":                      "1.7976931348623157e+308",
		"1." + strings.Repeat("0", 3000):              "1",
		strings.Repeat("1", 15) + "e280":              "1.11111111111111e+294",
		"1" + strings.Repeat("0", 300):                "1e+300",
		"0." + strings.Repeat("0", 299) + "1":         "1e-300",
		"0." + strings.Repeat("0", 11000) + "1e11001": "1",
	} {
		list = append(list, vector{"passes " + in[:min(len(in), 24)], in, want})
	}
	return list
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for _, in := range []string{v.in, "[" + v.in + "]", `{"m":` + v.in + `}`} {
				if in != v.in && (v.name == "depth 64" || v.name == "blanks" || v.name == "nothing") {
					continue
				}
				got, err := canon.Canonical([]byte(in))
				if checked := canon.Check([]byte(in)); (checked == nil) != (err == nil) {
					t.Fatalf("Check: %v, Canonical: %v", checked, err)
				}
				if v.want == "" {
					if !errors.Is(err, canon.ErrInvalid) {
						t.Fatalf("%.60q: got %.60q, %v; want a refusal", in, got, err)
					}
					continue
				}
				if want := strings.Replace(in, v.in, v.want, 1); err != nil || string(got) != want {
					t.Fatalf("got %q, %v; want %q", got, err, want)
				}
			}
		})
	}
}

func TestDuplicatesAreTold(t *testing.T) {
	t.Parallel()
	for _, v := range duplicates() {
		if err := canon.Check([]byte(v.in)); !errors.Is(err, canon.ErrDuplicate) || !errors.Is(err, canon.ErrInvalid) {
			t.Errorf("%s: %v", v.name, err)
		}
		if err := canon.CheckNames([]byte(v.in)); !errors.Is(err, canon.ErrDuplicate) {
			t.Errorf("%s, by the exact search: %v", v.name, err)
		}
	}
	for _, v := range accepted() {
		if err := canon.CheckNames([]byte(v.in)); err != nil {
			t.Errorf("%s, by the exact search: %v", v.name, err)
		}
	}
	if err := canon.Check([]byte(`[1,]`)); errors.Is(err, canon.ErrDuplicate) {
		t.Error("not every fault is a duplicate")
	}
}

func TestErrorsNeverQuoteTheText(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, in := range []string{
		`{"` + secret + `":1,"` + secret + `":2}`, `["` + secret + `",]`, `["` + secret + `\ud800"]`,
		`"` + secret, `["` + secret + "\xff\"]", secret,
	} {
		err := canon.Check([]byte(in))
		if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), secret[:1]+"'") {
			t.Errorf("%q: %v", in, err)
		}
	}
	var into struct {
		N int64 `json:"n"`
	}
	err := canon.Decode([]byte(`{"n":"`+secret+`"}`), &into)
	if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "/n") {
		t.Errorf("decode: %v", err)
	}
	long := canon.Decode([]byte(`{"`+strings.Repeat("x", 5000)+"\\n"+`":1}`), &into)
	if long == nil || len(long.Error()) > 200 || strings.Contains(long.Error(), "\n") {
		t.Errorf("unknown member: %v", long)
	}
}

func TestOffset(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{`{"a":1e400}`: 5, `["\ud800"]`: 2, "[\"\xff\"]": 2, `[1`: 2, `[1] 2`: 3} {
		var e *canon.Error
		if err := canon.Check([]byte(in)); !errors.As(err, &e) || e.Offset != want {
			t.Errorf("%q: %+v, want offset %d", in, e, want)
		}
	}
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

// Whoever may send a megabyte must not be able to buy more than a megabyte's worth of work.
func TestHostileInputIsBoundedInTime(t *testing.T) {
	const size = 1 << 20
	many := func(n int, name func(i int) string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%s":0`, name(i))
		}
		return "{" + b.String()[1:] + "}"
	}
	fill := func(unit, end string) string { return strings.Repeat(unit, size/len(unit)) + end }
	for name, c := range map[string]struct {
		in string
		ok bool
	}{
		"10^5 members":               {many(1e5, func(i int) string { return fmt.Sprint(i) }), true},
		"10^5 members of one name":   {many(1e5, func(int) string { return "a" }), false},
		"10^5 names that fold":       {many(1e5, func(i int) string { return "k" + strings.Repeat("K", i%3) + "\u212a" }), false},
		"10^5 names that share much": {many(3000, func(i int) string { return strings.Repeat("a", 300) + fmt.Sprint(i) }), true},
		"10^5 escaped names":         {many(1e5, func(i int) string { return fmt.Sprintf(`\u%04x\u00e9`, i%0xd7ff) }), false},
		"10^5 wide names":            {many(5e4, func(i int) string { return fmt.Sprintf("é%d", i) }), true},
		"depth 20,000":               {nested(20000), false},
		"depth 20,000, objects":      {strings.Repeat(`{"a":`, 20000), false},
		"opened only":                {fill("[", ""), false},
		"one number":                 {fill("9", ""), false},
		"one long fraction":          {"0." + fill("3", ""), false},
		"one with many zeros":        {"1." + fill("0", ""), true},
		"one with many zeros before": {"0." + fill("0", "1"), false},
		"one integer of zeros":       {"1" + fill("0", ""), false},
		"one long exponent":          {"1e" + fill("9", ""), false},
		"many numbers, slow":         {"[" + fill("0.30000000000000004,", "1]"), true},
		"many numbers, refused last": {"[" + fill("1,", "1e400]"), false},
		"one string":                 {`"` + fill("a", `"`), true},
		"escapes":                    {`"` + fill(`\u0061`, `"`), true},
		"surrogate pairs":            {`"` + fill(`\ud83d\ude00`, `"`), true},
		"backslashes":                {`"` + fill(`\\`, `"`), true},
		"empty objects":              {"[" + fill("{},", "{}]"), true},
		"small objects":              {"[" + fill(`{"a":1,"b":2},`, "{}]"), true},
		"blanks":                     {fill(" ", "1"), true},
		"quotes":                     {fill(`"`, ""), false},
		"commas":                     {fill(`,`, ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			start := cpuTime(t)
			_, err := canon.Canonical([]byte(c.in))
			var into struct{}
			_ = canon.Decode([]byte(c.in), &into)
			took := cpuTime(t) - start
			t.Log(took)
			if took > maxCPU {
				t.Errorf("took %v", took)
			}
			if (err == nil) != c.ok {
				t.Errorf("accepted: %v, want %v (%v)", err == nil, c.ok, err)
			}
		})
	}
}

func TestCheckClaims(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{
		`{"a":0,"b":[9007199254740991,10]}`: true, `{}`: true, `[[[[[[[[]]]]]]]]`: true, `"1.5"`: true,
		`[[[[[[[[[]]]]]]]]]`: false, `9007199254740992`: false, `-0`: false, `-1`: false, `1.0`: false, `5e3`: false,
		`1E2`: false, `00`: false, `99999999999999999999`: false, `{"a":1,"a":1}`: false,
	} {
		if err := canon.CheckClaims([]byte(in), 8); (err == nil) != ok {
			t.Errorf("%s: %v", in, err)
		}
	}
	if err := canon.CheckClaims([]byte(nested(65)), 1000); err == nil {
		t.Error("a limit above MaxDepth must not raise it")
	}
}

func TestAppendString(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": `""`, "plain": `"plain"`, `"\`: `"\"\\"`, "\b\f\n\r\t\x00\x1f": `"\b\f\n\r\t\u0000\u001f"`,
		"</script>&": `"</script>&"`, "é😀\u2028\x7f": "\"é😀\u2028\x7f\"", "a\xffb": "\"a\ufffdb\"",
	} {
		if got := string(canon.AppendString([]byte("x"), in)); got != "x"+want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestSHA256Hex(t *testing.T) {
	t.Parallel()
	if got := canon.SHA256Hex([]byte("abc")); got != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Error(got)
	}
}

func ExampleCanonical() {
	out, err := canon.Canonical([]byte(`{"to": "ap@vendor.example", "amount": 1.20e3}`))
	fmt.Println(string(out), err)
	_, err = canon.Canonical([]byte(`{"amount": 9007199254740993}`))
	fmt.Println(err)
	// Output:
	// {"amount":1200,"to":"ap@vendor.example"} <nil>
	// invalid JSON: a number that double precision would change
}
