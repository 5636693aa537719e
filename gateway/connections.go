package gateway

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"time"
)

// writeChunk is what a client must take within one write timeout.
const writeChunk = 64 << 10 // bytes

// connections is a listener that has at most so many connections open. When all
// places are taken, an idle connection makes room for the next one; where none
// is idle, the next one waits. Each write to a connection has a deadline of its
// own: a client that takes nothing loses the connection, however long the answer
// before that took.
type connections struct {
	net.Listener
	places chan struct{}
	write  time.Duration
	now    func() time.Time

	closing  sync.Once
	closed   chan struct{}
	closeErr error

	mu     sync.Mutex
	idle   list.List // of *connection, the longest idle first
	wanted bool      // a new connection waits for a place
}

func newConnections(l net.Listener, most int, write time.Duration, now func() time.Time) *connections {
	return &connections{Listener: l, places: make(chan struct{}, most), write: write, now: now, closed: make(chan struct{})}
}

func (l *connections) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.places <- struct{}{}:
		return &connection{Conn: conn, owner: l}, nil
	default:
	}
	l.want(true)
	defer l.want(false)
	select {
	case l.places <- struct{}{}:
		return &connection{Conn: conn, owner: l}, nil
	case <-l.closed:
		_ = conn.Close()
		return nil, net.ErrClosed
	}
}

// Close takes no more connections. It may be called again.
func (l *connections) Close() error {
	l.closing.Do(func() {
		close(l.closed)
		l.closeErr = l.Listener.Close()
	})
	return l.closeErr
}

// want begins or ends the wait for a place, to which the longest idle gives way.
func (l *connections) want(wanted bool) {
	l.mu.Lock()
	var longest *connection
	if front := l.idle.Front(); wanted && front != nil {
		longest, _ = l.idle.Remove(front).(*connection)
		longest.waiting = nil
	}
	l.wanted = wanted && longest == nil
	l.mu.Unlock()
	if longest != nil {
		_ = longest.Close()
	}
}

// follow is told by the server what becomes of each connection.
func (l *connections) follow(conn net.Conn, state http.ConnState) {
	c, ours := conn.(*connection)
	if !ours {
		return
	}
	l.mu.Lock()
	if c.waiting != nil {
		l.idle.Remove(c.waiting)
		c.waiting = nil
	}
	unwelcome := state == http.StateIdle && l.wanted
	if unwelcome {
		l.wanted = false // one makes room for one
	} else if state == http.StateIdle {
		c.waiting = l.idle.PushBack(c)
	}
	l.mu.Unlock()
	if unwelcome {
		_ = c.Close()
	}
}

// connection holds one place until it is closed.
type connection struct {
	net.Conn
	owner   *connections
	waiting *list.Element // in owner.idle; guarded by owner.mu
	closing sync.Once
}

func (c *connection) Write(b []byte) (int, error) {
	written := 0
	for {
		chunk := b[written:min(len(b), written+writeChunk)]
		if err := c.SetWriteDeadline(c.owner.now().Add(c.owner.write)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(chunk)
		written += n
		if err != nil || written == len(b) {
			return written, err
		}
	}
}

// CloseWrite lets the server say that it has said all, before it breaks off a
// body that it did not want.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c *connection) Close() error {
	err := c.Conn.Close()
	c.closing.Do(func() { <-c.owner.places })
	return err
}
