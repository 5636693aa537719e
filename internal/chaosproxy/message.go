package chaosproxy

import (
	"encoding/binary"
	"io"
)

// Types of the messages that matter here.
const (
	syncEnd   = 'S' // ends a pipeline
	query     = 'Q' // a pipeline of its own
	terminate = 'X'
	ready     = 'Z' // the server has answered a pipeline
)

// message is one message of PostgreSQL's protocol.
type message struct {
	head byte
	body []byte
}

// last reports whether the client now waits for answers.
func (m message) last() bool { return m.head == syncEnd || m.head == query }

func readMessage(from io.Reader) (message, error) {
	var prefix [5]byte
	if _, err := io.ReadFull(from, prefix[:]); err != nil {
		return message{}, err
	}
	m := message{head: prefix[0], body: make([]byte, binary.BigEndian.Uint32(prefix[1:])-4)}
	_, err := io.ReadFull(from, m.body)
	return m, err
}

func (m message) write(to io.Writer) bool {
	frame := make([]byte, 5, 5+len(m.body))
	frame[0] = m.head
	binary.BigEndian.PutUint32(frame[1:], uint32(len(m.body)+4))
	_, err := to.Write(append(frame, m.body...))
	return err == nil
}
