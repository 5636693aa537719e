package permits

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// A pattern of deny_args names places in the arguments: a path from the root, or a bare name at any depth.
type pattern struct {
	name string // bare name; "" for a path
	path []segment
}

type segment struct {
	any  bool   // "*"
	name string // unescaped
}

// parsePattern refuses what a reader could take for more than it does: a bare name with a slash or tilde, and a star
// that is not a whole segment.
func parsePattern(s string) (pattern, error) {
	rest, isPointer := strings.CutPrefix(s, "/")
	if !isPointer {
		if s == "" || strings.ContainsAny(s, "/~*") {
			return pattern{}, errors.New(`must be a pointer that begins with "/", or a bare member name without "/", "~" and "*"`)
		}
		return pattern{name: s}, nil
	}
	var p pattern
	for part := range strings.SplitSeq(rest, "/") {
		if part == "*" {
			p.path = append(p.path, segment{any: true})
			continue
		}
		if strings.Contains(part, "*") {
			return pattern{}, errors.New(`"*" stands for one whole segment and cannot be part of one`)
		}
		name, err := unescape(part)
		if err != nil {
			return pattern{}, err
		}
		p.path = append(p.path, segment{name: name})
	}
	return p, nil
}

// unescape reads one segment of RFC 6901.
func unescape(s string) (string, error) {
	for i := 0; i < len(s); i++ {
		if s[i] == '~' && (i+1 == len(s) || (s[i+1] != '0' && s[i+1] != '1')) {
			return "", errors.New(`"~" must be written "~0", and "/" in a name "~1"`)
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~"), nil
}

// forbidden reports whether any pattern names a place that is in args, whatever is there, null included. What cannot
// be read is forbidden.
func forbidden(patterns []string, args []byte) bool {
	if len(patterns) == 0 {
		return false
	}
	var root any
	if json.Unmarshal(args, &root) != nil {
		return true
	}
	for _, s := range patterns {
		p, err := parsePattern(s)
		if err != nil {
			return true
		}
		if (p.name != "" && hasName(root, p.name)) || (p.name == "" && hasPath(root, p.path)) {
			return true
		}
	}
	return false
}

// hasName reports whether any object in v, at any depth, has a member of that name. The depth of arguments is bounded
// where they are decoded.
func hasName(v any, name string) bool {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v[name]; ok {
			return true
		}
		for _, child := range v {
			if hasName(child, name) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(child any) bool { return hasName(child, name) })
	}
	return false
}

// hasPath follows a path from v. A star matches every member of an object and every element of an array; it matches
// nothing in an empty one.
func hasPath(v any, path []segment) bool {
	if len(path) == 0 {
		return true
	}
	s, rest := path[0], path[1:]
	switch v := v.(type) {
	case map[string]any:
		if !s.any {
			child, ok := v[s.name]
			return ok && hasPath(child, rest)
		}
		for _, child := range v {
			if hasPath(child, rest) {
				return true
			}
		}
	case []any:
		if s.any {
			return slices.ContainsFunc(v, func(child any) bool { return hasPath(child, rest) })
		}
		i, ok := arrayIndex(s.name, len(v))
		return ok && hasPath(v[i], rest)
	}
	return false
}

// arrayIndex reads an index as RFC 6901 writes it: decimal, without leading zeros.
func arrayIndex(s string, n int) (int, bool) {
	i, err := strconv.Atoi(s)
	return i, err == nil && i >= 0 && i < n && s == strconv.Itoa(i)
}
