package mcp

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/internal/canon"
)

const (
	eventStream = "text/event-stream"
	// maxWaiting bounds what waits for one slow reader, in bytes. What is larger is
	// not told: progress is a courtesy.
	maxWaiting = 64 << 10
	// maxToken bounds a progress token, which each event repeats.
	maxToken = 1 << 10 // bytes
)

// stream tells a caller of the progress of its call. The call never waits for its
// reader: what that does not take in time gives way to what is newer, and the
// response is no part of the queue, so that it is never lost to it. Until the first
// progress nothing is sent, and the answer can still be plain JSON.
type stream struct {
	c     echo.Context
	token []byte // the caller's own, raw

	mu      sync.Mutex
	more    sync.Cond // of mu
	waiting [][]byte  // events, the oldest first
	size    int       // bytes of them
	ended   bool
	written chan struct{} // nil before the first progress; closed when the writer has ended
}

// progressTo returns nil where the caller did not ask to be told.
func progressTo(c echo.Context, token []byte) *stream {
	if len(token) > maxToken || !stringOrInteger(token) {
		return nil
	}
	s := &stream{c: c, token: token}
	s.more.L = &s.mu
	return s
}

// progress takes the params of one notification, whose bytes are the upstream's.
func (s *stream) progress(params []byte) {
	event := progressEvent(params, s.token)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(event) > maxWaiting {
		return
	}
	s.waiting = append(s.waiting, event)
	for s.size += len(event); s.size > maxWaiting; s.waiting = s.waiting[1:] {
		s.size -= len(s.waiting[0])
	}
	if s.written == nil {
		s.written = make(chan struct{})
		go s.write()
	}
	s.more.Signal()
}

// write sends what waits until the stream ends, or its reader is gone. It alone
// uses the response until it closes written.
func (s *stream) write() {
	defer close(s.written)
	h := s.c.Response().Header()
	h["Content-Type"] = []string{eventStream}
	h["Cache-Control"] = noStore
	h["X-Accel-Buffering"] = []string{"no"}
	s.c.Response().WriteHeader(http.StatusOK)
	for event := s.next(); event != nil; event = s.next() {
		if sendEvent(s.c, event) != nil {
			s.stop()
			return
		}
	}
}

// next waits for the oldest event; nil when there will be none.
func (s *stream) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) == 0 && !s.ended {
		s.more.Wait()
	}
	if len(s.waiting) == 0 {
		return nil
	}
	event := s.waiting[0]
	s.waiting, s.size = s.waiting[1:], s.size-len(event)
	return event
}

func (s *stream) stop() (written chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.more.Signal()
	return s.written
}

// end takes no more progress and gives the response back to the caller's own
// goroutine. It may be called again.
func (s *stream) end() {
	if s == nil {
		return
	}
	if written := s.stop(); written != nil {
		<-written
	}
}

// streaming reports that progress was told: the answer is the last event then.
func streaming(c echo.Context) bool {
	return c.Response().Committed && c.Response().Header().Get("Content-Type") == eventStream
}

// writeEvent sends a message as one event, in one line: JSON has line breaks only
// between its tokens, where a blank is as good.
func writeEvent(c echo.Context, message []byte) error {
	return sendEvent(c, eventOf(make([]byte, 0, len(message)+32), message))
}

func sendEvent(c echo.Context, event []byte) error {
	if _, err := c.Response().Write(event); err != nil {
		return err
	}
	return http.NewResponseController(c.Response()).Flush()
}

func eventOf(dst, message []byte) []byte {
	dst = append(dst, "event: message\ndata: "...)
	start := len(dst)
	dst = append(dst, message...)
	for i, b := range dst[start:] {
		if b == '\n' || b == '\r' {
			dst[start+i] = ' '
		}
	}
	return append(dst, "\n\n"...)
}

// progressEvent puts the caller's token in the place of ours. Everything else is
// kept but what could pass for the gateway's own word.
func progressEvent(params, token []byte) []byte {
	b := append(make([]byte, 0, len(params)+len(token)+128), `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...)
	b = append(b, token...)
	gateway.Members(params, func(name, value []byte) bool {
		switch {
		case string(name) == "progressToken", ours(name):
		case string(name) == "_meta":
			b = appendForeign(append(b, `,"_meta":{`...), value)
		default:
			b = canon.AppendString(append(b, ','), string(name))
			b = append(append(b, ':'), value...)
		}
		return true
	})
	return eventOf(make([]byte, 0, len(b)+32), append(b, "}}"...))
}

// appendForeign appends the members of a notification's _meta that are the
// upstream's to say, and closes the object.
func appendForeign(b, meta []byte) []byte {
	start := len(b)
	gateway.Members(meta, func(name, value []byte) bool {
		if ours(name) {
			return true
		}
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(canon.AppendString(b, string(name)), ':')
		b = append(b, value...)
		return true
	})
	return append(b, '}')
}

func ours(name []byte) bool {
	const prefix = "counterfoil/"
	return string(name) == metaPrefix+"serverInfo" || len(name) >= len(prefix) && strings.EqualFold(string(name[:len(prefix)]), prefix)
}

// stringOrInteger tells of a checked JSON value what a token or an id may be.
func stringOrInteger(value []byte) bool {
	if len(value) == 0 || value[0] == '"' {
		return len(value) > 0
	}
	digits := value
	if value[0] == '-' {
		digits = value[1:]
	}
	return len(digits) > 0 && !slices.ContainsFunc(digits, func(c byte) bool { return c < '0' || c > '9' })
}
