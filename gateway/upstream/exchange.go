package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// request is one JSON-RPC message to be posted.
type request struct {
	header   http.Header
	body     []byte
	id       int64 // 0: a notification, which has no answer
	limit    int64 // bytes of one message of the answer
	progress func(params []byte)
}

// fault says why there is no JSON-RPC answer to be had from a response.
type fault int

const (
	answered  fault = iota
	silent          // it ended, or the time did, before an answer
	malformed       // what came is no answer to this request
	tooLarge
)

// reply is what one POST came to.
type reply struct {
	sent    bool // a byte of the request may have left
	status  int  // 0: no response head came
	session string
	fault   fault
	message message // where answered; it points into memory
	memory  *[]byte
	err     error // of the transport, while status is 0
}

// post sends one request once. GetBody stays nil: net/http counts a POST with an idempotency key as
// replayable and, had it the body a second time, would repeat it in silence when a reused connection
// dies. RoundTrip is called on the transport, so that no redirect is followed either.
func (c *Client) post(ctx context.Context, q request) reply {
	var wire wire
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: wire.got})
	request := (&http.Request{
		Method:        http.MethodPost,
		URL:           c.url,
		Host:          c.url.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        q.header,
		Body:          io.NopCloser(bytes.NewReader(q.body)),
		ContentLength: int64(len(q.body)),
	}).WithContext(traced)
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return reply{sent: wire.wrote(), fault: silent, err: err}
	}
	defer func() { _ = response.Body.Close() }() // what was wanted of it has been read
	r := reply{sent: true, status: response.StatusCode, session: response.Header.Get(headerSession), memory: c.borrow()}
	if q.id == 0 {
		r.fault = silent
		return r
	}
	if isEventStream(response.Header.Get("Content-Type")) {
		r.message, r.fault = c.readStream(response.Body, q, r.memory)
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

// Answers are read into borrowed memory: at thousands of calls a second it would else be most of
// what the collector sees. Large blocks are left to it.
const (
	freshMemory = 8 << 10
	keptMemory  = 256 << 10
)

func (c *Client) borrow() *[]byte {
	if block, ok := c.memories.Get().(*[]byte); ok {
		return block
	}
	block := make([]byte, 0, freshMemory)
	return &block
}

// release gives back the memory of a reply, after the last look at its message.
func (c *Client) release(r reply) {
	if r.memory != nil && cap(*r.memory) <= keptMemory {
		*r.memory = (*r.memory)[:0]
		c.memories.Put(r.memory)
	}
}
