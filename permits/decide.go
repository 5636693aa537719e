package permits

// State is what must be read under the locks of the wallet and the permit. Committed is spent and held together.
type State struct {
	NowMS            int64 // the database's clock
	Revoked          bool
	CreditsCommitted int64
	CallsTotal       int64 // calls under this permit, running ones included
	ToolCalls        int64 // those of this call's tool
	ValueCommitted   int64
	WalletAvailable  int64 // deposited, less spent and held by all permits of the wallet
	WalletFrozen     bool
}

// Decide gives the verdict on a call, in the contract's order; nil admits it. It expects the Fit that this permit
// gave for the same call.
func (p *Permit) Decide(f Fit, price int64, s State) *Denial {
	if d := p.decideTime(s); d != nil {
		return d
	}
	if f.Denial != nil {
		return f.Denial
	}
	// A Fit that was never computed names no tool.
	if f.Tool == "" {
		return &Denial{Reason: ReasonToolNotAllowed}
	}
	if d := p.decideCalls(f.Tool, s); d != nil {
		return d
	}
	if d := p.decideValue(f.Value, s); d != nil {
		return d
	}
	if d := p.decideCredits(price, s); d != nil {
		return d
	}
	if p.needsApproval(f.Value) {
		return &Denial{Reason: ReasonApprovalRequired}
	}
	return nil
}

// decideTime also takes a permit that claims to be issued later than now as not yet valid: nobody can have issued it.
func (p *Permit) decideTime(s State) *Denial {
	// Seconds against whole seconds: floor(now) compares with nbf and exp as now itself does, without overflow.
	now := s.NowMS / 1000
	switch {
	case s.Revoked:
		return &Denial{Reason: ReasonRevoked}
	case s.NowMS < 0, now < p.NotBefore, now < p.IssuedAt:
		return &Denial{Reason: ReasonNotYetValid}
	case now >= p.Expires:
		return &Denial{Reason: ReasonExpired}
	}
	return nil
}

// decideCalls looks at the permit's own limit before the tool's, and needs one call of each.
func (p *Permit) decideCalls(tool string, s State) *Denial {
	l := p.Grant.Limits
	if l.CallsTotal != nil {
		if d := exceeds(*l.CallsTotal, s.CallsTotal, 1); d != nil {
			return &Denial{ReasonCallsExceeded, d}
		}
	}
	if limit, ok := l.Calls[tool]; ok {
		if d := exceeds(limit, s.ToolCalls, 1); d != nil {
			return &Denial{ReasonCallsExceeded, d}
		}
	}
	return nil
}

// decideValue denies what it cannot compare before it compares.
func (p *Permit) decideValue(v *Value, s State) *Denial {
	l := p.Grant.Limits.Value
	if l == nil {
		return nil
	}
	// An amount in another currency says nothing about this limit.
	if v == nil || v.Currency != l.Currency {
		return &Denial{Reason: ReasonValueMissing}
	}
	if l.PerCall != nil {
		if d := exceeds(*l.PerCall, 0, v.Amount); d != nil {
			return &Denial{ReasonValueExceeded, d}
		}
	}
	if l.Total != nil {
		if d := exceeds(*l.Total, s.ValueCommitted, v.Amount); d != nil {
			return &Denial{ReasonValueExceeded, d}
		}
	}
	return nil
}

// decideCredits asks the permit before the wallet, so that a permit that is used up says nothing about the wallet.
func (p *Permit) decideCredits(price int64, s State) *Denial {
	l := p.Grant.Limits
	if l.CreditsPerCall != nil {
		if d := exceeds(*l.CreditsPerCall, 0, price); d != nil {
			return &Denial{ReasonCreditsExceeded, d}
		}
	}
	if d := exceeds(l.Credits, s.CreditsCommitted, price); d != nil {
		return &Denial{ReasonCreditsExceeded, d}
	}
	if s.WalletFrozen {
		return &Denial{Reason: ReasonWalletFrozen}
	}
	// A wallet has no limit of its own: what is available is both. Whoever may pay from a wallet may read its records.
	if d := exceeds(s.WalletAvailable, 0, price); d != nil {
		return &Denial{ReasonWalletCreditsInsufficient, d}
	}
	return nil
}

// needsApproval also asks where the amount that would decide is not known.
func (p *Permit) needsApproval(v *Value) bool {
	a := p.Grant.Approval
	if a == nil {
		return false
	}
	return a.Always || (a.ValueOver != nil && (v == nil || v.Amount > *a.ValueOver))
}

// exceeds compares by subtraction from the limit, which cannot overflow as a sum could. A negative number is a
// broken invariant of the caller; it must not make room.
func exceeds(limit, committed, needed int64) *Detail {
	if limit >= 0 && committed >= 0 && needed >= 0 && limit-committed >= needed {
		return nil
	}
	return &Detail{Limit: limit, Needed: needed, Remaining: limit - max(committed, 0)}
}
