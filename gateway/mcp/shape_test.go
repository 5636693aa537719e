package mcp_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"counterfoil/gateway"
	"counterfoil/gateway/mcp"
)

func TestShapeShowsNoValue(t *testing.T) {
	t.Parallel()
	digest := mcp.NewDigest()
	meta := `{"callId":"call_abc","a":12,"b":true,"c":null,"d":[1,2],"e":{"platform":"acme","f":{"g":"deep"}},"\u001b[2J` + strings.Repeat("n", 200) + `":"x"}`
	got := mcp.Shape([]byte(meta), digest)
	want := []string{
		`"callId" string 8`, `"a" number 2`, `"b" boolean 4`, `"c" null 4`, `"d" array 5`, `"e" object 36`, `"e"."platform" string 4`, `"e"."f" object 12`,
		`"\x1b[2J` + strings.Repeat("n", 60) + `"… string 1`,
	}
	if len(got) != len(want) {
		t.Fatalf("%d lines: %q", len(got), got)
	}
	form := regexp.MustCompile(`^(.*) [0-9a-f]{8}$`)
	for i, line := range got {
		if m := form.FindStringSubmatch(line); m == nil || m[1] != want[i] {
			t.Errorf("line %d: %s, want %s and a digest", i, line, want[i])
		}
	}
	if text := strings.Join(got, "\n"); strings.Contains(text, "call_abc") || strings.Contains(text, "acme") || strings.Contains(text, "deep") {
		t.Errorf("it shows a value: %s", text)
	}
	// The same value is the same digest; under another secret it is another, and so it is for another agent.
	one, again := mcp.ShapeOf([]byte("0"), digest), mcp.ShapeOf([]byte("0"), digest)
	if one != again || one == mcp.ShapeOf([]byte("0"), mcp.NewDigest()) || mcp.ShapeOf([]byte("0"), digest.For("agt_1")) == mcp.ShapeOf([]byte("0"), digest.For("agt_2")) {
		t.Errorf("%s, %s", one, again)
	}
}

// Whatever a client sends, its line has a bound.
func TestShapeIsBounded(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `"m%d":{"a":1,"b":2},`, i)
	}
	lines := mcp.Shape([]byte("{"+strings.TrimSuffix(many.String(), ",")+"}"), mcp.NewDigest())
	if len(lines) != 41 || !strings.HasPrefix(lines[40], "and ") {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

// With diagnostics on, each call leaves one line, which holds no value; without them none.
func TestDiagnosticsLogOneLineACall(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *gateway.Config) { c.Diagnostics = true })
	h.post(metaBody(4711, payArgs, `"callId":"call_hidden","openai/session":"session_hidden"`))
	h.modernly(4711, payArgs, `"claudecode/toolUseId":"toolu_hidden"`)
	h.post(metaBody(4711, payArgs, `"progressToken":"token_hidden"`))
	h.post(metaBody(4711, payArgs, `"callId":"call_hidden","claudecode/toolUseId":"toolu_hidden"`))
	h.post(callBody("pay", payArgs, keyed("key_hidden")))
	var verdicts []string
	for _, line := range strings.Split(h.log.String(), "\n") {
		if !strings.Contains(line, "shape of a call") {
			continue
		}
		verdicts = append(verdicts, regexp.MustCompile(`identity=(\S+)`).FindStringSubmatch(line)[1])
		if !strings.Contains(line, "agent=agt_1") || !strings.Contains(line, `json_rpc_id="number `) {
			t.Errorf("the line: %s", line)
		}
	}
	want := []string{"codex", "claude_code", "idempotency_key_required", "identity_ambiguous", "context"}
	if fmt.Sprint(verdicts) != fmt.Sprint(want) {
		t.Errorf("verdicts %v, want %v", verdicts, want)
	}
	log := h.log.String()
	for _, hidden := range []string{"_hidden", "4711", "vendor.example"} {
		if strings.Contains(log, hidden) {
			t.Errorf("the log shows %s", hidden)
		}
	}
	h.restart(func(c *gateway.Config) { c.Diagnostics = false })
	before := strings.Count(h.log.String(), "shape of a call")
	h.post(metaBody(1, payArgs, `"callId":"call_2"`))
	if strings.Count(h.log.String(), "shape of a call") != before {
		t.Error("without diagnostics, a line is logged")
	}
}

// A log in JSON keeps a hostile name inside its string.
func TestAHostileNameStaysInItsLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	name := "a\n{\"msg\":\"forged\"}\u2028"
	raw, err := json.Marshal(map[string]int{name: 1})
	if err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("shape of a call", "meta", mcp.Shape(raw, mcp.NewDigest()))
	var line struct{ Meta []string }
	if strings.Count(out.String(), "\n") != 1 || json.Unmarshal([]byte(out.String()), &line) != nil || len(line.Meta) != 1 || strings.Contains(line.Meta[0], "\n") {
		t.Errorf("%q", out.String())
	}
}
