package upstream

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxEscapes is how many layers of JSON in JSON a secret is looked for under: servers put a result
// both into structuredContent and, as text, into content.
const maxEscapes = 3

// scrub puts the handle in the place of every secret we sent. Text without one is returned as it is. It
// is not ok where what is left is not JSON any more, or still shows one.
func (c *Client) scrub(text []byte, p *peer, call Call) (clean []byte, scrubbed, ok bool) {
	// What remains around a secret that was taken out can be another one, but not for ever.
	for range (len(c.secrets) + 3) * (maxEscapes + 2) {
		secret, layers := c.leak(text, p, call)
		if secret == "" {
			return text, scrubbed, !scrubbed || jsontext.Value(text).IsValid()
		}
		text, scrubbed = replace(text, secret, call.Handle, layers), true
	}
	return nil, true, false
}

// leak finds a secret that shows in text after some layers of unescaping.
func (c *Client) leak(text []byte, p *peer, call Call) (secret string, layers int) {
	v := view{text: text}
	for layers = range maxEscapes + 1 {
		for i := -3; i < len(c.secrets); i++ {
			secret := c.secret(i, p, call)
			if len(secret) >= minSecret && bytes.Contains(v.text, []byte(secret)) {
				return secret, layers
			}
		}
		if bytes.IndexByte(v.text, '\\') < 0 {
			break
		}
		v = v.unescape(false)
	}
	return "", 0
}

// secret is the i-th of what must not be shown: the private keys, the session, the headers' values.
func (c *Client) secret(i int, p *peer, call Call) string {
	switch i {
	case -3:
		return call.Secret
	case -2:
		return call.OperationKey
	case -1:
		return p.session
	}
	return c.secrets[i]
}

// replace puts the handle in the place of the secret as it shows after layers of unescaping, and leaves
// every other byte of text as it is, escaped or not.
func replace(text []byte, secret, handle string, layers int) []byte {
	v := view{text: text}
	for range layers {
		v = v.unescape(true)
	}
	out := make([]byte, 0, len(text)+len(handle))
	from := 0
	for at := 0; ; {
		i := bytes.Index(v.text[at:], []byte(secret))
		if i < 0 {
			return append(out, text[from:]...)
		}
		out = append(append(out, text[from:v.from(at+i)]...), handle...)
		at += i + len(secret)
		from = v.from(at)
	}
}

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
