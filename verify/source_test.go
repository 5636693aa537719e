package verify_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"counterfoil/receipts"
	"counterfoil/verify"
)

func read(r io.Reader) []verify.Entry {
	var out []verify.Entry
	for e := range verify.Entries("f", r) {
		out = append(out, e)
	}
	return out
}

func TestEntries(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200<<10)
	for _, tc := range []struct {
		name, text string
		want       []verify.Entry
	}{
		{"nothing", "", []verify.Entry{{File: "f", Fault: verify.Empty}}},
		{"blank lines", "\n \r\n\n", []verify.Entry{{File: "f", Fault: verify.Empty}}},
		{"bare", "a.b.c", []verify.Entry{{File: "f", Line: 1, Data: []byte("a.b.c")}}},
		{"bare with a line end", "a.b.c\r\n", []verify.Entry{{File: "f", Line: 1, Data: []byte("a.b.c")}}},
		{"lines", "{\"a\":1}\n\na.b.c\n", []verify.Entry{
			{File: "f", Line: 1, Data: []byte(`{"a":1}`)}, {File: "f", Line: 3, Data: []byte("a.b.c")},
		}},
		{"indented", "{\n  \"a\": 1\n}\n", []verify.Entry{{File: "f", Data: []byte("{\n  \"a\": 1\n}\n")}}},
		{"a long line", long + "\nx\n", []verify.Entry{
			{File: "f", Line: 1, Data: []byte(long)}, {File: "f", Line: 2, Data: []byte("x")},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, read(strings.NewReader(tc.text))); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEntriesReportAReadError(t *testing.T) {
	t.Parallel()
	got := read(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.New("disk gone"))))
	if len(got) != 2 || got[1].Fault != verify.Unreadable {
		t.Errorf("entries %+v, want one line and E_UNREADABLE", got)
	}
}

func TestEntriesKeepNothingThatIsTooLong(t *testing.T) {
	t.Parallel()
	tooLong := bytes.Repeat([]byte("x"), receipts.MaxBundleBytes+1)
	got := read(io.MultiReader(bytes.NewReader(tooLong), strings.NewReader("\nb\n")))
	if len(got) != 2 || got[0].Fault != verify.Malformed || string(got[1].Data) != "b" {
		t.Errorf("%d entries, want E_MALFORMED and the next line", len(got))
	}
	indented := read(io.MultiReader(strings.NewReader("{\n"), bytes.NewReader(tooLong)))
	if len(indented) != 1 || indented[0].Fault != verify.Malformed {
		t.Errorf("%d entries, want E_MALFORMED", len(indented))
	}
}
