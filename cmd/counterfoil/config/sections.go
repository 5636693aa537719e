package config

import (
	"net/url"
	"regexp"
	"strings"
	"time"
)

// minTokenLength keeps guessable words out; a token that openssl rand -hex 32 makes has 64 characters.
const minTokenLength = 16

var tokenPattern = regexp.MustCompile(`^[\x21-\x7e]+$`)

func (s *section) database() Database {
	db, present := s.section("database")
	if !present {
		s.r.fault(s.line, "database", "is missing: {url: \"postgres://…\"} or {embedded: {dir: ./data}}")
		return Database{}
	}
	link := db.scalar("url")
	embedded, hasEmbedded := db.section("embedded")
	var out Database
	if hasEmbedded {
		out.EmbeddedDir = embedded.file(embedded.required("dir", "where the embedded database keeps its data"))
		out.EmbeddedBin = embedded.file(embedded.scalar("bin_dir"))
		embedded.done()
	}
	db.done()
	switch {
	case link.set && hasEmbedded:
		s.r.fault(db.line, "database", "has both url and embedded; which one holds the ledger?")
	case !link.set && !hasEmbedded && !db.faulty(link.path):
		s.r.fault(db.line, "database", "names no database: give url or embedded")
	case link.set:
		out.URL = Secret(link.text)
		u, err := url.Parse(link.text)
		if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			s.r.fault(link.line, link.path, "is not a postgres:// URL") // its text may hold a password
		}
	}
	return out
}

func (s *section) keys() string {
	keys, present := s.section("keys")
	if !present {
		s.r.fault(s.line, "keys", "is missing: {dir: ./keys}")
		return ""
	}
	dir := keys.file(keys.required("dir", "the directory of the signing keys"))
	keys.done()
	return dir
}

func (s *section) tokens(open bool) Tokens {
	t, _ := s.section("tokens")
	parts := []string{"operator", "approver", "reconciler"}
	values := make([]Secret, len(parts))
	for i, part := range parts {
		text, where := t.secret(part, open)
		values[i] = Secret(strings.TrimRight(text, "\r\n"))
		if !where.set || !open {
			continue
		}
		switch token := values[i].Reveal(); {
		case s.faulty(where.path):
		case !tokenPattern.MatchString(token):
			s.r.fault(where.line, where.path, "must be one word of visible ASCII characters")
		case len(token) < minTokenLength:
			s.r.fault(where.line, where.path, "holds fewer than %d characters; make one with: openssl rand -hex 32", minTokenLength)
		}
		for j := range i {
			if values[j] != "" && values[j] == values[i] {
				s.r.fault(where.line, where.path, "is the same token as the %s's: each part needs its own", parts[j])
			}
		}
	}
	t.done()
	return Tokens{Operator: values[0], Approver: values[1], Reconciler: values[2]}
}

// secret takes NAME_file from the file, or the secret itself from a variable, never from the file.
func (s *section) secret(name string, open bool) (string, value) {
	file := s.scalar(name + "_file")
	variable := s.variable(name)
	s.r.asked[variable] = s.at(name)
	if text, ok := s.r.env[variable]; ok {
		if file.set {
			s.r.fault(0, variable, "is set, and so is %s; which one is meant?", file.path)
		}
		if strings.TrimSpace(text) == "" {
			s.r.fault(0, variable, "is set, but empty")
		}
		return text, value{path: variable, set: true}
	}
	if _, inline := s.fields[name]; inline {
		s.known = append(s.known, name)
		s.r.fault(s.lines[name], s.at(name), "a secret does not belong in this file: give %s_file, or %s in the environment", name, variable)
		return "", value{}
	}
	if !file.set || !open {
		return "", file
	}
	text, err := ReadSecret(s.file(file))
	if err != nil {
		s.r.fault(file.line, file.path, "%s", err)
		return "", file
	}
	return text, file
}

func (s *section) limits() Limits {
	l, _ := s.section("limits")
	out := Limits{
		Lease:          l.duration("lease", defaultLease, time.Second, time.Hour),
		PermitLifetime: l.duration("permit_lifetime", defaultPermitLifetime, time.Second, 10*defaultPermitLifetime),
		BodyBytes:      l.integer("body_bytes", defaultBodyBytes, 1<<10, 64<<20),
		InFlight:       int(l.integer("in_flight", defaultInFlight, 1, 1<<16)),
		Connections:    int(l.integer("connections", defaultConnections, 2, 1<<20)),
		Queue:          int(l.integer("queue", defaultQueue, 1, 1<<16)),
		Timeouts:       l.timeouts(),
		Retention:      l.retention(),
		InputTTL:       l.duration("input_ttl", defaultInputTTL, time.Second, maxInputTTL),

		CatalogueRefresh: l.duration("catalogue_refresh", defaultRefresh, time.Second, 24*time.Hour),
	}
	l.later("approval_ttl", "approvals")
	agents, _ := l.section("per_agent")
	out.AgentRate = int(agents.integer("rate", 0, 0, 1<<30))
	out.AgentConcurrent = int(agents.integer("concurrent", 0, 0, 1<<30))
	agents.done()
	l.done()
	return out
}

// retention is a duration, or 0 for ever.
func (s *section) retention() time.Duration {
	v := s.scalar("retention")
	if v.text == "0" || v.text == "0s" {
		return 0
	}
	return s.durationOf(v, defaultRetention, time.Second, maxRetention)
}

func (s *section) timeouts() Timeouts {
	const least, most = 100 * time.Millisecond, time.Hour
	t, _ := s.section("timeouts")
	out := Timeouts{
		Header: t.duration("header", defaultHeader, least, most),
		Body:   t.duration("body", defaultBody, least, most),
		Write:  t.duration("write", defaultWrite, least, most),
		Idle:   t.duration("idle", defaultIdle, least, most),
		Store:  t.duration("store", defaultStore, least, most),
	}
	t.done()
	return out
}

func (s *section) log() Log {
	l, _ := s.section("log")
	out := Log{
		Format: l.oneOf("format", "json", "json", "text"),
		Level:  l.oneOf("level", "info", "debug", "info", "warn", "error"),
	}
	l.done()
	return out
}
