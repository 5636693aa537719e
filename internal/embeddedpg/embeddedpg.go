// Package embeddedpg runs a private PostgreSQL server as a child process: the server never outlives
// this process, never shares its directory, and no cluster is ever deleted or converted.
//
// It serves `database.embedded`, the demo and the tests. It is never a silent fall-back for a missing
// database.url, and it downloads nothing: the server's programs must be installed.
package embeddedpg

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
)

// Each refusal of Start wraps one of these; the message around it says what to do.
var (
	// ErrUnsupported means that this operating system has no embedded server.
	ErrUnsupported = errors.New("no embedded PostgreSQL on this system: set database.url")
	// ErrNotFound means that no usable PostgreSQL is installed.
	ErrNotFound = errors.New("no PostgreSQL found")
	// ErrInUse means that another process owns the directory.
	ErrInUse = errors.New("is in use")
	// ErrVersion means that no installed PostgreSQL fits the cluster that is there.
	ErrVersion = errors.New("was written by")
	// ErrUnreachable means that the database's user cannot enter a directory.
	ErrUnreachable = errors.New("is not reachable")
	// ErrNoAccount means that the database's user is not in the passwd database.
	ErrNoAccount = errors.New("has no passwd entry")
	// ErrNotRunning means that no process serves the directory.
	ErrNotRunning = errors.New("is not running")
	// ErrDamaged means that the directory holds something that is not a complete cluster of ours.
	ErrDamaged = errors.New("is not a complete cluster")
)

// rootDir is where a gateway started as root keeps its cluster: a directory below /root could not be
// entered by the database's user.
const rootDir = "/var/lib/counterfoil"

// Options say where the server lives.
type Options struct {
	// Dir holds the lock, the cluster and its password. It is made when it is missing.
	Dir string
	// BinDir holds postgres and initdb. Empty means the newest installed one that fits the data.
	BinDir string
	// Logger takes one line when the server is up, and the server's own log at debug level.
	Logger *slog.Logger
	// Settings override the server's settings on its command line. They are for tests: turning off
	// fsync gives up every promise about crashes.
	Settings map[string]string
}

func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}

// DefaultDir returns a directory that the database's user can reach: of the system when this process
// is root, because the server then runs as another user, and of the calling user otherwise.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return rootDir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "counterfoil"), nil
	}
	return filepath.Join(home, ".local", "share", "counterfoil"), nil
}
