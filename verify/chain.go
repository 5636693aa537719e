package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strings"

	"counterfoil/receipts"
)

// run is an unbroken stretch of a wallet's numbers. Only its two ends are kept.
type run struct {
	from, to int64
	prev     string            // of the receipt at from
	head     [sha256.Size]byte // of the receipt at to
}

// link puts a receipt into its wallet's chain, and reports whether its number is
// new there.
func (s *Set) link(w *wallet, c *receipts.Claims, head [sha256.Size]byte) bool {
	// The run that begins at or before c, if there is one, is at i-1.
	i := sort.Search(len(w.runs), func(i int) bool { return w.runs[i].from > c.Seq })
	if i > 0 && c.Seq <= w.runs[i-1].to {
		s.repeated(w, c, head)
		return false
	}
	s.recent.put(seqKey{w, c.Seq}, head)
	joinsLeft := i > 0 && w.runs[i-1].to == c.Seq-1
	joinsRight := i < len(w.runs) && w.runs[i].from == c.Seq+1
	if joinsLeft {
		s.follows(c.Wallet, c.Seq, c.Prev, w.runs[i-1].head)
	}
	if joinsRight {
		s.follows(c.Wallet, c.Seq+1, w.runs[i].prev, head)
	}
	switch {
	case joinsLeft && joinsRight:
		w.runs[i-1].to, w.runs[i-1].head = w.runs[i].to, w.runs[i].head
		w.runs = slices.Delete(w.runs, i, i+1)
		s.runs--
	case joinsLeft:
		w.runs[i-1].to, w.runs[i-1].head = c.Seq, head
	case joinsRight:
		w.runs[i].from, w.runs[i].prev = c.Seq, c.Prev
	case s.runs >= maxRuns:
		s.chainFull = true
	default:
		w.runs = slices.Insert(w.runs, i, run{c.Seq, c.Seq, c.Prev, head})
		s.runs++
	}
	return true
}

func (s *Set) follows(walletID string, seq int64, prev string, head [sha256.Size]byte) {
	if prev != hex.EncodeToString(head[:]) {
		s.chain.add(Prev, fmt.Sprintf("%s: number %d does not follow from number %d", walletID, seq, seq-1))
	}
}

func (s *Set) repeated(w *wallet, c *receipts.Claims, head [sha256.Size]byte) {
	known, ok := s.recent.hashes[seqKey{w, c.Seq}]
	switch {
	case ok && known != head:
		s.chain.add(Fork, fmt.Sprintf("%s: number %d (%s)", c.Wallet, c.Seq, c.ID))
	case ok:
		s.chain.add(Duplicate, fmt.Sprintf("%s: number %d (%s)", c.Wallet, c.Seq, c.ID))
	default:
		s.chain.add(Duplicate, fmt.Sprintf("%s: number %d (%s); too far back to say whether it is the same receipt", c.Wallet, c.Seq, c.ID))
	}
}

func (s *Set) gaps(w *wallet) {
	for i := 1; i < len(w.runs); i++ {
		first, last := w.runs[i-1].to+1, w.runs[i].from-1
		s.chain.add(SeqGap, fmt.Sprintf("%s: numbers %d to %d are missing", w.id, first, last))
	}
}

// seqKey points at its wallet: an id of its own would keep the whole receipt, of
// which it is a part, in memory.
type seqKey struct {
	wallet *wallet
	seq    int64
}

// recent remembers the hashes of the last maxRecent receipts.
type recent struct {
	hashes map[seqKey][sha256.Size]byte
	ring   []seqKey
	next   int
}

func (r *recent) put(key seqKey, head [sha256.Size]byte) {
	if len(r.ring) < maxRecent {
		r.ring = append(r.ring, key)
	} else {
		delete(r.hashes, r.ring[r.next])
		r.ring[r.next] = key
		r.next = (r.next + 1) % maxRecent
	}
	r.hashes[key] = head
}

// findings are what one check of the set found.
type findings struct {
	code  Code // the gravest
	count int
	says  []string
}

func (f *findings) add(code Code, says string) {
	f.count++
	// A gap is the mildest: it may be no more than a selection.
	if f.code == "" || f.code == SeqGap {
		f.code = code
	}
	if len(f.says) < maxFindings {
		f.says = append(f.says, string(code)+" "+says)
	}
}

func (f *findings) list() string {
	out := strings.Join(f.says, "; ")
	if more := f.count - len(f.says); more > 0 {
		out += fmt.Sprintf("; and %d more", more)
	}
	return out
}

func (f *findings) check(name, passed string) Check {
	if f.count == 0 {
		return Check{Name: name, Status: Pass, Code: OK, Detail: passed}
	}
	return Check{Name: name, Status: Fail, Code: f.code, Detail: f.list()}
}
