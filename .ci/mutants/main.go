// Command mutants breaks the product on purpose, one break at a time and in an overlay, and demands that the
// test which the break names goes red. A break that no longer fits the code, does not build or stays green is
// a failure: then either the test or the list has rotted.
//
//	go run ./.ci/mutants             all of them
//	go run ./.ci/mutants hold fence  those whose file name contains a word
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// limit bounds one break: a test that hangs is red too, but nobody waits for it longer.
const limit = 10 * time.Minute

// tries is how often a test may stay green before its break counts as not seen.
const tries = 3

// mutant is one file of this directory: head lines, then the text to find and the text to put in its place.
type mutant struct {
	name                      string
	title, file, test, folder string
	old, new                  string
}

func main() {
	list, err := read(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	began := time.Now()
	survived := runAll(list)
	fmt.Printf("%d breaks, %d not seen, %.0f s\n", len(list), len(survived), time.Since(began).Seconds())
	for _, line := range survived {
		fmt.Println(line)
	}
	if len(survived) > 0 {
		os.Exit(1)
	}
}

// runAll runs two at a time: most of a break's time is one compiler or one test. It returns a line for each
// break that no test saw.
func runAll(list []*mutant) (survived []string) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2)
	for _, m := range list {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			began := time.Now()
			err := m.run()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				line := fmt.Sprintf("NOT SEEN %s (%s): %v", m.name, m.title, err)
				survived = append(survived, line)
				fmt.Println(line)
				return
			}
			fmt.Printf("red %-28s %s: %s [%.0f s]\n", m.name, m.folder, m.test, time.Since(began).Seconds())
		}()
	}
	wg.Wait()
	return survived
}

func read(words []string) ([]*mutant, error) {
	paths, err := filepath.Glob(".ci/mutants/*.mutant")
	if err != nil || len(paths) == 0 {
		return nil, errors.New("no mutants here: run this at the root of the repository")
	}
	var list []*mutant
	for _, path := range paths {
		m, err := parse(path)
		if err != nil {
			return nil, err
		}
		if wanted(m.name, words) {
			list = append(list, m)
		}
	}
	return list, nil
}

func wanted(name string, words []string) bool {
	for _, w := range words {
		if strings.Contains(name, w) {
			return true
		}
	}
	return len(words) == 0
}

var form = regexp.MustCompile(`(?s)^# ([^\n]+)\nfile: (\S+)\ntest: (\S+) in (\S+)\n--- old\n(.*)--- new\n(.*)$`)

func parse(path string) (*mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	part := form.FindStringSubmatch(string(text))
	if part == nil {
		return nil, fmt.Errorf("%s: not a mutant: # title, file:, test: NAME in ./folder, --- old, --- new", path)
	}
	name := strings.TrimSuffix(filepath.Base(path), ".mutant")
	return &mutant{name: name, title: part[1], file: part[2], test: part[3], folder: part[4], old: part[5], new: part[6]}, nil
}

// run is nil when the named test went red.
func (m *mutant) run() error {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return err
	}
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return fmt.Errorf("its text stands %d times in %s, want once", n, m.file)
	}
	overlay, remove, err := m.overlay(bytes.Replace(source, []byte(m.old), []byte(m.new), 1))
	if err != nil {
		return err
	}
	defer remove()
	// A break that only a race shows may be missed once.
	for range tries {
		if err = m.tested(overlay); !errors.Is(err, errGreen) {
			return err
		}
	}
	return err
}

var errGreen = errors.New("the test is green")

// tested runs the named test once on the broken code; nil: it went red.
func (m *mutant) tested(overlay string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-run", "^"+m.test+"$", m.folder)
	// By the environment, so that programs which a test builds are broken too.
	cmd.Env = append(os.Environ(), strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return errGreen
	case ctx.Err() != nil, bytes.Contains(out, []byte("--- FAIL: "+m.test)), bytes.Contains(out, []byte("panic: ")):
		return nil
	}
	return fmt.Errorf("the test did not run: %s", tail(out))
}

func (m *mutant) overlay(broken []byte) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "counterfoil-mutant-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	real, err := filepath.Abs(m.file)
	if err != nil {
		return "", remove, err
	}
	file := filepath.Join(dir, filepath.Base(m.file))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{real: file}})
	if err != nil {
		return "", remove, err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, remove, errors.Join(os.WriteFile(file, broken, 0o600), os.WriteFile(path, text, 0o600))
}

func tail(out []byte) string {
	if len(out) > 600 {
		out = out[len(out)-600:]
	}
	return strings.TrimSpace(string(out))
}
