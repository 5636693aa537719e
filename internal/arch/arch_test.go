// Package arch_test checks the shape of the repository: which package may import which, directly and
// through others, and what may stand at the top.
package arch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module = "counterfoil"
	// nolintMax is how many findings of the linters the whole repository may wave away.
	nolintMax = 10
)

// arrows says for each package what it may import besides the standard library. A name that ends in
// "/…" stands for all packages below it as well. "main" packages are programs: they wire everything,
// except the verifier, which an auditor reads.
func arrows() map[string][]string {
	pure := []string{"internal/canon", "internal/jws", "permits", "receipts/…"}
	gateway := append([]string{
		"gateway", "gateway/upstream", "ledger",
		"github.com/go-json-experiment/json/…", "github.com/go-playground/validator/v10", "github.com/labstack/echo/v4/…",
		"github.com/prometheus/client_golang/…",
	}, pure...)
	return map[string][]string{
		"internal/canon":      {"github.com/go-json-experiment/json/…"},
		"internal/jws":        {"internal/canon", "github.com/golang-jwt/jwt/v5", "filippo.io/edwards25519"},
		"permits":             {"internal/canon", "internal/jws", "golang.org/x/net/idna"},
		"receipts":            {"internal/canon", "internal/jws", "permits", "github.com/go-json-experiment/json/…"},
		"receipts/log":        append([]string{"golang.org/x/mod/sumdb/…"}, pure...),
		"verify":              pure,
		"sql":                 {"github.com/jackc/pgx/v5/…"},
		"ledger":              append([]string{"sql", "github.com/jackc/pgx/v5/…", "github.com/google/uuid"}, pure...),
		"gateway":             gateway,
		"gateway/mcp":         gateway,
		"gateway/operator":    gateway,
		"gateway/spend":       gateway,
		"gateway/function":    gateway,
		"gateway/upstream":    append([]string{"gateway/upstream/child", "github.com/go-json-experiment/json/…"}, pure...),
		"internal/embeddedpg": {"github.com/jackc/pgx/v5/…"},
		"internal/testdb":     {"internal/embeddedpg", "sql", "github.com/jackc/pgx/v5/…"},
		"internal/chaosproxy": {"github.com/jackc/pgx/v5/…"},
		"internal/apitest":    {"github.com/getkin/kin-openapi/…"},
		"internal/arch":       {},
		"cmd/counterfoil/…":   nil,
		"cmd/paytool/…":       nil,
		"cmd/counterfoil-verify": append([]string{
			"verify",
		}, pure...),
		"gateway/upstream/child": {},
	}
}

// onlyTests are packages that no program may contain.
func onlyTests() []string {
	return []string{"internal/testdb", "internal/chaosproxy", "internal/apitest", "internal/arch"}
}

type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	table := arrows()
	standard := standardPackages(t)
	seen := 0
	for _, p := range packages(t) {
		seen++
		allowed, listed := rowOf(table, p.name())
		if !listed {
			t.Errorf("%s has no row here: say what it may import", p.name())
			continue
		}
		for _, imported := range p.Imports {
			name := strings.TrimPrefix(imported, module+"/")
			if slices.Contains(onlyTests(), name) && !slices.Contains(onlyTests(), p.name()) {
				t.Errorf("%s imports %s, which is for tests", p.name(), name)
			}
			if allowed == nil || standard[imported] || matches(allowed, name) {
				continue
			}
			t.Errorf("%s must not import %s", p.name(), name)
		}
	}
	if seen < 15 {
		t.Fatalf("looked at only %d packages", seen)
	}
}

// The verifier is what an auditor reads and trusts: no network, no database, no framework, and
// nothing of the gateway, however indirectly.
func TestVerifierStandsAlone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"verify", "receipts", "permits", "internal/jws", "internal/canon", "cmd/counterfoil-verify"} {
		found := find(t, name)
		for _, dep := range found.Deps {
			for _, forbidden := range []string{
				"net/http", "database/sql", "plugin", module + "/ledger", module + "/gateway", module + "/sql", module + "/internal/embeddedpg",
				"github.com/jackc/", "github.com/labstack/", "github.com/prometheus/", "github.com/spf13/", "github.com/go-playground/",
			} {
				if dep == forbidden || strings.HasPrefix(dep, strings.TrimSuffix(forbidden, "/")+"/") {
					t.Errorf("%s reaches %s", name, dep)
				}
			}
		}
	}
	// The other way round, to see that the check can fail.
	if deps := find(t, "gateway").Deps; !slices.Contains(deps, "net/http") {
		t.Error("the gateway does not reach net/http: this test looks at the wrong list")
	}
}

// One place for each kind of power.
func TestOnlyOnePlace(t *testing.T) {
	t.Parallel()
	for imported, allowed := range map[string][]string{
		"github.com/labstack/echo/v4":  {"gateway", "gateway/…", "cmd/counterfoil/…"},
		"github.com/golang-jwt/jwt/v5": {"internal/jws"},
		"filippo.io/edwards25519":      {"internal/jws"},
		"github.com/jackc/pgx/v5":      {"ledger", "sql", "internal/embeddedpg", "internal/testdb", "internal/chaosproxy", "cmd/counterfoil/…"},
		"net/http":                     {"gateway", "gateway/…", "cmd/counterfoil/…", "cmd/paytool/…", "internal/apitest"},
		"os/exec":                      {"gateway/upstream/child", "internal/embeddedpg", "internal/testdb", "cmd/counterfoil/…"},
	} {
		for _, p := range packages(t) {
			if slices.Contains(p.Imports, imported) && !matches(allowed, p.name()) {
				t.Errorf("%s imports %s: only %v may", p.name(), imported, allowed)
			}
		}
	}
}

// What stands at the top is fixed: each folder is one noun of the design.
func TestTopLevel(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"cmd", "gateway", "permits", "receipts", "ledger", "verify", "sql", "openapi.yaml", "go.mod", "go.sum", "README.md",
		"internal", "docs", "deploy", ".ci", "Makefile", ".golangci.yml", "CHANGELOG.md", "LICENSE", ".git", ".gitignore", ".github",
	}
	entries, err := os.ReadDir(root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(allowed, entry.Name()) {
			t.Errorf("%s does not belong at the top of the repository", entry.Name())
		}
	}
}

// An error is matched by errors.Is and errors.As; its text is for people.
func TestErrorsAreNotMatchedByText(t *testing.T) {
	t.Parallel()
	searches := []string{"Contains", "ContainsAny", "HasPrefix", "HasSuffix", "Index", "EqualFold", "Count"}
	for path, file := range sources(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		ast.Inspect(file.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if (n.Op == token.EQL || n.Op == token.NEQ) && (isErrorText(n.X) || isErrorText(n.Y)) {
					t.Errorf("%s compares the text of an error", file.set.Position(n.Pos()))
				}
			case *ast.CallExpr:
				if called, ok := n.Fun.(*ast.SelectorExpr); ok && isName(called.X, "strings") &&
					slices.Contains(searches, called.Sel.Name) && slices.ContainsFunc(n.Args, isErrorText) {
					t.Errorf("%s searches the text of an error", file.set.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

func TestFewFindingsAreWavedAway(t *testing.T) {
	t.Parallel()
	var found []string
	for _, file := range sources(t) {
		for _, group := range file.tree.Comments {
			for _, comment := range group.List {
				if strings.HasPrefix(comment.Text, "//nolint") {
					found = append(found, file.set.Position(comment.Pos()).String())
				}
			}
		}
	}
	if len(found) > nolintMax {
		t.Errorf("%d nolint directives, at most %d:\n%s", len(found), nolintMax, strings.Join(found, "\n"))
	}
}

// Every package says in its first sentence what it guarantees.
func TestPackagesAreDocumented(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{}
	for path, file := range sources(t) {
		dir := filepath.Dir(path)
		if !strings.HasSuffix(path, "_test.go") {
			documented[dir] = documented[dir] || len(file.tree.Doc.Text()) > 0
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(documented)) {
		if !documented[dir] {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

func isErrorText(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 0 {
		return false
	}
	called, ok := call.Fun.(*ast.SelectorExpr)
	return ok && called.Sel.Name == "Error"
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

type source struct {
	set  *token.FileSet
	tree *ast.File
}

// sources parses every Go file of the repository, by its path from the top.
func sources(t *testing.T) map[string]source {
	t.Helper()
	top, found := root(t), map[string]source{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".")) && path != top {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		found[strings.TrimPrefix(path, top+"/")] = source{set, tree}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 50 {
		t.Fatalf("found only %d Go files", len(found))
	}
	return found
}

// rowOf finds a package's row; "x/…" stands for x and all below it.
func rowOf(table map[string][]string, name string) (allowed []string, listed bool) {
	if allowed, listed = table[name]; listed {
		return allowed, true
	}
	for pattern, allowed := range table {
		if matches([]string{pattern}, name) {
			return allowed, true
		}
	}
	return nil, false
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		base, tree := strings.CutSuffix(pattern, "/…")
		return name == base || (tree && strings.HasPrefix(name, base+"/"))
	})
}

func find(t *testing.T, name string) pkg {
	t.Helper()
	for _, p := range packages(t) {
		if p.name() == name {
			return p
		}
	}
	t.Fatalf("no package %s", name)
	return pkg{}
}

// packages lists the packages of the repository.
func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(all), func(p pkg) bool {
		return p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/")
	})
}

func standardPackages(t *testing.T) map[string]bool {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	standard := map[string]bool{}
	for _, p := range all {
		standard[p.ImportPath] = p.Standard
	}
	return standard
}

// listed asks the go command once for every package and all that they reach.
var listed = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.CommandContext(context.Background(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", module+"/...")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, &problems)
	}
	var all []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

// root is the directory of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}
