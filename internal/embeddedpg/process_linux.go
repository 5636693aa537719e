package embeddedpg

import "syscall"

// hasDeathSignal says that the kernel signals a child when its parent dies.
const hasDeathSignal = true

// deathAttr asks for the signal. Go sets it after the uid has changed, which would clear it.
func deathAttr(s syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: s} }
