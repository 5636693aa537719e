package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"counterfoil/internal/canon"
	"counterfoil/receipts"
)

const (
	kindComplete      = "complete"
	kindInputRequired = "input_required"

	codeInvalidRequest = -32600
	codeUnknownMethod  = -32601
	codeHeaderMismatch = -32020
	codeVersion        = -32022
)

// judge is contract 3.4 from "the call was made" on. The first line that fits decides; a valid answer
// under the right id stands above the HTTP status that came with it.
func (c *Client) judge(r reply, p *peer, call Call) Answer {
	switch {
	case !r.sent:
		return failed(receipts.ReasonUpstreamUnreachable, "nothing was written: "+transportNote(r.err))
	case r.fault == answered && r.message.fail != nil:
		return c.refusedOrBroken(r, p, call)
	case r.fault == answered:
		return c.accept(r, p, call)
	case r.status == 0 && r.fault == silent:
		return uncertain(receipts.ReasonNoResponse, "written, and no response came: "+transportNote(r.err))
	case refusalStatus(r.status):
		return failed(receipts.ReasonUpstreamRejected, statusNote(r))
	case r.status != 0 && (r.status < 200 || r.status > 299):
		return uncertain(receipts.ReasonUpstreamError, statusNote(r))
	case r.fault == tooLarge:
		return uncertain(receipts.ReasonResponseRejected, "the answer is larger than allowed")
	case r.fault == malformed:
		return uncertain(receipts.ReasonResponseRejected, "what came is no valid answer to this call")
	}
	return uncertain(receipts.ReasonNoResponse, "the response ended before an answer")
}

func (c *Client) refusedOrBroken(r reply, p *peer, call Call) Answer {
	a := uncertain(receipts.ReasonUpstreamError, "JSON-RPC error "+strconv.FormatInt(r.message.code, 10))
	if c.refusals[r.message.code] {
		a.Outcome, a.Reason = receipts.Failed, receipts.ReasonUpstreamRejected
	}
	fail, scrubbed, ok := c.scrub(bytes.Clone(r.message.fail), p, call)
	a.Scrubbed = scrubbed
	if ok {
		a.Error = fail
	}
	return a
}

// accept takes a result. One whose shape would mislead its readers is rejected, which leaves the
// call uncertain: the tool has answered something.
func (c *Client) accept(r reply, p *peer, call Call) Answer {
	shape, ok := shapeOf(r.message.result)
	switch {
	case !ok:
		return uncertain(receipts.ReasonResponseRejected, "the result is not shaped like that of a tool")
	case shape.kind == kindInputRequired:
		return c.question(r.message.result, shape, p, call)
	case p.modern && shape.kind != kindComplete:
		return uncertain(receipts.ReasonResponseRejected, "the result is of an unknown type")
	}
	result, scrubbed, ok := c.scrub(shape.undress(r.message.result), p, call)
	if !ok {
		return uncertain(receipts.ReasonResponseRejected, "the result cannot be shown without a secret of ours")
	}
	a := Answer{Outcome: receipts.Succeeded, Result: result, Scrubbed: scrubbed}
	if shape.isError {
		a.Outcome, a.Reason, a.Note = receipts.Failed, receipts.ReasonToolError, "the tool reports an error"
	}
	if call.Actual != "" {
		a.Actual = actualCost(result, call.Actual)
	}
	return a
}

// actualCost reads an integer from 0 to 2^53-1; anything else is no cost.
func actualCost(result []byte, pointer string) *int64 {
	literal, ok := canon.Lookup(result, pointer)
	if !ok {
		return nil
	}
	cost, err := strconv.ParseUint(string(literal), 10, 53)
	if err != nil {
		return nil
	}
	credits := int64(cost)
	return &credits
}

// refusalStatus reports the statuses by which HTTP says that a request was not carried out.
func refusalStatus(status int) bool {
	switch status {
	case 400, 401, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 422, 429, 431:
		return true
	}
	return false
}

func failed(reason receipts.Reason, note string) Answer {
	return Answer{Outcome: receipts.Failed, Reason: reason, Note: note}
}

func uncertain(reason receipts.Reason, note string) Answer {
	return Answer{Outcome: receipts.Uncertain, Reason: reason, Note: note}
}

func statusNote(r reply) string { return fmt.Sprintf("HTTP %d without a JSON-RPC answer", r.status) }

// transportNote describes an error by its kind. Its text may quote what the server sent.
func transportNote(err error) string {
	var resolution *net.DNSError
	var network *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "the time ended"
	case errors.Is(err, context.Canceled):
		return "given up"
	case errors.As(err, &resolution):
		return "the name cannot be resolved"
	case errors.As(err, &network):
		return network.Op + ": " + network.Err.Error()
	}
	return "the connection or its TLS failed"
}

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
	s.kind = kindComplete
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
		switch {
		case s.kind == kindInputRequired && m.is("resultType"):
			return m.value, true
		case isDressing(m), s.kind == kindInputRequired && isInput(m) && isNull(m.value):
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
