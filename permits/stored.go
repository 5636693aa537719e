package permits

// ParseClaims reads the claims of a token whose signature was checked before, such as a stored one. It is as
// strict as Parse about shape and content, and says nothing about who signed.
func ParseClaims(payload []byte) (*Permit, error) { return parseClaims(payload) }
