package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// packages are the npm packages that the tests need, in the versions that were tried.
var packages = []string{
	"@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0", "@modelcontextprotocol/inspector@2.12.0",
	"@modelcontextprotocol/server-everything@2026.8.31", "@modelcontextprotocol/conformance@0.2.0-alpha.12",
}

// packagesBefore keeps what these depend on as it was when they were tried.
const packagesBefore = "2026-11-29"

// modules is a directory with the packages installed. It is kept from run to run.
var modules = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("counterfoil-e2e-npm-%d-%.12s", os.Geteuid(), sum([]byte(packagesBefore+strings.Join(packages, " ")))))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	staging, err := os.MkdirTemp("", "counterfoil-e2e-npm-new-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(staging) }()
	// What is optional there are binaries of a bundler that nothing here runs.
	install := exec.Command("npm", append([]string{
		"install", "--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--ignore-scripts", "--omit=optional", "--loglevel=error",
		"--before=" + packagesBefore, "--prefix", staging,
	}, packages...)...)
	install.Dir = staging
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w: %s", err, out)
	}
	if err := withoutGlob(filepath.Join(staging, "node_modules", conformanceProgram)); err != nil {
		return "", err
	}
	// Whoever is first wins.
	if err := os.Rename(staging, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := os.Stat(dir); there != nil {
			return "", err
		}
	}
	return dir, nil
})

// Programs of the packages.
const (
	conformanceProgram = "@modelcontextprotocol/conformance/dist/index.js"
	inspectorProgram   = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
	everythingProgram  = "@modelcontextprotocol/server-everything/dist/index.js"
)

// withoutGlob takes an import out of the suite that Node has only since version 22, and that no test of a server uses:
// an import that is missing ends the program before it begins.
func withoutGlob(program string) error {
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	glob := regexp.MustCompile(`\bglobSync as (\w+)`)
	if n := len(glob.FindAll(text, -1)); n != 1 {
		return fmt.Errorf("%s imports globSync %d times, not once", program, n)
	}
	return os.WriteFile(program, glob.ReplaceAll(text, []byte("readdirSync as $1")), 0o600)
}

// npmProgram is the path of an installed program.
func npmProgram(t *testing.T, name string) string {
	t.Helper()
	root, err := modules()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "node_modules", filepath.FromSlash(name))
}

// node runs a script of testdata with the packages in reach, and gives what it printed.
func node(t *testing.T, script string, env []string, args ...string) []byte {
	t.Helper()
	root, err := modules()
	if err != nil {
		t.Fatal(err)
	}
	// Imports are looked for from the script upwards.
	dir, err := os.MkdirTemp(root, "run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, script)
	writeFile(t, path, string(readFile(t, filepath.Join("testdata", script))))
	cmd := exec.CommandContext(t.Context(), "node", append([]string{path}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node %s %v: %v\n%s%s", script, args, err, out, &errOut)
	}
	return out
}

// background runs a server until the test ends. What it printed is shown where the test fails.
func background(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s printed:\n%s", cmd.Path, tail(out.String(), 4000))
		}
	})
}
