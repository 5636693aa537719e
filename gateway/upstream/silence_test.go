package upstream_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// serve gives each connection, numbered from 1, to do, and closes it after.
func serve(t *testing.T, listener net.Listener, do func(c net.Conn, n int)) {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() {
		for n := 1; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				do(conn, n)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
}

// known answers what a modern server is asked by a first listing, and then wants no more of the connection.
func known(c net.Conn) {
	reader := bufio.NewReader(c)
	for _, answer := range []string{
		`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`, `{"tools":[]}`, `{"tools":[]}`,
	} {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		var m struct{ ID json.RawMessage }
		if json.NewDecoder(request.Body).Decode(&m) != nil || !result(c, string(m.ID), answer) {
			return
		}
	}
}

// Somebody who takes no connection: nothing was sent, however long it was waited.
func TestConnectIntoABlackHole(t *testing.T) {
	t.Parallel()
	listener := narrow(t)
	var first sync.WaitGroup
	first.Go(func() {
		if conn, err := listener.Accept(); err == nil {
			known(conn)
			_ = conn.Close()
		}
	})
	address := listener.Addr().String()
	c := client(t, upstream.Config{URL: "http://" + address})
	if _, err := c.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Wait()
	until(t, "the queue of connections is full", func() bool {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
		return err != nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if a := c.Call(ctx, pay()); a.Outcome != receipts.Failed || a.Reason != receipts.ReasonUpstreamUnreachable || ctx.Err() == nil {
		t.Errorf("%s/%s (%s), its time had ended: %v", a.Outcome, a.Reason, a.Note, ctx.Err())
	}
}

// narrow is a listener that lets hardly anybody wait.
func narrow(t *testing.T) net.Listener {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "narrow")
	defer file.Close()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	listener, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// A TLS handshake that stalls: a connection, but nothing of the request on it.
func TestTLSHandshakeStalls(t *testing.T) {
	t.Parallel()
	certificate, pool := selfSigned(t)
	listener := listen(t)
	stalled := make(chan struct{}, 8)
	serve(t, listener, func(c net.Conn, n int) {
		if n == 1 {
			known(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}}))
			return
		}
		stalled <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})
	c := client(t, upstream.Config{URL: "https://" + listener.Addr().String()})
	upstream.Trust(c, pool)
	if _, err := c.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-stalled
		cancel()
	}()
	if a := c.Call(ctx, pay()); a.Outcome != receipts.Failed || a.Reason != receipts.ReasonUpstreamUnreachable {
		t.Errorf("%s/%s (%s)", a.Outcome, a.Reason, a.Note)
	}
}

// selfSigned borrows the certificate of httptest.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return server.TLS.Certificates[0], pool
}
