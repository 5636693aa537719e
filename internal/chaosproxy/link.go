package chaosproxy

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// link is one connection of a client. up and what it calls run in one goroutine, down in another.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	in             *bufio.Reader     // of client
	statements     map[string]string // prepared statement → its text
	answered       chan struct{}     // one for each ReadyForQuery that did not reach the client at once
	ended          chan struct{}     // closed when the server's side has ended
	watching       chan struct{}     // closed when the client's next byte is there; nil while nobody looks
	gone           bool              // what the watcher saw; behind watching

	mu   sync.Mutex
	mode mode
	held []message // answers that wait for letGo
}

// mode is what becomes of the server's answers.
type mode int

const (
	pass mode = iota
	swallow
	hold
)

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (l *link) setMode(m mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = m
}

// up forwards the client's messages one by one, looking for a statement that is to be struck.
func (l *link) up() {
	defer l.close()
	if !l.startup() {
		return
	}
	for {
		m, err := l.next()
		if err != nil {
			return
		}
		if s, release, yes := l.look(m); yes {
			if !l.suffer(s, release, m) {
				return
			}
			continue
		}
		if m.last() && !l.lag() {
			return
		}
		if !m.write(l.server) {
			return
		}
	}
}

// lag waits as long as a round trip is delayed; false where the server's side ends first.
func (l *link) lag() bool {
	d := l.proxy.delay()
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ended:
		return false
	}
}

// startup forwards the first message, which has no type.
func (l *link) startup() bool {
	var size [4]byte
	if _, err := io.ReadFull(l.in, size[:]); err != nil {
		return false
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:])-4)
	if _, err := io.ReadFull(l.in, body); err != nil {
		return false
	}
	_, err := l.server.Write(append(size[:], body...))
	return err == nil
}

// look remembers the texts of statements, and asks about those that are executed.
func (l *link) look(m message) (strike Strike, release <-chan struct{}, yes bool) {
	switch m.head {
	case 'P': // Parse: statement name, text
		name, rest, _ := strings.Cut(string(m.body), "\x00")
		text, _, _ := strings.Cut(rest, "\x00")
		l.statements[name] = text
	case 'B': // Bind: portal, statement name
		_, rest, _ := strings.Cut(string(m.body), "\x00")
		name, _, _ := strings.Cut(rest, "\x00")
		return l.proxy.strikes(l.statements[name])
	case query:
		return l.proxy.strikes(string(m.body))
	}
	return Strike{}, nil, false
}

// down forwards the server's messages, or keeps them from the client.
func (l *link) down() {
	defer l.close()
	defer close(l.answered)
	defer close(l.ended)
	for {
		m, err := readMessage(l.server)
		if err != nil {
			return
		}
		passed, ok := l.answer(m)
		if !ok {
			return
		}
		if !passed && m.head == ready {
			l.answered <- struct{}{}
		}
	}
}

func (l *link) answer(m message) (passed, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.mode {
	case pass:
		return true, m.write(l.client)
	case hold:
		l.held = append(l.held, m)
	case swallow:
	}
	return false, true
}

// letGo gives the client the answers that were held back, and from now on all others.
func (l *link) letGo() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = pass
	for _, m := range l.held {
		if !m.write(l.client) {
			return false
		}
	}
	l.held = nil
	return true
}
