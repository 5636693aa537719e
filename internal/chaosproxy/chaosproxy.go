// Package chaosproxy makes a PostgreSQL connection fail at one chosen statement, on the wire, so that the
// program under test needs no hook: the statement was executed and its answer lost, or it never arrived.
//
// It is for tests only.
package chaosproxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Fault is what happens to the chosen statement.
type Fault int

// The two halves of "the answer never came".
const (
	NotExecuted Fault = iota // cut before the server got it
	AnswerLost               // cut after the server has executed it
)

// Proxy stands between a client and a real server.
type Proxy struct {
	listener net.Listener
	network  string
	address  string

	mu    sync.Mutex
	match string // a part of the statement's text; "" while nothing is armed
	skip  int
	fault Fault
	cuts  int
	down  bool
	links map[*link]bool

	open sync.WaitGroup
}

// Start puts a proxy in front of the server of url and returns it with the URL to use instead.
func Start(t testing.TB, target string) (*Proxy, string) {
	t.Helper()
	config, err := pgx.ParseConfig(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{links: make(map[*link]bool)}
	p.network, p.address = "tcp", net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
	if strings.HasPrefix(config.Host, "/") {
		p.network, p.address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port)
	}
	var listen net.ListenConfig
	if p.listener, err = listen.Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.open.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.open.Wait()
	})
	front := &url.URL{Scheme: "postgres", Host: p.listener.Addr().String(), Path: "/" + config.Database, RawQuery: "sslmode=disable"}
	front.User = url.UserPassword(config.User, config.Password)
	return p, front.String()
}

// Arm lets the fault strike the next statement whose text contains match, after skip such statements have
// passed. It strikes once.
func (p *Proxy) Arm(match string, skip int, fault Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.match, p.skip, p.fault = match, skip, fault
}

// Down breaks every connection and takes no new one, until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for l := range p.links {
		l.close()
	}
}

// Up takes connections again.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// enter registers a connection; false while the proxy is down.
func (p *Proxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.down {
		p.links[l] = true
	}
	return !p.down
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// Cuts is how many faults have struck.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// strikes decides about a statement that is about to be executed.
func (p *Proxy) strikes(text string) (Fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.match == "" || !strings.Contains(text, p.match) {
		return 0, false
	}
	if p.skip > 0 {
		p.skip--
		return 0, false
	}
	p.match = ""
	p.cuts++
	return p.fault, true
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.address) //nolint:noctx // ends with the listener
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{proxy: p, client: client, server: server, statements: make(map[string]string), answered: make(chan struct{}, 64)}
		if !p.enter(l) {
			l.close()
			continue
		}
		p.open.Go(l.down)
		p.open.Go(func() {
			l.up()
			p.leave(l)
		})
	}
}

// link is one connection of a client.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	statements     map[string]string // prepared statement → its text
	answered       chan struct{}     // one for each ReadyForQuery that was held back
	mu             sync.Mutex
	mute           bool // the server's answers no longer reach the client
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// up forwards the client's messages one by one, looking for the chosen statement.
func (l *link) up() {
	defer l.close()
	if !l.startup() {
		return
	}
	for {
		head, body, err := readMessage(l.client)
		if err != nil {
			return
		}
		if fault, strikes := l.look(head, body); strikes {
			if fault == AnswerLost {
				l.execute(head, body)
			}
			return
		}
		if !writeMessage(l.server, head, body) {
			return
		}
	}
}

// execute sends the rest of the pipeline and waits until the server has answered it; nothing of the answer
// reaches the client.
func (l *link) execute(head byte, body []byte) {
	l.mu.Lock()
	l.mute = true
	l.mu.Unlock()
	for {
		if !writeMessage(l.server, head, body) {
			return
		}
		if head == 'S' || head == 'Q' {
			<-l.answered
			return
		}
		var err error
		if head, body, err = readMessage(l.client); err != nil {
			return
		}
	}
}

// startup forwards the first message, which has no type.
func (l *link) startup() bool {
	var size [4]byte
	if _, err := io.ReadFull(l.client, size[:]); err != nil {
		return false
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:])-4)
	if _, err := io.ReadFull(l.client, body); err != nil {
		return false
	}
	_, err := l.server.Write(append(size[:], body...))
	return err == nil
}

func (l *link) look(head byte, body []byte) (Fault, bool) {
	switch head {
	case 'P': // Parse: statement name, text
		name, rest, _ := strings.Cut(string(body), "\x00")
		text, _, _ := strings.Cut(rest, "\x00")
		l.statements[name] = text
	case 'B': // Bind: portal, statement name
		_, rest, _ := strings.Cut(string(body), "\x00")
		name, _, _ := strings.Cut(rest, "\x00")
		return l.proxy.strikes(l.statements[name])
	case 'Q':
		return l.proxy.strikes(string(body))
	}
	return 0, false
}

// down forwards the server's messages, or swallows them while the client must not see them.
func (l *link) down() {
	defer l.close()
	defer close(l.answered)
	for {
		head, body, err := readMessage(l.server)
		if err != nil {
			return
		}
		l.mu.Lock()
		mute := l.mute
		l.mu.Unlock()
		if !mute {
			if !writeMessage(l.client, head, body) {
				return
			}
			continue
		}
		if head == 'Z' {
			l.answered <- struct{}{}
		}
	}
}

func readMessage(from io.Reader) (head byte, body []byte, err error) {
	var prefix [5]byte
	if _, err := io.ReadFull(from, prefix[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(prefix[1:])-4)
	_, err = io.ReadFull(from, body)
	return prefix[0], body, err
}

func writeMessage(to io.Writer, head byte, body []byte) bool {
	message := make([]byte, 5, 5+len(body))
	message[0] = head
	binary.BigEndian.PutUint32(message[1:], uint32(len(body)+4))
	_, err := to.Write(append(message, body...))
	return err == nil
}
