package permits

import (
	"errors"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

const (
	maxAddressBytes = 254
	maxLocalBytes   = 64
)

// allowsAddress reports whether s is one bare address (RFC 5321 dot-string "@" domain) in one of the domains. There is
// no second way to write an address here: whatever needs interpretation does not pass.
func (r *Recipient) allowsAddress(s string) bool {
	domain, ok := addressDomain(s)
	if !ok {
		return false
	}
	for _, d := range r.Domains {
		// A domain that cannot be read was refused at issue. In a permit made otherwise it allows nobody.
		allowed, err := aLabels(d)
		if err != nil {
			continue
		}
		if domain == allowed || (r.Subdomains && strings.HasSuffix(domain, "."+allowed)) {
			return true
		}
	}
	return false
}

// addressDomain returns the domain, in A-labels, of an address.
func addressDomain(s string) (string, bool) {
	local, domain, ok := strings.Cut(s, "@")
	if !ok || len(s) > maxAddressBytes || !plainLocal(local) {
		return "", false
	}
	ascii, err := aLabels(domain)
	return ascii, err == nil
}

// plainLocal takes fewer local parts than RFC 5321: no quotes; none of "%!:|/" by which relays were told another
// domain; no leading "-", which mail programs have read as an option.
func plainLocal(s string) bool {
	if s == "" || len(s) > maxLocalBytes || s[0] == '-' {
		return false
	}
	for atom := range strings.SplitSeq(s, ".") {
		if atom == "" {
			return false
		}
		for i := range len(atom) {
			c := atom[i]
			if !isLetterOrDigit(c) && !strings.ContainsRune("+-_='&~#", rune(c)) {
				return false
			}
		}
	}
	return true
}

// aLabels returns the domain as lower-case A-labels (RFC 5890). Only ASCII letters are folded: characters that a looser
// profile would map to others (full width, ideographic stops, soft hyphens) are refused, as are labels that mix scripts.
func aLabels(s string) (string, error) {
	s = lowerASCII(s)
	switch {
	case !strings.Contains(s, "."):
		return "", errors.New("must have at least two labels")
	case strings.HasSuffix(s, "."):
		return "", errors.New("must not have a dot at its end")
	}
	ascii, err := idna.Registration.ToASCII(s)
	if err != nil {
		return "", errors.New("must be a domain name by IDNA2008")
	}
	uni, err := idna.Registration.ToUnicode(ascii)
	if err != nil {
		return "", errors.New("must be a domain name by IDNA2008")
	}
	for label := range strings.SplitSeq(uni, ".") {
		if mixesScripts(label) {
			return "", errors.New("must not have a label that mixes scripts")
		}
	}
	// A last label that begins with a digit is (part of) an IP address; no top-level domain does.
	if top := ascii[strings.LastIndexByte(ascii, '.')+1:]; top[0] >= '0' && top[0] <= '9' {
		return "", errors.New("must not be an IP address")
	}
	return ascii, nil
}

// lowerASCII is not strings.ToLower, which folds U+212A, the Kelvin sign, to k.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

func isLetterOrDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// mixesScripts knows the two mixtures that people write (Japanese and Korean) and takes every other for a look-alike.
func mixesScripts(label string) bool {
	scripts := map[string]bool{}
	for _, r := range label {
		if r >= 0x80 || unicode.IsLetter(r) {
			scripts[scriptOf(r)] = true
		}
	}
	delete(scripts, "")
	if len(scripts) <= 1 {
		return false
	}
	return !subset(scripts, "Han", "Hiragana", "Katakana") && !subset(scripts, "Han", "Hangul")
}

// scriptOf is "" for characters that belong to every script. Latin is asked first because it is the usual one.
func scriptOf(r rune) string {
	if unicode.In(r, unicode.Common, unicode.Inherited) {
		return ""
	}
	if unicode.Is(unicode.Latin, r) {
		return "Latin"
	}
	for name, table := range unicode.Scripts {
		if unicode.Is(table, r) {
			return name
		}
	}
	return "unknown"
}

func subset(scripts map[string]bool, of ...string) bool {
	n := 0
	for _, name := range of {
		if scripts[name] {
			n++
		}
	}
	return n == len(scripts)
}
