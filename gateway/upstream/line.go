package upstream

import (
	"context"
	"sync"
)

// line is a way to one server. There are two: POSTs over HTTP, and the pipes of a process.
type line interface {
	// post sends one message at most once and waits for its answer until ctx ends. It says that a message was
	// not sent only where not a byte of it can have left.
	post(ctx context.Context, q request) reply
	// alive reports whether the next message may go this way.
	alive() bool
}

// carrier opens lines.
type carrier interface {
	// dial returns the line there is, if it is alive, or opens one. It is not called twice at a time.
	dial(ctx context.Context) (line, error)
	// drop gives the line up that there is. Answers that are on their way may still come.
	drop()
	// close ends everything, and waits for that; p is the peer that was talked to last, or nil.
	close(p *peer)
}

// request is one JSON-RPC message to be sent.
type request struct {
	peer     *peer
	method   string
	call     *Call // of a tools/call
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

// reply is what one message came to.
type reply struct {
	sent    bool // a byte of the request may have left
	status  int  // of HTTP; 0: no response head came
	session string
	fault   fault
	message message // where answered; it points into memory
	memory  *[]byte
	err     error // of the line, where there was no response
	lost    bool  // the server no longer knows us, or is another one: the next call asks anew. This one is over
}

// memories lends what answers are read into: at thousands of calls a second it would else be most of what
// the collector sees. Large blocks are left to it.
type memories struct{ pool sync.Pool } // of *[]byte

const (
	freshMemory = 8 << 10
	keptMemory  = 256 << 10
)

func (m *memories) borrow() *[]byte {
	if block, ok := m.pool.Get().(*[]byte); ok {
		return block
	}
	block := make([]byte, 0, freshMemory)
	return &block
}

// release takes back the memory of a reply, after the last look at its message.
func (m *memories) release(r reply) { m.giveBack(r.memory) }

func (m *memories) giveBack(block *[]byte) {
	if block != nil && cap(*block) <= keptMemory {
		*block = (*block)[:0]
		m.pool.Put(block)
	}
}
