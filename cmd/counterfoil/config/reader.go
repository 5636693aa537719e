package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader walks a file once and collects what is wrong with it. The environment lies over the file:
// every value has a variable, and a variable that names no value is itself a fault.
type reader struct {
	dir    string            // relative paths start here
	env    map[string]string // the COUNTERFOIL_ variables
	told   []string          // what a process that we run is told of our environment
	asked  map[string]string // variables that name a value, and the value's path
	faults Faults
}

func (r *reader) fault(line int, path, format string, args ...any) {
	r.faults = append(r.faults, Fault{Line: line, Path: path, What: fmt.Sprintf(format, args...)})
}

// value is one scalar, from the file or from the environment.
type value struct {
	text    string
	line    int
	path    string
	set     bool
	literal bool // plain: not quoted, so that 5 is a number and "5" is not
}

// parse gives the one mapping of a document; not ok is what cannot be read on.
func (r *reader) parse(data []byte) (top *yaml.Node, ok bool) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, true
	}
	if err != nil {
		r.fault(0, "", "this is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil, false
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		r.fault(0, "", "there is something after the first document")
	}
	return doc.Content[0], true
}

// section is one mapping, with the variables that lie over its values.
type section struct {
	r      *reader
	path   string
	env    string
	line   int
	fields map[string]*yaml.Node
	lines  map[string]int
	order  []string
	known  []string
}

// section opens a mapping; a node that is nil is an empty one, so that the environment alone can fill it.
func (r *reader) section(node *yaml.Node, path, env string) *section {
	s := &section{r: r, path: path, env: env, fields: map[string]*yaml.Node{}, lines: map[string]int{}}
	if node == nil {
		return s
	}
	s.line = node.Line
	if node.Kind != yaml.MappingNode {
		r.fault(node.Line, path, "must hold named values, one a line")
		return s
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, val := node.Content[i], node.Content[i+1]
		name := key.Value
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" || val.Kind == yaml.AliasNode {
			r.fault(key.Line, s.at(name), "aliases and merges are not used here")
			if val.Alias == nil {
				continue
			}
			val = val.Alias // told once: what it stands for is there
		}
		if first, twice := s.lines[name]; twice {
			r.fault(key.Line, s.at(name), "is here twice, first on line %d", first)
			continue
		}
		s.fields[name], s.lines[name] = val, key.Line
		s.order = append(s.order, name)
	}
	return s
}

func (s *section) at(name string) string {
	if s.path == "" {
		return name
	}
	return s.path + "." + name
}

func (s *section) variable(name string) string { return s.env + "_" + envName(name) }

// envName is how a name is written in a variable.
func envName(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z':
			return c - 'a' + 'A'
		case c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			return c
		}
		return '_'
	}, name)
}

// lookup finds a value's node, or the variable that replaces it.
func (s *section) lookup(name string) (node *yaml.Node, text string, fromEnv bool) {
	s.known = append(s.known, name)
	variable := s.variable(name)
	other, taken := s.r.asked[variable]
	s.r.asked[variable] = s.at(name)
	if text, ok := s.r.env[variable]; ok {
		if taken {
			s.r.fault(0, variable, "could mean %s or %s; write that value in the file", other, s.at(name))
		}
		return nil, text, true
	}
	return s.fields[name], "", false
}

func (s *section) scalar(name string) value {
	node, text, fromEnv := s.lookup(name)
	if fromEnv {
		if text == "" {
			s.r.fault(0, s.variable(name), "is set, but empty")
			return value{path: s.variable(name)}
		}
		return value{text: text, path: s.variable(name), set: true, literal: true}
	}
	if node == nil {
		return value{path: s.at(name), line: s.line}
	}
	return s.r.scalarOf(node, s.at(name))
}

func (r *reader) scalarOf(node *yaml.Node, path string) value {
	v := value{path: path, line: node.Line}
	switch {
	case node.Kind != yaml.ScalarNode:
		r.fault(node.Line, path, "must be one value")
	case node.Style&yaml.TaggedStyle != 0:
		r.fault(node.Line, path, "tags (%s) are not used here", node.Tag)
	case node.Tag == "!!null" || node.Value == "":
		r.fault(node.Line, path, "has no value")
	default:
		v.text, v.set = node.Value, true
		v.literal = node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	}
	return v
}

// list gives the scalars of a sequence; in a variable they are parted by commas.
func (s *section) list(name string) []value {
	node, text, fromEnv := s.lookup(name)
	var out []value
	switch {
	case fromEnv:
		for _, part := range strings.Split(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, value{text: part, path: s.variable(name), set: true, literal: true})
			}
		}
	case node == nil:
	case node.Kind != yaml.SequenceNode:
		s.r.fault(node.Line, s.at(name), "must be a list: [a, b]")
	default:
		for _, one := range node.Content {
			if v := s.r.scalarOf(one, s.at(name)); v.set {
				out = append(out, v)
			}
		}
	}
	return out
}

// section opens a mapping inside this one; present says whether the file or a variable has any of it.
func (s *section) section(name string) (inner *section, present bool) {
	s.known = append(s.known, name)
	node := s.fields[name]
	if node != nil && node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		s.r.fault(node.Line, s.at(name), "has no value")
		node = nil
	}
	env := s.variable(name)
	inner = s.r.section(node, s.at(name), env)
	if node == nil {
		inner.line = s.line
	}
	for variable := range s.r.env {
		if strings.HasPrefix(variable, env+"_") {
			present = true
		}
	}
	return inner, present || node != nil
}

// entries opens the mappings of a list. Their variables are built from their names, so two names
// that are spelled alike in a variable cannot be told apart there.
func (s *section) entries(name string) []*section {
	s.known = append(s.known, name)
	node := s.fields[name]
	if node == nil {
		return nil
	}
	if node.Kind != yaml.SequenceNode {
		s.r.fault(node.Line, s.at(name), "must be a list, each entry beginning with \"- name: …\"")
		return nil
	}
	var out []*section
	for i, one := range node.Content {
		title := fmt.Sprintf("%d", i+1)
		if one.Kind == yaml.MappingNode {
			for j := 0; j+1 < len(one.Content); j += 2 {
				if one.Content[j].Value == "name" && one.Content[j+1].Value != "" {
					title = one.Content[j+1].Value
				}
			}
		}
		out = append(out, s.r.section(one, fmt.Sprintf("%s[%s]", s.at(name), title), s.variable(name)+"_"+envName(title)))
	}
	return out
}

// later refuses a setting of a thing this version does not have yet, rather than ignoring it.
func (s *section) later(name, what string) {
	s.known = append(s.known, name)
	s.r.asked[s.variable(name)] = s.at(name)
	path, line := s.at(name), s.lines[name]
	if _, ok := s.r.env[s.variable(name)]; ok {
		path, line = s.variable(name), 0
	} else if _, ok := s.fields[name]; !ok {
		return
	}
	s.r.fault(line, path, "this version does not have %s; remove the setting", what)
}

// done refuses what nobody asked for.
func (s *section) done() {
	for _, name := range s.order {
		if slices.Contains(s.known, name) {
			continue
		}
		known := slices.Clone(s.known)
		slices.Sort(known)
		s.r.fault(s.lines[name], s.at(name), "is not a setting; here there are: %s", strings.Join(known, ", "))
	}
}
