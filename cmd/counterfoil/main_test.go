package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"counterfoil/internal/testdb"
)

// TestMain makes the test binary the program too: scripts and tests run "counterfoil" as a process.
func TestMain(m *testing.M) {
	testscript.Main(testdb.Runner(m), map[string]func(){"counterfoil": main})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command that must end with one status: exits 2 counterfoil serve.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// TestEveryCommandHelps walks all commands: each has a sentence, and those that take flags an example
// that names flags it has.
func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	root := newApp(nil, &out, &out).root()
	var commands [][]string
	for _, c := range root.Commands() {
		commands = append(commands, []string{c.Name()})
		for _, inner := range c.Commands() {
			commands = append(commands, []string{c.Name(), inner.Name()})
			for _, last := range inner.Commands() {
				commands = append(commands, []string{c.Name(), inner.Name(), last.Name()})
			}
		}
	}
	if len(commands) < 40 {
		t.Errorf("only %d commands", len(commands))
	}
	for _, path := range commands {
		var help bytes.Buffer
		if code := run(context.Background(), append(path, "--help"), nil, &help, &help); code != 0 {
			t.Errorf("%v --help: status %d", path, code)
		}
		if len(path) == 1 && !strings.Contains(help.String(), "Examples:") {
			t.Errorf("%v has no example", path)
		}
	}
}
