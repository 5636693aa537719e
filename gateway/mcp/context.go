package mcp

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"counterfoil/gateway"
	"counterfoil/receipts"
)

// params are the members of a request's params that are served; raw values.
type params struct {
	name       []byte
	arguments  []byte
	cursor     []byte
	mcpContext []byte
	responses  []byte // inputResponses
	state      []byte // requestState
	meta       []byte // all of _meta
	version    []byte
	caps       []byte
	metaSource []byte // _meta["counterfoil/context"]
	progress   []byte // _meta.progressToken
	trace      map[string]string
}

// readParams sorts the members of params. An unknown member is MCP's business;
// one of ours in another case is refused.
func readParams(raw []byte) (params, *fault) {
	var p params
	if raw == nil {
		return p, nil
	}
	if !gateway.IsObject(raw) {
		return p, badForm(statusOK, codeParams, "The params must be an object.")
	}
	var meta []byte
	strange := ""
	gateway.Members(raw, func(name, value []byte) bool {
		switch string(name) {
		case "name":
			p.name = value
		case "arguments":
			p.arguments = value
		case "cursor":
			p.cursor = value
		case "mcpContext":
			p.mcpContext = value
		case "_meta":
			meta = value
		case "inputResponses":
			p.responses = value
		case "requestState":
			p.state = value
		default:
			strange = nearName(strange, name, "name", "arguments", "mcpContext", "_meta", "inputResponses", "requestState")
		}
		return true
	})
	if strange != "" {
		return p, badForm(statusOK, codeBadRequest, fmt.Sprintf("The member %q is written in another case than it is defined.", strange))
	}
	return p, p.readMeta(meta)
}

const metaPrefix = "io.modelcontextprotocol/"

func (p *params) readMeta(meta []byte) *fault {
	if meta == nil {
		return nil
	}
	if !gateway.IsObject(meta) {
		return badForm(statusOK, codeParams, "The member _meta must be an object.")
	}
	p.meta = meta
	strange := ""
	gateway.Members(meta, func(name, value []byte) bool {
		switch string(name) {
		case metaPrefix + "protocolVersion":
			p.version = value
		case metaPrefix + "clientCapabilities":
			p.caps = value
		case "counterfoil/context":
			p.metaSource = value
		case "progressToken":
			p.progress = value
		case ownEnvelope: // read where no key is given
		case "traceparent", "tracestate", "baggage":
			if s, ok := gateway.String(value); ok {
				if p.trace == nil {
					p.trace = make(map[string]string, 3)
				}
				p.trace[string(name)] = s
			}
		default:
			strange = nearName(strange, name, "counterfoil/context", ownEnvelope)
		}
		return true
	})
	if strange != "" {
		return badForm(statusOK, codeBadRequest, fmt.Sprintf("The member %q is written in another case than it is defined.", strange))
	}
	return nil
}

// callContext is what the three places say, and agree on.
type callContext struct {
	wallet, permit, key named
	keySource           string
}

// named is a text and whether anybody gave it: "" that was named is not the same
// as a default.
type named struct {
	value string
	is    bool
}

// set reports false when another place has named something else.
func (n *named) set(value string) bool {
	if n.is && n.value != value {
		return false
	}
	n.value, n.is = value, true
	return true
}

// readContext gathers the context of a request from its three places. Places
// that agree are one; places that do not are refused, whichever is right.
func readContext(p params, h http.Header) (callContext, *gateway.Refusal) {
	var c callContext
	for _, source := range [][]byte{p.mcpContext, p.metaSource} {
		if source == nil {
			continue
		}
		if refusal := c.readObject(source); refusal != nil {
			return c, refusal
		}
	}
	if c.key.is {
		c.keySource = "context"
	}
	refusal := c.readHeaders(h)
	if c.key.is && c.keySource == "" {
		c.keySource = "header"
	}
	return c, refusal
}

func (c *callContext) readObject(source []byte) *gateway.Refusal {
	if !gateway.IsObject(source) {
		return &gateway.Refusal{Reason: receipts.ReasonArgumentsInvalid, Detail: "The call's context must be an object."}
	}
	var refusal *gateway.Refusal
	gateway.Members(source, func(name, value []byte) bool {
		text, isString := gateway.String(value)
		switch string(name) {
		case "wallet_id":
			refusal = take(&c.wallet, text, isString, "wallet_id")
		case "permit_id":
			refusal = take(&c.permit, text, isString, "permit_id")
		case "idempotency_key":
			refusal = takeKey(&c.key, text, isString)
		default:
			refusal = &gateway.Refusal{
				Reason: receipts.ReasonArgumentsInvalid,
				Detail: fmt.Sprintf("The call's context has no member %q: only wallet_id, permit_id and idempotency_key.", name),
			}
		}
		return refusal == nil
	})
	return refusal
}

func (c *callContext) readHeaders(h http.Header) *gateway.Refusal {
	for _, v := range h["Idempotency-Key"] {
		key, ok := headerKey(v)
		if refusal := takeKey(&c.key, key, ok); refusal != nil {
			return refusal
		}
	}
	for _, v := range h["Counterfoil-Wallet"] {
		if refusal := take(&c.wallet, v, utf8.ValidString(v), "Counterfoil-Wallet"); refusal != nil {
			return refusal
		}
	}
	for _, v := range h["Counterfoil-Permit"] {
		if refusal := take(&c.permit, v, utf8.ValidString(v), "Counterfoil-Permit"); refusal != nil {
			return refusal
		}
	}
	return nil
}

func take(into *named, value string, ok bool, where string) *gateway.Refusal {
	if !ok {
		return &gateway.Refusal{Reason: receipts.ReasonArgumentsInvalid, Detail: where + " must be a string in UTF-8."}
	}
	if !into.set(value) {
		return &gateway.Refusal{Reason: receipts.ReasonContextConflict}
	}
	return nil
}

func takeKey(into *named, value string, ok bool) *gateway.Refusal {
	if !ok || !gateway.ValidKey(value) {
		return &gateway.Refusal{Reason: receipts.ReasonIdempotencyKeyInvalid}
	}
	if !into.set(value) {
		return &gateway.Refusal{Reason: receipts.ReasonIdempotencyKeyConflict}
	}
	return nil
}

// headerKey reads a bare key or a quoted string, in which only \" and \\ are
// escapes. What merely begins like one is refused rather than guessed at.
func headerKey(v string) (string, bool) {
	if !strings.HasPrefix(v, `"`) {
		return v, true
	}
	if len(v) < 2 || v[len(v)-1] != '"' {
		return "", false
	}
	inner := v[1 : len(v)-1]
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); i++ {
		switch inner[i] {
		case '"':
			return "", false
		case '\\':
			i++
			if i == len(inner) || (inner[i] != '"' && inner[i] != '\\') {
				return "", false
			}
		}
		out = append(out, inner[i])
	}
	return string(out), true
}

const maxWait = 60 // seconds

// preferredWait reads `Prefer: wait=N`. A preference that cannot be read is no
// preference (RFC 7240).
func preferredWait(h http.Header) time.Duration {
	for _, line := range h["Prefer"] {
		for _, pref := range strings.Split(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(pref), "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
			if err != nil {
				return 0
			}
			return time.Duration(min(n, maxWait)) * time.Second
		}
	}
	return 0
}
