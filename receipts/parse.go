package receipts

import "errors"

// The ways in which a payload is not a receipt of this format.
var (
	ErrClaims  = errors.New("not a receipt's claims")
	ErrVersion = errors.New("receipt of an unknown version")
)

// ParseClaims reads a payload with exactly the members of the format.
func ParseClaims(payload []byte) (*Claims, error) { panic("later") }
