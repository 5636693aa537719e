package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/reliability.md proves nothing by itself: each test that it names must exist, and its list of deliberate
// breaks is that of the files which make them, each of which must still fit the code.
func TestReliabilityPage(t *testing.T) {
	t.Parallel()
	page := string(read(t, filepath.Join(top, "docs/reliability.md")))
	tests := declaredTests(t)
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(page, -1) {
		if !tests[name[1]] {
			t.Errorf("there is no test %s", name[1])
		}
	}
	paths, err := filepath.Glob(top + "/.ci/mutants/*.mutant")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d breaks, %v", len(paths), err)
	}
	form := regexp.MustCompile(`(?s)^# ([^\n]+)\nfile: (\S+)\ntest: (\S+) in (\S+)\n--- old\n(.*)--- new\n`)
	for _, path := range paths {
		m := form.FindStringSubmatch(string(read(t, path)))
		if m == nil {
			t.Errorf("%s: not of the form that .ci/mutants/main.go reads", path)
			continue
		}
		if n := strings.Count(string(read(t, filepath.Join(top, m[2]))), m[5]); n != 1 {
			t.Errorf("%s: its text stands %d times in %s, want once", path, n, m[2])
		}
		if row := fmt.Sprintf("| %s | `%s` | `%s` |\n", m[1], m[2], m[3]); !strings.Contains(page, row) {
			t.Errorf("the page lacks this row:\n%s", row)
		}
	}
}

// declaredTests are the names of all tests of the repository.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	err := filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
