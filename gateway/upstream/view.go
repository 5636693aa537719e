package upstream

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// view is a text with its JSON escapes resolved, wherever they stand: valid JSON has none outside its
// strings, and inside a string there may be JSON again.
type view struct {
	text   []byte
	origin []int // by byte of text, and for its end: where it began before the first unescaping
}

// unescape resolves one layer. What looks like an escape and is none stays as it is.
func (v view) unescape(track bool) view {
	out := view{text: make([]byte, 0, len(v.text))}
	if track {
		out.origin = make([]int, 0, len(v.text)+1)
	}
	for at := 0; at < len(v.text); {
		run := bytes.IndexByte(v.text[at:], '\\')
		if run < 0 {
			run = len(v.text) - at
		}
		out.text = append(out.text, v.text[at:at+run]...)
		for i := at; track && i < at+run; i++ {
			out.origin = append(out.origin, v.from(i))
		}
		if at += run; at == len(v.text) {
			break
		}
		before := len(out.text)
		size := out.escape(v.text[at:])
		for i := before; track && i < len(out.text); i++ {
			out.origin = append(out.origin, v.from(at))
		}
		at += size
	}
	if track {
		out.origin = append(out.origin, v.from(len(v.text)))
	}
	return out
}

func (v view) from(i int) int {
	if v.origin == nil {
		return i
	}
	return v.origin[i]
}

// escape appends what the escape at the start of text stands for and returns its length.
func (v *view) escape(text []byte) int {
	if len(text) < 2 {
		v.text = append(v.text, text...)
		return len(text)
	}
	switch text[1] {
	case '"', '\\', '/':
		v.text = append(v.text, text[1])
	case 'b':
		v.text = append(v.text, '\b')
	case 'f':
		v.text = append(v.text, '\f')
	case 'n':
		v.text = append(v.text, '\n')
	case 'r':
		v.text = append(v.text, '\r')
	case 't':
		v.text = append(v.text, '\t')
	case 'u':
		high, ok := unit(text)
		if !ok {
			v.text = append(v.text, '\\')
			return 1
		}
		if low, ok := unit(text[6:]); ok && utf16.IsSurrogate(high) {
			if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
				v.text = utf8.AppendRune(v.text, r)
				return 12
			}
		}
		v.text = utf8.AppendRune(v.text, high)
		return 6
	default:
		v.text = append(v.text, '\\')
		return 1
	}
	return 2
}

// unit reads \uXXXX at the start of text.
func unit(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}
