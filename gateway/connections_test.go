package gateway_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"counterfoil/gateway"
)

const patience = 30 * time.Second

// serveOn serves with at most so many connections until the test ends. idle tells of each that becomes idle.
func serveOn(t *testing.T, most int, write time.Duration, h http.HandlerFunc) (address string, idle <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded, srv := gateway.NewConnections(l, most, write, h)
	became := make(chan struct{}, 100)
	follow := srv.ConnState
	srv.ConnState = func(conn net.Conn, state http.ConnState) {
		follow(conn, state)
		if state == http.StateIdle {
			became <- struct{}{}
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(bounded) }()
	t.Cleanup(func() {
		_ = srv.Close()
		select {
		case err := <-ended:
			if !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("the server ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the server does not end")
		}
	})
	return l.Addr().String(), became
}

// peer is a client on one connection.
type peer struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, address string) peer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return peer{conn, bufio.NewReader(conn)}
}

// ask sends a request and wants its answer; what is not answered in time is os.ErrDeadlineExceeded.
func (p peer) ask(wait time.Duration) error {
	if _, err := io.WriteString(p, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	return p.answered(wait)
}

func (p peer) answered(wait time.Duration) error {
	_ = p.SetReadDeadline(time.Now().Add(wait))
	resp, err := http.ReadResponse(p.lines, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

func nothing(http.ResponseWriter, *http.Request) {}

func TestTheLongestIdleConnectionGivesWay(t *testing.T) {
	t.Parallel()
	address, idle := serveOn(t, 2, time.Second, nothing)
	first, second := dial(t, address), dial(t, address)
	for _, p := range []peer{first, second} {
		if err := p.ask(patience); err != nil {
			t.Fatal(err)
		}
		<-idle
	}
	if err := dial(t, address).ask(patience); err != nil {
		t.Fatalf("a third connection: %v", err)
	}
	if err := second.ask(patience); err != nil {
		t.Errorf("the one that was not the longest idle: %v", err)
	}
	if err := first.ask(patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the longest idle one is still open: %v", err)
	}
}

func TestAConnectionWaitsWhileNoneIsIdle(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	entered := make(chan struct{}, 3)
	address, _ := serveOn(t, 1, time.Second, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	})
	busy := dial(t, address)
	_, _ = io.WriteString(busy, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	<-entered
	waiting := dial(t, address)
	if err := waiting.ask(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a second connection beside a busy one: %v", err)
	}
	close(release)
	// The first one is answered, and gives way as it becomes idle.
	if err := busy.answered(patience); err != nil {
		t.Errorf("the busy one: %v", err)
	}
	if err := waiting.answered(patience); err != nil {
		t.Errorf("the one that waited: %v", err)
	}
}

func TestAServerEndsWhileAConnectionWaits(t *testing.T) {
	t.Parallel()
	block, entered := make(chan struct{}), make(chan struct{}, 1)
	address, _ := serveOn(t, 1, time.Second, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-block
	})
	t.Cleanup(func() { close(block) }) // before the server is closed
	busy := dial(t, address)
	_, _ = io.WriteString(busy, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	<-entered
	if err := dial(t, address).ask(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a second connection beside a busy one: %v", err)
	}
}

// shrunk keeps so much of an answer on its way at most, so that a client that does not read is felt soon.
func shrunk(t *testing.T, address string, buffer int) peer {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffer)
		}), err)
	}}
	conn, err := d.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return peer{conn, bufio.NewReader(conn)}
}

func TestAClientThatNeverReadsLosesItsConnection(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	address, _ := serveOn(t, 1, 300*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		failed <- err
	})
	_, _ = io.WriteString(shrunk(t, address, 4096), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case err := <-failed:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the write ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the answer hangs on a client that does not read")
	}
}

// The deadline is each chunk's and not the answer's: who reads slowly, but reads, gets everything.
func TestASlowReaderGetsItsWholeAnswer(t *testing.T) {
	t.Parallel()
	const size, sip = 16 << 20, 256 << 10
	write := 2 * time.Second
	address, _ := serveOn(t, 1, write, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	p := shrunk(t, address, 64<<10)
	began := time.Now()
	_, _ = io.WriteString(p, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	total := int64(0)
	for {
		n, err := io.CopyN(io.Discard, p, sip)
		total += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after %d bytes and %v: %v", total, time.Since(began), err)
		}
		<-tick.C
	}
	if total < size || time.Since(began) < write {
		t.Errorf("%d bytes of %d in %v: this reader was not slow", total, size, time.Since(began))
	}
}
