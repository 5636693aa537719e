// Package testdb gives every test a fresh, migrated database of its own on a throw-away server that
// cannot outlive the test process.
package testdb

import (
	"os"
	"testing"

	"counterfoil/internal/embeddedpg"
)

// Main runs the tests, stops the server and exits.
func Main(m *testing.M) { os.Exit(Runner(m).Run()) }

// Runner is Main for callers that wrap it, such as goleak.VerifyTestMain.
func Runner(m *testing.M) interface{ Run() int } { return m }

// New returns the owner's URL of a fresh, migrated, empty database; it is dropped at cleanup.
func New(t testing.TB) string { t.Helper(); t.Fatal("not built yet"); return "" }

// NewDurable returns a server of the test's own with fsync on, migrated, for kill tests.
func NewDurable(t testing.TB) *embeddedpg.Server { t.Helper(); t.Fatal("not built yet"); return nil }

// Dir returns an empty directory that the database's user can reach, also when tests run as root
// (t.TempDir is not); it is removed at cleanup.
func Dir(t testing.TB) string { t.Helper(); return t.TempDir() }
