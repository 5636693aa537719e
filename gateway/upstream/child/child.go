// Package child runs a program and leaves nothing of it behind: when Gone is closed there is no zombie, no
// process that it has started and that kept to its group, and no open pipe.
package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	defaultGrace = 2 * time.Second
	// What has been written before the end can still be read; but a process that left the group may hold
	// the other ends of the pipes for ever, so they are read for this long.
	lingerTime = time.Second
	// SIGKILL ends everything but a process that the kernel itself is waiting in.
	killTime = 10 * time.Second
)

// Spec says what to run.
type Spec struct {
	Path string   // absolute
	Args []string // with the program's own name first
	Dir  string   // "": this process's own
	Env  []string // the whole environment
	// Out and Err read what the program writes, and return at its end. A program whose output nobody
	// reads any more is ended.
	Out, Err func(io.Reader)
	// Grace is how long it has to end after its input has ended, and again after SIGTERM; 0: 2 s.
	Grace time.Duration
}

// Child is a running program.
type Child struct {
	cmd     *exec.Cmd
	grace   time.Duration
	input   *os.File
	outputs [2]*os.File
	readers sync.WaitGroup
	once    sync.Once
	ending  chan struct{} // closed when it is to end
	exited  chan struct{} // closed when it has
	gone    chan struct{}
	err     error // of its end; set when exited is closed
}

// Start starts the program in a process group of its own, so that a signal for this process's group does not
// reach it.
func Start(spec Spec) (*Child, error) {
	c := &Child{
		grace: spec.Grace, ending: make(chan struct{}), exited: make(chan struct{}), gone: make(chan struct{}),
		cmd: &exec.Cmd{
			Path: spec.Path, Args: spec.Args, Dir: spec.Dir,
			Env:         append([]string{}, spec.Env...), // nil would be our own
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		},
	}
	if c.grace == 0 {
		c.grace = defaultGrace
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	c.readers.Go(func() {
		spec.Out(c.outputs[0])
		c.End()
	})
	c.readers.Go(func() { spec.Err(c.outputs[1]) })
	go func() {
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	go c.tend()
	return c, nil
}

// start makes the pipes and starts the process. Files of our own keep os/exec from waiting for the pipes'
// ends.
func (c *Child) start() error {
	theirs := make([]*os.File, 0, 3)
	fail := func(err error) error {
		for _, f := range theirs {
			_ = f.Close()
		}
		c.closePipes()
		return err
	}
	input, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	theirs, c.input = append(theirs, input), ours
	for i := range c.outputs {
		ours, output, err := os.Pipe()
		if err != nil {
			return fail(fmt.Errorf("make a pipe: %w", err))
		}
		theirs, c.outputs[i] = append(theirs, output), ours
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	if err := c.cmd.Start(); err != nil {
		return fail(err)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	return nil
}

// Pid is the number of the process, and of its group.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Write writes to the program's input. End makes a write that waits return.
func (c *Child) Write(b []byte) (int, error) { return c.input.Write(b) }

// End asks the program to end, by and by more firmly. It does not wait.
func (c *Child) End() {
	c.once.Do(func() {
		_ = c.input.Close()
		close(c.ending)
	})
}

// Gone is closed when nothing of the program is left.
func (c *Child) Gone() <-chan struct{} { return c.gone }

// Err says how the program ended, nil for status 0. It is to be read after Gone.
func (c *Child) Err() error {
	select {
	case <-c.exited:
		return c.err
	default:
		return errors.New("it could not be killed")
	}
}

// tend sees the program to its end.
func (c *Child) tend() {
	defer close(c.gone)
	select {
	case <-c.exited:
	case <-c.ending:
		c.escalate()
	}
	c.End()
	// What it started and left behind. The group's number is not given away while one of these lives; where
	// none does, it would have to come round within this instant.
	c.signal(syscall.SIGKILL)
	linger := time.AfterFunc(lingerTime, c.closePipes)
	c.readers.Wait()
	linger.Stop()
	c.closePipes()
}

// escalate returns when the program has ended, or cannot be ended.
func (c *Child) escalate() {
	for _, next := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if c.ends(c.grace) {
			return
		}
		c.signal(next)
	}
	c.ends(killTime)
}

func (c *Child) ends(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.exited:
		return true
	case <-timer.C:
		return false
	}
}

// signal reaches the whole group.
func (c *Child) signal(s syscall.Signal) { _ = syscall.Kill(-c.Pid(), s) }

func (c *Child) closePipes() {
	for _, f := range []*os.File{c.input, c.outputs[0], c.outputs[1]} {
		if f != nil {
			_ = f.Close()
		}
	}
}
