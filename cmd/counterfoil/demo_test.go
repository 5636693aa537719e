package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/testdb"
)

// TestDemoOnce runs the proof twice on one directory: the second run meets the first one's data.
func TestDemoOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(testdb.Dir(t), "demo")
	for range 2 {
		var out, errOut bytes.Buffer
		args := []string{"demo", "--once", "--dir", dir, "--listen", "127.0.0.1:0"}
		if code := run(t.Context(), args, nil, &out, &errOut); code != 0 {
			t.Fatalf("status %d\n%s\n%s", code, &out, &errOut)
		}
		if held, failed := strings.Count(out.String(), "✓"), strings.Count(out.String(), "✗"); held != 14 || failed != 0 {
			t.Errorf("%d steps held, %d did not:\n%s", held, failed, &out)
		}
		if errOut.Len() > 0 {
			t.Errorf("it complains: %s", &errOut)
		}
	}
}

// TestDemoTellsWhatDoesNotHold: a step that fails is marked, and is the exit status.
func TestDemoTellsWhatDoesNotHold(t *testing.T) {
	t.Parallel()
	dir := testdb.Dir(t)
	if err := os.WriteFile(filepath.Join(dir, "keys"), nil, 0o600); err != nil { // a file where the directory belongs
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"demo", "--once", "--dir", dir, "--listen", "127.0.0.1:0"}, nil, &out, &errOut)
	if code != 1 || !strings.Contains(out.String(), "✗ signing keys") || !strings.Contains(errOut.String(), `stopped at "signing keys"`) {
		t.Errorf("status %d\n%s\n%s", code, &out, &errOut)
	}
}

// TestDemoServes runs the demo as a process, as a plain user where this one is root, tries the curl that
// it prints, and ends it.
func TestDemoServes(t *testing.T) {
	t.Parallel()
	home := testdb.Dir(t)
	program := filepath.Join(home, "counterfoil")
	copyProgram(t, program)
	cmd := exec.Command(program, "demo", "--dir", filepath.Join(home, "data"), "--listen", "127.0.0.1:0")
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := os.Chown(home, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	said := make(chan string, 1)
	go func() { said <- readInvitation(stdout) }()
	var text string
	select {
	case text = <-said:
	case <-time.After(2 * patience):
		t.Fatal("it does not serve")
	}
	for _, replayed := range []bool{false, true} {
		answer, err := exec.Command("sh", "-c", curlOf(text)).CombinedOutput()
		if err != nil || !strings.Contains(string(answer), `"counterfoil/outcome":"succeeded"`) {
			t.Errorf("%v: %s\n%s", err, answer, text)
		}
		if got := strings.Contains(string(answer), "Idempotent-Replayed: true"); got != replayed {
			t.Errorf("replayed %t, want %t", got, replayed)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &errOut)
	}
}

// readInvitation reads up to the last line that the demo prints.
func readInvitation(from io.Reader) string {
	var text strings.Builder
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "counterfoil receipt list") {
			break
		}
	}
	return text.String()
}

func curlOf(text string) string {
	_, from, _ := strings.Cut(text, "\ncurl ")
	command, _, _ := strings.Cut(from, "\n\n")
	return "curl " + command
}

// copyProgram puts the test binary, which is the program under that name, where anybody can run it.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, read(t, self), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
}
