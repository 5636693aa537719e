package verify_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"counterfoil/verify"
)

// Each code in the source has one row, with a sentence and a next step.
func TestEveryCodeIsExplainedOnce(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Code" {
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil || declared[code] {
				t.Errorf("code %s: %v, declared before %v", code, err, declared[code])
			}
			declared[code] = true
		}
		return true
	})
	if len(declared) < 40 {
		t.Fatalf("%d codes found in the source", len(declared))
	}
	for _, row := range verify.Explanations() {
		if !declared[string(row.Code)] {
			t.Errorf("row %s is of no code, or a second one", row.Code)
		}
		delete(declared, string(row.Code))
		if !strings.HasSuffix(row.Sentence, ".") || !strings.HasSuffix(row.Next, ".") {
			t.Errorf("row %s does not end its sentences", row.Code)
		}
	}
	for code := range declared {
		t.Errorf("code %s has no row", code)
	}
	// The contract's own.
	for _, code := range []verify.Code{
		"E_SIG_BAD", "E_KEY_UNKNOWN", "E_KEY_UNTRUSTED", "E_KEY_REVOKED", "E_TYP", "E_HDR_CRIT", "E_DUP_MEMBER",
		"E_NOT_CANONICAL", "E_CONTENT_REQ", "E_CONTENT_RES", "E_SEQ_GAP", "E_PREV", "E_FORK", "E_TOTALS",
		"E_PERMIT_HASH", "E_SUPERSEDED",
	} {
		if _, ok := verify.Explain(code); !ok {
			t.Errorf("code %s is not explained", code)
		}
	}
}
