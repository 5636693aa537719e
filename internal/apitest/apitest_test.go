package apitest_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"counterfoil/internal/apitest"
)

// probe records whether a check failed, so that the checker itself is checked.
type probe struct {
	testing.TB
	failed bool
}

func (p *probe) Helper()               {}
func (p *probe) Errorf(string, ...any) { p.failed = true }

func TestCheckSeesWhatTheDocumentDoesNotSay(t *testing.T) {
	t.Parallel()
	spec := apitest.Load(t)
	for name, c := range map[string]struct {
		method, path, mime, body string
		status                   int
		good                     bool
	}{
		"as documented":     {"GET", "/healthz", "application/json", `{"status":"ok"}`, 200, true},
		"unknown member":    {"GET", "/healthz", "application/json", `{"status":"ok","x":1}`, 200, false},
		"missing member":    {"GET", "/healthz", "application/json", `{}`, 200, false},
		"other status":      {"GET", "/healthz", "application/json", `{"status":"ok"}`, 418, false},
		"other media type":  {"GET", "/healthz", "text/html", `{"status":"ok"}`, 200, false},
		"unknown path":      {"GET", "/nowhere", "application/json", `{}`, 200, false},
		"unknown path, 404": {"GET", "/nowhere", "application/problem+json", `{}`, 404, true},
		"export is no id":   {"GET", "/v1/receipts/export", "application/jsonl", "{}\n", 200, true},
		"unknown reason": {
			"GET", "/readyz", "application/problem+json",
			`{"type":"about:blank","title":"t","status":503,"detail":"d","reason":"bad_luck","retry":"never"}`, 503, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &probe{TB: t}
			r := httptest.NewRequest(c.method, "http://127.0.0.1"+c.path, nil)
			spec.Check(p, r, c.status, http.Header{"Content-Type": {c.mime}}, []byte(c.body))
			if p.failed == c.good {
				t.Errorf("failed = %v", p.failed)
			}
		})
	}
}

func TestUnseenForgetsWhatWasChecked(t *testing.T) {
	t.Parallel()
	spec := apitest.Load(t)
	r := httptest.NewRequest("GET", "http://127.0.0.1/healthz", nil)
	spec.Check(t, r, 200, http.Header{"Content-Type": {"application/json"}}, []byte(`{"status":"ok"}`))
	if unseen := spec.Unseen(); slices.Contains(unseen, "getHealth") || !slices.Contains(unseen, "getReadiness") {
		t.Errorf("unseen: %v", unseen)
	}
}
