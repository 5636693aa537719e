package upstream

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// shape is what there is to know of a tool's result, read in one walk over its members.
type shape struct {
	kind    string // resultType; "complete" where an older server says nothing
	isError bool
	dressed bool // it has members that are not the tool's
	meta    bool // its _meta has
}

// shapeOf refuses results on which a reader would stumble: we add to content and to _meta, so they
// must be what the protocol says they are.
func shapeOf(result []byte) (s shape, ok bool) {
	s.kind = "complete"
	members, ok := objectOf(result)
	if !ok {
		return s, false
	}
	for members.next() {
		first := members.value[0]
		switch {
		case members.is("isError"):
			s.isError = first == 't'
			ok = first == 't' || first == 'f' || first == 'n'
		case members.is("content"):
			ok = first == '[' || first == 'n'
		case members.is("resultType"):
			s.kind, ok = plainString(members.value), first == '"'
			s.dressed = true
		case isDressing(&members):
			s.dressed = true
		case members.is("_meta"):
			ok = first == '{' || first == 'n'
			s.meta = first == 'n' || hasForeign(members.value)
		}
		if !ok {
			return s, false
		}
	}
	return s, true
}

// undress copies a result without what belongs to the hop and not to the tool. Every byte it keeps
// stays as it is.
func (s shape) undress(result []byte) []byte {
	if !s.dressed && !s.meta {
		return bytes.Clone(result)
	}
	out, _ := rebuild(result, func(m *members) (value []byte, keep bool) {
		if isDressing(m) {
			return nil, false
		}
		if !s.meta || !m.is("_meta") {
			return m.value, true
		}
		if isNull(m.value) {
			return nil, false
		}
		meta, kept := rebuild(m.value, func(m *members) ([]byte, bool) { return m.value, !isForeign(m) })
		return meta, kept > 0
	})
	return out
}

// rebuild copies an object, keeping the members keep says, with the values it says.
func rebuild(object []byte, keep func(*members) (value []byte, keep bool)) (out []byte, kept int) {
	m, ok := objectOf(object)
	if !ok {
		return object, 0
	}
	out = make([]byte, 0, len(object))
	end := -1 // of the member before, kept or not
	for m.next() {
		if end < 0 {
			out = append(out, object[:m.start]...)
		}
		value, wanted := keep(&m)
		if wanted {
			if kept > 0 {
				out = append(out, object[end:m.start]...)
			}
			out = append(out, object[m.start:m.end-len(m.value)]...)
			out = append(out, value...)
			kept++
		}
		end = m.end
	}
	if end < 0 {
		return object, 0
	}
	return append(out, object[end:]...), kept
}

// isDressing reports the members of a result that are the protocol's business with us, and forgeries
// of ours.
func isDressing(m *members) bool {
	return m.is("resultType") || m.is("ttlMs") || m.is("cacheScope") || isOurs(m)
}

func hasForeign(meta []byte) bool {
	members, ok := objectOf(meta)
	for ok && members.next() {
		if isForeign(&members) {
			return true
		}
	}
	return false
}

// isForeign reports the members of a result's _meta that must not pass for the gateway's own.
func isForeign(m *members) bool {
	return m.is("io.modelcontextprotocol/serverInfo") || isOurs(m)
}

func isOurs(m *members) bool {
	const prefix = clientName + "/"
	name := m.name[1 : len(m.name)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = []byte(m.plainName())
	}
	return len(name) >= len(prefix) && strings.EqualFold(string(name[:len(prefix)]), prefix)
}

// maxEscapes is how many layers of JSON in JSON a secret is looked for under: servers put a result
// both into structuredContent and, as text, into content.
const maxEscapes = 3

// scrub puts the handle in the place of every secret we sent. Text without one is returned as it is. It
// is not ok where what is left is not JSON any more, or still shows one.
func (c *Client) scrub(text []byte, p *peer, call Call) (clean []byte, scrubbed, ok bool) {
	// What remains around a secret that was taken out can be another one, but not for ever.
	for range (len(c.secrets) + 2) * (maxEscapes + 2) {
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
		for i := -2; i < len(c.secrets); i++ {
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

// secret is the i-th of what must not be shown: the private key, the session, the headers' values.
func (c *Client) secret(i int, p *peer, call Call) string {
	switch i {
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
