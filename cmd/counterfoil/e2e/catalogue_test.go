package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"counterfoil/internal/testdb"
)

// toolAt is what a gateway says of one tool.
func (s *system) toolAt(t *testing.T, base, name string) object {
	t.Helper()
	for _, tool := range s.allAt(t, base, "/v1/tools", url.Values{}) {
		if tool["name"] == name {
			return tool
		}
	}
	t.Fatalf("there is no tool %s", name)
	return nil
}

// redefine lets the tool's server show payout under another title.
func (up *tool) redefine() (restore func()) {
	up.answer(`"tools/list"`, func(w http.ResponseWriter, r *http.Request) {
		inner := httptest.NewRecorder()
		up.inner.ServeHTTP(inner, r)
		w.Header().Set("Content-Type", inner.Header().Get("Content-Type"))
		_, _ = io.WriteString(w, strings.Replace(inner.Body.String(), `"name":"payout"`, `"name":"payout","title":"Pay out, and tell me"`, 1))
	})
	return func() { up.answer(`"tools/list"`, nil) }
}

// A pin of the configuration holds in every gateway, and a repeat is answered whatever has become of the tool.
func TestPinnedToolOfTwoGateways(t *testing.T) {
	t.Parallel()
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), "limits: {catalogue_refresh: 1s}")
	x := s.newTenant(t, 1000, anything())
	pin := s.toolAt(t, s.url, "payout").text(t, "sha256")
	s.tools = strings.Replace(toolLines, "{name: payout,", "{name: payout, definition_sha256: "+pin+",", 1)
	s.configure(t, "counterfoil.yaml", strings.TrimPrefix(s.url, "http://"), s.tools)
	s.restart(t)
	_, second := s.second(t)
	inForce := func(want bool) func() bool {
		return func() bool {
			return s.toolAt(t, s.url, "payout")["in_force"] == want && s.toolAt(t, second, "payout")["in_force"] == want
		}
	}
	eventually(t, "both to see the pinned definition", inForce(true))
	paid := x.succeed(t, x.payout("k"))

	restore := s.tool.redefine()
	eventually(t, "both to see another one", inForce(false))
	for _, base := range []string{s.url, second} {
		again, err := s.send(context.Background(), s.client, base+"/mcp", x.key, x.payout("k").body())
		if err != nil || !again.replayed() || again.meta.Receipt != paid.meta.Receipt {
			t.Errorf("the repeat is answered %s, %v", again, err)
		}
		refused, err := s.send(context.Background(), s.client, base+"/mcp", x.key, x.payout("k2").body())
		if err != nil || refused.reason() != "tool_unknown" || refused.refusal == nil || refused.refusal.Code != -32602 {
			t.Errorf("a new call is answered %s, %v", refused, err)
		}
	}
	if n := len(s.tool.effects(t, x.marker())); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	if broken := s.metric(t, `counterfoil_tool_pin_broken{tool="payout"}`); broken != 1 {
		t.Errorf("the metric says %v", broken)
	}
	told := 0
	for _, event := range s.all(t, "/v1/audit", url.Values{}) {
		if event["action"] == "tool.definition_changed" && event["subject"] == "payout" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times in the audit", told)
	}
	now := s.toolAt(t, s.url, "payout").text(t, "sha256")
	if status, text := s.ask(t, s.url, operatorToken, http.MethodGet, "/v1/tools/definitions/"+now, nil); status != 200 || !strings.Contains(string(text), "and tell me") {
		t.Errorf("the new definition: %d %s", status, text)
	}

	restore()
	eventually(t, "both to see the pinned definition again", inForce(true))
	x.succeed(t, x.payout("k2"))
}
