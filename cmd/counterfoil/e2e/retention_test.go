package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"counterfoil/internal/testdb"
)

// forgotten waits until a call is answered without its body, and checks what it is answered.
func (x tenant) forgotten(t *testing.T, c call, first answer) answer {
	t.Helper()
	var a answer
	eventually(t, "the pruning of "+c.key, func() bool {
		a = x.do(t, c)
		if a.reason() != "response_pruned" && !bytes.Equal(a.result, first.result) {
			t.Fatalf("neither the answer nor its receipt: %s", a)
		}
		return a.reason() == "response_pruned"
	})
	m := a.meta
	if !a.replayed() || !a.isError || m.Retry != "never" || m.Outcome != first.meta.Outcome || m.Operation != first.meta.Operation ||
		m.ReceiptID != first.meta.ReceiptID || m.Receipt != first.meta.Receipt || *m.Charged != *first.meta.Charged {
		t.Errorf("%s: %s\nand it was %s", c.key, a, first)
	}
	if words := strings.Join(a.text, " "); !strings.Contains(words, m.Outcome) || !strings.Contains(words, "Nothing ran now") || !strings.Contains(words, "credits") {
		t.Errorf("%s: the words: %s", c.key, words)
	}
	return a
}

// TestRetention: what was answered is forgotten after a time; that it was done, for how much, and the proof are not.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := newSystemWith(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), "limits: {retention: 3s}", referencedTools)
	x := s.newTenant(t, 1000, anything())
	paid := x.succeed(t, x.invoice("paid", `"INV-1"`))
	content := s.contentOf(t, paid.meta.ReceiptID)
	denied := x.do(t, x.invoice("denied", `"INV-1"`))
	lost := x.lose(t, x.invoice("lost", `"INV-2"`), true)
	broken := x.do(t, x.flaky("broken", "error"))
	then := x.state(t)

	x.forgotten(t, x.invoice("paid", `"INV-1"`), paid)
	x.forgotten(t, x.invoice("denied", `"INV-1"`), denied)
	x.forgotten(t, x.flaky("broken", "error"), broken)
	if a := x.do(t, x.invoice("lost", `"INV-2"`)); !bytes.Equal(a.result, lost.result) {
		t.Errorf("what is uncertain is evidence: %s", a)
	}
	s.restart(t)
	a := x.forgotten(t, x.invoice("paid", `"INV-1"`), paid)
	if b := x.do(t, x.invoice("paid", `"INV-1"`), "Prefer", "wait=1"); !bytes.Equal(a.result, b.result) {
		t.Errorf("two answers of one operation:\n%s\n%s", a, b)
	}
	if b := x.do(t, x.invoice("paid", `"INV-9"`)); b.reason() != "idempotency_key_reused" {
		t.Errorf("another request under its key: %s", b)
	}
	unchanged(t, "after all repeats", then, x.state(t))
	x.duplicate(t, "its reference", x.do(t, x.invoice("again", `"INV-1"`)), paid.meta.Operation)

	// A decision's answer goes in its own time, the first answer does not.
	s.mustDecide(t, lost.meta.Operation, delivered())
	decided := x.do(t, x.invoice("lost", `"INV-2"`))
	if b := x.forgotten(t, x.invoice("lost", `"INV-2"`), decided); b.meta.Resolution != "delivered" {
		t.Errorf("after the decision: %s", b)
	}
	if len(s.contentOf(t, lost.meta.ReceiptID)) == 0 {
		t.Error("the answer of the uncertain call is gone")
	}
	s.prunedEvidence(t, x, paid, content)
}

// prunedEvidence judges what is left of a pruned operation with the offline verifier.
func (s *system) prunedEvidence(t *testing.T, x tenant, paid answer, content []byte) {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, string(data))
		return path
	}
	raw := s.download(t, "/v1/receipts/"+paid.meta.ReceiptID+"/bundle", "application/vnd.counterfoil.bundle+json")
	if bytes.Contains(raw, []byte("result_b64")) || !bytes.Contains(raw, []byte("arguments_b64")) {
		t.Errorf("the bundle holds a result, or no arguments: %s", raw)
	}
	trust, bundle := file("jwks.json", s.published(t)), file("a.bundle.json", raw)
	export := file("all.jsonl", s.download(t, "/v1/receipts/export?wallet="+x.wallet, "application/jsonl"))
	kept, other := file("kept", content), file("other", append(bytes.Clone(content), ' '))
	for _, c := range []struct {
		want  int
		says  string
		flags []string
	}{
		{0, "not_supplied", []string{"--json", "--require", "permit", bundle}},
		{0, "", []string{"--require", "permit,chain", export}},
		{3, "", []string{"--require", "permit,content", bundle}},
		{0, "", []string{"--require", "permit,content", "--result", kept, bundle}},
		{1, "", []string{"--result", other, bundle}},
	} {
		if status, out := program(t, "counterfoil-verify", append([]string{"--trust", trust}, c.flags...)...); status != c.want || !strings.Contains(out, c.says) {
			t.Errorf("%v: status %d, want %d: %s", c.flags, status, c.want, out)
		}
	}
	if op := s.operator(t, http.MethodGet, "/v1/operations/"+paid.meta.Operation, nil, http.StatusOK); op["outcome"] != "succeeded" {
		t.Errorf("the operation: %v", op)
	}
}
