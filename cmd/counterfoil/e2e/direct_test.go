package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// direct is a client of the handshake era that keeps what it is told byte for byte, and declares no capability, as the
// gateway declares none.
type direct interface {
	ask(t *testing.T, method, params string) (result json.RawMessage)
	session() string // its id; "" where there is none
}

const (
	hello   = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`
	greeted = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func request(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
}

// resultIn finds the result in a line, which may hold something else.
func resultIn(line []byte) json.RawMessage {
	var message struct{ Result json.RawMessage }
	if json.Unmarshal(line, &message) != nil {
		return nil
	}
	return message.Result
}

// directHTTP speaks to a URL.
type directHTTP struct{ url, id string }

func openHTTP(t *testing.T, url string) *directHTTP {
	t.Helper()
	d := &directHTTP{url: url}
	_, header := d.post(t, request("initialize", hello))
	d.id = header.Get("Mcp-Session-Id")
	d.post(t, greeted)
	return d
}

func (d *directHTTP) session() string { return d.id }

func (d *directHTTP) post(t *testing.T, body string) (text []byte, header http.Header) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, d.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if d.id != "" {
		req.Header.Set("Mcp-Session-Id", d.id)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("HTTP %d, %v: %s", resp.StatusCode, err, text)
	}
	return text, resp.Header
}

func (d *directHTTP) ask(t *testing.T, method, params string) json.RawMessage {
	t.Helper()
	text, _ := d.post(t, request(method, params))
	for line := range bytes.Lines(text) {
		if data, isData := bytes.CutPrefix(line, []byte("data: ")); isData && resultIn(data) != nil {
			return resultIn(data)
		}
	}
	t.Fatalf("%s %s: no result: %s", method, params, text)
	return nil
}

// directPipe speaks to a process, which has the environment that the gateway gives to its own.
type directPipe struct {
	in  io.Writer
	out *bufio.Reader
}

func openPipe(t *testing.T, line []string) *directPipe {
	t.Helper()
	cmd := exec.Command(line[0], line[1:]...)
	for _, name := range []string{"PATH", "HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	d := &directPipe{in: in, out: bufio.NewReader(out)}
	d.ask(t, "initialize", hello)
	_, _ = fmt.Fprintln(d.in, greeted)
	return d
}

func (d *directPipe) session() string { return "" }

func (d *directPipe) ask(t *testing.T, method, params string) json.RawMessage {
	t.Helper()
	if _, err := fmt.Fprintln(d.in, request(method, params)); err != nil {
		t.Fatal(err)
	}
	for {
		line, err := d.out.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%s %s: no result: %v", method, params, err)
		}
		if result := resultIn(line); result != nil {
			return result
		}
	}
}
