// Package upstream sends a tool call at most once and never says "not sent" of one that may have been.
//
// Every other answer follows from that. A call is one POST with a one-shot body: no redirect, no
// ambient proxy, no retry of net/http's, no renewed session repeats it. What cannot be proven
// unsent, and was not answered by valid JSON-RPC under the call's own id, is uncertain and stays so.
// Handshakes and listings act on nothing, so they alone may be repeated.
package upstream

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"counterfoil/receipts"
)

// Config names one upstream MCP server and what it may cost.
type Config struct {
	Name string // for logs
	URL  string // of an HTTP server; else
	// Command is the program of a process that speaks over its standard input and output, and its
	// arguments. A name without a slash is looked for in the PATH of Env or Environ.
	Command []string
	Dir     string // of the process; "": ours
	// Environ and Env are its whole environment: what it may know of ours, and what it is given. Each
	// value of Env is a secret: no answer shows it.
	Environ []string
	Env     map[string]string
	// Grace is how long the process has to end after its input did, and again after SIGTERM; 0: 2 s.
	Grace time.Duration
	// Timeout bounds a call from the wait for a free slot to the last byte of the answer; 0: 30 s.
	Timeout time.Duration
	// Headers go with every request. Each value is a secret: no answer shows it.
	Headers http.Header
	// ForwardKeyHeader carries the private operation key of a call; "" sends it nowhere.
	ForwardKeyHeader string
	// Refusals are the JSON-RPC codes by which this server says that nothing ran; nil: contract 3.4.
	Refusals []int
	// Concurrency is how many calls may be in flight at once; 0: 512.
	Concurrency int
	// Rate is how many calls may begin a second; 0: no limit. It is for the caller to keep: a call
	// that was let in is not refused for it.
	Rate   int
	Logger *slog.Logger // nil: silent
}

// Call is one governed call.
type Call struct {
	Tool             string
	Arguments        []byte            // canonical JSON, sent as it is; empty: {}
	OperationKey     string            // private; goes up only in ForwardKeyHeader
	Secret           string            // private too, and never sent but where the arguments hold it
	Handle           string            // public; stands in for every secret that is echoed
	Trace            map[string]string // of it only traceparent, tracestate and baggage go up
	MaxResponseBytes int64             // 0: 4 MiB
	Actual           string            // RFC 6901 pointer to the actual cost in the result, "" none
	// Capabilities is the JSON object of what the caller declared it can do, told to a modern server
	// and to no other; nil: {}.
	Capabilities []byte
	// MayAsk says that the caller can be asked for input. Where it cannot, a tool that asks has failed.
	MayAsk bool
	// Input is what the caller answers to a round, or gave with its first call; nil: nothing.
	Input *Input
	// Progress, where set, asks for progress and gets the params of each notification while the
	// call runs. The bytes are valid only until it returns.
	Progress func(params []byte)
}

// Input is the caller's side of a round: raw JSON values that go up as they are.
type Input struct {
	Responses []byte // inputResponses, an object of objects; nil: absent
	State     []byte // requestState, a string; nil: absent
}

// Round is a tool's question. The tool has not run: it waits to be called again with the answers.
type Round struct {
	// Result is the whole input_required result, undressed and scrubbed like any other, but with its
	// resultType.
	Result []byte
	State  []byte // its requestState, a JSON string; nil where there is none
}

// Answer is the one outcome of a call.
type Answer struct {
	Outcome receipts.Outcome
	Reason  receipts.Reason
	// Result is the upstream's result object without the dressing of its protocol era, scrubbed of
	// our secrets, every other byte as it came; nil where there is none.
	Result []byte
	// Round is set where the tool asks for input, which is no outcome: Outcome is "" then.
	Round *Round
	// Error is the upstream's JSON-RPC error object, scrubbed; nil where there is none.
	Error    []byte
	Actual   *int64 // nil: missing or not an integer from 0 to 2^53-1
	Scrubbed bool
	Note     string // for the log, in plain words of our own
}

// Client calls one upstream. It is safe for concurrent use.
type Client struct {
	config   Config
	carrier  carrier
	versions []string // of the handshake era that it may choose
	// probeTime is how long it may take to get to know the server, discoverTime how long it may take to say
	// which era it is of.
	probeTime, discoverTime time.Duration
	secrets                 []string // longest first
	refusals                map[int64]bool
	slots                   chan struct{}
	lastID                  atomic.Int64
	memories                memories

	current atomic.Pointer[peer] // nil: to be probed
	legacy  atomic.Bool          // a handshake server, as far as we know

	mu       sync.Mutex
	probing  *probe // the one under way, if any
	life     context.Context
	end      context.CancelFunc
	watching sync.WaitGroup
}

// Close ends the upstream session and idle connections, or the process, and gives up probing. Calls under
// way are the business of their own contexts; new ones are not dispatched.
func (c *Client) Close() {
	c.mu.Lock()
	c.end()
	p := c.current.Swap(nil)
	c.mu.Unlock()
	c.watching.Wait()
	c.carrier.close(p)
}

// Concurrency is how many calls may be in flight at once; more wait within their time.
func (c *Client) Concurrency() int { return cap(c.slots) }

// Call sends the call once, or not at all, and says which row of contract 3.4 it became.
func (c *Client) Call(ctx context.Context, call Call) Answer {
	if ctx.Err() != nil || c.life.Err() != nil {
		return failed(receipts.ReasonNotDispatched, "given up before anything was sent")
	}
	if call.MaxResponseBytes <= 0 {
		call.MaxResponseBytes = defaultResponseBytes
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	if !c.acquire(ctx) {
		return failed(receipts.ReasonUpstreamUnreachable, "no free slot for the call in time")
	}
	defer func() { <-c.slots }()
	p, err := c.peer(ctx)
	if err != nil {
		return unprobed(err)
	}
	if call.Input != nil && !p.modern {
		// It would run the tool without the answers, and one of them may be "no".
		return failed(receipts.ReasonUpstreamRejected, "not sent: a server of the handshake era cannot be given input")
	}
	id := c.lastID.Add(1)
	r := p.line.post(ctx, request{
		peer:     p,
		method:   methodCall,
		call:     &call,
		body:     callBody(p, id, call),
		id:       id,
		limit:    call.MaxResponseBytes,
		progress: c.progress(p, call),
	})
	defer c.memories.release(r)
	if r.lost {
		c.forget(p)
	}
	return c.judge(r, p, call)
}

// acquire takes one of the slots, or reports that the context ended first.
func (c *Client) acquire(ctx context.Context) bool {
	select {
	case c.slots <- struct{}{}:
		return true
	default:
	}
	select {
	case c.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// progress passes on what the upstream says while it works, scrubbed like its answer.
func (c *Client) progress(p *peer, call Call) func([]byte) {
	if call.Progress == nil {
		return nil
	}
	return func(params []byte) {
		if clean, _, ok := c.scrub(params, p, call); ok {
			call.Progress(clean)
		}
	}
}
