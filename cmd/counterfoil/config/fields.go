package config

import (
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	namePattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	toolPattern     = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,128}$`)
	integerPattern  = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
	negativePattern = regexp.MustCompile(`^-?[1-9][0-9]{0,9}$`)
	scopePattern    = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]{1,128}$`)
	currencyPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,16}$`)
	headerPattern   = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	hashPattern     = regexp.MustCompile(`^[0-9a-f]{64}$`)
	pointerPattern  = regexp.MustCompile(`^(/([^~/]|~[01])*)+$`)
)

func (s *section) required(name, what string) value {
	v := s.scalar(name)
	if !v.set && !s.faulty(v.path) {
		s.r.fault(s.line, s.at(name), "is missing: %s", what)
	}
	return v
}

// faulty says whether a value was already refused, so that one mistake is told once.
func (s *section) faulty(path string) bool {
	for _, f := range s.r.faults {
		if f.Path == path {
			return true
		}
	}
	return false
}

// matching gives a text that has the wanted form.
func (s *section) matching(v value, pattern *regexp.Regexp, what string) string {
	if v.set && !pattern.MatchString(v.text) {
		s.r.fault(v.line, v.path, "%q is not %s", v.text, what)
	}
	return v.text
}

func (s *section) duration(name string, fallback, least, most time.Duration) time.Duration {
	return s.durationOf(s.scalar(name), fallback, least, most)
}

func (s *section) durationOf(v value, fallback, least, most time.Duration) time.Duration {
	if !v.set {
		return fallback
	}
	d, err := time.ParseDuration(v.text)
	switch {
	case err != nil:
		s.r.fault(v.line, v.path, "%q is not a duration: write 30s, 5m or 24h", v.text)
	case d < least || d > most:
		s.r.fault(v.line, v.path, "%s is not between %s and %s", v.text, least, most)
	}
	return d
}

// integer takes integer literals only: 5.0, 5e3 and "5" are refused, never rounded or read as text.
func (s *section) integer(name string, fallback, least, most int64) int64 {
	v := s.scalar(name)
	if !v.set {
		return fallback
	}
	return s.r.integerOf(v, least, most)
}

func (r *reader) integerOf(v value, least, most int64) int64 {
	n, err := strconv.ParseInt(v.text, 10, 64)
	if !v.literal || !integerPattern.MatchString(v.text) || err != nil || n < least || n > most {
		shown := v.text
		if !v.literal {
			shown = strconv.Quote(v.text)
		}
		r.fault(v.line, v.path, "%s is not a whole number from %d to %d", shown, least, most)
	}
	return n
}

func (s *section) oneOf(name, fallback string, choices ...string) string {
	v := s.scalar(name)
	if !v.set {
		return fallback
	}
	for _, c := range choices {
		if v.text == c {
			return c
		}
	}
	s.r.fault(v.line, v.path, "%q is none of: %s", v.text, strings.Join(choices, ", "))
	return fallback
}

// boolean takes true and false, in no other spelling.
func (s *section) boolean(name string) bool { return s.oneOf(name, "false", "true", "false") == "true" }

func (s *section) pointer(v value) string {
	return s.matching(v, pointerPattern, "a JSON pointer such as /amount")
}

// file makes a path absolute: what is relative starts at the file's own directory, so that the
// gateway does the same wherever it is started.
func (s *section) file(v value) string {
	if !v.set || filepath.IsAbs(v.text) {
		return v.text
	}
	return filepath.Join(s.r.dir, v.text)
}

// link takes an absolute http or https URL that holds no password.
func (s *section) link(v value, query bool) string {
	if !v.set {
		return ""
	}
	u, err := url.Parse(v.text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		s.r.fault(v.line, v.path, "is not an http or https URL")
	case u.User != nil:
		s.r.fault(v.line, v.path, "holds a password; give it in headers_file")
	case u.Fragment != "" || !query && u.RawQuery != "":
		s.r.fault(v.line, v.path, "%q has more than scheme, host and path", v.text)
	}
	return v.text
}

func (s *section) issuer() string {
	return s.link(s.required("issuer", "the URL that receipts and permits name, such as https://counterfoil.example"), false)
}

func (s *section) listen() string {
	v := s.required("listen", "the address to serve on, such as 127.0.0.1:8080")
	if !v.set {
		return ""
	}
	_, port, err := net.SplitHostPort(v.text)
	n, convErr := strconv.Atoi(port)
	if err != nil || convErr != nil || n < 0 || n > 65535 {
		s.r.fault(v.line, v.path, "%q is not host:port", v.text)
	}
	return v.text
}

func (s *section) origins() []string {
	var out []string
	for _, v := range s.list("allowed_origins") {
		u, err := url.Parse(v.text)
		if err != nil || u.Host == "" || v.text != u.Scheme+"://"+u.Host {
			s.r.fault(v.line, v.path, "%q is not an origin such as https://app.example", v.text)
			continue
		}
		out = append(out, v.text)
	}
	return out
}
