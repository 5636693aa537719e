// Package apitest fails a test when an HTTP answer is not what openapi.yaml says, so that the document cannot
// drift from the program. Tests only.
package apitest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
)

// Spec is openapi.yaml, and which of its answers have been seen. It is safe for concurrent use.
type Spec struct {
	doc    *openapi3.T
	router routers.Router

	mu   sync.Mutex
	seen map[string]bool
}

var registerDecoders = sync.OnceFunc(func() {
	openapi3filter.RegisterBodyDecoder("application/vnd.counterfoil.bundle+json", openapi3filter.RegisteredBodyDecoder("application/json"))
	openapi3filter.RegisterBodyDecoder("application/jsonl", openapi3filter.RegisteredBodyDecoder("text/plain"))
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.RegisteredBodyDecoder("text/plain"))
})

// Load reads and validates the module's openapi.yaml.
func Load(t testing.TB) *Spec {
	t.Helper()
	registerDecoders()
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(moduleRoot(t), "openapi.yaml"))
	if err != nil {
		t.Fatalf("load openapi.yaml: %v", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatalf("openapi.yaml is not valid: %v", err)
	}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatalf("route openapi.yaml: %v", err)
	}
	return &Spec{doc: doc, router: router, seen: map[string]bool{}}
}

func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
}

// Transport checks every answer that comes through base; nil is http.DefaultTransport. The body is read
// whole, so it is not for answers that never end.
func (s *Spec) Transport(t testing.TB, base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err != nil {
			return resp, err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
		if err != nil {
			return resp, err
		}
		s.Check(t, r, resp.StatusCode, resp.Header, body)
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Do sends a request to a handler and checks the answer.
func (s *Spec) Do(t testing.TB, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	s.Check(t, r, w.Code, w.Header(), w.Body.Bytes())
	return w
}

// Check reports an answer that the document does not describe.
func (s *Spec) Check(t testing.TB, r *http.Request, status int, header http.Header, body []byte) {
	t.Helper()
	route, params, err := s.router.FindRoute(r)
	if err != nil {
		// What has no operation is refused by the router, with a problem.
		if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			t.Errorf("%s %s is not in openapi.yaml, and was answered %d", r.Method, r.URL.Path, status)
		}
		return
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 status,
		Header:                 header,
		Options:                &openapi3filter.Options{IncludeResponseStatus: true},
	}
	input.SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
		t.Errorf("%s %s: the answer %d is not what openapi.yaml says: %v\n%s", r.Method, r.URL.Path, status, err, clip(body))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[route.Operation.OperationID] = true
}

func clip(body []byte) []byte {
	if len(body) > 2000 {
		return body[:2000]
	}
	return body
}

// Routes lists the operations as "METHOD /path/{parameter}".
func (s *Spec) Routes() []string {
	var routes []string
	for path, item := range s.doc.Paths.Map() {
		for method := range item.Operations() {
			routes = append(routes, method+" "+path)
		}
	}
	slices.Sort(routes)
	return routes
}

// OperationIDs lists the operations' ids.
func (s *Spec) OperationIDs() []string {
	var ids []string
	for _, item := range s.doc.Paths.Map() {
		for _, op := range item.Operations() {
			ids = append(ids, op.OperationID)
		}
	}
	slices.Sort(ids)
	return ids
}

// Unseen lists the operations of which no answer was checked.
func (s *Spec) Unseen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.OperationIDs(), func(id string) bool { return s.seen[id] })
}

// Enum lists the values of a schema, such as "Reason".
func (s *Spec) Enum(schema string) []string {
	ref := s.doc.Components.Schemas[schema]
	if ref == nil {
		return nil
	}
	var values []string
	for _, v := range ref.Value.Enum {
		if text, ok := v.(string); ok {
			values = append(values, text)
		}
	}
	return values
}

var colonParameter = regexp.MustCompile(`:([A-Za-z_]+)`)

// EchoRoute writes a route of the router the way the document does.
func EchoRoute(method, path string) string {
	return strings.ToUpper(method) + " " + colonParameter.ReplaceAllString(path, "{$1}")
}
