package bench

import (
	"fmt"
	"strings"
	"sync"
)

// record is what the soak knows of one key. There are as many as there are calls, so it is small.
type record struct {
	sum      [16]byte // of the answer that was acknowledged
	charged  int64    // credits, as answered
	incident int32    // the one that the answer came in or after; 0: before the first
	verdict  uint16   // 0: not answered yet; else an index into book.verdicts
	wallet   uint8
	kind     uint8
	dispute  dispute
}

// dispute is what a reconciler was told to say of an uncertain call. It is written down before it is said.
type dispute uint8

const (
	undisputed dispute = iota
	delivered
	notDelivered
)

// resolution is the contract's word for it.
func (d dispute) resolution() string {
	return [...]string{"", "delivered", "not_delivered"}[d]
}

// book holds every key that was used. Its methods may be called from any goroutine.
type book struct {
	mu       sync.Mutex
	records  []record
	verdicts []string // [0] is none
	index    map[string]uint16
	counts   []int64          // of verdicts
	before   map[int][16]byte // the answers that a reconciliation has replaced
	closed   bool             // nothing is in flight any more that could have seen those
}

func newBook() *book {
	return &book{verdicts: []string{""}, index: make(map[string]uint16), counts: []int64{0}, before: make(map[int][16]byte)}
}

// add opens a record and returns the number of its call.
func (b *book) add(wallet, kind int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = append(b.records, record{wallet: uint8(wallet), kind: uint8(kind)})
	return len(b.records) - 1
}

// acknowledge writes the first final answer down. A later one must be the same bytes, but for one decision about an
// uncertain call; an error says how it differs.
func (b *book) acknowledge(n int, r reply, incident int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := &b.records[n]
	before, replaced := b.before[n]
	switch {
	case known.verdict == 0:
		known.incident = int32(incident)
	case known.sum == r.sum:
		return nil
	case replaced && before == r.sum && !b.closed:
		return nil // it was read before the decision, and arrived after it
	case known.dispute != undisputed && r.verdict() == joinVerdict(outcomeReconciled, known.dispute.resolution()) &&
		strings.HasPrefix(b.verdicts[known.verdict], outcomeUncertain) && r.charged <= known.charged:
		b.before[n] = known.sum
		b.counts[known.verdict]--
	default:
		return fmt.Errorf("%s%d was answered %s and is now answered %s: %s", keyPrefix, n, b.verdicts[known.verdict], r.verdict(), r.text)
	}
	known.sum, known.charged, known.verdict = r.sum, r.charged, b.intern(r.verdict())
	b.counts[known.verdict]++
	return nil
}

// disputed writes down what is about to be decided.
func (b *book) disputed(n int, d dispute) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records[n].dispute = d
}

// close ends the time in which an answer may be older than a decision.
func (b *book) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

func (b *book) intern(verdict string) uint16 {
	i, ok := b.index[verdict]
	if !ok {
		i = uint16(len(b.verdicts))
		b.verdicts, b.counts = append(b.verdicts, verdict), append(b.counts, 0)
		b.index[verdict] = i
	}
	return i
}

// at is a copy of one record.
func (b *book) at(n int) record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.records[n]
}

// repeatable tells a key whose answer is stored: governed, and known.
func (b *book) repeatable(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	verdict := b.verdicts[b.records[n].verdict]
	return verdict != "" && !strings.HasPrefix(verdict, verdictRefused)
}

// len is how many keys were used.
func (b *book) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records)
}

// tally is how often each verdict was given.
func (b *book) tally() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := make(map[string]int64)
	for i, verdict := range b.verdicts[1:] {
		counts[verdict] = b.counts[i+1]
	}
	return counts
}
