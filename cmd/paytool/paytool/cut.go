package paytool

import (
	"net/http"
	"sync/atomic"
)

type cutKey struct{}

// cutWriter is a response that a tool can spoil after it has acted. The SDK writes its answer only when
// the tool has returned, so nothing of it has left by then.
type cutWriter struct {
	http.ResponseWriter
	mode atomic.Value // string, "" until spoilt
}

// fail spoils the response; without one there is nothing to spoil.
func (w *cutWriter) fail(mode string) {
	if w != nil {
		w.mode.Store(mode)
	}
}

func (w *cutWriter) WriteHeader(status int) {
	if w.mode.Load() == nil {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *cutWriter) Write(b []byte) (int, error) {
	if w.mode.Load() != nil {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// Flush keeps streaming possible; it says nothing once the response is spoilt.
func (w *cutWriter) Flush() {
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok && w.mode.Load() == nil {
		flusher.Flush()
	}
}

// finish does what was asked for, in the goroutine that may: net/http cuts the connection without a
// word when a handler ends in ErrAbortHandler.
func (w *cutWriter) finish() {
	switch w.mode.Load() {
	case "drop":
		panic(http.ErrAbortHandler)
	case "500":
		w.Header().Del("Content-Length")
		w.Header().Set("Content-Type", "text/plain")
		w.ResponseWriter.WriteHeader(http.StatusInternalServerError)
		_, _ = w.ResponseWriter.Write([]byte("internal error\n"))
	}
}
