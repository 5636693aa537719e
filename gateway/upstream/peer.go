package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"counterfoil/receipts"
)

// peer is what is known of the server behind the URL: its protocol era and, in the handshake era, the
// session we hold. It is never changed; a lost one is replaced.
type peer struct {
	modern  bool
	version string
	session string
	mirrors map[string][]mirror // by tool; modern servers only
}

// probe is one attempt to get to know the server, shared by all who wait for it.
type probe struct {
	done chan struct{} // closed when peer and err are set, and not to be read before
	peer *peer
	err  error
}

// probeError says why a call could not be sent at all.
type probeError struct {
	refused bool // the server answered, and will not have us
	what    string
}

func (e *probeError) Error() string { return e.what }

// peer returns the known server, or probes it. A probe runs under its own deadline and not under the
// caller's, whose end would fail the others who wait.
func (c *Client) peer(ctx context.Context) (*peer, error) {
	if p := c.current.Load(); p != nil {
		return p, nil
	}
	found, running, err := c.join()
	if found != nil || err != nil {
		return found, err
	}
	select {
	case <-running.done:
		return running.peer, running.err
	case <-ctx.Done():
		return nil, &probeError{what: "the time ended while the server was being probed"}
	}
}

// join returns the server if another has found it meanwhile, or the probe under way, or starts one.
func (c *Client) join() (*peer, *probe, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil, nil, &probeError{what: "closed"}
	}
	if p := c.current.Load(); p != nil {
		return p, nil, nil
	}
	if c.probing == nil {
		c.probing = &probe{done: make(chan struct{})}
		c.watching.Add(1)
		go c.run(c.probing)
	}
	return nil, c.probing, nil
}

func (c *Client) run(p *probe) {
	defer c.watching.Done()
	ctx, cancel := context.WithTimeout(c.life, c.config.Timeout)
	defer cancel()
	found, err := c.connect(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	p.peer, p.err = found, err
	c.probing = nil
	if err == nil {
		c.legacy.Store(!found.modern)
		if c.life.Err() == nil {
			c.current.Store(found)
		}
	}
	close(p.done)
}

// connect asks by server/discover first: a handshake server refuses it, and nothing acts on it. A
// server that was in the handshake era keeps to it until it refuses a handshake.
func (c *Client) connect(ctx context.Context) (*peer, error) {
	known := c.legacy.Swap(false)
	if known {
		if p, err := c.handshake(ctx); err == nil {
			return p, nil
		}
	}
	modern, err := c.discover(ctx)
	if err != nil {
		return nil, err
	}
	if modern {
		p := &peer{modern: true, version: modernVersion}
		tools, err := c.list(ctx, p)
		var refusal *probeError
		if err != nil && !(errors.As(err, &refusal) && refusal.refused) {
			return nil, fmt.Errorf("list tools: %w", err)
		}
		p.mirrors = mirrorsOf(tools)
		return p, nil
	}
	return c.handshake(ctx)
}

// discover reports whether the server is of the modern era. Only silence on the wire is an error: a
// server that cannot answer this may still answer the handshake.
func (c *Client) discover(ctx context.Context) (modern bool, err error) {
	// A server that never answers what it does not know must leave time for the handshake.
	half, cancel := context.WithTimeout(ctx, c.config.Timeout/2)
	defer cancel()
	p := &peer{modern: true, version: modernVersion}
	r := c.ask(half, p, "server/discover", "")
	defer c.release(r)
	if !r.sent {
		return false, notSent(r)
	}
	if r.fault != answered || r.message.result == nil {
		return false, nil
	}
	members, ok := objectOf(r.message.result)
	for ok && members.next() {
		if members.is("supportedVersions") {
			return holdsString(members.value, modernVersion), nil
		}
	}
	return false, nil
}

// handshake opens a session. Nobody but this client uses it, and calls alone never renew it.
func (c *Client) handshake(ctx context.Context) (*peer, error) {
	r := c.ask(ctx, &peer{}, "initialize",
		`"protocolVersion":"`+handshakeVersion+`","capabilities":{},"clientInfo":`+clientInfo)
	defer c.release(r)
	switch {
	case !r.sent:
		return nil, notSent(r)
	case r.fault == answered && r.message.fail != nil && r.message.code == codeUnknownMethod:
		// Calls need no handshake here.
		return &peer{version: handshakeVersion}, nil
	case r.fault != answered || r.message.result == nil:
		return nil, unanswered("initialize", r)
	}
	version, err := negotiated(r.message.result)
	if err != nil {
		return nil, err
	}
	p := &peer{version: version, session: r.session}
	if !validHeaderValue(p.session) {
		return nil, &probeError{what: "the session id cannot be sent back"}
	}
	note := c.post(ctx, request{header: c.header(p, ""), body: plainBody(false, 0, "notifications/initialized", "")})
	defer c.release(note)
	if !note.sent || note.status == 0 {
		return nil, unanswered("notifications/initialized", note)
	}
	return p, nil
}

// negotiated reads the version a server chose. One that names none does not mind.
func negotiated(result []byte) (string, error) {
	members, ok := objectOf(result)
	for ok && members.next() {
		if !members.is("protocolVersion") {
			continue
		}
		switch version := plainString(members.value); version {
		case "2025-11-25", "2025-06-18", "2025-03-26":
			return version, nil
		}
		return "", &probeError{refused: true, what: "the server speaks no protocol version of ours"}
	}
	return handshakeVersion, nil
}

// ask posts a request that acts on nothing.
func (c *Client) ask(ctx context.Context, p *peer, method, members string) reply {
	id := c.lastID.Add(1)
	return c.post(ctx, request{
		header: c.header(p, method),
		body:   plainBody(p.modern, id, method, members),
		id:     id,
		limit:  listingBytes,
	})
}

func notSent(r reply) error {
	return &probeError{what: "cannot be reached: " + transportNote(r.err)}
}

// unanswered turns a failed probe into the reason of the call that needed it: refused, where the
// server refuses such requests, unreachable else. Nothing of the call itself was sent.
func unanswered(method string, r reply) error {
	switch {
	case r.fault == answered:
		return &probeError{refused: true, what: fmt.Sprintf("%s was refused with JSON-RPC error %d", method, r.message.code)}
	case r.status != 0:
		return &probeError{refused: refusalStatus(r.status), what: fmt.Sprintf("%s was answered with HTTP %d", method, r.status)}
	}
	return &probeError{what: method + " was not answered"}
}

func unprobed(err error) Answer {
	var e *probeError
	if errors.As(err, &e) && e.refused {
		return failed(receipts.ReasonUpstreamRejected, "not sent: "+err.Error())
	}
	return failed(receipts.ReasonUpstreamUnreachable, "not sent: "+err.Error())
}

// lost reports whether an answer says that the server no longer knows us, or is another one: then the
// next call probes again. This one is over.
func (p *peer) lost(r reply) bool {
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

// forget drops the peer, unless another has taken its place already.
func (c *Client) forget(p *peer) { c.current.CompareAndSwap(p, nil) }

// endSession is a courtesy to the server; its answer does not matter.
func (c *Client) endSession(p *peer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.url.String(), http.NoBody)
	if err != nil {
		return
	}
	request.Header = c.header(p, "")
	if response, err := c.transport.RoundTrip(request); err == nil {
		_ = response.Body.Close()
	}
}
