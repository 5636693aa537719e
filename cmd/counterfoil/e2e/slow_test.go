package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/testdb"
)

// dial opens a connection of a client that takes in little.
func dial(t *testing.T, url string) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		}), err)
	}}
	conn, err := d.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// drip sends the beginning of a request, and then its rest, a byte every tick for as long as the gateway takes it.
func drip(ctx context.Context, conn net.Conn, begin, rest string) {
	if _, err := io.WriteString(conn, begin); err != nil {
		return
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := conn.Write([]byte{rest[i%len(rest)]}); err != nil {
			return
		}
	}
}

// gorge asks and asks, and takes no answer.
func gorge(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	many := strings.Repeat("GET /.well-known/jwks.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 500)
	for {
		if _, err := io.WriteString(conn, many); err != nil {
			return
		}
	}
}

// TestSlowClients: who sends its head, or its body, byte by byte, or never reads, loses its connection, and keeps
// nobody else from theirs.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), "limits: {timeouts: {header: 3s, body: 3s, write: 3s}}")
	x := s.newTenant(t, 1000, anything())
	x.succeed(t, x.payout("invoice-0"))
	before := s.rest(t, s.url)
	ctx, cancel := context.WithCancel(context.Background())
	var slow sync.WaitGroup
	defer slow.Wait()
	defer cancel()

	const post = "POST /mcp/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n"
	total := 0
	for _, c := range []struct {
		clients     int
		begin, rest string
	}{
		{100, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "a"},
		{100, post + "X-API-Key: " + x.key + "\r\n\r\n{", " "},
		{50, post + "X-API-Key: cf_unknown\r\n\r\n{", " "},
		{50, post + "\r\n{", " "},
		{50, strings.Replace(post, "/mcp/messages", "/nowhere", 1) + "\r\n{", " "},
		{10, "", ""},
	} {
		for range c.clients {
			total++
			conn := dial(t, s.url)
			slow.Go(func() {
				if c.rest == "" {
					gorge(ctx, conn)
					return
				}
				drip(ctx, conn, c.begin, c.rest)
			})
		}
	}
	eventually(t, "the slow clients", func() bool {
		v, ok := s.vitals(s.url)
		return ok && v.files >= before.files+float64(total)/2
	})
	var longest time.Duration
	for i := range 20 {
		began := time.Now()
		x.succeed(t, x.payout(fmt.Sprintf("invoice-%d", i+1)))
		longest = max(longest, time.Since(began))
	}
	t.Logf("beside %d slow clients a call took %v at most", total, longest)
	s.restored(t, s.url, before) // while the clients hold on
}

// TestAllConnectionsTaken: clients that do nothing with their connections give way, and those that are slow with
// their requests are waited for no longer than they may take.
func TestAllConnectionsTaken(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	_, url := s.limited(t, "", "{connections: 20, timeouts: {header: 1s, idle: 1h}}")
	x := s.newTenant(t, 1000, anything())
	x.succeed(t, x.payout("invoice-0"))
	// Each of these has been answered, and does nothing any more.
	for range 40 {
		conn := dial(t, url)
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 12)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 200" {
			t.Fatalf("%q %v", answer, err)
		}
	}
	if a, err := x.try(url, x.payout("invoice-1")); err != nil || a.meta.Outcome != "succeeded" {
		t.Fatalf("beside idle connections: %v %s", err, a)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var slow sync.WaitGroup
	defer slow.Wait()
	defer cancel()
	for range 60 {
		conn := dial(t, url)
		slow.Go(func() { drip(ctx, conn, "GET /healthz HTTP/1.1\r\nX-Slow: ", "a") })
	}
	// The sixty have a second each, twenty at a time.
	fresh := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := fresh.Get(url + "/healthz")
	if err != nil {
		t.Fatalf("beside slow clients: %v", err)
	}
	_ = resp.Body.Close()
}
