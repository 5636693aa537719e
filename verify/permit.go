package verify

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// permit judges the permit by its own signature, and the receipt by the permit.
func (v *Verifier) permit(d *Verdict, token string) {
	if token == "" {
		d.add(CheckPermit, NotSupplied, PermitMissing, "")
		return
	}
	if canon.SHA256Hex([]byte(token)) != d.Claims.PermitSHA256 {
		d.add(CheckPermit, Fail, PermitHash, "")
		return
	}
	p, err := v.permits.parse(token, d.Claims.Issuer, v.opts.Trust.keys)
	switch {
	case errors.Is(err, jws.ErrKeyUnknown), errors.Is(err, jws.ErrKeyRevoked):
		// The receipt vouches for this permit by its hash; only whether its own
		// issuer signed it stays open.
		code := KeyUnknown
		if errors.Is(err, jws.ErrKeyRevoked) {
			code = KeyRevoked
		}
		d.add(CheckPermit, NotChecked, code, "of the permit")
		return
	case errors.Is(err, jws.ErrSignature):
		d.add(CheckPermit, Fail, PermitSig, "")
		return
	case err != nil:
		d.add(CheckPermit, Fail, PermitInvalid, err.Error())
		return
	}
	if code, says := exceeds(d.Claims, p); code != OK {
		d.add(CheckPermit, Fail, code, says)
		return
	}
	d.Permit = p
	d.pass(CheckPermit, "issued by "+p.Issuer)
}

// exceeds finds the first way in which the receipt says more than the permit
// allows. A denial has no window, tool or limit to keep: it may be there because
// one of them was not kept.
func exceeds(c *receipts.Claims, p *permits.Permit) (Code, string) {
	switch {
	case p.ID != c.PermitID:
		return PermitMismatch, "jti"
	case p.Wallet != c.Wallet:
		return PermitMismatch, "sub"
	case p.Agent != c.Agent:
		return PermitMismatch, "act.sub"
	case c.Outcome == receipts.Denied:
		return OK, ""
	case !slices.Contains(p.Grant.Tools, c.Tool):
		return PermitTool, c.Tool
	case c.StartedMS/1000 < p.NotBefore || c.StartedMS/1000 >= p.Expires:
		return PermitWindow, fmt.Sprintf("started at %d ms, permitted from %d s to before %d s", c.StartedMS, p.NotBefore, p.Expires)
	}
	return exceedsLimits(c, &p.Grant.Limits)
}

func exceedsLimits(c *receipts.Claims, l *permits.Limits) (Code, string) {
	if c.Authorized > l.Credits {
		return PermitLimit, "limits.credits"
	}
	if l.CreditsPerCall != nil && c.Authorized > *l.CreditsPerCall {
		return PermitLimit, "limits.credits_per_call"
	}
	if n, ok := l.Calls[c.Tool]; ok && n == 0 || l.CallsTotal != nil && *l.CallsTotal == 0 {
		return PermitLimit, "no call is allowed"
	}
	v := l.Value
	if v == nil {
		return OK, ""
	}
	switch {
	case c.Value == nil || c.Value.Currency != v.Currency:
		return PermitLimit, "limits.value: the call has no value in " + v.Currency
	case v.PerCall != nil && c.Value.Amount > *v.PerCall:
		return PermitLimit, "limits.value.per_call"
	case v.Total != nil && c.Value.Amount > *v.Total:
		return PermitLimit, "limits.value.total"
	}
	return OK, ""
}

// permitCache remembers permits that were judged, since thousands of receipts
// share one. It forgets all when it is full, so its size is bounded.
type permitCache struct {
	mu   sync.Mutex
	seen map[permitKey]judged
}

type permitKey struct{ token, audience string }

type judged struct {
	permit *permits.Permit
	err    error
}

const maxPermits = 512

func (c *permitCache) parse(token, audience string, keys jws.KeySet) (*permits.Permit, error) {
	key := permitKey{token, audience}
	c.mu.Lock()
	known, ok := c.seen[key]
	c.mu.Unlock()
	if ok {
		return known.permit, known.err
	}
	p, err := parsePermit(token, audience, keys)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil || len(c.seen) >= maxPermits {
		c.seen = map[permitKey]judged{}
	}
	c.seen[key] = judged{p, err}
	return p, err
}

// parsePermit takes the permit's issuer from the permit: offline, a trusted permit
// key speaks for whomever it names, and the verdict shows the name.
func parsePermit(token, audience string, keys jws.KeySet) (*permits.Permit, error) {
	issuer, err := permits.Issuer(token)
	if err != nil {
		return nil, err
	}
	return permits.Parse(token, keys, permits.Expect{
		Issuers: []string{issuer}, Audience: audience, MaxLifetime: permits.AnyLifetime,
	})
}
