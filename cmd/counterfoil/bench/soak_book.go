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
}

// book holds every key that was used. Its methods may be called from any goroutine.
type book struct {
	mu       sync.Mutex
	records  []record
	verdicts []string // [0] is none
	index    map[string]uint16
	counts   []int64 // of verdicts
}

func newBook() *book {
	return &book{verdicts: []string{""}, index: make(map[string]uint16), counts: []int64{0}}
}

// add opens a record and returns the number of its call.
func (b *book) add(wallet, kind int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = append(b.records, record{wallet: uint8(wallet), kind: uint8(kind)})
	return len(b.records) - 1
}

// acknowledge writes the first final answer down. A later one must be the same bytes; an error says how
// it differs.
func (b *book) acknowledge(n int, r reply, incident int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := &b.records[n]
	if known.verdict != 0 {
		if known.sum != r.sum {
			return fmt.Errorf("%s%d was answered %s and is now answered %s: %s", keyPrefix, n, b.verdicts[known.verdict], r.verdict(), r.text)
		}
		return nil
	}
	known.sum, known.charged, known.incident = r.sum, r.charged, int32(incident)
	known.verdict = b.intern(r.verdict())
	b.counts[known.verdict]++
	return nil
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
