package mcp

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
)

// Decoded is what tests see of a message.
type Decoded struct {
	ID, Method, Params string
	Status, Code       int // of the refusal; 0: none
}

// Decode decodes one body.
func Decode(body []byte) Decoded {
	m, f := decode(body)
	d := Decoded{ID: string(m.id), Method: m.method, Params: string(m.params)}
	if f != nil {
		d.Status, d.Code = f.status, f.code
	}
	return d
}

// Context is what tests see of a call's context.
type Context struct {
	Wallet, Permit, Key                string
	WalletNamed, PermitNamed, KeyNamed bool
	Source                             string
	Reason                             string // of the refusal; "": none
	Wait                               time.Duration
}

// ReadContext reads the context of params and headers.
func ReadContext(raw string, h http.Header) Context {
	p, f := readParams([]byte(raw))
	if f != nil {
		return Context{Reason: string(f.reason)}
	}
	c, refusal := readContext(p, h)
	if refusal != nil {
		return Context{Reason: string(refusal.Reason)}
	}
	return Context{
		Wallet: c.wallet.value, Permit: c.permit.value, Key: c.key.value,
		WalletNamed: c.wallet.is, PermitNamed: c.permit.is, KeyNamed: c.key.is, Source: c.keySource, Wait: preferredWait(h),
	}
}

// Headers checks what the headers of a request say about its body: the status
// and code of the refusal, and whether it speaks the modern revision.
func Headers(method, raw, args string, params []gateway.ParamHeader, h http.Header) (isModern bool, status, code int) {
	p, f := readParams([]byte(raw))
	if f != nil {
		return false, f.status, f.code
	}
	e, f := eraOf(p, h)
	if f == nil && e == modern {
		f = checkHeaders(message{method: method, params: []byte(raw)}, h)
	}
	if f == nil && e == modern {
		f = checkParamHeaders(params, []byte(args), h)
	}
	if f != nil {
		return e == modern, f.status, f.code
	}
	return e == modern, 0, 0
}

// Stream is what tests see of the relay of progress.
type Stream struct{ s *stream }

// ProgressTo begins to tell of progress; nil where the token is none.
func ProgressTo(c echo.Context, token string) *Stream {
	if s := progressTo(c, []byte(token)); s != nil {
		return &Stream{s}
	}
	return nil
}

// Progress tells of one progress.
func (s *Stream) Progress(params string) { s.s.progress([]byte(params)) }

// Answer ends the stream with a message.
func (s *Stream) Answer(message string) error {
	s.s.end()
	return writeJSON(s.s.c, http.StatusOK, []byte(message))
}
