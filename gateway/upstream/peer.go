package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"counterfoil/receipts"
)

// peer is what is known of the server: the way to it, its protocol era and, in the handshake era, the
// session we hold. It is never changed; a lost one is replaced.
type peer struct {
	line    line
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
	if p := c.known(); p != nil {
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

// known is the server, while the way to it is open.
func (c *Client) known() *peer {
	if p := c.current.Load(); p != nil && p.line.alive() {
		return p
	}
	return nil
}

// join returns the server if another has found it meanwhile, or the probe under way, or starts one.
func (c *Client) join() (*peer, *probe, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil, nil, &probeError{what: "closed"}
	}
	if p := c.known(); p != nil {
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
	ctx, cancel := context.WithTimeout(c.life, c.probeTime)
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

// connect opens a way to the server and agrees on how to talk; where they do not agree, it gives the way up.
func (c *Client) connect(ctx context.Context) (*peer, error) {
	known := c.legacy.Swap(false)
	l, err := c.carrier.dial(ctx)
	if err != nil {
		return nil, err
	}
	if known {
		// It was in the handshake era, and keeps to it until it refuses a handshake.
		if p, err := c.handshake(ctx, l); err == nil {
			return p, nil
		}
		if l, err = c.carrier.dial(ctx); err != nil {
			return nil, err
		}
	}
	p, err := c.ask(ctx, l)
	if err != nil {
		c.carrier.drop()
	}
	return p, err
}

// ask asks by server/discover first: a handshake server refuses it, and nothing acts on it.
func (c *Client) ask(ctx context.Context, l line) (*peer, error) {
	era, err := c.discover(ctx, l)
	switch {
	case era == eraModern:
		return c.meet(ctx, l)
	case !l.alive():
		// There are processes that do not survive what they do not know.
		if l, err = c.carrier.dial(ctx); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	p, err := c.handshake(ctx, l)
	if !errors.Is(err, errNoHandshake) {
		return p, err
	}
	if era == eraSilent {
		// It was silent, and now it answers: it may only have been slow to start.
		if era, err = c.discover(ctx, l); err == nil && era == eraModern {
			return c.meet(ctx, l)
		}
	}
	return &peer{line: l, version: handshakeVersion}, nil // calls need no handshake here
}

// meet gets to know a modern server, whose tools say what their calls repeat in headers.
func (c *Client) meet(ctx context.Context, l line) (*peer, error) {
	p := &peer{line: l, modern: true, version: modernVersion}
	tools, err := c.list(ctx, p)
	var refusal *probeError
	if err != nil && !(errors.As(err, &refusal) && refusal.refused) {
		return nil, fmt.Errorf("list tools: %w", err)
	}
	p.mirrors = mirrorsOf(tools)
	return p, nil
}

// era is what a server's answer to server/discover says of it.
type era int

const (
	eraSilent    era = iota // it said nothing
	eraModern               // it serves our modern version
	eraHandshake            // it said something else
)

// discover asks a server which era it is of. Only where it cannot be asked is there an error: a server that
// cannot answer this may still answer the handshake.
func (c *Client) discover(ctx context.Context, l line) (era, error) {
	brief, cancel := context.WithTimeout(ctx, c.discoverTime)
	defer cancel()
	r := c.send(brief, &peer{line: l, modern: true, version: modernVersion}, methodDiscover, "")
	defer c.memories.release(r)
	switch {
	case !r.sent:
		return eraSilent, notSent(r)
	case r.fault == silent && r.status == 0:
		return eraSilent, nil
	case r.fault != answered || r.message.result == nil:
		return eraHandshake, nil
	}
	members, ok := objectOf(r.message.result)
	for ok && members.next() {
		if members.is("supportedVersions") && holdsString(members.value, modernVersion) {
			return eraModern, nil
		}
	}
	return eraHandshake, nil
}

// errNoHandshake says that a server answers, and knows no handshake.
var errNoHandshake = errors.New("the server knows no handshake")

// handshake opens a session. Nobody but this client uses it, and calls alone never renew it.
func (c *Client) handshake(ctx context.Context, l line) (*peer, error) {
	r := c.send(ctx, &peer{line: l}, methodInitialize,
		`"protocolVersion":"`+handshakeVersion+`","capabilities":{},"clientInfo":`+clientInfo)
	defer c.memories.release(r)
	switch {
	case !r.sent:
		return nil, notSent(r)
	case r.fault == answered && r.message.fail != nil && r.message.code == codeUnknownMethod:
		return nil, errNoHandshake
	case r.fault != answered || r.message.result == nil:
		return nil, unanswered(methodInitialize, r)
	}
	version, err := c.negotiated(r.message.result)
	if err != nil {
		return nil, err
	}
	p := &peer{line: l, version: version, session: r.session}
	if !validHeaderValue(p.session) {
		return nil, &probeError{what: "the session id cannot be sent back"}
	}
	note := l.post(ctx, request{peer: p, method: methodInitialized, body: plainBody(false, 0, methodInitialized, "")})
	defer c.memories.release(note)
	if note.fault != answered {
		return nil, unanswered(methodInitialized, note)
	}
	return p, nil
}

// negotiated reads the version a server chose. One that names none does not mind.
func (c *Client) negotiated(result []byte) (string, error) {
	members, ok := objectOf(result)
	for ok && members.next() {
		if !members.is("protocolVersion") {
			continue
		}
		if version := plainString(members.value); slices.Contains(c.versions, version) {
			return version, nil
		}
		return "", &probeError{refused: true, what: "the server speaks no protocol version of ours"}
	}
	return handshakeVersion, nil
}

// send sends a request that acts on nothing.
func (c *Client) send(ctx context.Context, p *peer, method, members string) reply {
	id := c.lastID.Add(1)
	return p.line.post(ctx, request{
		peer: p, method: method, body: plainBody(p.modern, id, method, members), id: id, limit: listingBytes,
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

// forget drops the peer, unless another has taken its place already.
func (c *Client) forget(p *peer) { c.current.CompareAndSwap(p, nil) }
