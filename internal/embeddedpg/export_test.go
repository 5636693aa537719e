//go:build unix && !aix && !solaris

package embeddedpg

import (
	"context"
	"syscall"
	"time"
)

// What the tests look at from outside; see the functions themselves.

// Watch is the watchdog of systems without a parent-death signal.
func Watch(pid int, death syscall.Signal) (func(), error) { return watch(pid, death) }

// Escalate is the order in which a postmaster is stopped.
func Escalate(signal func(syscall.Signal) error, gone func(time.Duration) bool) (syscall.Signal, bool) {
	return escalate(signal, gone)
}

// Reach checks that a user may enter a directory.
func Reach(name string, uid, gid int, dir string) error {
	return account{name: name, uid: uid, gid: gid, drop: true}.reach(dir, ". Use "+rootDir)
}

// Known checks that a uid has a passwd entry.
func Known(uid int) error { return account{uid: uid}.known() }

// Choose picks among installations, written as directory and version.
func Choose(ctx context.Context, major int, places ...string) (string, error) {
	var found []binaries
	for _, place := range places {
		if bin, ok := inspect(ctx, place); ok {
			found = append(found, bin)
		}
	}
	bin, err := choose(found, major, "/d", places)
	return bin.dir, err
}
