package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/cmd/paytool/paytool"
)

// tool is paytool behind a door that can keep its answers back: a call that is kept has acted already.
type tool struct {
	server *httptest.Server
	inner  *paytool.Handler

	arrivals atomic.Pointer[bell] // of calls that have not acted yet
	acts     atomic.Pointer[bell] // of calls that have, and are not answered yet

	mu      sync.Mutex
	kept    map[string]chan struct{}    // by a text in the request; guarded by mu
	instead map[string]http.HandlerFunc // likewise
}

func newTool(t *testing.T) *tool {
	t.Helper()
	inner, err := paytool.New(paytool.Options{
		Journal: filepath.Join(t.TempDir(), "journal.jsonl"), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("start paytool: %v", err)
	}
	up := &tool{inner: inner, kept: map[string]chan struct{}{}, instead: map[string]http.HandlerFunc{}}
	up.server = httptest.NewServer(up)
	t.Cleanup(func() {
		up.letAllGo()
		up.server.CloseClientConnections()
		up.server.Close()
		if err := inner.Close(); err != nil {
			t.Errorf("close paytool: %v", err)
		}
	})
	return up
}

func (up *tool) url() string { return up.server.URL + "/mcp" }

func (up *tool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if other := up.insteadOf(body); other != nil {
		other(w, r)
		return
	}
	if bytes.Contains(body, []byte(`"tools/call"`)) {
		up.arrivals.Load().pass()
		w = &watched{ResponseWriter: w, acted: up.acts.Load()}
	}
	gate := up.gateFor(body)
	if gate == nil {
		up.inner.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	up.inner.ServeHTTP(answer, r)
	select {
	case <-gate:
	case <-r.Context().Done():
		return
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// watched tells of the first byte of an answer: the call has acted by then.
type watched struct {
	http.ResponseWriter
	acted *bell
	once  sync.Once
}

func (w *watched) Write(b []byte) (int, error) {
	w.once.Do(w.acted.pass)
	return w.ResponseWriter.Write(b)
}

func (w *watched) Flush() {
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

// answer lets something else answer the requests that contain a text; nil: the tool again.
func (up *tool) answer(text string, instead http.HandlerFunc) {
	up.mu.Lock()
	defer up.mu.Unlock()
	if instead == nil {
		delete(up.instead, text)
		return
	}
	up.instead[text] = instead
}

func (up *tool) insteadOf(body []byte) http.HandlerFunc {
	up.mu.Lock()
	defer up.mu.Unlock()
	for text, other := range up.instead {
		if bytes.Contains(body, []byte(text)) {
			return other
		}
	}
	return nil
}

func (up *tool) gateFor(body []byte) chan struct{} {
	up.mu.Lock()
	defer up.mu.Unlock()
	for text, gate := range up.kept {
		if bytes.Contains(body, []byte(text)) {
			return gate
		}
	}
	return nil
}

// keep holds back the answers to requests that contain a text, until the returned function is called.
func (up *tool) keep(text string) (release func()) {
	gate := make(chan struct{})
	up.mu.Lock()
	defer up.mu.Unlock()
	up.kept[text] = gate
	return func() {
		up.mu.Lock()
		defer up.mu.Unlock()
		if up.kept[text] == gate {
			delete(up.kept, text)
			close(gate)
		}
	}
}

func (up *tool) letAllGo() {
	up.mu.Lock()
	defer up.mu.Unlock()
	for text, gate := range up.kept {
		delete(up.kept, text)
		close(gate)
	}
}

// effect is a line of the tool's own journal.
type effect struct {
	Tool      string
	Key       string
	Arguments json.RawMessage
}

// effects are what was done so far with arguments that contain a text, as the tool's journal says over HTTP.
func (up *tool) effects(t *testing.T, text string) []effect {
	t.Helper()
	resp, err := http.Get(up.server.URL + "/journal")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var journal struct{ Effects []effect }
	if err := json.NewDecoder(resp.Body).Decode(&journal); err != nil {
		t.Fatalf("read the tool's journal: %v", err)
	}
	return slices.DeleteFunc(journal.Effects, func(e effect) bool { return !strings.Contains(string(e.Arguments), text) })
}
