package chaosproxy

import (
	"errors"
	"net"
	"time"
)

// Fault is what happens to the chosen statement.
type Fault int

// The ways in which "the answer never came", or came too late. What goes on after Release goes on as if
// nothing had been.
const (
	NotExecuted Fault = iota // the connection ends before the server got the statement
	AnswerLost               // it ends after the server has executed it, with the rest of its pipeline
	Reset                    // NotExecuted, by a TCP reset
	AnswerReset              // AnswerLost, by a TCP reset
	Held                     // kept back on an open connection until Release; never executed where the client gives up before
	AnswerHeld               // executed, and its answer kept back until Release
	Late                     // kept back until the client has given up, and executed then
	Severed                  // kept back, and the server never hears that the client has given up
)

var errGone = errors.New("the client has given up")

// suffer lets a fault take its course. It reports whether the connection goes on afterwards.
func (l *link) suffer(s Strike, release <-chan struct{}, first message) bool {
	// The client sends a pipeline without waiting. All of it is read first: closing a connection with
	// unread bytes would reset it.
	pipeline, err := l.pipeline(first)
	if err != nil {
		return false
	}
	switch s.Fault {
	case Reset:
		l.reset()
	case AnswerLost:
		l.execute(pipeline, swallow)
	case AnswerReset:
		l.execute(pipeline, swallow)
		l.reset()
	case Held:
		return l.wait(s.Hold, release) && l.forward(pipeline)
	case AnswerHeld:
		return l.execute(pipeline, hold) && l.wait(s.Hold, release) && l.letGo()
	case Late:
		l.wait(0, nil)
		l.execute(pipeline, swallow)
	case Severed:
		l.wait(0, nil)
		l.setMode(swallow)
		_ = l.client.Close()
		<-l.ended
	case NotExecuted:
	}
	return false
}

// pipeline reads the rest of what the client sends before it waits for answers.
func (l *link) pipeline(first message) ([]message, error) {
	list := []message{first}
	for !list[len(list)-1].last() {
		next, err := readMessage(l.in)
		if err != nil {
			return nil, err
		}
		list = append(list, next)
	}
	return list, nil
}

func (l *link) forward(pipeline []message) bool {
	for _, m := range pipeline {
		if !m.write(l.server) {
			return false
		}
	}
	return true
}

// execute sends the pipeline and waits until the server has answered it. The client hears nothing of it
// for now (hold), or ever (swallow).
func (l *link) execute(pipeline []message, mode mode) bool {
	l.setMode(mode)
	if !l.forward(pipeline) {
		return false
	}
	_, ok := <-l.answered
	return ok
}

// reset makes the next close a TCP reset.
func (l *link) reset() {
	if conn, ok := l.client.(*net.TCPConn); ok {
		_ = conn.SetLinger(0)
	}
}

// wait lasts until the hold is over and reports true, or false where the client gave up before.
func (l *link) wait(d time.Duration, release <-chan struct{}) bool {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	l.watch()
	select {
	case <-l.watching:
		return !l.gone
	case <-release:
	case <-over:
	}
	return true
}

// watch looks, without reading anything, for the client's next byte: its end, or the message that says so.
func (l *link) watch() {
	watching := make(chan struct{})
	l.watching = watching
	l.proxy.open.Go(func() {
		defer close(watching)
		head, err := l.in.Peek(1)
		l.gone = err != nil || head[0] == terminate
	})
}

// next reads the client's next message, behind whoever still watches for it.
func (l *link) next() (message, error) {
	if l.watching != nil {
		<-l.watching
		l.watching = nil
		if l.gone {
			return message{}, errGone
		}
	}
	return readMessage(l.in)
}
