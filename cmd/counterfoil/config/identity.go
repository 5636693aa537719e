package config

import (
	"regexp"
	"slices"
)

// platformPattern keeps out what could not stand in a receipt as one word.
var platformPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// takenSources are what a receipt's key_source says already: an envelope of such a platform would be taken for
// something else.
var takenSources = map[string]string{
	"codex": "is built in, and known by callId alone", "claude_code": "is built in, and known by claudecode/toolUseId alone",
	"context": "is what a receipt calls a key that the caller gave", "header": "is what a receipt calls a key that the caller gave",
}

func (s *section) identity() Identity {
	i, _ := s.section("identity")
	var out Identity
	for _, v := range i.list("platforms") {
		name := i.matching(v, platformPattern, "a platform's name: letters, digits, . _ -")
		if why := takenSources[name]; why != "" {
			s.r.fault(v.line, v.path, "%s %s", name, why)
		}
		if slices.Contains(out.Platforms, name) {
			s.r.fault(v.line, v.path, "%s is here twice", name)
		}
		out.Platforms = append(out.Platforms, name)
	}
	out.Pool, out.Diagnostics = i.boolean("pool"), i.boolean("diagnostics")
	i.done()
	return out
}
