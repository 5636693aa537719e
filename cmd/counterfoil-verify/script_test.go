package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

const vectorDir = "../../verify/testdata/vectors"

// The test binary is the program.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"counterfoil-verify": main})
}

// Scripts find the vectors' inputs, without their headers, as files of their names.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			vectors, err := readVectors()
			if err != nil {
				return err
			}
			for _, v := range vectors {
				if err := os.WriteFile(filepath.Join(env.WorkDir, v.name), v.body, 0o600); err != nil {
					return err
				}
			}
			trusted, err := os.ReadFile(filepath.Join(vectorDir, "trust.jwks"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "trust.jwks"), trusted, 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs the program and wants exactly this status: exits 3 --trust ….
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: exits STATUS ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	err = ts.Exec("counterfoil-verify", args[1:]...)
	if errors.As(err, &exit) {
		got, err = exit.ExitCode(), nil
	}
	ts.Check(err)
	if got != want {
		ts.Fatalf("status %d, want %d", got, want)
	}
}

type vector struct {
	name string
	exit int
	body []byte
}

func readVectors() ([]vector, error) {
	files, err := filepath.Glob(filepath.Join(vectorDir, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(files) < 40 {
		return nil, fmt.Errorf("%d vectors in %s, want all", len(files), vectorDir)
	}
	var out []vector
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		head, body, _ := bytes.Cut(data, []byte("\n\n"))
		v := vector{name: strings.TrimSuffix(filepath.Base(file), ".txt"), body: body}
		var expect string
		if _, err := fmt.Sscanf(string(head), "expect: %s\nexit: %d\n", &expect, &v.exit); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, v)
	}
	return out, nil
}

// Every vector gives its exit status, by file, from standard input, and for any
// number of jobs.
func TestVectorsExit(t *testing.T) {
	t.Parallel()
	vectors, err := readVectors()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for _, form := range [][]string{nil, {"--json"}, {"--jsonl", "--jobs=1"}, {"--quiet", "--jobs=7"}} {
				args := append([]string{"--trust", filepath.Join(vectorDir, "trust.jwks"), "-"}, form...)
				var out, errOut bytes.Buffer
				if got := run(args, bytes.NewReader(v.body), &out, &errOut); got != v.exit {
					t.Errorf("%v: exit %d, want %d\n%s%s", form, got, v.exit, &out, &errOut)
				}
			}
		})
	}
}
