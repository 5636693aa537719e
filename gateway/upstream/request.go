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

	methodCall        = "tools/call"
	methodList        = "tools/list"
	methodDiscover    = "server/discover"
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"

	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"

	// What a modern request says about its sender: ourselves, with the capabilities of the caller for
	// whom we ask.
	metaVersion      = `"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `",`
	metaCapabilities = `"io.modelcontextprotocol/clientCapabilities":`
	metaClient       = `,"io.modelcontextprotocol/clientInfo":` + clientInfo + `,`
	clientInfo       = `{"name":"` + clientName + `","version":"1"}`
)

// traceKeys are the only members of a caller's _meta that go up.
func traceKeys() [3]string { return [3]string{"traceparent", "tracestate", "baggage"} }

// callBody writes the message of a tools/call around the argument bytes, which it does not touch.
func callBody(p *peer, id int64, call Call) []byte {
	arguments := call.Arguments
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	body := make([]byte, 0, 512+len(call.Tool)+len(arguments)+len(call.Capabilities)+call.Input.size())
	body = appendHead(body, id, methodCall)
	body = append(body, `{"name":`...)
	body = canon.AppendString(body, call.Tool)
	body = append(body, `,"arguments":`...)
	body = append(body, arguments...)
	body = call.Input.append(body)
	m := meta{modern: p.modern, capabilities: call.Capabilities, trace: call.Trace}
	if call.Progress != nil {
		m.token = id
	}
	body = m.append(body)
	return append(body, "}}"...)
}

func (in *Input) size() int {
	if in == nil {
		return 0
	}
	return len(in.Responses) + len(in.State) + 64
}

// append adds the members of a call's params that answer a round.
func (in *Input) append(body []byte) []byte {
	if in == nil {
		return body
	}
	if in.Responses != nil {
		body = append(append(body, `,"inputResponses":`...), in.Responses...)
	}
	if in.State != nil {
		body = append(append(body, `,"requestState":`...), in.State...)
	}
	return body
}

// plainBody writes any other message; members are the params' own, ending in a comma where there are
// any and _meta is to follow.
func plainBody(modern bool, id int64, method, members string) []byte {
	body := appendHead(make([]byte, 0, 512), id, method)
	body = append(body, '{')
	body = append(body, members...)
	if members == "" {
		if member := (meta{modern: modern}).append(nil); len(member) > 0 {
			body = append(body, member[1:]...)
		}
	} else {
		body = meta{modern: modern}.append(body)
	}
	return append(body, "}}"...)
}

func appendID(body []byte, id int64) []byte { return strconv.AppendInt(body, id, 10) }

func appendHead(body []byte, id int64, method string) []byte {
	body = append(body, `{"jsonrpc":"2.0",`...)
	if id != 0 {
		body = append(appendID(append(body, `"id":`...), id), ',')
	}
	body = append(body, `"method":"`...)
	body = append(body, method...)
	return append(body, `","params":`...)
}

// meta is what a message says beside its params.
type meta struct {
	modern       bool
	capabilities []byte // nil: {}
	token        int64  // of progress; 0: none is wanted
	trace        map[string]string
}

// append adds a comma and the _meta member, or nothing where there is nothing to say.
func (m meta) append(body []byte) []byte {
	start := len(body)
	body = append(body, `,"_meta":{`...)
	empty := len(body)
	if m.modern {
		body = append(append(body, metaVersion...), metaCapabilities...)
		if m.capabilities == nil {
			body = append(body, "{}"...)
		}
		body = append(append(body, m.capabilities...), metaClient...)
	}
	if m.token != 0 {
		body = append(body, `"progressToken":`...)
		body = append(strconv.AppendInt(body, m.token, 10), ',')
	}
	if len(m.trace) > 0 {
		for _, key := range traceKeys() {
			if value, ok := m.trace[key]; ok {
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

// header makes the headers of one request, those of a call rebuilt from its body. The value slices are shared:
// the transport only reads them.
func (w *web) header(q request) http.Header {
	p, call := q.peer, q.call
	h := make(http.Header, len(w.fixed)+6)
	maps.Copy(h, w.fixed)
	if p.version != "" {
		h[headerVersion] = []string{p.version}
	}
	if p.session != "" {
		h[headerSession] = []string{p.session}
	}
	if call != nil && w.config.ForwardKeyHeader != "" && call.OperationKey != "" {
		h[http.CanonicalHeaderKey(w.config.ForwardKeyHeader)] = []string{call.OperationKey}
	}
	if !p.modern {
		return h
	}
	h[headerMethod] = []string{q.method}
	if call == nil {
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
