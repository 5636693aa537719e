package receipts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"counterfoil/internal/jws"
)

// ErrTooLong says that a receipt's signing input exceeds MaxSigningInput.
var ErrTooLong = errors.New("receipt's signing input is too long")

// SigningInput returns the exact text that is signed for c under the key kid. It
// fixes the receipt: the signature may be made later, by whoever holds the key.
func SigningInput(kid string, c *Claims) (string, error) {
	input := jws.SigningInput(Type, kid, c.AppendPayload(make([]byte, 0, 1536)))
	if len(input) > MaxSigningInput {
		return "", fmt.Errorf("receipt %s: %w: %d bytes, at most %d", c.ID, ErrTooLong, len(input), MaxSigningInput)
	}
	return input, nil
}

// ChainHash is what the wallet's next receipt carries as chain.prev. It covers
// the signing input, not the signature, so that a chain grows before it is signed.
func ChainHash(signingInput string) string {
	sum := sha256.Sum256([]byte(signingInput))
	return hex.EncodeToString(sum[:])
}

// Parse reads a receipt whose signature holds under a receipt key of keys. It
// keeps no clock: a receipt has no expiry.
func Parse(token string, keys jws.KeySet) (*Claims, jws.Key, error) {
	tok, key, err := jws.Verify(token, Type, jws.PurposeReceipt, keys, MaxTokenBytes)
	if err != nil {
		return nil, jws.Key{}, fmt.Errorf("receipt: %w", err)
	}
	claims, err := ParseClaims(tok.Payload)
	if err != nil {
		return nil, key, err
	}
	return claims, key, nil
}
