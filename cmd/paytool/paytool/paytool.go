// Package paytool acts on nothing but its journal, and writes every effect there before it answers.
package paytool

import (
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// Options say where the journal is and how the tool behaves.
type Options struct {
	Journal string // path of the JSONL file; made when missing
	Dedupe  bool   // a repeated operation key answers the first effect instead of making another
	Now     func() time.Time
	Logger  *slog.Logger
}

// Handler serves the MCP tools at /mcp and the effects at GET /journal.
type Handler struct{}

// New opens the journal.
func New(Options) (*Handler, error) { return nil, errors.New("not built") }

// Close closes the journal.
func (h *Handler) Close() error { return nil }

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {}

// Effects returns what was done so far, oldest first.
func (h *Handler) Effects() []Effect { return nil }

// Effect is one thing the tool did.
type Effect struct {
	Seq       int64
	Key       string
	Tool      string
	Arguments []byte
}
