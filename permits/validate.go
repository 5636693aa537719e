package permits

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxToolChars = 128

var (
	// Operators choose ids; they travel in URLs, headers and file names.
	idPattern = regexp.MustCompile(`\A[a-z]{2,4}_[A-Za-z0-9._-]{1,64}\z`)
	// Not only ISO 4217: credits of other systems and tokens are values as well. Compared exactly.
	currencyPattern = regexp.MustCompile(`\A[A-Za-z0-9._-]{1,16}\z`)
)

// Validate names every fault of the grant, in words for the operator who wrote it.
func (g Grant) Validate() error {
	var f faults
	f.check(len(g.Tools) > 0, "tools must name at least one tool")
	for i, t := range g.Tools {
		f.check(plainName(t), "tools[%d] must be a name of 1 to %d characters without control characters", i, maxToolChars)
	}
	for i, d := range g.DenyArgs {
		_, err := parsePattern(d)
		f.check(utf8.ValidString(d), "deny_args[%d] must be UTF-8", i)
		f.check(err == nil, "deny_args[%d] %v", i, err)
	}
	g.checkLimits(&f)
	if r := g.Recipient; r != nil {
		f.check(len(r.Domains) > 0, "recipient.domains must name at least one domain")
		for i, d := range r.Domains {
			_, err := aLabels(d)
			f.check(err == nil, "recipient.domains[%d] %v", i, err)
		}
	}
	if g.Approval != nil {
		f.amount("approval.value_over", g.Approval.ValueOver)
	}
	return invalid(f)
}

func (g Grant) checkLimits(f *faults) {
	l := g.Limits
	f.amount("limits.credits", &l.Credits)
	f.amount("limits.calls_total", l.CallsTotal)
	f.amount("limits.credits_per_call", l.CreditsPerCall)
	for _, tool := range slices.Sorted(maps.Keys(l.Calls)) {
		n := l.Calls[tool]
		f.amount("limits.calls", &n)
		// A misspelt tool would be a limit that limits nothing.
		f.check(slices.Contains(g.Tools, tool), "limits.calls names a tool that tools does not")
	}
	if v := l.Value; v != nil {
		f.check(currencyPattern.MatchString(v.Currency), "limits.value.currency must be a currency code, such as USD")
		f.amount("limits.value.total", v.Total)
		f.amount("limits.value.per_call", v.PerCall)
	}
}

// validate is Validate for the claims around the grant as well. It holds for every permit, whoever issued it.
func (p *Permit) validate() error {
	var f faults
	f.check(p.Issuer != "" && utf8.ValidString(p.Issuer), "iss must not be empty")
	f.check(p.Audience != "" && utf8.ValidString(p.Audience), "aud must not be empty")
	f.check(idPattern.MatchString(p.Wallet), "sub must be a wallet id")
	f.check(idPattern.MatchString(p.Agent), "act.sub must be an agent id")
	f.check(idPattern.MatchString(p.ID), "jti must be a permit id")
	f.amount("iat", &p.IssuedAt)
	f.amount("nbf", &p.NotBefore)
	f.amount("exp", &p.Expires)
	f.check(p.IssuedAt < p.Expires, "exp must be after iat")
	f.check(p.NotBefore < p.Expires, "exp must be after nbf")
	for _, s := range p.Scopes {
		f.check(plainScope(s), "scope must be scopes separated by single spaces")
	}
	if err := invalid(f); err != nil {
		return err
	}
	return p.Grant.Validate()
}

// CheckTools refuses at issue a permit that could only ever be denied by these tools, and one that asks for what this
// version does not do. A tool that is not in the catalogue yet may be named, but for a permit with a value limit.
func (p *Permit) CheckTools(tools func(name string) (Tool, bool)) error {
	var f faults
	if a := p.Grant.Approval; a != nil {
		f.check(!a.Always && a.ValueOver == nil, "approval: this version cannot ask for approvals; leave approval out")
	}
	for _, name := range p.Grant.Tools {
		limit := p.Grant.Limits.Value
		if limit == nil {
			break
		}
		t, ok := tools(name)
		switch {
		case !ok:
			f.check(false, "limits.value: the tool %q is not in the catalogue, so its value cannot be limited", name)
		case t.Value == nil:
			f.check(false, "limits.value: the tool %q has no value pointer, so its value cannot be limited", name)
		case t.Value.Currency != limit.Currency:
			f.check(false, "limits.value: the tool %q has its value in %s, the limit is in %s", name, t.Value.Currency, limit.Currency)
		}
	}
	return invalid(f)
}

// faults collects sentences, each once.
type faults []string

func (f *faults) check(ok bool, format string, args ...any) {
	if ok {
		return
	}
	if s := fmt.Sprintf(format, args...); !slices.Contains(*f, s) {
		*f = append(*f, s)
	}
}

func (f *faults) amount(name string, n *int64) {
	f.check(n == nil || (*n >= 0 && *n <= MaxInteger), "%s must be an integer from 0 to %d", name, MaxInteger)
}

// plainName keeps out what could not be shown in a log line or a table.
func plainName(s string) bool {
	return s != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= maxToolChars && !strings.ContainsFunc(s, unicode.IsControl)
}

// plainScope is scope-token of RFC 6749.
func plainScope(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '"' || r == '\\'
	})
}
