// Package paytool writes every effect to its journal, on disk, before it answers anything about it.
//
// It stands for a tool that pays or sends: it moves no money and sends no mail, but each call that
// acts leaves one line that can be counted, so that whoever calls it can be caught acting twice. It is
// made to be called badly: it acts as often as it is asked to, unless told to honour operation keys,
// and one of its tools acts and then breaks off the connection.
package paytool

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// KeyHeader carries the operation key of a call.
const KeyHeader = "Idempotency-Key"

// Options say where the journal is and how the tool behaves.
type Options struct {
	Journal string // path of the JSONL file; made when missing, continued when not
	// Dedupe makes a repeated operation key answer with the first effect instead of making another.
	Dedupe bool
	Now    func() time.Time
	Logger *slog.Logger // nil: silent
}

// Handler serves the MCP tools at any path but /journal, where GET answers with the effects.
type Handler struct {
	journal *journal
	mcp     http.Handler
	log     *slog.Logger
}

// New opens the journal. Its effects of earlier runs count.
func New(options Options) (*Handler, error) {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	j, err := openJournal(options)
	if err != nil {
		return nil, err
	}
	h := &Handler{journal: j, log: options.Logger}
	server := mcp.NewServer(&mcp.Implementation{Name: "paytool", Version: "1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	for _, t := range tools() {
		definition := &mcp.Tool{Name: t.name, Description: t.description, InputSchema: json.RawMessage(t.schema)}
		if t.readOnly {
			definition.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true}
		}
		server.AddTool(definition, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return t.run(ctx, action{h: h, tool: t.name, key: r.Extra.Header.Get(KeyHeader), arguments: r.Params.Arguments})
		})
	}
	// One JSON answer a call and no sessions: both protocol eras, and nothing to keep in step with.
	h.mcp = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true, DisableLocalhostProtection: true})
	return h, nil
}

// Close closes the journal; calls that come later fail.
func (h *Handler) Close() error { return h.journal.close() }

// Effects returns what was done so far, oldest first.
func (h *Handler) Effects() []Effect { return h.journal.all() }

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/journal" {
		h.serveJournal(w, r)
		return
	}
	// A browser that was led here must not pay: no page has business with this server.
	if r.Header.Get("Origin") != "" {
		http.Error(w, "not for browsers", http.StatusForbidden)
		return
	}
	cut := &cutWriter{ResponseWriter: w}
	h.mcp.ServeHTTP(cut, r.WithContext(context.WithValue(r.Context(), cutKey{}, cut)))
	cut.finish()
}

func (h *Handler) serveJournal(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	body, err := encode(map[string]any{"effects": h.Effects()})
	if err == nil {
		_, err = w.Write(body)
	}
	if err != nil {
		h.log.Warn("answer the journal", "error", err)
	}
}

// act is what every tool that does something comes down to: one line, on disk, then the answer.
func (a action) act(words string) (*mcp.CallToolResult, error) {
	effect, repeated, err := a.h.journal.record(a.tool, a.key, a.arguments)
	if err != nil {
		// Whether the line is on disk is not known, so this must not pass for a refusal.
		return nil, fmt.Errorf("journal: %w", err)
	}
	if repeated {
		words = "already done: " + words
	}
	a.h.log.Info("acted", "tool", a.tool, "effect", effect.Seq, "repeated", repeated)
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("%s (effect %d)", words, effect.Seq)}},
		StructuredContent: map[string]any{"effect": effect.Seq, "repeated": repeated},
	}, nil
}

// action is one call of one tool.
type action struct {
	h         *Handler
	tool, key string
	arguments json.RawMessage
}

// oneLine keeps what a caller sent from making the answer look like something else.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}
