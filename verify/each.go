package verify

import (
	"iter"
	"sync"
)

// Each judges entries with that many goroutines and hands on the verdicts in the
// order of the entries. At most three times as many entries as goroutines are in
// memory. It stops at the first error of emit, and returns it.
func (v *Verifier) Each(entries iter.Seq[Entry], jobs int, emit func(*Verdict) error) error {
	jobs = max(jobs, 1)
	type task struct {
		entry   Entry
		verdict chan *Verdict
	}
	work := make(chan task, jobs)
	ordered := make(chan task, jobs)
	stop := make(chan struct{})

	var running sync.WaitGroup
	defer running.Wait()
	defer close(stop)
	for range jobs {
		running.Go(func() {
			for t := range work {
				t.verdict <- v.Judge(t.entry)
			}
		})
	}
	running.Go(func() {
		defer close(ordered)
		defer close(work)
		for e := range entries {
			t := task{e, make(chan *Verdict, 1)}
			select {
			case ordered <- t:
			case <-stop:
				return
			}
			// A task that is in order is always judged, so nobody waits in vain.
			work <- t
		}
	})
	for t := range ordered {
		if err := emit(<-t.verdict); err != nil {
			return err
		}
	}
	return nil
}
