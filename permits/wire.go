package permits

// The wire structs tell an absent member (nil) from a zero.
type wireClaims struct {
	Issuer    *string     `json:"iss"`
	Audience  *string     `json:"aud"`
	Subject   *string     `json:"sub"`
	Actor     *wireActor  `json:"act"`
	ID        *string     `json:"jti"`
	IssuedAt  *int64      `json:"iat"`
	NotBefore *int64      `json:"nbf"`
	Expires   *int64      `json:"exp"`
	Scope     *string     `json:"scope"`
	Details   []wireGrant `json:"authorization_details"`
}

type wireActor struct {
	Subject *string `json:"sub"`
}

type wireGrant struct {
	Type      *string        `json:"type"`
	Tools     []string       `json:"tools"`
	Limits    *wireLimits    `json:"limits"`
	DenyArgs  []string       `json:"deny_args"`
	Recipient *wireRecipient `json:"recipient"`
	Approval  *wireApproval  `json:"approval"`
}

type wireLimits struct {
	Credits        *int64           `json:"credits"`
	CallsTotal     *int64           `json:"calls_total"`
	Calls          map[string]int64 `json:"calls"`
	CreditsPerCall *int64           `json:"credits_per_call"`
	Value          *wireValue       `json:"value"`
}

type wireValue struct {
	Currency *string `json:"currency"`
	Total    *int64  `json:"total"`
	PerCall  *int64  `json:"per_call"`
}

type wireRecipient struct {
	Domains    []string `json:"domains"`
	Subdomains bool     `json:"subdomains"` // absent is false, and is written as false
}

type wireApproval struct {
	Always    bool   `json:"always"`
	ValueOver *int64 `json:"value_over"`
}

// missing names every absent claim at once: all are required, those that are integers too, where absent would be 0.
func (w *wireClaims) missing() []string {
	var faults []string
	for _, m := range []struct {
		name    string
		present bool
	}{
		{"iss", w.Issuer != nil},
		{"aud", w.Audience != nil},
		{"sub", w.Subject != nil},
		{"act.sub", w.Actor != nil && w.Actor.Subject != nil},
		{"jti", w.ID != nil},
		{"iat", w.IssuedAt != nil},
		{"nbf", w.NotBefore != nil},
		{"exp", w.Expires != nil},
		{"scope", w.Scope != nil},
		{"authorization_details", w.Details != nil},
	} {
		if !m.present {
			faults = append(faults, m.name+" is required")
		}
	}
	return faults
}

// grant returns the grant only if it is valid as a whole.
func (w *wireGrant) grant() (Grant, error) {
	if w.Limits == nil || w.Limits.Credits == nil {
		return Grant{}, invalid([]string{"limits.credits is required"})
	}
	g := Grant{
		Tools:    w.Tools,
		DenyArgs: w.DenyArgs,
		Limits: Limits{
			Credits: *w.Limits.Credits, CallsTotal: w.Limits.CallsTotal, Calls: w.Limits.Calls, CreditsPerCall: w.Limits.CreditsPerCall,
		},
	}
	if v := w.Limits.Value; v != nil {
		if v.Currency == nil {
			return Grant{}, invalid([]string{"limits.value.currency is required"})
		}
		g.Limits.Value = &ValueLimit{Currency: *v.Currency, Total: v.Total, PerCall: v.PerCall}
	}
	if r := w.Recipient; r != nil {
		g.Recipient = &Recipient{Domains: r.Domains, Subdomains: r.Subdomains}
	}
	if a := w.Approval; a != nil {
		g.Approval = &Approval{Always: a.Always, ValueOver: a.ValueOver}
	}
	if err := g.Validate(); err != nil {
		return Grant{}, err
	}
	return g, nil
}
