// Package chaosproxy makes a PostgreSQL connection fail at one chosen statement, on the wire, so that the
// program under test needs no hook: the statement was executed and its answer lost, or it never arrived, or
// it arrives when nobody waits for it any more.
//
// A pipeline is sent as one: a fault "before" its third statement leaves the first two to the server, which
// may have executed them and, as it never gets the end of the pipeline, has committed nothing.
//
// It is for tests only.
package chaosproxy

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Strike is one fault at one statement. It strikes once.
type Strike struct {
	Match string        // a part of the statement's text: sql.Query(name) is exact
	Skip  int           // how many such statements pass before
	Fault Fault         // what happens
	Hold  time.Duration // of Held and AnswerHeld: how long; 0: until Release
}

// Proxy stands between a client and a real server.
type Proxy struct {
	listener net.Listener
	network  string
	address  string

	mu      sync.Mutex
	armed   []Strike
	struck  int
	release chan struct{}
	latency time.Duration
	down    bool
	links   map[*link]bool

	open sync.WaitGroup
}

// Start puts a proxy in front of the server of url and returns it with the URL to use instead.
func Start(t testing.TB, target string) (*Proxy, string) {
	t.Helper()
	config, err := pgx.ParseConfig(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{links: make(map[*link]bool), release: make(chan struct{})}
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
		p.Down()
		p.open.Wait()
	})
	front := &url.URL{Scheme: "postgres", Host: p.listener.Addr().String(), Path: "/" + config.Database, RawQuery: "sslmode=disable"}
	front.User = url.UserPassword(config.User, config.Password)
	return p, front.String()
}

// Arm adds strikes. Each waits for its own statement; a pipeline suffers one fault, and what follows in it
// counts for no other.
func (p *Proxy) Arm(strikes ...Strike) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, strikes...)
}

// Disarm takes back what has not struck yet.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
}

// Struck is how many faults have struck.
func (p *Proxy) Struck() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.struck
}

// Release lets go on what is held back now.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.release)
	p.release = make(chan struct{})
}

// Delay makes every round trip of every connection this much longer.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latency
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

// strikes decides about a statement that is about to be executed, and says what ends the wait of one that
// is held.
func (p *Proxy) strikes(text string) (strike Strike, release <-chan struct{}, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.armed {
		if !strings.Contains(text, p.armed[i].Match) {
			continue
		}
		if p.armed[i].Skip > 0 {
			p.armed[i].Skip--
			continue
		}
		strike = p.armed[i]
		p.armed = slices.Delete(p.armed, i, i+1)
		p.struck++
		return strike, p.release, true
	}
	return Strike{}, nil, false
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		var dialer net.Dialer
		server, err := dialer.DialContext(context.Background(), p.network, p.address)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{
			proxy: p, client: client, in: bufio.NewReader(client), server: server,
			statements: make(map[string]string), answered: make(chan struct{}, 64), ended: make(chan struct{}),
		}
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
