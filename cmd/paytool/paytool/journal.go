package paytool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Effect is one thing the tool did.
type Effect struct {
	Seq       int64           `json:"seq"` // from 1, without gaps
	Key       string          `json:"key"` // the operation key, "" where the caller sent none
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	At        time.Time       `json:"at"`
}

// journal is the file and what is in it. The file is the truth: what could not be written there did
// not happen, as far as anybody will be told.
type journal struct {
	now    func() time.Time
	dedupe bool

	mu      sync.Mutex
	file    *os.File
	effects []Effect
	byKey   map[keyed]int  // index of the first effect of a key
	keys    map[string]int // likewise, whatever the tool
	broken  error          // once a write has failed, nobody knows what the last line is
}

type keyed struct{ tool, key string }

func openJournal(o Options) (*journal, error) {
	file, err := os.OpenFile(o.Journal, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &journal{now: o.Now, dedupe: o.Dedupe, file: file, byKey: map[keyed]int{}, keys: map[string]int{}}
	if err := j.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("read journal %s: %w", o.Journal, err), file.Close())
	}
	return j, nil
}

// load reads the effects of earlier runs. A last line without its end was never answered: a crash
// cut it off, and so do we.
func (j *journal) load() error {
	text, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	for line := range bytes.Lines(text[:whole]) {
		var e Effect
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d: %w", len(j.effects)+1, err)
		}
		if e.Seq != int64(len(j.effects)+1) {
			return fmt.Errorf("line %d has seq %d", len(j.effects)+1, e.Seq)
		}
		j.add(e)
	}
	if err := j.file.Truncate(int64(whole)); err != nil {
		return err
	}
	_, err = j.file.Seek(int64(whole), io.SeekStart)
	return err
}

// record makes an effect, or finds the one the key has made already.
func (j *journal) record(tool, key string, arguments json.RawMessage) (e Effect, repeated bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return Effect{}, false, j.broken
	}
	if j.dedupe && key != "" {
		if i, found := j.byKey[keyed{tool, key}]; found {
			return j.effects[i], true, nil
		}
	}
	e = Effect{Seq: int64(len(j.effects) + 1), Key: key, Tool: tool, Arguments: arguments, At: j.now().UTC()}
	if err := j.write(e); err != nil {
		j.broken = err
		return Effect{}, false, err
	}
	j.add(e)
	return e, false, nil
}

func (j *journal) add(e Effect) {
	if _, found := j.keys[e.Key]; !found {
		j.keys[e.Key] = len(j.effects)
	}
	if _, found := j.byKey[keyed{e.Tool, e.Key}]; !found {
		j.byKey[keyed{e.Tool, e.Key}] = len(j.effects)
	}
	j.effects = append(j.effects, e)
}

// find returns the first effect of a key.
func (j *journal) find(key string) (Effect, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i, found := j.keys[key]
	if !found {
		return Effect{}, false
	}
	return j.effects[i], true
}

func (j *journal) write(e Effect) error {
	line, err := encode(e)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(line); err != nil {
		return err
	}
	return j.file.Sync()
}

// encode makes a line. It leaves arguments the bytes they came as, which escapes for HTML would not.
func encode(v any) ([]byte, error) {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return line.Bytes(), err
}

func (j *journal) all() []Effect {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]Effect{}, j.effects...)
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken == nil {
		j.broken = os.ErrClosed
	}
	return j.file.Close()
}
