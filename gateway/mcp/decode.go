package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"counterfoil/gateway"
	"counterfoil/internal/canon"
	"counterfoil/receipts"
)

// The JSON-RPC and MCP codes that are answered here.
const (
	codeParse         = -32700
	codeEnvelope      = -32600
	codeMethod        = -32601
	codeParams        = -32602
	codeHeader        = -32020
	codeVersion       = -32022
	codeRefusal       = -31000 // minus the HTTP status
	codeBadRequest    = codeRefusal - 400
	statusOK          = 200
	statusBadRequest  = 400
	statusNotFound    = 404
	maxIDBytes        = 256
	safeIntegerDigits = 15
)

// fault is a request that is refused by its form: a JSON-RPC error.
type fault struct {
	status  int
	code    int
	message string
	reason  receipts.Reason
	retry   gateway.Retry
	data    string // further members of data, or ""
}

func badForm(status, code int, message string) *fault {
	return &fault{status: status, code: code, message: message, reason: receipts.ReasonArgumentsInvalid, retry: gateway.RetryNever}
}

// message is one JSON-RPC message; raw parts are slices of the checked body.
type message struct {
	id       []byte // raw; nil in a notification, or where it is not known
	method   string
	params   []byte // raw object; nil when absent
	response bool   // an answer to something that nobody asked
}

// decode reads one message strictly. Where it refuses, the message still has
// its id, if that could be read.
func decode(body []byte) (message, *fault) {
	err := canon.Check(body)
	if err != nil {
		if f := notJSON(body); f != nil {
			return message{}, f
		}
		id := looseID(body)
		masked := maskInteger(body, id)
		if masked == nil {
			return message{id: id}, strictFault(err)
		}
		// An id is echoed and never computed with, so that an integer which a
		// float cannot hold is as good as any. The rest is still checked.
		if err := canon.Check(masked); err != nil {
			return message{id: id}, strictFault(err)
		}
	}
	return split(body)
}

func strictFault(err error) *fault {
	what := "it is not accepted"
	var e *canon.Error
	if errors.As(err, &e) {
		what = e.What
	}
	return badForm(statusOK, codeBadRequest, "The request's JSON is refused: "+what+".")
}

// notJSON tells what is no JSON at all from what only breaks our stricter rules.
func notJSON(body []byte) *fault {
	if !utf8.Valid(body) {
		return badForm(statusBadRequest, codeParse, "The body is not UTF-8.")
	}
	lenient := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	if !jsontext.Value(body).IsValid(lenient...) {
		return badForm(statusBadRequest, codeParse, "The body is not one JSON value.")
	}
	return nil
}

// looseID finds the id in JSON that was refused, so that the refusal can carry
// it. Two ids are as good as none.
func looseID(body []byte) []byte {
	var id []byte
	seen := 0
	gateway.Members(body, func(name, value []byte) bool {
		if string(name) == "id" {
			seen++
			id = value
		}
		return true
	})
	if seen != 1 || !goodID(id) {
		return nil
	}
	return id
}

// maskInteger replaces an id that is a long integer by a short one; nil where
// the id is no such thing.
func maskInteger(body, id []byte) []byte {
	if len(id) <= safeIntegerDigits || id[0] == '"' {
		return nil
	}
	at := cap(body) - cap(id)
	masked := bytes.Clone(body)
	for i := range id {
		masked[at+i] = ' '
	}
	masked[at] = '1'
	return masked
}

// goodID: a string, or an integer literal.
func goodID(id []byte) bool {
	if len(id) == 0 || len(id) > maxIDBytes {
		return false
	}
	if id[0] == '"' {
		return utf8.Valid(id) && jsontext.Value(id).IsValid()
	}
	return stringOrInteger(id)
}

// split reads the envelope of a checked body.
func split(body []byte) (message, *fault) {
	body = bytes.TrimLeft(body, " \t\r\n")
	if !gateway.IsObject(body) {
		return message{}, badForm(statusBadRequest, codeEnvelope, "The body must be one JSON-RPC message; batches are not served.")
	}
	var m message
	var version, method, id []byte
	strange := ""
	gateway.Members(body, func(name, value []byte) bool {
		switch string(name) {
		case "jsonrpc":
			version = value
		case "id":
			id = value
		case "method":
			method = value
		case "params":
			m.params = value
		case "result", "error":
			m.response = true
		default:
			strange = nearName(strange, name, "jsonrpc", "id", "method", "params")
		}
		return true
	})
	if m.response && method == nil && string(id) == "null" {
		id = nil // an error about what its sender could not read
	}
	if id != nil && !goodID(id) {
		return m, badForm(statusBadRequest, codeEnvelope, "The id must be a string or an integer.")
	}
	m.id = id
	if strange != "" {
		return m, badForm(statusBadRequest, codeEnvelope, fmt.Sprintf("The member %q is written in another case than JSON-RPC's.", strange))
	}
	if string(version) != `"2.0"` {
		return m, badForm(statusBadRequest, codeEnvelope, `The member "jsonrpc" must be "2.0".`)
	}
	if method == nil {
		if m.response {
			return m, nil
		}
		return m, badForm(statusBadRequest, codeEnvelope, "The message has no method.")
	}
	m.response = false
	var ok bool
	if m.method, ok = gateway.String(method); !ok || m.method == "" {
		return m, badForm(statusBadRequest, codeEnvelope, "The method must be a string.")
	}
	return m, nil
}

// nearName finds a member that equals a defined name but for its case. Such a
// member must not pass for an unknown one: it would be silently ignored.
func nearName(found string, name []byte, defined ...string) string {
	if found != "" {
		return found
	}
	for _, d := range defined {
		if strings.EqualFold(string(name), d) {
			return string(name)
		}
	}
	return ""
}
