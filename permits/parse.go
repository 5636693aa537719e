package permits

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
)

// AnyLifetime switches the check of a permit's lifetime off, for offline readers that know no maximum.
const AnyLifetime time.Duration = math.MaxInt64

// Expect is what a permit is compared with. All members are required: a missing one would switch a check off.
type Expect struct {
	// Issuers are those for whom the keys given to Parse speak. Keys of two issuers that do not speak for each
	// other belong in two calls; Issuer tells which.
	Issuers     []string
	Audience    string
	MaxLifetime time.Duration // AnyLifetime, or a positive number of seconds
}

// check keeps an empty setting from matching an empty claim.
func (e Expect) check() error {
	switch {
	case len(e.Issuers) == 0 || slices.Contains(e.Issuers, ""):
		return fmt.Errorf("%w: no issuer", ErrExpect)
	case e.Audience == "":
		return fmt.Errorf("%w: no audience", ErrExpect)
	case e.MaxLifetime <= 0:
		return fmt.Errorf("%w: no maximum lifetime", ErrExpect)
	}
	return nil
}

// Parse checks the signature and all that is fixed in a permit, and returns what it says. The window of time is not
// looked at: that is a verdict of Decide, which leaves a receipt. A refusal wraps ErrInvalid, and jws's errors where
// they are the cause.
func Parse(token string, keys jws.KeySet, e Expect) (*Permit, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	t, key, err := jws.Verify(token, Type, jws.PurposePermit, keys, MaxTokenBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p, err := ParseClaims(t.Payload)
	if err != nil {
		return nil, err
	}
	if err := p.checkExpected(e); err != nil {
		return nil, err
	}
	// An outside issuer's key that was retired signs nothing later. The gateway's own is not held to the second of its
	// rotation: a gateway that runs on may issue under it until it is restarted, and those permits stay good.
	if p.Issuer != e.Audience && key.Expires != 0 && p.IssuedAt >= key.Expires {
		return nil, fmt.Errorf("%w: issued after its key was retired", ErrInvalid)
	}
	p.Token, p.SHA256 = token, canon.SHA256Hex([]byte(token))
	return p, nil
}

// Issuer returns the issuer that a token names, so that the keys can be chosen by which Parse will judge it. It proves
// nothing: the signature has not been looked at.
func Issuer(token string) (string, error) {
	t, err := jws.Guard(token, Type, MaxTokenBytes)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p, err := ParseClaims(t.Payload)
	if err != nil {
		return "", err
	}
	return p.Issuer, nil
}

// Issue signs the permit and returns it as Parse reads it back under e, so that nothing is issued which would be
// refused when it is used.
func (p *Permit) Issue(s jws.Signer, e Expect) (*Permit, error) {
	// The writer trusts its input; a fault is named before it is signed.
	if err := p.validate(); err != nil {
		return nil, err
	}
	input := jws.SigningInput(Type, s.KeyID(), p.Payload())
	sig, err := s.Sign(input)
	if err != nil {
		return nil, fmt.Errorf("sign permit %s: %w", p.ID, err)
	}
	keys, err := jws.NewKeySet(jws.Key{ID: s.KeyID(), Public: s.Public(), Purpose: jws.PurposePermit, Status: jws.StatusActive})
	if err != nil {
		return nil, fmt.Errorf("sign permit %s: %w", p.ID, err)
	}
	return Parse(input+"."+sig, keys, e)
}

// ParseGrant reads a grant strictly: unknown members, nulls, and numbers that are not integer literals are refused.
// "type" may be absent.
func ParseGrant(data []byte) (Grant, error) {
	var w wireGrant
	if err := decode(data, &w); err != nil {
		return Grant{}, err
	}
	if w.Type != nil && *w.Type != GrantType {
		return Grant{}, invalid([]string{`type must be "` + GrantType + `"`})
	}
	return w.grant()
}

// ParseClaims reads the claims of a token whose signature was checked before, such as a stored one. It is as strict as
// Parse about shape and content, and says nothing about who signed.
func ParseClaims(payload []byte) (*Permit, error) {
	var w wireClaims
	if err := decode(payload, &w); err != nil {
		return nil, err
	}
	if missing := w.missing(); len(missing) > 0 {
		return nil, invalid(missing)
	}
	if d := w.Details; len(d) != 1 || d[0].Type == nil || *d[0].Type != GrantType {
		return nil, invalid([]string{`authorization_details must hold exactly one object, of type "` + GrantType + `"`})
	}
	grant, err := w.Details[0].grant()
	if err != nil {
		return nil, err
	}
	p := &Permit{
		ID: *w.ID, Issuer: *w.Issuer, Audience: *w.Audience, Wallet: *w.Subject, Agent: *w.Actor.Subject,
		IssuedAt: *w.IssuedAt, NotBefore: *w.NotBefore, Expires: *w.Expires, Grant: grant,
	}
	if *w.Scope != "" {
		p.Scopes = strings.Split(*w.Scope, " ")
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// checkExpected compares strings as they are: an issuer URL has one spelling, and another is another issuer.
func (p *Permit) checkExpected(e Expect) error {
	var faults []string
	if !slices.Contains(e.Issuers, p.Issuer) {
		faults = append(faults, "iss is not an issuer of this key")
	}
	if p.Audience != e.Audience {
		faults = append(faults, "aud is another gateway")
	}
	if e.MaxLifetime != AnyLifetime && p.Expires-p.IssuedAt > int64(e.MaxLifetime/time.Second) {
		faults = append(faults, fmt.Sprintf("exp − iat is above the maximum of %d s", int64(e.MaxLifetime/time.Second)))
	}
	return invalid(faults)
}

// decode also refuses null, which Go's decoders take for an absent member.
func decode(data []byte, v any) error {
	if err := canon.Decode(data, v); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if hasNull(data) {
		return fmt.Errorf("%w: null is not a value; leave the member out", ErrInvalid)
	}
	return nil
}

// hasNull wants valid JSON, where an n outside a string begins a null and nothing else.
func hasNull(data []byte) bool {
	inString := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && c == 'n':
			return true
		}
	}
	return false
}

// invalid makes one error of the faults; nil where there are none.
func invalid(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.New(strings.Join(faults, "; ")))
}
