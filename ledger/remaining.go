package ledger

// Remaining is what is left of a permit's limits. A nil member is a limit that the permit does not have.
type Remaining struct {
	Credits    int64
	CallsTotal *int64
	Calls      map[string]int64 // of the tools that have a limit of their own
	Value      *int64
}

// Remaining is what is left now: what is held for calls that run is not.
func (r *PermitRecord) Remaining() Remaining {
	limits, used := r.Permit.Grant.Limits, r.Usage
	left := Remaining{Credits: limits.Credits - used.CreditsSpent - used.CreditsHeld}
	if limits.CallsTotal != nil {
		n := *limits.CallsTotal - used.CallsTotal
		left.CallsTotal = &n
	}
	for tool, limit := range limits.Calls {
		if left.Calls == nil {
			left.Calls = make(map[string]int64, len(limits.Calls))
		}
		left.Calls[tool] = limit - used.Calls[tool]
	}
	if limits.Value != nil && limits.Value.Total != nil {
		n := *limits.Value.Total - used.ValueSpent - used.ValueHeld
		left.Value = &n
	}
	return left
}
