package canon

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Lookup returns the raw value an RFC 6901 pointer names in JSON that has passed Check. A pointer
// that is malformed, or names nothing, is not ok; "-" names nothing.
func Lookup(data []byte, pointer string) (raw []byte, ok bool) {
	if pointer != "" && pointer[0] != '/' {
		return nil, false
	}
	at := blank(data, 0)
	for pointer != "" {
		var segment string
		segment, pointer = cutSegment(pointer)
		if at >= len(data) {
			return nil, false
		}
		switch data[at] {
		case '{':
			name, valid := unescape(segment)
			if !valid {
				return nil, false
			}
			at, ok = member(data, at, name)
		case '[':
			at, ok = element(data, at, segment)
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	end := skip(data, at)
	return data[min(at, len(data)):end], end > at
}

// cutSegment splits "/a/b" into "a" and "/b".
func cutSegment(pointer string) (segment, rest string) {
	if i := strings.IndexByte(pointer[1:], '/'); i >= 0 {
		return pointer[1 : i+1], pointer[i+1:]
	}
	return pointer[1:], ""
}

func unescape(segment string) (name string, ok bool) {
	for i := range len(segment) {
		if segment[i] == '~' && (i+1 == len(segment) || (segment[i+1] != '0' && segment[i+1] != '1')) {
			return "", false
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(segment, "~1", "/"), "~0", "~"), true
}

// member returns where the value of the named member of the object at begins.
func member(data []byte, at int, name string) (value int, ok bool) {
	for i := blank(data, at+1); i < len(data) && data[i] == '"'; {
		end := skip(data, i)
		found := isName(data[i:end], name)
		i = blank(data, end)
		if i >= len(data) || data[i] != ':' {
			return 0, false
		}
		i = blank(data, i+1)
		if found {
			return i, i < len(data)
		}
		if i = blank(data, skip(data, i)); i < len(data) && data[i] == ',' {
			i = blank(data, i+1)
		}
	}
	return 0, false
}

func isName(literal []byte, name string) bool {
	if bytes.IndexByte(literal, '\\') < 0 {
		return len(literal) == len(name)+2 && string(literal[1:len(literal)-1]) == name
	}
	unquoted, err := jsontext.AppendUnquote(nil, literal)
	return err == nil && string(unquoted) == name
}

// element returns where the element of the array at begins whose index the segment spells.
func element(data []byte, at int, segment string) (value int, ok bool) {
	if !smallInteger([]byte(segment)) {
		return 0, false
	}
	left := 0
	for _, c := range []byte(segment) {
		left = left*10 + int(c-'0')
	}
	i := blank(data, at+1)
	for ; left > 0; left-- {
		if i >= len(data) || data[i] == ']' {
			return 0, false
		}
		if i = blank(data, skip(data, i)); i >= len(data) || data[i] != ',' {
			return 0, false
		}
		i = blank(data, i+1)
	}
	return i, i < len(data) && data[i] != ']'
}

// skip returns the index after the value at i: len(data) at most, whatever data holds.
func skip(data []byte, i int) int {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			i = skipString(data, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
			continue
		default:
			for i < len(data) && !bytes.ContainsRune([]byte(",:]} \t\r\n"), rune(data[i])) {
				i++
			}
		}
		if depth <= 0 {
			return i
		}
	}
	return len(data)
}

func skipString(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

func blank(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}
