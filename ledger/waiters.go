package ledger

import "github.com/google/uuid"

// add announces an operation that this process runs.
func (w *waiters) add(id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = make(map[uuid.UUID]chan struct{})
	}
	w.open[id] = make(chan struct{})
}

// close wakes who waits for an operation; it is settled.
func (w *waiters) close(id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if done, ok := w.open[id]; ok {
		close(done)
		delete(w.open, id)
	}
}

// done is closed when this process settles the operation; nil, which never is, where it does not run it.
func (w *waiters) done(id uuid.UUID) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[id]
}
