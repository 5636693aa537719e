package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"counterfoil/internal/testdb"
)

// TestReadmeWalk runs the README's walk as it stands there, against a demo that runs, and holds it to
// what the text around it says.
func TestReadmeWalk(t *testing.T) {
	t.Parallel()
	dir := testdb.Dir(t)
	server := startDemo(t, dir)
	token := strings.TrimSpace(string(read(t, filepath.Join(dir, "operator.token"))))
	before := repositoryTop(t)

	walk := exec.Command("bash", "-euo", "pipefail", "-c", walkOf(t, string(read(t, "../../README.md"))))
	walk.Dir = "../.." // where a reader stands
	walk.Env = append(os.Environ(), "SERVER="+server, "TOKEN="+token, "TMPDIR="+dir)
	out, err := walk.CombinedOutput() // the last command is the verifier: its status is the walk's
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	answers := answersOf(t, out)
	if len(answers) != 3 {
		t.Fatalf("%d answers to calls, want 3\n%s", len(answers), out)
	}
	first, again, stranger := answers[0], answers[1], answers[2]
	if first.outcome != "succeeded" || first.replayed || first.charged != 5 || first.receipt == "" {
		t.Errorf("the call: %+v", first)
	}
	if !again.replayed || again.receipt != first.receipt || !bytes.Equal(again.raw, first.raw) {
		t.Errorf("the same call again: %+v", again)
	}
	if stranger.outcome != "denied" || stranger.reason != "permit_recipient_not_allowed" || stranger.replayed || stranger.charged != 0 || stranger.receipt == "" {
		t.Errorf("the payee outside of the permit: %+v", stranger)
	}
	for _, want := range []string{`"balance":95,"held":0,"available":95`, "VALID: 2 receipts, 2 valid, 0 invalid, 0 undecided"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not show %q\n%s", want, out)
		}
	}
	if after := repositoryTop(t); after != before {
		t.Errorf("the walk leaves files in the repository: %s, before %s", after, before)
	}
}

// walkOf gives the one block that is marked as the walk.
func walkOf(t *testing.T, readme string) string {
	t.Helper()
	_, rest, found := strings.Cut(readme, "\n```sh walk\n")
	walk, _, closed := strings.Cut(rest, "\n```\n")
	if !found || !closed || strings.Contains(rest, "```sh walk") {
		t.Fatal("the README has not exactly one block that begins with ```sh walk")
	}
	return walk
}

// answersOf reads the answers that curl -i has shown, in order.
func answersOf(t *testing.T, out []byte) []governed {
	t.Helper()
	var all []governed
	for {
		_, rest, found := bytes.Cut(out, []byte("HTTP/1.1 "))
		if !found {
			return all
		}
		out = rest
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(append([]byte("HTTP/1.1 "), rest...))), nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, rest)
		}
		var body json.RawMessage
		err = json.NewDecoder(resp.Body).Decode(&body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatalf("%v\n%s", err, rest)
		}
		g, err := readGoverned(body)
		if err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		g.replayed = resp.Header.Get("Idempotent-Replayed") == "true"
		all = append(all, g)
	}
}

// startDemo runs the demo until the test ends, and gives the server that it says it serves.
func startDemo(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command("counterfoil", "demo", "--dir", dir, "--listen", "127.0.0.1:0")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		readDemo(stdout, said)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Error("the demo does not end")
		}
		if t.Failed() {
			t.Logf("the demo's errors:\n%s", &errOut)
		}
	})
	select {
	case server := <-said:
		return server
	case <-ended:
		t.Fatalf("the demo ended at once:\n%s", &errOut)
	case <-time.After(2 * patience):
		t.Fatal("the demo does not serve")
	}
	return ""
}

// readDemo reads all that the demo prints, and tells the server of the line that a reader pastes.
func readDemo(from io.Reader, said chan<- string) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "export COUNTERFOIL_SERVER="); ok {
			server, _, _ := strings.Cut(rest, " ")
			said <- server
		}
	}
}

// repositoryTop lists what stands at the top of the repository.
func repositoryTop(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
