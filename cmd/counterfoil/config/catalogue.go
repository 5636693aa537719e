package config

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// ownHeaders are written by the gateway for every call; a file or a setting that names one would
// change what the call means, or be ignored.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Connection", "Expect", "Host", "Keep-Alive", "Last-Event-Id", "Origin",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func ownHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return slices.Contains(ownHeaders, name) || strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "Mcp-")
}

func (s *section) upstreams(open bool) []Upstream {
	var out []Upstream
	for _, u := range s.entries("upstreams") {
		one := Upstream{
			Name:        u.matching(u.required("name", "a short name for the tools to refer to"), namePattern, "a name of letters, digits, - and _"),
			Timeout:     u.duration("timeout", defaultTimeout, time.Millisecond, time.Hour),
			Concurrency: int(u.integer("concurrency", 0, 1, 1<<16)),
			Rate:        int(u.integer("rate", 0, 0, 1<<30)),
			Refusals:    u.refusals(),
		}
		u.way(&one, open)
		u.done()
		for _, other := range out {
			if one.Name != "" && other.Name == one.Name {
				s.r.fault(u.line, u.path, "this name is another upstream's already")
			}
		}
		out = append(out, one)
	}
	return out
}

// refusals are JSON-RPC codes; an empty list is a choice too (nothing this server says is a refusal).
func (s *section) refusals() []int {
	listed := s.list("refusals")
	if _, present := s.fields["refusals"]; !present && len(listed) == 0 {
		return nil
	}
	out := []int{}
	for _, v := range listed {
		n, err := strconv.ParseInt(v.text, 10, 32)
		if !v.literal || !negativePattern.MatchString(v.text) || err != nil {
			s.r.fault(v.line, v.path, "%s is not a JSON-RPC error code such as -32602", v.text)
			continue
		}
		out = append(out, int(n))
	}
	return out
}

func (s *section) headers(open bool) http.Header {
	text, where := s.secret("headers", open)
	out := http.Header{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if what := addHeader(out, line); what != "" {
			s.r.fault(where.line, where.path, "its line %d %s", i+1, what)
		}
	}
	return out
}

// addHeader adds "Name: value"; what it answers never holds the value.
func addHeader(h http.Header, line string) string {
	name, val, ok := strings.Cut(line, ":")
	name, val = strings.TrimSpace(name), strings.TrimSpace(val)
	switch {
	case !ok || !headerPattern.MatchString(name):
		return "is not \"Name: value\""
	case val == "" || strings.ContainsFunc(val, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return fmt.Sprintf("has no value for %s that a header can carry", name)
	case ownHeader(name):
		return fmt.Sprintf("sets %s, which the gateway writes itself", name)
	case h.Get(name) != "":
		return fmt.Sprintf("sets %s a second time", name)
	}
	h.Set(name, val)
	return ""
}

func (s *section) forwardKeyHeader(headers http.Header) string {
	v := s.scalar("forward_key_header")
	name := s.matching(v, headerPattern, "the name of a header")
	switch {
	case !v.set:
	case ownHeader(name):
		s.r.fault(v.line, v.path, "%s is a header that the gateway writes itself", name)
	case headers.Get(name) != "":
		s.r.fault(v.line, v.path, "%s is in headers_file already", name)
	}
	return name
}

func (s *section) tools(upstreams []Upstream) []Tool {
	var out []Tool
	for _, t := range s.entries("tools") {
		one := t.tool(upstreams)
		for _, other := range out {
			if one.Name != "" && strings.EqualFold(other.Name, one.Name) {
				s.r.fault(t.line, t.path, "this name is another tool's already")
			}
		}
		out = append(out, one)
	}
	return out
}

func (s *section) tool(upstreams []Upstream) Tool {
	name := s.required("name", "what agents call the tool")
	out := Tool{Name: s.matching(name, toolPattern, "a tool's name: letters, digits, _ . / -")}
	if strings.HasPrefix(strings.ToLower(out.Name), "counterfoil_") {
		s.r.fault(name.line, name.path, "names that begin with counterfoil_ are the gateway's own")
	}
	up := s.required("upstream", "the name of one of the upstreams")
	out.Upstream = up.text
	if up.set && !slices.ContainsFunc(upstreams, func(u Upstream) bool { return u.Name == up.text }) {
		s.r.fault(up.line, up.path, "there is no upstream called %q", up.text)
	}
	if out.UpstreamTool = s.scalar("upstream_tool").text; out.UpstreamTool == "" {
		out.UpstreamTool = out.Name
	}
	out.Credits, out.ActualPointer = s.credits()
	for _, v := range s.list("scopes") {
		out.Scopes = append(out.Scopes, s.matching(v, scopePattern, "a scope: one word without quotes"))
	}
	out.Value, out.Recipients = s.value(), s.recipients()
	out.OperationRef = s.pointer(s.scalar("operation_ref"))
	out.ChargeOnError = s.oneOf("on_tool_error", "refund", "refund", "charge") == "charge"
	out.MaxResponseBytes = s.integer("max_response_bytes", defaultResponseBytes, 1, 256<<20)
	out.DefinitionSHA256 = s.matching(s.scalar("definition_sha256"), hashPattern, "a SHA-256 in 64 lower-case hex digits, such as counterfoil tool list shows")
	out.Probe = s.probe(out.UpstreamTool)
	s.later("approval", "approvals")
	s.done()
	return out
}

// credits is a price, or the most a call can cost and where the answer says what it did cost.
func (s *section) credits() (int64, string) {
	_, replaced := s.r.env[s.variable("credits")]
	if node := s.fields["credits"]; !replaced && node != nil && node.Kind == yaml.MappingNode {
		c, _ := s.section("credits")
		top := c.required("max", "the most a call can cost")
		actual := c.pointer(c.required("actual", "where the answer says what a call cost, such as /structuredContent/credits"))
		c.done()
		if !top.set {
			return 0, actual
		}
		return s.r.integerOf(top, 0, maxCredits), actual
	}
	v := s.required("credits", "the price of a call, such as 5, or {max: 50, actual: /structuredContent/credits}")
	if !v.set {
		return 0, ""
	}
	return s.r.integerOf(v, 0, maxCredits), ""
}

func (s *section) value() *Value {
	v, present := s.section("value")
	if !present {
		return nil
	}
	out := &Value{
		Pointer:  v.pointer(v.required("pointer", "which argument holds the value, such as /amount")),
		Currency: v.matching(v.required("currency", "such as USD"), currencyPattern, "a currency such as USD"),
	}
	v.done()
	return out
}

func (s *section) recipients() []string {
	r, present := s.section("recipient")
	if !present {
		return nil
	}
	var out []string
	for _, v := range r.list("pointers") {
		out = append(out, r.pointer(v))
	}
	if len(out) == 0 && !r.faulty(r.at("pointers")) {
		s.r.fault(r.line, r.at("pointers"), "names no argument: [/to]")
	}
	r.done()
	return out
}
