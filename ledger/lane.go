package ledger

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// A lane is one worker with a bounded queue. It takes whatever waits, at most a batch, and runs it; it
// never waits for more to come, so that a batch under low load is one and latency that of one write.
type lane[T any] struct {
	queue    chan *ticket[T]
	stop     <-chan struct{}
	maxBatch int
	maxBytes int
	patience time.Duration
	keep     bool // a job is run whether or not its waiter has stayed: it records what has happened
	run      func(batch []*ticket[T])
}

// ticket is one request in a lane.
type ticket[T any] struct {
	job   T
	bytes int
	state atomic.Int32
	done  chan struct{}
	err   error
}

// States of a ticket. The worker and the waiter agree on who acts last by compare-and-swap.
const (
	ticketWaiting   = iota // in the queue
	ticketTaken            // in a batch: its outcome is now the store's to say
	ticketAnswered         // the worker has answered
	ticketAbandoned        // the waiter left before a batch took it: nothing happens
	ticketForsaken         // the waiter left after that: the worker cleans up
)

// submit queues a job and waits for its answer. A caller that leaves (ctx) before a batch takes the job
// leaves nothing behind. From then on ctx no longer counts: only the lane's patience ends the wait, with
// ErrUnknown. A lane that keeps its jobs runs them whoever leaves; there ctx ends the wait too, with ErrUnknown.
func (l *lane[T]) submit(ctx context.Context, job T, bytes int) error {
	if err := ctx.Err(); err != nil && !l.keep {
		return err
	}
	t := &ticket[T]{job: job, bytes: bytes, done: make(chan struct{})}
	select {
	case l.queue <- t:
	default:
		if !l.keep {
			return ErrQueueFull
		}
		go l.queueLate(t)
	}
	return l.await(ctx, t)
}

// full reports whether the queue has no room at this moment.
func (l *lane[T]) full() bool { return len(l.queue) == cap(l.queue) }

// queueLate waits for room. As many wait as there are operations in flight.
func (l *lane[T]) queueLate(t *ticket[T]) {
	select {
	case l.queue <- t:
	case <-l.stop:
	}
}

func (l *lane[T]) await(ctx context.Context, t *ticket[T]) error {
	timer := time.NewTimer(l.patience)
	defer timer.Stop()
	left, stop := ctx.Done(), l.stop
	for {
		select {
		case <-t.done:
			return t.err
		case <-left:
			if l.keep {
				return ErrUnknown
			}
			if l.abandon(t) {
				return ctx.Err()
			}
			left = nil
		case <-stop:
			if l.abandon(t) {
				return ErrUnavailable
			}
			stop = nil
		case <-timer.C:
			if l.abandon(t) {
				return ErrUnavailable
			}
			if l.keep || t.state.CompareAndSwap(ticketTaken, ticketForsaken) {
				return ErrUnknown
			}
			<-t.done
			return t.err
		}
	}
}

// abandon takes a job back that no batch has taken yet.
func (l *lane[T]) abandon(t *ticket[T]) bool {
	return !l.keep && t.state.CompareAndSwap(ticketWaiting, ticketAbandoned)
}

// answer ends a taken ticket. It reports false when the waiter has left: the job's outcome stands, and
// nobody knows of it.
func (t *ticket[T]) answer(err error) bool {
	t.err = err
	if !t.state.CompareAndSwap(ticketTaken, ticketAnswered) {
		return false
	}
	close(t.done)
	return true
}

// forsaken reports that nobody waits for this ticket any more.
func (t *ticket[T]) forsaken() bool { return t.state.Load() == ticketForsaken }

// work runs batches until the lane is stopped. What is queued by then is left to its waiters, or, in a lane
// that keeps its jobs, tried once more.
func (l *lane[T]) work() {
	batch := make([]*ticket[T], 0, l.maxBatch)
	for {
		select {
		case <-l.stop:
			l.finish(batch)
			return
		case first := <-l.queue:
			// Who is ready to run may be about to join: let them, so that they share this transaction. With
			// nobody ready this returns at once; it is no wait.
			runtime.Gosched()
			batch = l.fill(batch[:0], first)
		}
		if len(batch) > 0 {
			l.run(batch)
		}
		clear(batch)
	}
}

func (l *lane[T]) finish(batch []*ticket[T]) {
	for l.keep {
		select {
		case first := <-l.queue:
			if batch = l.fill(batch[:0], first); len(batch) > 0 {
				l.run(batch)
			}
		default:
			return
		}
	}
}

func (l *lane[T]) fill(batch []*ticket[T], first *ticket[T]) []*ticket[T] {
	size := 0
	for next := first; ; {
		if next.state.CompareAndSwap(ticketWaiting, ticketTaken) {
			batch = append(batch, next)
			size += next.bytes
		}
		if len(batch) == l.maxBatch || size >= l.maxBytes {
			return batch
		}
		select {
		case next = <-l.queue:
		default:
			return batch
		}
	}
}
