package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"counterfoil/internal/canon"
)

const (
	listingBytes = 16 << 20 // of one page of tools, or of a handshake
	maxPages     = 256
	maxTools     = 10_000
	maxListing   = 64 << 20  // of all entries of a list
	maxEntry     = 256 << 10 // of one of them
)

// ErrListing is what every failed listing is.
var ErrListing = errors.New("list the upstream's tools")

// Tool is one entry of the upstream's list.
type Tool struct {
	Name        string
	Entry       []byte // as it came, to the byte
	Definition  []byte // canonical JSON of the whole entry
	InputSchema []byte // of the definition; nil where it has none
	// Fault says that this entry cannot be served: it is no strict JSON, its name is there twice, or it has
	// an invalid x-mcp-header. What it says is not to be relied on.
	Fault error
}

// Tools lists the upstream's tools, all pages. An entry that is no object or has no name is left out, and
// logged; one that has a name and cannot be served says why.
func (c *Client) Tools(ctx context.Context) ([]Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	p, err := c.peer(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrListing, c.config.Name, err)
	}
	tools, err := c.list(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrListing, c.config.Name, err)
	}
	if p.modern {
		// Calls from here on mirror what this list says.
		fresh := *p
		fresh.mirrors = mirrorsOf(tools)
		c.current.CompareAndSwap(p, &fresh)
	}
	return tools, nil
}

func (c *Client) list(ctx context.Context, p *peer) ([]Tool, error) {
	var tools []Tool
	places, cursors := map[string]int{}, map[string]bool{}
	members, size := "", 0
	for range maxPages {
		r := c.send(ctx, p, methodList, members)
		if r.lost {
			c.forget(p)
		}
		page, cursor, err := c.page(r, p)
		c.memories.release(r)
		if err != nil {
			return nil, err
		}
		for _, tool := range page {
			if at, twice := places[tool.Name]; twice {
				tools[at].Fault = errTwice // which of the two would run is not known
				continue
			}
			places[tool.Name] = len(tools)
			size += len(tool.Entry)
			tools = append(tools, tool)
		}
		switch {
		case cursor == "":
			return tools, nil
		case cursors[cursor]:
			return nil, &probeError{what: "the list of tools runs in a circle"}
		case len(tools) > maxTools, size > maxListing:
			return nil, &probeError{what: "the list of tools is too long"}
		}
		cursors[cursor] = true
		members = `"cursor":` + string(canon.AppendString(nil, cursor))
	}
	return nil, &probeError{what: "the list of tools has too many pages"}
}

func (c *Client) page(r reply, p *peer) (tools []Tool, cursor string, err error) {
	if r.fault != answered || r.message.result == nil {
		if !r.sent {
			return nil, "", notSent(r)
		}
		return nil, "", unanswered(methodList, r)
	}
	text, _, ok := c.scrub(r.message.result, p, Call{Handle: "withheld"})
	members, object := objectOf(text)
	if !ok || !object {
		return nil, "", &probeError{what: "the list of tools is not one"}
	}
	for members.next() {
		switch {
		case members.is("nextCursor"):
			cursor = plainString(members.value)
		case members.is("tools"):
			for entry := range elements(members.value) {
				tool := parseTool(entry)
				if tool.Name == "" {
					c.config.Logger.Warn("an entry without a name is left out", "upstream", c.config.Name)
					continue
				}
				tools = append(tools, tool)
			}
		}
	}
	return tools, cursor, nil
}

var (
	errTwice = errors.New("its name is listed twice")
	errLarge = errors.New("its definition is too large")
)

// parseTool reads one entry of a text that is known to be valid JSON. Without a name it is nothing.
func parseTool(entry []byte) Tool {
	tool := Tool{Name: plainString(member(entry, "name")), Entry: bytes.Clone(entry)}
	if len(entry) > maxEntry {
		return Tool{Name: tool.Name, Fault: errLarge}
	}
	definition, err := canon.Canonical(entry)
	if err != nil {
		tool.Fault = err
		return tool
	}
	tool.Definition = definition
	tool.InputSchema = bytes.Clone(member(definition, "inputSchema"))
	_, tool.Fault = mirrorsIn(tool.InputSchema)
	return tool
}

// mirror is an argument that a modern server wants in a header too.
type mirror struct {
	header string
	path   []string
}

func mirrorsOf(tools []Tool) map[string][]mirror {
	all := map[string][]mirror{}
	for _, tool := range tools {
		if found, err := mirrorsIn(tool.InputSchema); err == nil && tool.Fault == nil && len(found) > 0 {
			all[tool.Name] = found
		}
	}
	return all
}

// mirrorsIn finds the x-mcp-header annotations that are reached through properties alone.
func mirrorsIn(schema []byte) ([]mirror, error) {
	var found []mirror
	var walk func(schema []byte, path []string) error
	walk = func(schema []byte, path []string) error {
		properties, ok := objectOf(member(schema, "properties"))
		for ok && properties.next() {
			path := append(slices.Clone(path), properties.plainName())
			if annotation := member(properties.value, "x-mcp-header"); annotation != nil {
				m, err := newMirror(plainString(annotation), plainString(member(properties.value, "type")), path)
				if err != nil {
					return err
				}
				if slices.ContainsFunc(found, func(other mirror) bool { return other.header == m.header }) {
					return fmt.Errorf("x-mcp-header %q twice", m.header)
				}
				found = append(found, m)
			}
			if err := walk(properties.value, path); err != nil {
				return err
			}
		}
		return nil
	}
	return found, walk(schema, nil)
}

func newMirror(name, kind string, path []string) (mirror, error) {
	if !isToken(name) {
		return mirror{}, fmt.Errorf("x-mcp-header of %q is no header name", strings.Join(path, "."))
	}
	if kind != "string" && kind != "integer" && kind != "boolean" {
		return mirror{}, fmt.Errorf("x-mcp-header of %q on a type that is not string, integer or boolean", strings.Join(path, "."))
	}
	return mirror{header: http.CanonicalHeaderKey(headerParam + name), path: path}, nil
}

// find returns the argument as header text. An absent or null one has no header, nor has one of
// another type than the annotation may have.
func (m mirror) find(arguments []byte) (string, bool) {
	value := arguments
	for _, name := range m.path {
		value = member(value, name)
	}
	switch {
	case len(value) == 0 || isNull(value):
		return "", false
	case value[0] == '"':
		return plainString(value), true
	case string(value) == "true" || string(value) == "false" || isInteger(value):
		return string(value), true
	}
	return "", false
}

func isInteger(literal []byte) bool {
	digits := bytes.TrimPrefix(literal, []byte("-"))
	return len(digits) > 0 && len(bytes.Trim(digits, "0123456789")) == 0
}

// member returns the value of one member of an object, or nil.
func member(object []byte, name string) []byte {
	members, ok := objectOf(object)
	for ok && members.next() {
		if members.is(name) {
			return members.value
		}
	}
	return nil
}
