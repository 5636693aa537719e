package mcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
)

// maxShape bounds how many members of a `_meta` are told of: whoever sends more is not diagnosed by them.
const maxShape = 40

// Digest tells values apart, and tells nobody what they are: it is keyed with a secret that no one knows, so that
// short values, of which there are few, cannot be tried out. Digests under two secrets do not compare.
type Digest struct{ secret [sha256.Size]byte }

// NewDigest makes a digest under a secret of its own.
func NewDigest() Digest {
	var d Digest
	_, _ = rand.Read(d.secret[:]) // never fails: the program would have stopped
	return d
}

// For gives an agent a secret of its own: one that could read the log must not find out by calls of its own what
// another one has sent.
func (d Digest) For(agent string) Digest { return Digest{secret: d.sum([]byte(agent))} }

// Of is the digest of a value: eight hexadecimal digits.
func (d Digest) Of(value []byte) string {
	sum := d.sum(value)
	return hex.EncodeToString(sum[:4])
}

func (d Digest) sum(value []byte) [sha256.Size]byte {
	mac := hmac.New(sha256.New, d.secret[:])
	mac.Write(value)
	return [sha256.Size]byte(mac.Sum(nil))
}

// Shape is what an object looks like: for each member its name, quoted and bounded, its JSON type, its length in bytes
// (of a string its text's, of anything else its JSON's) and a digest. Members of members are told one level down. It
// never holds a value.
func Shape(object []byte, digest Digest) []string {
	s := shape{digest: digest, lines: []string{}}
	s.members("", object)
	if s.left > 0 {
		s.lines = append(s.lines, fmt.Sprintf("and %d more", s.left))
	}
	return s.lines
}

type shape struct {
	digest Digest
	lines  []string
	left   int
}

func (s *shape) members(above string, object []byte) {
	gateway.Members(object, func(name, value []byte) bool {
		if len(s.lines) >= maxShape {
			s.left++
			return true
		}
		path := above + shown(string(name))
		s.lines = append(s.lines, path+" "+ShapeOf(value, s.digest))
		if above == "" && gateway.IsObject(value) {
			s.members(path+".", value)
		}
		return true
	})
}

// ShapeOf is the shape of one JSON value: its type, its length and its digest.
func ShapeOf(value []byte, digest Digest) string {
	if text, ok := gateway.String(value); ok {
		return fmt.Sprintf("string %d %s", len(text), digest.Of([]byte(text)))
	}
	kind := "none"
	if len(value) > 0 {
		switch value[0] {
		case '{':
			kind = "object"
		case '[':
			kind = "array"
		case 't', 'f':
			kind = "boolean"
		case 'n':
			kind = "null"
		default:
			kind = "number"
		}
	}
	return fmt.Sprintf("%s %d %s", kind, len(value), digest.Of(value))
}

// diagnose logs, where the operator wants it, one line about what a client sends by which its calls could be known.
// It changes nothing.
func (d *door) diagnose(c echo.Context, r call) {
	if !d.diagnostics {
		return
	}
	digest, revision := d.digest.For(r.agent.ID), "handshake"
	if r.era == modern {
		revision = modernVersion
	}
	d.g.Logger().InfoContext(c.Request().Context(), "shape of a call", "agent", r.agent.ID, "revision", revision,
		"identity", d.verdict(c, r), "json_rpc_id", ShapeOf(r.id, digest), "meta", Shape(r.params.meta, digest))
}

// verdict says what names the call, or why nothing does.
func (d *door) verdict(c echo.Context, r call) string {
	ctx, refusal := readContext(r.params, c.Request().Header)
	if refusal != nil {
		return string(refusal.Reason)
	}
	if ctx.key.is {
		return ctx.keySource
	}
	id, refusal := Identify(r.params.meta, d.platforms)
	if refusal != nil {
		return string(refusal.Reason)
	}
	return id.Platform
}
