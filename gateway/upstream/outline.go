package upstream

import (
	"bytes"
	"strconv"
)

// outline follows the text of a message that is not kept, or is no valid JSON, for what it must know to say whose
// answer it would have been: of the outermost object, the id and whether it has a method.
type outline struct {
	depth   int
	quoted  bool
	escaped bool
	value   bool   // behind a colon of the outermost object
	word    []byte // string or scalar under way at depth 1, cut at maxWord
	name    string
	id      []byte
	method  bool
}

const maxWord = 32 // bytes: an id of ours is shorter

// outlineOf outlines a whole text.
func outlineOf(text []byte) *outline {
	var o outline
	o.feed(text)
	return &o
}

// answers returns the id of the request that the message would have answered.
func (o *outline) answers() (int64, bool) {
	if o.method || o.id == nil {
		return 0, false
	}
	return requestID(o.id)
}

func (o *outline) feed(text []byte) {
	for len(text) > 0 {
		if o.quoted && !o.escaped && (o.depth > 1 || len(o.word) >= maxWord) {
			// Inside a string that says nothing to us, only its end and its escapes matter.
			skip := bytes.IndexAny(text, `"\`)
			if skip < 0 {
				return
			}
			text = text[skip:]
		}
		o.step(text[0])
		text = text[1:]
	}
}

func (o *outline) step(c byte) {
	switch {
	case o.escaped:
		o.escaped = false
		o.keep(c)
	case o.quoted:
		o.escaped = c == '\\'
		o.quoted = c != '"'
		o.keep(c)
	case c == '"':
		o.quoted = true
		o.keep(c)
	case c == '{' || c == '[':
		o.depth++
		o.word = o.word[:0]
	case c == '}' || c == ']':
		o.member()
		o.depth--
	case c == ':' && o.depth == 1:
		o.name, o.value, o.word = string(o.word), true, o.word[:0]
	case c == ',' && o.depth == 1:
		o.member()
	case c > ' ':
		o.keep(c)
	}
}

func (o *outline) keep(c byte) {
	if o.depth == 1 && len(o.word) < maxWord {
		o.word = append(o.word, c)
	}
}

// member takes note of a member of the outermost object at its end.
func (o *outline) member() {
	if o.depth != 1 || !o.value {
		return
	}
	switch o.name {
	case `"id"`:
		o.id = bytes.Clone(o.word)
	case `"method"`:
		o.method = true
	}
	o.value, o.word = false, o.word[:0]
}

// requestID reads an id of ours, to the letter.
func requestID(literal []byte) (int64, bool) {
	id, err := strconv.ParseInt(string(literal), 10, 64)
	return id, err == nil && strconv.FormatInt(id, 10) == string(literal)
}
