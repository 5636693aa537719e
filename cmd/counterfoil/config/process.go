package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

var variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// way reads how an upstream is reached, by URL or as a process, and what belongs to that.
func (s *section) way(u *Upstream, open bool) {
	link, command := s.scalar("url"), s.list("command")
	switch {
	case link.set && len(command) > 0:
		s.r.fault(s.line, s.path, "has both url and command; how is it reached?")
	case !link.set && len(command) == 0 && !s.faulty(link.path) && !s.faulty(s.at("command")):
		s.r.fault(s.line, s.at("url"), "is missing: the MCP endpoint, such as http://127.0.0.1:9100/mcp, or command: [program, argument]")
	}
	if len(command) == 0 {
		s.misplaced("belongs to a process, and this upstream has no command", "dir", "env_file")
		u.URL = s.link(link, true)
		u.Headers = s.headers(open)
		u.ForwardKeyHeader = s.forwardKeyHeader(u.Headers)
		return
	}
	s.misplaced("belongs to an HTTP request, and this upstream is a process", "headers_file", "forward_key_header")
	u.Command, u.Dir, u.Environ = s.command(command), s.file(s.scalar("dir")), s.r.told
	u.Env = s.environment(open)
}

// misplaced refuses settings that do nothing here.
func (s *section) misplaced(why string, names ...string) {
	for _, name := range names {
		s.known = append(s.known, name)
		if _, ok := s.fields[name]; ok {
			s.r.fault(s.lines[name], s.at(name), "%s", why)
		}
		for _, given := range []string{name, strings.TrimSuffix(name, "_file")} { // the file, or what is in it
			variable := s.variable(given)
			if _, counted := s.r.asked[variable]; counted {
				continue
			}
			s.r.asked[variable] = s.at(given)
			if _, ok := s.r.env[variable]; ok {
				s.r.fault(0, variable, "%s", why)
			}
		}
	}
}

// command takes the program from the file's directory where its name is a relative path.
func (s *section) command(values []value) []string {
	out := make([]string, 0, len(values))
	for _, v := range values {
		out = append(out, v.text)
	}
	if strings.Contains(out[0], "/") && !filepath.IsAbs(out[0]) {
		out[0] = filepath.Join(s.r.dir, out[0])
	}
	return out
}

// environment reads lines NAME=value. A value is taken as it stands: quotes are part of it.
func (s *section) environment(open bool) map[string]string {
	text, where := s.secret("env", open)
	out := map[string]string{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if what := addVariable(out, line); what != "" {
			s.r.fault(where.line, where.path, "its line %d %s", i+1, what)
		}
	}
	return out
}

// addVariable adds "NAME=value"; what it answers never holds the value.
func addVariable(env map[string]string, line string) string {
	name, val, ok := strings.Cut(line, "=")
	if !ok || !variablePattern.MatchString(name) {
		return "is not \"NAME=value\""
	}
	if strings.ContainsRune(val, 0) {
		return fmt.Sprintf("has a value for %s that no variable can hold", name)
	}
	if _, twice := env[name]; twice {
		return fmt.Sprintf("sets %s a second time", name)
	}
	env[name] = val
	return ""
}
