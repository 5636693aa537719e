package verify

import (
	"bytes"
	"errors"
	"fmt"

	"counterfoil/internal/jws"
)

// ErrTrust says that a trust file is not one.
var ErrTrust = errors.New("not a trust file")

// Trust is the set of keys that the caller believes, each with the file that it
// came from. Nothing else is ever trusted.
type Trust struct {
	keys   jws.KeySet
	byID   map[string]jws.Key
	source map[string]string
}

// Add reads a trust file: a JWKS as a gateway publishes it, or a PEM public key.
// A key that one file calls revoked stays so, whatever another file says.
func (t *Trust) Add(name string, data []byte) error {
	read := jws.ParseJWKS
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("-----BEGIN")) {
		read = jws.ParsePEM
	}
	set, err := read(data)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrTrust, name, err)
	}
	if len(set.Keys()) == 0 {
		return fmt.Errorf("%w: %s: there is no key in it", ErrTrust, name)
	}
	if t.source == nil {
		t.source = map[string]string{}
	}
	for _, key := range set.Keys() {
		if _, known := t.source[key.ID]; !known {
			t.source[key.ID] = name
		}
	}
	t.keys = t.keys.Merge(set)
	t.byID = map[string]jws.Key{}
	for _, key := range t.keys.Keys() {
		t.byID[key.ID] = key
	}
	return nil
}

// contradicts compares a bundle's key with the trusted one of the same id. Since the
// bundle was made, a key may have been taken into use or retired; its purpose stays,
// and its times but for these.
func (t *Trust) contradicts(hint jws.Key) bool {
	key, known := t.byID[hint.ID]
	if !known {
		return false
	}
	purpose := hint.Purpose == "" || key.Purpose == "" || hint.Purpose == key.Purpose
	takenIntoUse := hint.Status == jws.StatusNext && key.Status != jws.StatusNext
	begin := hint.NotBefore == 0 || key.NotBefore == 0 || takenIntoUse || hint.NotBefore == key.NotBefore
	end := hint.Expires == 0 || hint.Status != key.Status || hint.Expires == key.Expires
	return !purpose || !begin || !end
}
