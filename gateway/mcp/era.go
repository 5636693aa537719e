package mcp

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"counterfoil/gateway"
	"counterfoil/internal/canon"
)

// era says which of the two generations of MCP a request speaks.
type era int

const (
	handshake era = iota // 2025-06-18, 2025-11-25
	modern               // 2026-07-28
)

const (
	modernVersion = "2026-07-28"
	// latestHandshake is offered to a client that asks for something else: never
	// the modern revision, which has no handshake.
	latestHandshake = "2025-11-25"
	versionHeader   = "Mcp-Protocol-Version"
)

func handshakeVersion(v string) bool { return v == "2025-11-25" || v == "2025-06-18" }

// eraOf decides by what the request itself says, for there is no session.
func eraOf(p params, h http.Header) (era, *fault) {
	header, repeated := single(h, versionHeader)
	if p.version == nil && !modernOrLater(header) {
		if header == "" || handshakeVersion(header) {
			return handshake, nil
		}
		return handshake, notServed(header)
	}
	if header == "" || repeated {
		return modern, headerFault("The header MCP-Protocol-Version is missing, or is repeated with another value.")
	}
	if p.version == nil {
		return modern, badForm(statusBadRequest, codeParams, "The member _meta lacks "+metaPrefix+"protocolVersion.")
	}
	version, ok := gateway.String(p.version)
	if !ok {
		return modern, badForm(statusBadRequest, codeParams, "The protocol version must be a string.")
	}
	switch {
	case version != header:
		return modern, headerFault("The header MCP-Protocol-Version says another version than the body.")
	case handshakeVersion(version):
		return handshake, nil
	case version != modernVersion:
		return modern, notServed(version)
	case !gateway.IsObject(p.caps):
		return modern, badForm(statusBadRequest, codeParams, "The member _meta lacks the object "+metaPrefix+"clientCapabilities.")
	}
	return modern, nil
}

// speaksModern goes by the header alone, for what has no params.
func speaksModern(h http.Header) bool {
	version, _ := single(h, versionHeader)
	return modernOrLater(version)
}

// modernOrLater tells of the dates by which revisions are called. What is no date
// is of no era, and is refused as the handshake's unknown versions are.
func modernOrLater(version string) bool {
	if len(version) != len(modernVersion) || version < modernVersion {
		return false
	}
	for i, c := range []byte(version) {
		if dash := i == 4 || i == 7; dash != (c == '-') || !dash && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func headerFault(text string) *fault { return badForm(statusBadRequest, codeHeader, text) }

func notServed(version string) *fault {
	f := badForm(statusBadRequest, codeVersion, "This protocol version is not served.")
	data := []byte(`"supported":[`)
	for i, v := range gateway.ProtocolVersions() {
		if i > 0 {
			data = append(data, ',')
		}
		data = canon.AppendString(data, v)
	}
	data = append(data, `],"requested":`...)
	f.data = string(canon.AppendString(data, strings.ToValidUTF8(version, "\uFFFD")))
	return f
}

// single returns a header's one value. Repeating the same value is harmless.
func single(h http.Header, name string) (value string, repeated bool) {
	values := h[name]
	if len(values) == 0 {
		return "", false
	}
	return strings.Trim(values[0], " \t"), slices.ContainsFunc(values, func(v string) bool { return v != values[0] })
}

// namedMethods repeat a member of their params in Mcp-Name.
func nameMember(method string) string {
	switch method {
	case "tools/call", "prompts/get":
		return "name"
	case "resources/read":
		return "uri"
	}
	return ""
}

// checkHeaders compares the headers of the modern era with the body: a proxy may
// have decided by them what the body only should say.
func checkHeaders(m message, h http.Header) *fault {
	if v, repeated := single(h, "Mcp-Method"); v != m.method || repeated {
		return headerFault("The header Mcp-Method is missing or says another method than the body.")
	}
	member := nameMember(m.method)
	if member == "" {
		return nil
	}
	want, ok := "", false
	if m.params != nil {
		gateway.Members(m.params, func(name, value []byte) bool {
			if string(name) == member {
				want, ok = gateway.String(value)
			}
			return true
		})
	}
	if !ok {
		return badForm(statusBadRequest, codeParams, "The params lack the string "+member+".")
	}
	if got, found := headerText(h, "Mcp-Name"); !found || got != want {
		return headerFault("The header Mcp-Name is missing or says another name than the body.")
	}
	return nil
}

// checkParamHeaders compares Mcp-Param-* with the canonical arguments.
func checkParamHeaders(headers []gateway.ParamHeader, args []byte, h http.Header) *fault {
	for _, ph := range headers {
		raw, there := canon.Lookup(args, ph.Pointer)
		there = there && string(raw) != "null"
		got, found := headerText(h, http.CanonicalHeaderKey(ph.Header))
		_, sent := h[http.CanonicalHeaderKey(ph.Header)]
		switch {
		case !there && !sent:
		case !there:
			return headerFault("The header " + ph.Header + " stands for an argument that is not there.")
		case !found || !sameValue(raw, got):
			return headerFault("The header " + ph.Header + " is missing or says another value than the argument.")
		}
	}
	return nil
}

func sameValue(raw []byte, header string) bool {
	if text, ok := gateway.String(raw); ok {
		return header == text
	}
	if string(raw) == header {
		return true
	}
	number, err := canon.Canonical([]byte(header))
	return err == nil && string(number) == string(raw)
}

// headerText reads a header that may be written =?base64?…?=. found is false for
// one that is missing, contradicts itself, or cannot be read.
func headerText(h http.Header, name string) (value string, found bool) {
	v, repeated := single(h, name)
	if _, there := h[name]; !there || repeated {
		return "", false
	}
	inner, encoded := strings.CutPrefix(v, "=?base64?")
	if !encoded {
		return v, utf8.ValidString(v)
	}
	inner, encoded = strings.CutSuffix(inner, "?=")
	if !encoded {
		return v, utf8.ValidString(v)
	}
	text, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(text), err == nil && utf8.Valid(text)
}
