package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// A line up to this length is kept whoever waits; a longer one up to what a waiting call allows.
	shortLine = 64 << 10
	// A line is passed over up to this length, or streamFactor times what a waiting call allows. Then it has no
	// end, and its process is of no more use.
	longestLine = 32 << 20
	// Of progress and of the server's own questions, more is not passed on.
	maxProgress = 64 << 10
	maxServerID = 256
	lineEnd     = 2 // bytes that no limit counts
)

// listen reads the process's output to its end, and then tells all who wait that no answer will come.
func (p *pipe) listen(output io.Reader) {
	defer p.silence()
	reader := bufio.NewReaderSize(output, bufferBytes)
	memory := p.memories.borrow()
	for {
		long, err := p.line(reader, memory)
		switch {
		case err != nil && long == nil && !jsontext.Value(*memory).IsValid():
			// Torn off: it says nothing.
		case long != nil:
			if id, ok := long.answers(); ok {
				p.deliver(id, reply{fault: tooLarge})
			}
		case p.take(memory):
			memory = p.memories.borrow() // what there was has gone with the answer
		}
		if err != nil {
			return
		}
		if cap(*memory) > keptMemory {
			memory = p.memories.borrow()
		}
	}
}

// silence ends all waiting: the process may have done what it was told, and will not say so any more.
func (p *pipe) silence() {
	p.hangUp()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
	for id, w := range p.waiting {
		delete(p.waiting, id)
		w.answer <- reply{sent: true, fault: silent, err: errProcessEnded}
	}
}

// line reads one line into memory. Of one that is longer than anybody who waits allows, nothing is kept but its
// outline.
func (p *pipe) line(reader *bufio.Reader, memory *[]byte) (long *outline, err error) {
	*memory = (*memory)[:0]
	for {
		piece, err := reader.ReadSlice('\n')
		*memory = append(*memory, piece...)
		switch {
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case int64(len(*memory)) > p.longest()+lineEnd:
			long := outlineOf(*memory)
			return long, p.skip(reader, long, int64(len(*memory)))
		}
	}
}

// skip reads to the end of a line of which length bytes have been read.
func (p *pipe) skip(reader *bufio.Reader, o *outline, length int64) error {
	most := max(longestLine, streamFactor*p.longest())
	for {
		piece, err := reader.ReadSlice('\n')
		o.feed(piece)
		length += int64(len(piece))
		switch {
		case length > most:
			return errors.New("a line without end")
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// longest is the length in bytes of the longest line that is of use to anybody now.
func (p *pipe) longest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := int64(shortLine)
	for _, w := range p.waiting {
		most = max(most, w.limit)
	}
	return most
}

// take looks what a line is, and reports whether its memory went with an answer. What nobody waits for, and what is
// no message at all, is passed over.
func (p *pipe) take(memory *[]byte) bool {
	text := bytes.TrimSpace(*memory)
	m, ok := parseMessage(text)
	switch {
	case !ok:
		if id, ok := outlineOf(text).answers(); ok {
			p.deliver(id, reply{fault: malformed})
		}
	case m.isResponse():
		id, ok := requestID(m.id)
		if !ok {
			return false
		}
		r := reply{fault: malformed}
		if m.answers(id) {
			r = reply{message: m, memory: memory}
		}
		return p.deliver(id, r) && r.memory != nil
	case m.id != nil:
		p.refuse(m)
	default:
		p.progress(m)
	}
	return false
}

// deliver gives an answer to the one who waits for it.
func (p *pipe) deliver(id int64, r reply) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waiting[id]
	if w == nil {
		return false
	}
	delete(p.waiting, id)
	r.sent = true
	if r.memory != nil && int64(len(*r.memory)) > w.limit+lineEnd {
		r = reply{sent: true, fault: tooLarge}
	}
	w.answer <- r
	return r.memory != nil
}

func (p *pipe) progress(m message) {
	id, ok := m.progressToken()
	if !ok || len(m.params) > maxProgress {
		return
	}
	p.mu.Lock()
	w := p.waiting[id]
	p.mu.Unlock()
	if w == nil || w.progress == nil {
		return
	}
	select {
	case w.progress <- bytes.Clone(m.params):
	default:
	}
}

// refuse answers what the server asks of its client. We have declared nothing that it could ask for, and a server
// that waits for an answer would wait for ever.
func (p *pipe) refuse(m message) {
	if len(m.id) > maxServerID {
		return
	}
	said := `,"error":{"code":-32601,"message":"not served here"}}`
	if plainString(m.method) == "ping" {
		said = `,"result":{}}`
	}
	p.note(append(append([]byte(`{"jsonrpc":"2.0","id":`), m.id...), said...))
}
