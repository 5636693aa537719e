package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"testing"
)

// TestInspector: the command line of the MCP Inspector in its three eras. It has no session from one command to the next,
// and knows of wallets only what its user writes into headers.
func TestInspector(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for _, c := range []struct{ era, version string }{{"legacy", "2025-11-25"}, {"auto", "2026-07-28"}, {"modern", "2026-07-28"}} {
		t.Run(c.era, func(t *testing.T) {
			t.Parallel()
			x := s.visitor(t)
			pay := func(args, key string) []string {
				return []string{"--header", "Idempotency-Key: " + key, "--method", "tools/call", "--tool-name", "payout", "--tool-args-json", args}
			}
			var v visit
			remake(t, x.inspect(t, c.era, 0, "--method", "tools/list"), &v)
			remake(t, x.inspect(t, c.era, 0, pay(x.payoutArgs(), "invoice-1")...), &v.First)
			remake(t, x.inspect(t, c.era, 0, pay(x.payoutArgs(), "invoice-1")...), &v.Again)
			// It says by its status that the tool reported an error.
			remake(t, x.inspect(t, c.era, 5, pay(x.tooMuch(), "invoice-2")...), &v.Denied)
			v.Server.Name, v.Version = "counterfoil", c.version // it does not say what it is connected to
			x.sawAll(t, v, c.version)
		})
	}
}

// inspect runs one command of the Inspector, and gives the result that it prints.
func (x tenant) inspect(t *testing.T, era string, status int, args ...string) json.RawMessage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", append([]string{
		npmProgram(t, inspectorProgram), "--cli", "--server-url", x.s.url + "/mcp", "--transport", "http", "--protocol-era", era,
		"--format", "json", "--connect-timeout", "60000",
		"--header", "X-API-Key: " + x.key, "--header", "Counterfoil-Permit: " + x.permit,
	}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var printed struct{ Result json.RawMessage }
	if err := json.Unmarshal(out, &printed); err != nil || cmd.ProcessState.ExitCode() != status {
		t.Fatalf("inspector %v: status %d, want %d: %v: %s%s", args, cmd.ProcessState.ExitCode(), status, err, out, &errOut)
	}
	return printed.Result
}
