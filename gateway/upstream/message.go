package upstream

import (
	"bytes"
	"iter"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// message is a JSON-RPC message; its members point into the text it was parsed from.
type message struct {
	id, method, params []byte // as literals
	result, fail       []byte // fail is the error object
	code               int64  // of fail
}

// parseMessage takes a message apart after checking the whole text: strict UTF-8, no lone surrogates, no
// duplicate names, nothing behind it. What the walk then skips is known to be well formed.
func parseMessage(text []byte) (m message, ok bool) {
	if !jsontext.Value(text).IsValid() {
		return m, false
	}
	version := false
	members, ok := objectOf(text)
	if !ok {
		return m, false
	}
	for members.next() {
		switch {
		case members.is("jsonrpc"):
			version = string(members.value) == `"2.0"`
		case members.is("id"):
			m.id = members.value
		case members.is("method"):
			m.method = members.value
		case members.is("params"):
			m.params = members.value
		case members.is("result"):
			m.result = members.value
		case members.is("error") && !isNull(members.value):
			m.fail = members.value
		}
	}
	if m.fail != nil && isNull(m.result) {
		m.result = nil
	}
	return m, version
}

// parseAnswer accepts a text that is the one answer to request id.
func parseAnswer(text []byte, id int64) (message, fault) {
	m, ok := parseMessage(text)
	if !ok || !m.isResponse() || !m.answers(id) {
		return message{}, malformed
	}
	return m, answered
}

func (m *message) isResponse() bool { return m.method == nil }

// answers reports whether m is a whole answer to the request: its id to the letter, and either a
// result or an error with a code.
func (m *message) answers(id int64) bool {
	if string(m.id) != strconv.FormatInt(id, 10) || (m.result == nil) == (m.fail == nil) {
		return false
	}
	if m.fail == nil {
		return true
	}
	members, ok := objectOf(m.fail)
	for ok && members.next() {
		if members.is("code") {
			code, err := strconv.ParseInt(string(members.value), 10, 64)
			m.code = code
			return err == nil
		}
	}
	return false
}

// isProgress reports whether m is progress of the request, whose id is its progress token too.
func (m *message) isProgress(id int64) bool {
	token, ok := m.progressToken()
	return ok && token == id
}

// progressToken is the id of the request whose progress m is.
func (m *message) progressToken() (int64, bool) {
	if string(m.method) != `"notifications/progress"` {
		return 0, false
	}
	members, ok := objectOf(m.params)
	for ok && members.next() {
		if members.is("progressToken") {
			return requestID(members.value)
		}
	}
	return 0, false
}

// members walks over the members of one object of a text that is known to be valid JSON.
type members struct {
	text       []byte
	at         int
	name       []byte // the literal, with its quotes
	value      []byte
	start, end int // of the member in the text, from its name to its value
}

func objectOf(text []byte) (members, bool) {
	at := skipBlank(text, 0)
	return members{text: text, at: at + 1}, at < len(text) && text[at] == '{'
}

func (m *members) next() bool {
	at := skipBlank(m.text, m.at)
	if at < len(m.text) && m.text[at] == ',' {
		at = skipBlank(m.text, at+1)
	}
	if at >= len(m.text) || m.text[at] != '"' {
		return false
	}
	m.start = at
	at = skipValue(m.text, at)
	m.name = m.text[m.start:at]
	at = skipBlank(m.text, skipBlank(m.text, at)+1) // over the colon
	m.end = skipValue(m.text, at)
	m.value = m.text[at:m.end]
	m.at = m.end
	return true
}

func (m *members) is(name string) bool {
	if bytes.IndexByte(m.name, '\\') >= 0 {
		return m.plainName() == name
	}
	return string(m.name[1:len(m.name)-1]) == name
}

func (m *members) plainName() string { return plainString(m.name) }

// plainString is what a string literal stands for; "" for anything else.
func plainString(literal []byte) string {
	plain, err := jsontext.AppendUnquote(nil, literal)
	if err != nil {
		return ""
	}
	return string(plain)
}

func skipBlank(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t') {
		at++
	}
	return at
}

// skipValue returns the index behind the value that begins at at.
func skipValue(text []byte, at int) int {
	depth := 0
	for at < len(text) {
		switch text[at] {
		case '"':
			at = skipString(text, at)
		case '{', '[':
			depth++
			at++
		case '}', ']':
			depth--
			at++
		case ',', ':', ' ', '\n', '\r', '\t':
			at++
		default: // a number or a word
			for at < len(text) && isScalar(text[at]) {
				at++
			}
		}
		if depth == 0 {
			return at
		}
	}
	return at
}

func isScalar(c byte) bool {
	return c-'0' <= 9 || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '-' || c == '+' || c == '.'
}

func skipString(text []byte, at int) int {
	for at++; at < len(text); {
		end := bytes.IndexByte(text[at:], '"')
		if end < 0 {
			return len(text)
		}
		if escape := bytes.IndexByte(text[at:at+end], '\\'); escape >= 0 {
			at += escape + 2
			continue
		}
		return at + end + 1
	}
	return len(text)
}

func isNull(literal []byte) bool { return string(literal) == "null" }

// elements yields the values of an array of a text that is known to be valid JSON.
func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		at := skipBlank(array, 0)
		if at >= len(array) || array[at] != '[' {
			return
		}
		for at = skipBlank(array, at+1); at < len(array) && array[at] != ']'; {
			end := skipValue(array, at)
			if !yield(array[at:end]) {
				return
			}
			if at = skipBlank(array, end); at < len(array) && array[at] == ',' {
				at = skipBlank(array, at+1)
			}
		}
	}
}

// holdsString reports whether an array has the string s.
func holdsString(array []byte, s string) bool {
	for value := range elements(array) {
		if plainString(value) == s {
			return true
		}
	}
	return false
}
