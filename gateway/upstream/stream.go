package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"
)

const (
	// A stream may be longer than one message by this much, for progress, logging and keep-alives.
	streamFactor = 8
	streamExtra  = 1 << 20
	// After the answer a server closes its stream at once. One that does not costs us the connection,
	// not more waiting than this.
	drainTime  = 20 * time.Millisecond
	drainBytes = 4 << 10
)

// readStream reads server-sent events until the answer to q. A message of any length up to the limit
// is read, whatever the length of its lines; what else the server sends is passed over, for we have
// declared no capability it could ask for.
func (w *web) readStream(body io.ReadCloser, q request, memory *[]byte) (message, fault) {
	reader, ok := w.readers.Get().(*bufio.Reader)
	if !ok {
		reader = bufio.NewReaderSize(nil, bufferBytes)
	}
	reader.Reset(body)
	defer func() {
		reader.Reset(nil)
		w.readers.Put(reader)
	}()
	s := stream{reader: reader, limit: q.limit, left: streamFactor*q.limit + streamExtra, data: memory}
	for {
		f := s.event()
		if f != answered {
			return message{}, f
		}
		m, ok := parseMessage(*memory)
		switch {
		case !ok:
			return message{}, malformed
		case m.isResponse():
			if !m.answers(q.id) {
				return message{}, malformed
			}
			drain(body, reader)
			return m, answered
		case q.progress != nil && m.isProgress(q.id):
			q.progress(m.params)
		}
	}
}

// drain reads to the end of a stream that ends by itself, so that its connection can be used again.
func drain(body io.Closer, reader io.Reader) {
	late := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, reader, drainBytes)
}

// stream takes server-sent events apart.
type stream struct {
	reader *bufio.Reader
	limit  int64 // bytes of one event's data
	left   int64 // bytes of the whole stream
	data   *[]byte
	other  bool // the event under way has a type that is not "message"
}

// event fills data with that of the next message event. Events without data prime or keep alive.
func (s *stream) event() fault {
	*s.data, s.other = (*s.data)[:0], false
	for {
		blank, f, err := s.line()
		if f != answered {
			return f
		}
		// The last event counts even when the blank line behind it is missing: if it holds our answer
		// whole, then that is the answer.
		if blank || err != nil {
			*s.data = bytes.TrimSuffix(*s.data, []byte("\n"))
			if len(*s.data) > 0 && !s.other && (err == nil || errors.Is(err, io.EOF)) {
				return answered
			}
			*s.data, s.other = (*s.data)[:0], false
		}
		if err != nil {
			return silent
		}
	}
}

// line reads one line in as many pieces as it takes; err is what ended the stream behind it.
func (s *stream) line() (blank bool, f fault, err error) {
	piece, err := s.piece()
	more := errors.Is(err, bufio.ErrBufferFull)
	field, value, named := bytes.Cut(piece, []byte(":"))
	field = bytes.TrimPrefix(field, []byte("\ufeff"))
	content := bytes.TrimRight(piece, "\r\n")
	data := named && string(field) == "data"
	if named && string(field) == "event" {
		kind := string(bytes.TrimSpace(value))
		s.other = kind != "" && kind != "message"
	}
	if data {
		value = bytes.TrimPrefix(value, []byte(" "))
		*s.data = append(*s.data, value...)
	}
	for more && s.left > 0 && int64(len(*s.data)) <= s.limit {
		piece, err = s.piece()
		more = errors.Is(err, bufio.ErrBufferFull)
		if data {
			*s.data = append(*s.data, piece...)
		}
	}
	if s.left <= 0 || int64(len(*s.data)) > s.limit+2 {
		return false, tooLarge, nil
	}
	if data {
		*s.data = append(bytes.TrimRight(*s.data, "\r\n"), '\n')
	}
	return len(content) == 0, answered, err
}

func (s *stream) piece() ([]byte, error) {
	piece, err := s.reader.ReadSlice('\n')
	s.left -= int64(len(piece))
	return piece, err
}
