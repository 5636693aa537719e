package main

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const top = "../.."

// documents are the pages that people read, by their paths from here.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, name := range []string{"README.md", "CHANGELOG.md"} {
		path := filepath.Join(top, name)
		pages[path] = string(read(t, path))
	}
	err := filepath.WalkDir(filepath.Join(top, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			pages[path] = string(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 10 {
		t.Fatalf("only %d pages", len(pages))
	}
	return pages
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	quoted  = regexp.MustCompile("`([^`\n]+)`")
)

// TestLinks follows every link between the pages, to its heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := documents(t)
	seen := 0
	for path, text := range pages {
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, ":") {
				continue // another site
			}
			seen++
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", path, found[1])
			} else if page, ours := pages[file]; anchor != "" && (!ours || !slices.Contains(anchors(page), anchor)) {
				t.Errorf("%s: %s has no heading for #%s", path, file, anchor)
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d links: the test reads nothing", seen)
	}
}

// anchors are the names that headings get where Markdown is shown.
func anchors(page string) []string {
	var all []string
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, h[1]))
	}
	return all
}

// TestDocumentsNameWhatExists: a test, file or folder that a page names is there.
func TestDocumentsNameWhatExists(t *testing.T) {
	t.Parallel()
	tests := testNames(t)
	isTest := regexp.MustCompile(`^(Test|Fuzz)[A-Z]\w*$`)
	isPath := regexp.MustCompile(`^(cmd|gateway|permits|receipts|ledger|verify|sql|internal|docs|deploy)/[\w./-]*$`)
	named, files := 0, 0
	for path, text := range documents(t) {
		for _, found := range quoted.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			name := found[1]
			switch {
			case isTest.MatchString(name):
				named++
				if !tests[name] {
					t.Errorf("%s: there is no test %s", path, name)
				}
			case isPath.MatchString(name):
				files++
				if _, err := os.Stat(filepath.Join(top, name)); err != nil {
					t.Errorf("%s: there is no %s", path, name)
				}
			}
		}
	}
	if named < 20 || files < 20 {
		t.Errorf("only %d tests and %d files are named: the test reads nothing", named, files)
	}
}

func testNames(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	names := map[string]bool{}
	err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, found := range declared.FindAllStringSubmatch(string(read(t, path)), -1) {
				names[found[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// between gives what stands between a page's <!-- name --> and <!-- /name -->.
func between(t *testing.T, page, name string) string {
	t.Helper()
	text := string(read(t, filepath.Join(top, page)))
	_, rest, opened := strings.Cut(text, "<!-- "+name+" -->\n")
	inner, _, closed := strings.Cut(rest, "<!-- /"+name+" -->")
	if !opened || !closed {
		t.Fatalf("%s has no part %s", page, name)
	}
	return inner
}

// block gives the one fenced block of a page that is marked with these words.
func block(t *testing.T, page, words string) string {
	t.Helper()
	text := string(read(t, filepath.Join(top, page)))
	_, rest, opened := strings.Cut(text, "\n```"+words+"\n")
	inner, _, closed := strings.Cut(rest, "\n```\n")
	if !opened || !closed || strings.Contains(rest, "\n```"+words+"\n") {
		t.Fatalf("%s has not exactly one block %q", page, words)
	}
	return inner + "\n"
}

// sameTable compares a table of a page with what the code says it should be.
func sameTable(t *testing.T, page, name string, header []string, rows [][]string) {
	t.Helper()
	var want strings.Builder
	fmt.Fprintf(&want, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	for _, row := range rows {
		fmt.Fprintf(&want, "| %s |\n", strings.Join(row, " | "))
	}
	if got := between(t, page, name); got != want.String() {
		t.Errorf("the table %s of %s is not the code's; it should be:\n%s", name, page, &want)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// TestDocumentsNameCommandsThatExist: a command that a page shows is one, and so are its flags.
func TestDocumentsNameCommandsThatExist(t *testing.T) {
	t.Parallel()
	root := newApp(nil, io.Discard, io.Discard).root()
	shown := regexp.MustCompile("(?m)(?:^|[`(; |])counterfoil ((?:[a-z]+ ?)+(?:[^`\n#;|)]|\\\\\n)*)")
	seen := 0
	for path, text := range documents(t) {
		for _, found := range shown.FindAllStringSubmatch(commandsOf(text), -1) {
			words := strings.Fields(strings.ReplaceAll(found[1], "\\\n", " "))
			command, rest, err := root.Find(words)
			if err != nil || command == root {
				t.Errorf("%s: there is no command %q", path, found[0])
				continue
			}
			seen++
			if command.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				t.Errorf("%s: %q: %s has no command %s", path, found[0], command.CommandPath(), rest[0])
			}
			for _, word := range rest {
				name, isFlag := strings.CutPrefix(word, "--")
				name, _, _ = strings.Cut(name, "=")
				if isFlag && command.Flags().Lookup(name) == nil && command.InheritedFlags().Lookup(name) == nil {
					t.Errorf("%s: %q: %s has no flag --%s", path, found[0], command.CommandPath(), name)
				}
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d commands are shown: the test reads nothing", seen)
	}
}

// commandsOf keeps the parts of a page in which commands stand: blocks of shell, and inline code.
func commandsOf(text string) string {
	var all strings.Builder
	for _, found := range fence.FindAllString(text, -1) {
		if strings.HasPrefix(found, "```sh") {
			all.WriteString(found + "\n")
		}
	}
	for _, found := range quoted.FindAllString(fence.ReplaceAllString(text, ""), -1) {
		all.WriteString(found + "\n")
	}
	return all.String()
}
