//go:build unix && !linux && !aix && !solaris

package embeddedpg

import "syscall"

// hasDeathSignal says that the kernel signals a child when its parent dies; here a watchdog does.
const hasDeathSignal = false

func deathAttr(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
