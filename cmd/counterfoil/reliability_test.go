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
// breaks is that of the files which make them.
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
	head := regexp.MustCompile(`^# (.+)\nfile: (\S+)\ntest: (\S+) in (\S+)\n`)
	for _, path := range paths {
		m := head.FindStringSubmatch(string(read(t, path)))
		if m == nil {
			t.Errorf("%s: no head", path)
			continue
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
