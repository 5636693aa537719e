package bench

import (
	"sync"
	"time"
)

// incident is one fault that was made.
type incident struct {
	kind      faultKind
	began     time.Time
	next      time.Duration // until a call that began after it succeeded; 0: none has
	slowest   time.Duration // the longest that a call which lived through it waited for its answer
	uncertain int64         // answers that the upstream would else have given
}

// incidents are the faults in their order, from number 1. Number 0 is the time before the first.
type incidents struct {
	mu   sync.Mutex
	list []incident
}

// begin writes a new one down.
func (s *incidents) begin(kind faultKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, incident{kind: kind, began: time.Now()})
}

// current is the number of the latest.
func (s *incidents) current() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list)
}

// overcome reports whether a call has succeeded since the latest.
func (s *incidents) overcome() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) == 0 || s.list[len(s.list)-1].next > 0
}

// answered tells of a final answer to a call that began at some time, and gives the number of the incident that
// it belongs to: the first that it lived through, or else the latest.
func (s *incidents) answered(began time.Time, k callKind, outcome string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	latest := len(s.list)
	if latest == 0 {
		return 0
	}
	if last := &s.list[latest-1]; last.next == 0 && outcome == outcomeSucceeded && began.After(last.began) {
		last.next = now.Sub(last.began)
	}
	number := latest
	for number > 1 && s.list[number-2].began.After(began) {
		number--
	}
	i := &s.list[number-1]
	i.slowest = max(i.slowest, now.Sub(began))
	if outcome == outcomeUncertain && !k.silent {
		i.uncertain++
	}
	return number
}

// all is a copy.
func (s *incidents) all() []incident {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]incident(nil), s.list...)
}

// byKind counts them.
func (s *incidents) byKind() map[faultKind]int {
	counts := make(map[faultKind]int)
	for _, i := range s.all() {
		counts[i.kind]++
	}
	return counts
}
