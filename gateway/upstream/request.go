package upstream

import (
	"encoding/base64"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"counterfoil/internal/canon"
)

const (
	clientName = "counterfoil"

	modernVersion    = "2026-07-28"
	handshakeVersion = "2025-11-25" // the one we offer

	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"

	// What a modern request says about its sender; of the caller we pass on nothing but trace keys.
	modernMeta = `"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `",` +
		`"io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":` + clientInfo
	clientInfo = `{"name":"` + clientName + `","version":"1"}`
)

// traceKeys are the only members of a caller's _meta that go up.
func traceKeys() [3]string { return [3]string{"traceparent", "tracestate", "baggage"} }

// callBody writes the message of a tools/call around the argument bytes, which it does not touch.
func callBody(p *peer, id int64, call Call) []byte {
	arguments := call.Arguments
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	body := make([]byte, 0, 512+len(call.Tool)+len(arguments))
	body = appendHead(body, id, "tools/call")
	body = append(body, `{"name":`...)
	body = canon.AppendString(body, call.Tool)
	body = append(body, `,"arguments":`...)
	body = append(body, arguments...)
	token := int64(0)
	if call.Progress != nil {
		token = id
	}
	body = appendMeta(body, p.modern, token, call.Trace)
	return append(body, "}}"...)
}

// plainBody writes any other message; members are the params' own, ending in a comma where there are
// any and _meta is to follow.
func plainBody(modern bool, id int64, method, members string) []byte {
	body := appendHead(make([]byte, 0, 512), id, method)
	body = append(body, '{')
	body = append(body, members...)
	if members == "" {
		meta := appendMeta(nil, modern, 0, nil)
		if len(meta) > 0 {
			body = append(body, meta[1:]...)
		}
	} else {
		body = appendMeta(body, modern, 0, nil)
	}
	return append(body, "}}"...)
}

func appendHead(body []byte, id int64, method string) []byte {
	body = append(body, `{"jsonrpc":"2.0",`...)
	if id != 0 {
		body = append(body, `"id":`...)
		body = append(strconv.AppendInt(body, id, 10), ',')
	}
	body = append(body, `"method":"`...)
	body = append(body, method...)
	return append(body, `","params":`...)
}

// appendMeta appends a comma and the _meta member, or nothing where there is nothing to say.
func appendMeta(body []byte, modern bool, token int64, trace map[string]string) []byte {
	start := len(body)
	body = append(body, `,"_meta":{`...)
	empty := len(body)
	if modern {
		body = append(append(body, modernMeta...), ',')
	}
	if token != 0 {
		body = append(body, `"progressToken":`...)
		body = append(strconv.AppendInt(body, token, 10), ',')
	}
	if len(trace) > 0 {
		for _, key := range traceKeys() {
			if value, ok := trace[key]; ok {
				body = append(append(append(body, '"'), key...), `":`...)
				body = append(canon.AppendString(body, value), ',')
			}
		}
	}
	if len(body) == empty {
		return body[:start]
	}
	body[len(body)-1] = '}' // over the last comma
	return body
}

// header makes the headers of one request. The value slices are shared: the transport only reads them.
func (c *Client) header(p *peer, method string) http.Header {
	h := make(http.Header, len(c.fixed)+6)
	maps.Copy(h, c.fixed)
	if p.version != "" {
		h[headerVersion] = []string{p.version}
	}
	if p.session != "" {
		h[headerSession] = []string{p.session}
	}
	if p.modern {
		h[headerMethod] = []string{method}
	}
	return h
}

// callHeader adds what is rebuilt from the body for each call, and the private key.
func (c *Client) callHeader(p *peer, call Call) http.Header {
	h := c.header(p, "tools/call")
	if c.config.ForwardKeyHeader != "" && call.OperationKey != "" {
		h[http.CanonicalHeaderKey(c.config.ForwardKeyHeader)] = []string{call.OperationKey}
	}
	if !p.modern {
		return h
	}
	h[headerName] = []string{headerText(call.Tool)}
	for _, m := range p.mirrors[call.Tool] {
		if value, ok := m.find(call.Arguments); ok {
			h[m.header] = []string{headerText(value)}
		}
	}
	return h
}

const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

// headerText is s as the protocol wants it in a header: as it is, or encoded where HTTP could change
// it or a reader could take it for encoded.
func headerText(s string) string {
	plain := s == strings.Trim(s, " \t") && (!strings.HasPrefix(s, encodedPrefix) || !strings.HasSuffix(s, encodedSuffix))
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= ' ' && s[i] <= '~'
	}
	if plain {
		return s
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(s)) + encodedSuffix
}
