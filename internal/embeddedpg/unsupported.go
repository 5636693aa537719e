//go:build !unix || aix || solaris

package embeddedpg

import "context"

// Server is a running private server; this system has none.
type Server struct{}

// Start refuses: this system has no embedded server.
func Start(context.Context, Options) (*Server, error) { return nil, ErrUnsupported }

// Find refuses: this system has no embedded server.
func Find(context.Context, Options) (binDir, version string, err error) {
	return "", "", ErrUnsupported
}

// Running refuses: this system has no embedded server.
func Running(string) (string, error) { return "", ErrUnsupported }

// URL is empty.
func (*Server) URL() string { return "" }

// Dir is empty.
func (*Server) Dir() string { return "" }

// BinDir is empty.
func (*Server) BinDir() string { return "" }

// Version is empty.
func (*Server) Version() string { return "" }

// PID is zero.
func (*Server) PID() int { return 0 }

// Done is never closed.
func (*Server) Done() <-chan struct{} { return nil }

// Err is nil.
func (*Server) Err() error { return nil }

// Stop does nothing.
func (*Server) Stop() error { return nil }
