package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestRunServes(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	reader, out := io.Pipe()
	code := make(chan int)
	journal := filepath.Join(t.TempDir(), "j.jsonl")
	go func() {
		code <- run(ctx, []string{"--listen", "127.0.0.1:0", "--journal", journal}, nil, out, io.Discard)
	}()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`http://\S+/mcp`).FindString(line)
	response, err := http.Get(strings.TrimSuffix(url, "mcp") + "journal")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if string(body) != "{\"effects\":[]}\n" {
		t.Errorf("%s", body)
	}
	taken := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	var errOut bytes.Buffer
	if got := run(ctx, []string{"--listen", taken, "--journal", journal}, nil, io.Discard, &errOut); got != 1 || errOut.Len() == 0 {
		t.Errorf("address in use: %d %s", got, &errOut)
	}
	stop()
	if got := <-code; got != 0 {
		t.Errorf("stopped with %d", got)
	}
}

func TestRunUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"--help"}, 0, "Examples:", ""},
		{[]string{"--what"}, 2, "", "not defined"},
		{[]string{"extra"}, 2, "", "unexpected argument"},
		{[]string{"--journal", "/nowhere/at/all/j"}, 1, "", "open journal"},
	} {
		var out, errOut bytes.Buffer
		code := run(t.Context(), tt.args, nil, &out, &errOut)
		if code != tt.code || !strings.Contains(out.String(), tt.out) || !strings.Contains(errOut.String(), tt.err) {
			t.Errorf("%v: %d\n%s\n%s", tt.args, code, &out, &errOut)
		}
	}
}
