// Package upstream sends a tool call at most once and never says "not sent" of one that may have been.
//
// Every other answer follows from that. A call is one POST with a one-shot body: no redirect, no
// ambient proxy, no retry of net/http's, no renewed session repeats it. What cannot be proven
// unsent, and was not answered by valid JSON-RPC under the call's own id, is uncertain and stays so.
// Handshakes and listings act on nothing, so they alone may be repeated.
package upstream

import (
	"context"
	"net/http"
	"time"

	"counterfoil/receipts"
)

// Config names one upstream MCP server and what it may cost.
type Config struct {
	Name string // for logs
	URL  string
	// Timeout bounds a call from the wait for a free slot to the last byte of the answer.
	Timeout time.Duration
	// Headers go with every request. Each value is a secret: an answer never shows it.
	Headers http.Header
	// ForwardKeyHeader carries the private operation key of a call; "" sends it nowhere.
	ForwardKeyHeader string
	// Refusals are the JSON-RPC codes by which this server says that nothing ran; nil: contract 3.4.
	Refusals []int
	// Concurrency is how many calls may be in flight at once.
	Concurrency int
}

// Call is one governed call.
type Call struct {
	Tool             string
	Arguments        []byte // canonical JSON, sent as it is; empty: {}
	OperationKey     string // private; goes up only in ForwardKeyHeader
	Handle           string // public; stands in for every secret that is echoed
	Trace            map[string]string
	MaxResponseBytes int64
	Actual           string // RFC 6901 pointer to the actual cost in the result, "" none
	// Progress, where set, asks for progress and gets the params of each notification while the
	// call runs. The bytes are valid only until it returns.
	Progress func(params []byte)
}

// Answer is the one outcome of a call.
type Answer struct {
	Outcome receipts.Outcome
	Reason  receipts.Reason
	// Result is the upstream's result object without the dressing of its protocol era, scrubbed of
	// our secrets, every other byte as it came; nil where there is none.
	Result []byte
	// Error is the upstream's JSON-RPC error object, scrubbed; nil where there is none.
	Error    []byte
	Actual   *int64 // nil: missing or not an integer from 0 to 2^53-1
	Scrubbed bool
	Note     string // for the log, in plain words of our own
}

// Tool is one entry of the upstream's list.
type Tool struct {
	Name        string
	Definition  []byte // canonical JSON of the whole entry
	InputSchema []byte
}

// Client calls one upstream. It is safe for concurrent use.
type Client struct{}

// New checks the configuration; it does not touch the network.
func New(Config) (*Client, error) { return &Client{}, nil }

// Close ends the upstream session and idle connections. Calls still running fail as they would alone.
func (c *Client) Close() {}

// Call sends the call once, or not at all, and says which row of contract 3.4 it became.
func (c *Client) Call(context.Context, Call) Answer { panic("not built") }

// Tools lists the upstream's tools, all pages.
func (c *Client) Tools(context.Context) ([]Tool, error) { panic("not built") }
