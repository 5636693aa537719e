package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"counterfoil/gateway/upstream/child"
	"counterfoil/internal/canon"
)

const (
	// A process that ends sooner than this after its start has failed; one that lives longer starts with a
	// clean slate. After a failure the next start waits, twice as long after each.
	calmTime  = 10 * time.Second
	firstRest = 250 * time.Millisecond
	longRest  = 30 * time.Second
	// A call waits for a start that is due within this time, and is not sent where it is due later.
	restPatience = time.Second
	// startTime is the least that a process gets for its start, whatever a call may take: some install themselves
	// first.
	startTime = time.Minute
	// discoverTime is how long it is waited for what a server of the handshake era may never answer. One that is
	// only slow to start is asked again, if it knows no handshake.
	discoverTime = 15 * time.Second
	// loggedBytes bounds what is logged of one line that a process writes to its standard error.
	loggedBytes = 2 << 10
)

// program opens pipes: it starts the process, and starts it again, lazily, when it has ended. There are never
// two of it.
type program struct {
	spec    child.Spec
	name    string
	log     *slog.Logger
	clean   func(text []byte, call Call) ([]byte, bool) // of secrets
	longest int                                         // of them, in bytes
	stuck   time.Duration
	pool    *memories
	last    *pipe // nil: never started

	mu     sync.Mutex
	failed int           // starts in a row
	rested chan struct{} // closed when the next start may be
}

func newProgram(c *Client, path string) *program {
	g := &program{
		name: c.config.Name, log: c.config.Logger.With("upstream", c.config.Name), stuck: 2 * c.config.Timeout, pool: &c.memories,
		spec: child.Spec{
			Path: path, Args: c.config.Command, Dir: c.config.Dir, Env: environ(c.config.Environ, c.config.Env), Grace: c.config.Grace,
		},
		clean: func(text []byte, call Call) ([]byte, bool) {
			clean, _, ok := c.scrub(text, &peer{}, call)
			return clean, ok
		},
		rested: make(chan struct{}),
	}
	if len(c.secrets) > 0 {
		g.longest = len(c.secrets[0])
	}
	close(g.rested)
	return g
}

func (g *program) dial(ctx context.Context) (line, error) {
	if g.last != nil {
		if g.last.alive() {
			return g.last, nil
		}
		select {
		case <-g.last.gone:
		case <-ctx.Done():
			return nil, &probeError{what: "the process before it has not ended yet"}
		}
	}
	if err := g.rest(ctx); err != nil {
		return nil, err
	}
	return g.start()
}

// rest waits until the next start is due, if that is soon.
func (g *program) rest(ctx context.Context) error {
	g.mu.Lock()
	rested, failed := g.rested, g.failed
	g.mu.Unlock()
	soon, cancel := context.WithTimeout(ctx, restPatience)
	defer cancel()
	select {
	case <-rested:
		return nil
	case <-soon.Done():
		return &probeError{what: fmt.Sprintf("%d starts of the process have failed, and it is not started again yet", failed)}
	}
}

func (g *program) start() (line, error) {
	p := newPipe(g.pool, g.stuck)
	spec := g.spec
	spec.Out = p.listen
	spec.Err = func(r io.Reader) { g.overhear(r, p) }
	var err error
	if p.child, err = child.Start(spec); err != nil {
		g.stumble()
		g.log.Warn("a process cannot be started", "error", err)
		return nil, &probeError{what: "the process cannot be started: " + err.Error()}
	}
	g.log.Info("process started", "pid", p.child.Pid())
	g.last = p
	go g.attend(p)
	return p, nil
}

// attend runs what a pipe needs beside its reader, and closes gone at the end of all of it.
func (g *program) attend(p *pipe) {
	calm := time.AfterFunc(calmTime, g.walk)
	var parts sync.WaitGroup
	parts.Go(p.feed)
	parts.Go(func() {
		<-p.over
		p.child.End() // a write that waits returns
	})
	<-p.child.Gone()
	p.hangUp()
	parts.Wait()
	level := slog.LevelWarn
	if p.dropped.Load() {
		level = slog.LevelInfo
	}
	if calm.Stop() && level == slog.LevelWarn {
		g.stumble()
	}
	status := "exit status 0"
	if err := p.child.Err(); err != nil {
		status = err.Error()
	}
	g.log.Log(context.Background(), level, "process ended", "pid", p.child.Pid(), "status", status)
	close(p.gone)
}

// stumble puts the next start off.
func (g *program) stumble() {
	g.mu.Lock()
	defer g.mu.Unlock()
	rest := longRest
	if g.failed < 8 {
		rest = min(firstRest<<g.failed, longRest)
	}
	g.failed++
	rested := make(chan struct{})
	g.rested = rested
	time.AfterFunc(rest, func() { close(rested) })
}

// walk forgets earlier failures.
func (g *program) walk() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = 0
}

// drop is for a process with which nothing could be agreed: that is a failed start too.
func (g *program) drop() {
	if g.last != nil && g.last.alive() {
		g.stumble()
		g.last.dropped.Store(true)
		g.last.hangUp()
	}
}

func (g *program) close(*peer) {
	if g.last == nil {
		return
	}
	g.last.dropped.Store(true)
	g.last.hangUp()
	<-g.last.gone
}

// overhear writes what the process says to its standard error to the log, for those who look for a fault: each
// line up to a length, without our secrets.
func (g *program) overhear(r io.Reader, p *pipe) {
	if !g.log.Enabled(context.Background(), slog.LevelDebug) {
		_, _ = io.Copy(io.Discard, r)
		return
	}
	reader := bufio.NewReaderSize(r, loggedBytes)
	for {
		piece, err := reader.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			// A secret that is cut off here would not be found: what may be the beginning of one goes too.
			piece = piece[:max(0, len(piece)-maxEscapes*maxEscapes*g.longest)]
		}
		if text := bytes.TrimSpace(piece); len(text) > 0 {
			g.log.Debug("the process says", "line", g.decent(string(text), p.sent()))
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = reader.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// decent is a line without secrets: those of the configuration, and those of the calls last sent.
func (g *program) decent(line string, sent []string) string {
	text := canon.AppendString(nil, strings.ToValidUTF8(line, "\ufffd"))
	for _, secret := range append(sent, "") {
		clean, ok := g.clean(text, Call{Secret: secret, Handle: "[secret]"})
		if !ok {
			return "[secret]"
		}
		text = clean
	}
	return plainString(text)
}
