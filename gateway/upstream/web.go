package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// web is the way of an HTTP server: each message is a POST of its own.
type web struct {
	config    Config
	url       *url.URL
	fixed     http.Header // of every request
	transport *http.Transport
	memories  *memories
	readers   sync.Pool // of *bufio.Reader
}

func newWeb(config Config, target *url.URL, memories *memories) *web {
	return &web{
		config: config, url: target, fixed: fixedHeader(config.Headers),
		transport: newTransport(config.Concurrency), memories: memories,
	}
}

// dial has nothing to open: a connection belongs to a request.
func (w *web) dial(context.Context) (line, error) { return w, nil }

func (w *web) alive() bool { return true }

func (w *web) drop() {}

// close ends the session, if there is one, and idle connections.
func (w *web) close(p *peer) {
	if p != nil && p.session != "" {
		w.endSession(p)
	}
	w.transport.CloseIdleConnections()
}

// post sends one request once. GetBody stays nil: net/http counts a POST with an idempotency key as
// replayable and, had it the body a second time, would repeat it in silence when a reused connection
// dies. RoundTrip is called on the transport, so that no redirect is followed either.
func (w *web) post(ctx context.Context, q request) reply {
	r := w.exchange(ctx, q)
	r.lost = lost(r) || q.method == methodList && (r.fault != answered || r.message.fail != nil)
	return r
}

func (w *web) exchange(ctx context.Context, q request) reply {
	var wire wire
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: wire.got})
	request := (&http.Request{
		Method:        http.MethodPost,
		URL:           w.url,
		Host:          w.url.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.header(q),
		Body:          io.NopCloser(bytes.NewReader(q.body)),
		ContentLength: int64(len(q.body)),
	}).WithContext(traced)
	response, err := w.transport.RoundTrip(request)
	if err != nil {
		return reply{sent: wire.wrote(), fault: silent, err: err}
	}
	defer func() { _ = response.Body.Close() }() // what was wanted of it has been read
	r := reply{sent: true, status: response.StatusCode, session: response.Header.Get(headerSession), memory: w.memories.borrow()}
	if q.id == 0 {
		return r // taken, and there is no answer to wait for
	}
	if isEventStream(response.Header.Get("Content-Type")) {
		r.message, r.fault = w.readStream(response.Body, q, r.memory)
		return r
	}
	if r.fault = readBody(response, q.limit, r.memory); r.fault == answered {
		r.message, r.fault = parseAnswer(*r.memory, q.id)
	}
	return r
}

// readBody reads the whole body, so that the connection can be used again.
func readBody(response *http.Response, limit int64, memory *[]byte) fault {
	if response.ContentLength > limit {
		return tooLarge
	}
	buffer := (*memory)[:0]
	for {
		if len(buffer) == cap(buffer) {
			buffer = append(buffer, 0)[:len(buffer)]
		}
		n, err := response.Body.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		*memory = buffer
		switch {
		case int64(len(buffer)) > limit:
			return tooLarge
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(buffer)) > 0:
			return answered
		case err != nil:
			return silent
		}
	}
}

func isEventStream(contentType string) bool {
	essence, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(essence), "text/event-stream")
}

// wire tells whether anything of a request was written to its connection. An error's text cannot.
type wire struct {
	used   bool
	conn   *countedConn
	before int64
}

func (w *wire) got(info httptrace.GotConnInfo) {
	w.used = true
	conn := info.Conn
	if layered, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = layered.NetConn()
	}
	if w.conn, _ = conn.(*countedConn); w.conn != nil {
		w.before = w.conn.writes.Load()
	}
}

// wrote is asked after RoundTrip has failed, when net/http has waited for its writer to end. Without
// a connection nothing was written; on one that does not count, something may have been.
func (w *wire) wrote() bool {
	if w.conn == nil {
		return w.used
	}
	return w.conn.writes.Load() != w.before
}

// countedConn counts the writes that may have moved a byte.
type countedConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1) // before, so that a write under way counts
	n, err := c.Conn.Write(b)
	if n == 0 && err != nil {
		c.writes.Add(-1)
	}
	return n, err
}

// lost reports whether an answer says that the server no longer knows us, or is another one.
func lost(r reply) bool {
	if r.fault == answered && r.message.fail != nil {
		switch r.message.code {
		case codeInvalidRequest, codeUnknownMethod, codeHeaderMismatch, codeVersion:
			return true
		}
	}
	if r.status == http.StatusNotFound {
		return true
	}
	return r.fault != answered && (r.status == http.StatusBadRequest || r.status == http.StatusMethodNotAllowed)
}

// endSession is a courtesy to the server; its answer does not matter.
func (w *web) endSession(p *peer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	goodbye, err := http.NewRequestWithContext(ctx, http.MethodDelete, w.url.String(), http.NoBody)
	if err != nil {
		return
	}
	goodbye.Header = w.header(request{peer: p})
	if response, err := w.transport.RoundTrip(goodbye); err == nil {
		_ = response.Body.Close()
	}
}
