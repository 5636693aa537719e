package gateway

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// The functions of this file read JSON that canon has already accepted. They
// only find where values begin and end, so that bytes which were hashed or
// answered by somebody else are passed on as they are, and nothing is parsed
// a second time.

// Members calls f with each member of a checked JSON object, in order, until f
// returns false. name is unquoted, value is the raw text.
func Members(obj []byte, f func(name, value []byte) bool) {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return
	}
	i++
	for {
		i = skipSpace(obj, i)
		if i >= len(obj) || obj[i] != '"' {
			return
		}
		end := skipString(obj, i)
		name := unquote(obj[i:end])
		i = skipSpace(obj, end)
		if i >= len(obj) || obj[i] != ':' {
			return
		}
		i = skipSpace(obj, i+1)
		end = skipValue(obj, i)
		if !f(name, obj[i:end]) {
			return
		}
		i = skipSpace(obj, end)
		if i >= len(obj) || obj[i] != ',' {
			return
		}
		i++
	}
}

// String returns the text of a checked JSON value that is a string.
func String(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	return string(unquote(value)), true
}

// IsObject tells whether a checked JSON value is an object.
func IsObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

// unquote aliases the input where no escape has to be undone.
func unquote(lit []byte) []byte {
	if len(lit) >= 2 && bytes.IndexByte(lit, '\\') < 0 {
		return lit[1 : len(lit)-1]
	}
	out, _ := jsontext.AppendUnquote(nil, lit)
	return out
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipString returns the index after the string literal that begins at i. Each
// byte is looked at a bounded number of times, however many are escaped.
func skipString(b []byte, i int) int {
	i++
	quote := -1
	for {
		if quote < i {
			next := bytes.IndexByte(b[min(i, len(b)):], '"')
			if next < 0 {
				return len(b)
			}
			quote = i + next
		}
		escape := bytes.IndexByte(b[i:quote], '\\')
		if escape < 0 {
			return quote + 1
		}
		i += escape + 2
	}
}

// skipValue returns the index after the value that begins at i.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	for i < len(b) && !bytes.ContainsRune([]byte(",]} \n\r\t"), rune(b[i])) {
		i++
	}
	return i
}

func skipNested(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(b)
}
