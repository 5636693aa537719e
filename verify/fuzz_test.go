package verify_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"counterfoil/verify"
)

// FuzzJudge feeds whole inputs, as the program reads them. Seeds are the vectors;
// too few of them is a failure, since a target without seeds passes, too.
func FuzzJudge(f *testing.F) {
	files, err := filepath.Glob(filepath.Join(vectorDir, "*.txt"))
	if err != nil || len(files) < 50 {
		f.Fatalf("%d seeds (%v), want all vectors", len(files), err)
	}
	w := newWorld(f)
	for _, made := range []func(*world) [][]byte{
		func(w *world) [][]byte { return w.chain(2) },
		func(w *world) [][]byte { a, b := w.pair(plain); return [][]byte{a.JSON(), b.JSON()} },
		func(w *world) [][]byte { return [][]byte{[]byte(w.receipt(denied))} },
	} {
		f.Add(bytes.Join(made(w), []byte("\n")))
	}
	for _, file := range files {
		f.Add(readSeed(f, file))
	}
	v := w.verifier(func(*verify.Options) {})
	f.Fuzz(func(t *testing.T, data []byte) {
		set, total := verify.NewSet(), 0
		for e := range verify.Entries("fuzz", bytes.NewReader(data)) {
			d := v.Judge(e)
			total++
			set.Add(d)
			if d.State == verify.Valid && (d.Claims == nil || d.Key == nil) {
				t.Errorf("valid without claims or key: %q", e.Data)
			}
			for _, c := range d.Checks {
				if _, ok := verify.Explain(c.Code); !ok {
					t.Errorf("code %s has no row", c.Code)
				}
			}
		}
		sum := set.Summary(nil)
		if total == 0 || sum.Exit == 0 && sum.Counts.Valid != total || sum.Exit == 2 {
			t.Errorf("exit %d for %d entries, %+v", sum.Exit, total, sum.Counts)
		}
	})
}

func readSeed(f *testing.F, file string) []byte {
	f.Helper()
	return readVector(f, strings.TrimSuffix(filepath.Base(file), ".txt")).body
}
