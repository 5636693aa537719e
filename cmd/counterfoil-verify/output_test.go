package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/verify"
)

// body is a vector's input.
func body(t *testing.T, vector string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(vectorDir, vector+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut(data, []byte("\n\n"))
	return body
}

// jsonOf runs the program over a vector.
func jsonOf(t *testing.T, vector string, flags ...string) []byte {
	t.Helper()
	var out, errOut bytes.Buffer
	args := append([]string{"--trust", filepath.Join(vectorDir, "trust.jwks"), "-"}, flags...)
	if code := run(args, bytes.NewReader(body(t, vector)), &out, &errOut); code == exitUsage {
		t.Fatalf("usage: %s", &errOut)
	}
	return out.Bytes()
}

func TestJSON(t *testing.T) {
	t.Parallel()
	var doc struct {
		Receipts []wireVerdict
		Summary  wireSummary
	}
	dec := json.NewDecoder(bytes.NewReader(jsonOf(t, "set-gap", "--json")))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Receipts) != 3 || doc.Summary.Exit != 4 || doc.Summary.Verdict != "set invalid" {
		t.Errorf("%d receipts, summary %+v", len(doc.Receipts), doc.Summary)
	}
	first := doc.Receipts[0]
	if first.Line != 1 || first.Verdict != "valid" || first.Receipt.Seq != 1 || first.Receipt.ID != "rcp_1" {
		t.Errorf("first receipt %+v", first)
	}
	if diff := cmp.Diff(verify.NotProven(), doc.Summary.NotProven); diff != "" {
		t.Errorf("not_proven (-want +got):\n%s", diff)
	}
	for _, c := range first.Checks {
		if c.Status == "" || c.Code == "" || c.Says == "" {
			t.Errorf("check %+v lacks something", c)
		}
	}
}

// A program reads what was decided where a person does: beside the receipt.
func TestJSONTellsADecision(t *testing.T) {
	t.Parallel()
	var lines []wireVerdict
	dec := json.NewDecoder(bytes.NewReader(jsonOf(t, "valid-decided", "--jsonl")))
	for range 2 {
		var v wireVerdict
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, v)
	}
	first, later := lines[0], lines[1]
	if first.SupersededBy != "rcp_2" || first.Receipt.Resolution != "" {
		t.Errorf("first %+v", first)
	}
	if diff := cmp.Diff(&wireDecision{Resolution: "delivered", Charged: 3}, first.Decision); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	want := &wireFirst{ID: "rcp_1", ChargedBefore: 5, EvidenceSHA256: "aa7eff9faf2c29737ebb279b1ab183f4ab7afbbfaea776ee71e67b5836ad9325"}
	if diff := cmp.Diff(want, later.Receipt.Reconciles); diff != "" || later.Receipt.Resolution != "delivered" || later.Decision != nil {
		t.Errorf("reconciles (-want +got):\n%s\n%+v", diff, later)
	}
	var refused struct{ Receipts []wireVerdict }
	if err := json.Unmarshal(jsonOf(t, "valid-duplicate", "--json"), &refused); err != nil || refused.Receipts[0].Receipt.DuplicateOf != "op_1" {
		t.Errorf("%v, %+v", err, refused)
	}
}

func TestJSONLines(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSuffix(string(jsonOf(t, "set-gap", "--jsonl")), "\n"), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want one a receipt and one for all", len(lines))
	}
	for i, line := range lines[:3] {
		var v wireVerdict
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.Line != i+1 {
			t.Errorf("line %d: %v, %+v", i+1, err, v)
		}
	}
	if !strings.HasPrefix(lines[3], `{"summary":{"verdict":"set invalid","exit":4,`) {
		t.Errorf("last line %s", lines[3])
	}
}

// A reader that cannot be written to has not been told anything.
func TestUnwritableOutputIsNotSuccess(t *testing.T) {
	t.Parallel()
	args := []string{"--trust", filepath.Join(vectorDir, "trust.jwks"), "-"}
	if code := run(args, bytes.NewReader(body(t, "valid-bundle")), brokenPipe{}, &bytes.Buffer{}); code != exitUndecided {
		t.Errorf("exit %d, want 3", code)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// Text from a receipt must not steer the terminal of whoever reads the verdict.
func TestPrintable(t *testing.T) {
	t.Parallel()
	if got := printable("a\x1b[2Jb\u202ec\nd"); strings.ContainsAny(got, "\x1b\u202e\n") {
		t.Errorf("printable = %q", got)
	}
}
