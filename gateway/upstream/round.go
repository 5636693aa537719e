package upstream

import (
	"bytes"

	"counterfoil/receipts"
)

// question takes a result by which a tool asks for input. The tool has not run, so what cannot be put
// to the caller has failed; what is no question at all has told us nothing.
func (c *Client) question(text []byte, s shape, p *peer, call Call) Answer {
	switch {
	case !p.modern:
		return uncertain(receipts.ReasonResponseRejected, "a server of the handshake era cannot ask for input so")
	case !isQuestion(text):
		return uncertain(receipts.ReasonResponseRejected, "what the tool asks for is not shaped like a question")
	case !call.MayAsk:
		return failed(receipts.ReasonInputAbandoned, "the tool asked for input, and the caller cannot be asked")
	}
	asked := s.undress(text)
	state := member(asked, "requestState")
	result, scrubbed, ok := c.scrub(asked, p, call)
	switch {
	case !ok:
		return failed(receipts.ReasonInputAbandoned, "the tool's question cannot be shown without a secret of ours")
	case !bytes.Equal(member(result, "requestState"), state):
		// It has to come back as it was, and the caller must not have it as it was. Nor is it kept for
		// him: a secret would lie in the record for as long as he thinks.
		return failed(receipts.ReasonInputAbandoned, "the tool put a secret of ours into its requestState, which cannot go to the caller and come back")
	}
	return Answer{Round: &Round{Result: result, State: state}, Scrubbed: scrubbed}
}

// isQuestion reports whether a result has what the protocol wants of an input_required one: requests, or
// a state to come back with, or both. A null counts as left out, and is left out.
func isQuestion(result []byte) bool {
	found := false
	members, ok := objectOf(result)
	for ok && members.next() {
		first := members.value[0]
		switch {
		case !isInput(&members) || first == 'n':
		case members.is("inputRequests") && first != '{', members.is("requestState") && first != '"':
			return false
		default:
			found = true
		}
	}
	return found
}

// isInput reports the members by which an input_required result asks.
func isInput(m *members) bool { return m.is("inputRequests") || m.is("requestState") }
