package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"counterfoil/gateway/upstream/child"
)

const (
	noteQueue     = 64 // messages that nobody waits for: cancellations, answers to the server's own questions
	progressQueue = 32 // of one call; what is more, while its caller is slow, is left out
	keptSecrets   = 64 // of the calls last sent, to be looked for in what the process logs
)

// errProcessEnded is what becomes of calls whose process is no more.
var errProcessEnded = errors.New("the process has ended")

// pipe is the way to one process: a line of its input is a message, and so is a line of its output. Calls share
// it, each under an id of its own.
type pipe struct {
	child    *child.Child
	memories *memories
	stuck    time.Duration // how long a write may wait before the process counts as hung
	jobs     chan job
	notes    chan []byte
	over     chan struct{} // closed when nothing is written any more
	hangUp   func()        // closes over, at which the process is told to end
	gone     chan struct{} // closed when nothing of it is left
	dropped  atomic.Bool   // it ends because we want it to

	mu      sync.Mutex
	waiting map[int64]*waiter
	mute    bool     // its output has ended: no answer will come
	secrets []string // of the calls last sent
}

// job is one message to be written. Who puts it into jobs has handed it to the writer, which begins at once.
type job struct {
	text []byte
	done chan written // of capacity 1; nil: nobody asks
}

type written struct {
	n   int
	err error
}

// waiter is a request that may be answered.
type waiter struct {
	limit    int64
	progress chan []byte // nil where none is wanted
	answer   chan reply  // of capacity 1: whoever takes the waiter from the table fills it
}

func newPipe(memories *memories, stuck time.Duration) *pipe {
	p := &pipe{
		memories: memories, stuck: stuck, jobs: make(chan job), notes: make(chan []byte, noteQueue),
		over: make(chan struct{}), gone: make(chan struct{}), waiting: map[int64]*waiter{},
	}
	p.hangUp = sync.OnceFunc(func() { close(p.over) })
	return p
}

func (p *pipe) alive() bool {
	select {
	case <-p.over:
		return false
	default:
		return true
	}
}

// post writes one message once. Of what was handed to the writer and not written whole when the time ends, a byte
// may have gone: the rest of it follows, since the next message would else begin in the middle of this one.
func (p *pipe) post(ctx context.Context, q request) reply {
	w := &waiter{limit: q.limit, answer: make(chan reply, 1)}
	if q.progress != nil {
		w.progress = make(chan []byte, progressQueue)
	}
	if q.id != 0 {
		if !p.expect(q, w) {
			return reply{fault: silent, err: errProcessEnded}
		}
		defer p.withdraw(q.id)
	}
	sent, err := p.write(ctx, oneLine(q.body))
	switch {
	case q.id == 0 && err == nil:
		return reply{sent: true}
	case q.id == 0, !sent:
		return reply{sent: sent, fault: silent, err: err}
	}
	// Also where not all of it could be written: a server may answer what it has not read to the end.
	return p.await(ctx, q, w)
}

// oneLine makes a message a line, in place. In valid JSON a line break stands only between values, where a blank
// says the same.
func oneLine(body []byte) []byte {
	for i, c := range body {
		if c == '\n' || c == '\r' {
			body[i] = ' '
		}
	}
	return append(body, '\n')
}

// write hands a message to the writer and waits until it is written. sent says that a byte of it may have gone.
func (p *pipe) write(ctx context.Context, text []byte) (sent bool, err error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	j := job{text: text, done: make(chan written, 1)}
	select {
	case p.jobs <- j:
	case <-p.over:
		return false, errProcessEnded
	case <-ctx.Done():
		return false, ctx.Err()
	}
	select {
	case w := <-j.done:
		if w.err != nil {
			return w.n > 0, errProcessEnded
		}
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

// feed is the writer: one message after the other, each whole.
func (p *pipe) feed() {
	for {
		var j job
		select {
		case <-p.over:
			return
		case j = <-p.jobs:
		case text := <-p.notes:
			j.text = text
		}
		// When a write has waited for this long, every call that was written before it has had its time.
		hung := time.AfterFunc(p.stuck, p.hangUp)
		n, err := p.child.Write(j.text)
		hung.Stop()
		if j.done != nil {
			j.done <- written{n, err}
		}
		if err != nil {
			p.hangUp()
			return
		}
	}
}

func (p *pipe) await(ctx context.Context, q request, w *waiter) reply {
	for {
		select {
		case params := <-w.progress:
			q.progress(params)
		case r := <-w.answer:
			w.drain(q.progress)
			return r
		case <-ctx.Done():
			p.withdraw(q.id)
			select {
			case r := <-w.answer: // just now
				w.drain(q.progress)
				return r
			default:
			}
			p.cancel(q)
			return reply{sent: true, fault: silent, err: ctx.Err()}
		}
	}
}

// drain passes on the progress that came before the answer.
func (w *waiter) drain(progress func([]byte)) {
	for {
		select {
		case params := <-w.progress:
			progress(params)
		default:
			return
		}
	}
}

// cancel tells the server that nobody waits any more. It may act all the same. The protocol does not let a
// handshake be cancelled.
func (p *pipe) cancel(q request) {
	if q.id == 0 || q.method == methodInitialize {
		return
	}
	members := appendID([]byte(`"requestId":`), q.id)
	p.note(plainBody(q.peer.modern, 0, methodCancelled, string(members)+`,"reason":"its time has ended"`))
}

// note writes a message that nobody waits for. Where too many wait already, it is left out.
func (p *pipe) note(body []byte) {
	select {
	case p.notes <- oneLine(body):
	default:
	}
}

func (p *pipe) expect(q request, w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mute {
		return false
	}
	p.waiting[q.id] = w
	if q.call != nil && q.call.Secret != "" {
		p.secrets = append(p.secrets, q.call.Secret)
		p.secrets = p.secrets[max(0, len(p.secrets)-keptSecrets):]
	}
	return true
}

func (p *pipe) withdraw(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

// sent are the secrets of the calls last sent.
func (p *pipe) sent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.secrets)
}
