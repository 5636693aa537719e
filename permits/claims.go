package permits

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"counterfoil/internal/canon"
)

// Payload returns the claims in their one canonical form (RFC 8785): the bytes that are signed at issue.
func (p *Permit) Payload() []byte {
	var o object
	o.open()
	o.member("act")
	o.open()
	o.text("sub", p.Agent)
	o.close()
	o.text("aud", p.Audience)
	o.member("authorization_details")
	o.buf = append(o.buf, '[')
	o.buf = append(o.buf, p.Grant.JSON(true)...)
	o.buf = append(o.buf, ']')
	o.integer("exp", p.Expires)
	o.integer("iat", p.IssuedAt)
	o.text("iss", p.Issuer)
	o.text("jti", p.ID)
	o.integer("nbf", p.NotBefore)
	o.text("scope", strings.Join(p.Scopes, " "))
	o.text("sub", p.Wallet)
	o.close()
	return o.buf
}

// JSON returns the grant in its one canonical form, with "type" as in a permit or without as in the operator API.
func (g Grant) JSON(withType bool) []byte {
	var o object
	o.open()
	if a := g.Approval; a != nil {
		o.member("approval")
		o.open()
		o.boolean("always", a.Always)
		o.optional("value_over", a.ValueOver)
		o.close()
	}
	o.texts("deny_args", g.DenyArgs)
	o.member("limits")
	g.Limits.write(&o)
	if r := g.Recipient; r != nil {
		o.member("recipient")
		o.open()
		o.texts("domains", r.Domains)
		o.boolean("subdomains", r.Subdomains)
		o.close()
	}
	o.texts("tools", g.Tools)
	if withType {
		o.text("type", GrantType)
	}
	o.close()
	return o.buf
}

// write leaves absent limits out: a zero would be a limit.
func (l *Limits) write(o *object) {
	o.open()
	if l.Calls != nil {
		o.member("calls")
		o.open()
		for _, tool := range slices.SortedFunc(maps.Keys(l.Calls), compareUTF16) {
			o.integer(tool, l.Calls[tool])
		}
		o.close()
	}
	o.optional("calls_total", l.CallsTotal)
	o.integer("credits", l.Credits)
	o.optional("credits_per_call", l.CreditsPerCall)
	if v := l.Value; v != nil {
		o.member("value")
		o.open()
		o.text("currency", v.Currency)
		o.optional("per_call", v.PerCall)
		o.optional("total", v.Total)
		o.close()
	}
	o.close()
}

// compareUTF16 is the member order of RFC 8785.
func compareUTF16(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// object writes JSON objects whose members come in canonical order from the caller. Nothing is reflected on: the order
// of the code is the order of the bytes, and a test compares it with RFC 8785.
type object struct{ buf []byte }

func (o *object) open()  { o.buf = append(o.buf, '{') }
func (o *object) close() { o.buf = append(o.buf, '}') }

func (o *object) member(name string) {
	if o.buf[len(o.buf)-1] != '{' {
		o.buf = append(o.buf, ',')
	}
	o.buf = canon.AppendString(o.buf, name)
	o.buf = append(o.buf, ':')
}

func (o *object) text(name, s string) {
	o.member(name)
	o.buf = canon.AppendString(o.buf, s)
}

func (o *object) integer(name string, n int64) {
	o.member(name)
	o.buf = strconv.AppendInt(o.buf, n, 10)
}

func (o *object) optional(name string, n *int64) {
	if n != nil {
		o.integer(name, *n)
	}
}

func (o *object) boolean(name string, b bool) {
	o.member(name)
	o.buf = strconv.AppendBool(o.buf, b)
}

// texts leaves the member out where list is nil.
func (o *object) texts(name string, list []string) {
	if list == nil {
		return
	}
	o.member(name)
	o.buf = append(o.buf, '[')
	for i, s := range list {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = canon.AppendString(o.buf, s)
	}
	o.buf = append(o.buf, ']')
}
