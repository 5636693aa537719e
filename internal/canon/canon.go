// Package canon accepts only JSON that means one thing to every reader, and writes its RFC 8785 bytes.
//
// JSON parsers disagree about duplicate names, letter case, lone surrogates, nesting and large
// numbers. Whoever hashes, prices or signs a text that two parsers read differently has signed two
// statements. So everything is refused on which they are known to differ, and whatever passes keeps
// its value, digit for digit, through canonicalisation.
//
// One pass of our own over the raw bytes (scan.go) decides depth, numbers, surrogates and names; the
// grammar and the canonical form are jsontext's. Each pass is linear but for a sort of the member
// names of large objects, so hostile input costs time in proportion to its length.
package canon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deeply arrays and objects may be nested; a scalar is at depth 0.
const MaxDepth = 64

// MaxInteger is the largest integer every JSON reader keeps: 2^53−1.
const MaxInteger = 1<<53 - 1

var (
	// ErrInvalid is what every refusal of this package is, by errors.Is.
	ErrInvalid = errors.New("invalid JSON")
	// ErrDuplicate is what a refusal is as well when two members of one object have names that are
	// equal, or equal under Unicode simple case folding.
	ErrDuplicate = errors.New("duplicate member name")
)

// Error says in plain words why a text was refused, and where; never what it held.
type Error struct {
	Offset    int64  // in bytes, of the fault or shortly after it
	Pointer   string // RFC 6901, where Decode knows it
	What      string
	duplicate bool
}

func (e *Error) Error() string {
	if e.Pointer != "" {
		return "invalid JSON at " + e.Pointer + ": " + e.What
	}
	return "invalid JSON: " + e.What
}

// Is makes each refusal an ErrInvalid, and those about names an ErrDuplicate.
func (e *Error) Is(target error) bool {
	return target == ErrInvalid || (e.duplicate && target == ErrDuplicate)
}

// Check reports why data is not exactly one JSON value that every reader understands alike.
func Check(data []byte) error {
	_, err := check(data, rules{maxDepth: MaxDepth})
	return err
}

// CheckClaims is Check for the parts of a token: at most maxDepth (up to MaxDepth) deep, and every
// number an integer literal in 0…2^53−1.
func CheckClaims(data []byte, maxDepth int) error {
	_, err := check(data, rules{maxDepth: min(maxDepth, MaxDepth), integersOnly: true})
	return err
}

// Canonical checks data as Check does and returns its RFC 8785 form in memory of its own.
func Canonical(data []byte) ([]byte, error) {
	f, err := scan(data, rules{maxDepth: MaxDepth})
	if err != nil {
		return nil, err
	}
	// The scan has already looked for duplicates, more strictly than jsontext would.
	out, err := jsontext.AppendFormat(make([]byte, 0, len(data)), data,
		jsontext.AllowDuplicateNames(true),
		jsontext.CanonicalizeRawInts(true),
		jsontext.CanonicalizeRawFloats(true),
		jsontext.ReorderRawObjects(true))
	if err != nil {
		return nil, grammarError(data)
	}
	if f.suspectNames {
		if err := checkNames(data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// SHA256Hex is the lower-case hex SHA-256 of data.
func SHA256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// AppendString appends s as an RFC 8785 string literal. Bytes of s that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			dst, _ = jsontext.AppendQuote(dst, s) // the error only repeats that U+FFFD was put in
			return dst
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

func check(data []byte, r rules) (facts, error) {
	f, err := scan(data, r)
	if err != nil {
		return f, err
	}
	if !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true)) {
		return f, grammarError(data)
	}
	if f.suspectNames {
		return f, checkNames(data)
	}
	return f, nil
}

// grammarError parses a text that was refused once more, to say where it goes wrong. jsontext's own
// words may quote the text, so they are replaced.
func grammarError(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	_, err := dec.ReadValue()
	if err == nil {
		return &Error{Offset: dec.InputOffset(), What: "something follows the value"}
	}
	offset := dec.InputOffset()
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		offset = syntax.ByteOffset
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Offset: int64(len(data)), What: "ends before the value does"}
	}
	return &Error{Offset: offset, What: "not JSON by its grammar"}
}
