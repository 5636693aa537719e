// Package embeddedpg runs a private PostgreSQL server as a child process: it never outlives this
// process, never shares its directory, and never deletes or converts data that it did not just make.
//
// It serves `database.embedded` and the demo. It is not a fall-back for a missing database.url, and it
// never downloads anything: the server's programs must be installed.
package embeddedpg

import (
	"context"
	"errors"
	"log/slog"
)

// ErrUnsupported means that this operating system has no embedded server.
var ErrUnsupported = errors.New("no embedded PostgreSQL on this system: set database.url")

// Options say where the server lives.
type Options struct {
	// Dir holds the lock, the cluster and its password. It is made when it is missing.
	Dir string
	// BinDir holds postgres and initdb. Empty means: the newest that is installed and fits the data.
	BinDir string
	Logger *slog.Logger
	// Settings override server settings on its command line; tests use them.
	Settings map[string]string
}

// Server is a running private server.
type Server struct{}

// Start starts the server of o.Dir.
func Start(_ context.Context, _ Options) (*Server, error) { return nil, ErrUnsupported }

// URL returns the owner's connection URL.
func (*Server) URL() string { return "" }

// Dir returns the server's directory.
func (*Server) Dir() string { return "" }

// PID returns the postmaster's process id.
func (*Server) PID() int { return 0 }

// Done is closed when the server has ended.
func (*Server) Done() <-chan struct{} { return nil }

// Err says why the server ended by itself.
func (*Server) Err() error { return nil }

// Stop ends the server.
func (*Server) Stop() error { return nil }

// Version returns the server's version.
func (*Server) Version() string { return "" }

// BinDir returns the directory of the server's programs.
func (*Server) BinDir() string { return "" }

// DefaultDir returns a directory that the database's user can reach.
func DefaultDir() (string, error) { return "", ErrUnsupported }
