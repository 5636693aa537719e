//go:build unix && !aix && !solaris

package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	stopStep  = 10 * time.Second // per signal, before the next harder one
	pollEvery = 15 * time.Millisecond
)

// child is a started process; err may be read after done.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// startChild starts cmd as the account, in a process group of its own so that a Ctrl-C does not reach
// it, and has it signalled when this process dies. The kernel ties that signal to the thread that
// started the child, not to the process: one goroutine locked to its thread starts it and waits.
func startChild(cmd *exec.Cmd, a account, death syscall.Signal) (*child, error) {
	cmd.SysProcAttr = deathAttr(death)
	cmd.SysProcAttr.Setpgid = true
	if a.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	// Grandchildren hold the log pipe; they follow the child, but not always at once.
	cmd.WaitDelay = 2 * time.Second
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		var disarm func()
		if err == nil && !hasDeathSignal {
			disarm, err = watch(cmd.Process.Pid, death)
		}
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		if disarm != nil {
			disarm()
		}
		close(c.done)
	}()
	return c, <-started
}

// watch has a shell signal pid when this process ends, for systems without a parent-death signal: the
// shell waits on a pipe whose other end closes with us, however we end.
func watch(pid int, death syscall.Signal) (disarm func(), err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	script := fmt.Sprintf("read line || kill -%d %d", int(death), pid)
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", script)
	cmd.Dir, cmd.Env, cmd.Stdin = "/", environment("/bin"), read
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	_ = read.Close()
	if err != nil {
		_ = write.Close()
		return nil, errors.Join(fmt.Errorf("start the watchdog: %w", err), syscall.Kill(pid, syscall.SIGKILL))
	}
	return func() {
		_, _ = io.WriteString(write, "ended\n")
		_ = write.Close()
		_ = cmd.Wait()
	}, nil
}

// escalate asks a postmaster to stop in three steps: disconnect clients and stop, stop without a
// checkpoint, die. It returns false when even that does not end it.
func escalate(signal func(syscall.Signal) error, gone func(within time.Duration) bool) (last syscall.Signal, ended bool) {
	for _, last = range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := signal(last); err != nil && gone(0) {
			return last, true
		}
		if gone(stopStep) {
			return last, true
		}
	}
	return last, false
}

// clearPostmaster deals with the postmaster.pid of an earlier run. The lock is ours, so a living
// postmaster of this cluster is an orphan and is stopped. A pid that now belongs to another program
// would make PostgreSQL refuse to start for ever: the file goes. A dead pid is left to PostgreSQL,
// which uses the rest of the file to find backends that still run.
func (c *cluster) clearPostmaster(ctx context.Context) error {
	file := filepath.Join(c.path(dataName), "postmaster.pid")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 1 {
		return os.Remove(file)
	}
	if c.isPostmaster(ctx, pid) {
		return c.stopOrphan(ctx, pid)
	}
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c *cluster) stopOrphan(ctx context.Context, pid int) error {
	c.logger().WarnContext(ctx, "stopping a PostgreSQL that an earlier run left behind", "pid", pid, "dir", c.Dir)
	_, ended := escalate(
		func(s syscall.Signal) error { return syscall.Kill(pid, s) },
		func(within time.Duration) bool {
			return poll(ctx, within, func() bool { return !c.isPostmaster(ctx, pid) })
		})
	if !ended {
		return fmt.Errorf("%s %w by PostgreSQL process %d, which does not stop", c.Dir, ErrInUse, pid)
	}
	return ctx.Err()
}

// isPostmaster tells from a process's arguments whether it serves our data. A pid alone proves
// nothing: it may have been given to another program since.
func (c *cluster) isPostmaster(ctx context.Context, pid int) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		args, err = exec.CommandContext(ctx, "ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	}
	return err == nil && strings.Contains(string(args), "postgres") && strings.Contains(string(args), c.path(dataName))
}

// poll waits until ok, at most for the given time or until ctx ends.
func poll(ctx context.Context, within time.Duration, ok func() bool) bool {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok() {
			return true
		}
		select {
		case <-ctx.Done():
			return ok()
		case <-deadline.C:
			return ok()
		case <-tick.C:
		}
	}
}
