// Package e2e_test holds the programs to their contract from outside: each gateway is a process of the
// built binary, each call is raw HTTP or a stock client's, and each test ends with the program's own fsck.
package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"counterfoil/internal/testdb"
)

// programs is the directory of the built binaries. TestMain and the tests share nothing else.
var programs string

// TestMain also makes the test binary the program of an upstream that is a process.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == stdioWord {
		os.Exit(runStdio(os.Args[2]))
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "counterfoil-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "-buildvcs=false",
		"counterfoil/cmd/counterfoil", "counterfoil/cmd/counterfoil-verify")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
		return 1
	}
	programs = dir
	return testdb.Runner(m).Run()
}

// program runs a built binary, and gives its exit status and what it printed.
func program(t *testing.T, name string, args ...string) (status int, output string) {
	t.Helper()
	out, err := command(name, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	return status, string(out)
}

// command is a built binary. It sees no COUNTERFOIL_… variable, which to it would be a setting: those are for
// the tests.
func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(programs, name), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "COUNTERFOIL_") })
	return cmd
}
