package verify

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"counterfoil/receipts"
)

// Entry is one thing to judge: a bundle or a bare receipt, or the reason why there
// is none.
type Entry struct {
	File string
	Line int // in JSONL, from 1; 0 for a whole file
	Data []byte

	Fault  Code // "" where Data is to be judged
	Detail string
}

// Entries reads one file: a bundle, a bare receipt, or JSONL of either. It holds
// one entry at a time, at most receipts.MaxBundleBytes. A file without an entry
// yields its emptiness, since no receipt is not a valid receipt.
func Entries(file string, r io.Reader) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		lines := &lineReader{r: bufio.NewReaderSize(r, 64<<10)}
		found := false
		for {
			line, err := lines.next()
			if errors.Is(err, io.EOF) {
				break
			}
			e := Entry{File: file, Line: lines.n, Data: line}
			switch {
			case errors.Is(err, errTooLong):
				e.Data, e.Fault, e.Detail = nil, Malformed, err.Error()
			case err != nil:
				yield(Entry{File: file, Fault: Unreadable, Detail: err.Error()})
				return
			case len(bytes.TrimSpace(line)) == 0:
				continue
			case !found && string(line) == "{":
				// Only an indented bundle begins so: the file is one entry.
				yield(whole(file, line, lines.r))
				return
			}
			found = true
			if !yield(e) {
				return
			}
		}
		if !found {
			yield(Entry{File: file, Fault: Empty})
		}
	}
}

func whole(file string, begin []byte, rest io.Reader) Entry {
	data, err := io.ReadAll(io.MultiReader(
		bytes.NewReader(begin), bytes.NewReader([]byte("\n")), io.LimitReader(rest, receipts.MaxBundleBytes)))
	switch {
	case err != nil:
		return Entry{File: file, Fault: Unreadable, Detail: err.Error()}
	case len(data) > receipts.MaxBundleBytes:
		return Entry{File: file, Fault: Malformed, Detail: errTooLong.Error()}
	}
	return Entry{File: file, Data: data}
}

var errTooLong = fmt.Errorf("longer than %d bytes", receipts.MaxBundleBytes)

// lineReader reads lines of any length, and keeps none that is too long.
type lineReader struct {
	r *bufio.Reader
	n int
}

// next returns a line, without its end, in memory of its own.
func (l *lineReader) next() ([]byte, error) {
	l.n++
	var line []byte
	tooLong := false
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > receipts.MaxBundleBytes {
			tooLong, line = true, nil
		}
		if !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(part) == 0 && len(line) == 0 && !tooLong:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case tooLong:
			return nil, errTooLong
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		return bytes.TrimSuffix(line, []byte("\r")), nil
	}
}
