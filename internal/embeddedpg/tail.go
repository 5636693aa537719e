//go:build unix && !aix && !solaris

package embeddedpg

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

const (
	tailLines   = 12
	tailLineMax = 2000 // bytes
)

// tail passes a program's output on as debug lines and keeps the last ones for an error message.
type tail struct {
	logger *slog.Logger

	mu      sync.Mutex
	partial []byte
	lines   []string
}

func newTail(logger *slog.Logger) *tail { return &tail{logger: logger} }

// Write takes output in any pieces.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partial = append(t.partial, p...)
	for {
		line, rest, found := bytes.Cut(t.partial, []byte("\n"))
		if !found && len(line) < tailLineMax {
			return len(p), nil
		}
		t.add(string(line[:min(len(line), tailLineMax)]))
		t.partial = rest
	}
}

func (t *tail) add(line string) {
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	t.logger.DebugContext(context.Background(), "postgresql", "line", line)
	if t.lines = append(t.lines, line); len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
}

// String is the end of an error message: the last lines, or nothing.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		return ""
	}
	return "; its last lines:\n\t" + strings.Join(t.lines, "\n\t")
}
