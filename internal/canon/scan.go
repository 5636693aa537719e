package canon

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

type rules struct {
	maxDepth     int
	integersOnly bool
}

// facts are what the raw pass saw that a caller may have to look at more closely.
type facts struct {
	suspectNames bool // two names in one object have the same folded hash
	null         bool
	negativeZero bool // the literal -0, which is no integer literal to Decode
}

// scanner walks the bytes of a text whose grammar is not known to be right: it must not trust it, and
// need not judge it, because jsontext does so afterwards.
type scanner struct {
	rules
	facts
	data  []byte
	pos   int
	depth int

	inObject [MaxDepth + 1]bool
	first    [MaxDepth + 1]int // index into names of the object's first
	wantName bool
	names    []uint64 // folded hashes of the names of all open objects
}

func scan(data []byte, r rules) (facts, error) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return facts{}, &Error{What: "begins with a byte order mark"}
	}
	if !utf8.Valid(data) {
		return facts{}, &Error{Offset: invalidUTF8(data), What: "not valid UTF-8"}
	}
	var room [32]uint64
	s := scanner{rules: r, data: data, names: room[:0]}
	for s.pos < len(data) {
		if err := s.step(); err != nil {
			return facts{}, err
		}
	}
	return s.facts, nil
}

func (s *scanner) step() error {
	switch c := s.data[s.pos]; c {
	case '"':
		return s.str()
	case '{', '[':
		return s.open(c == '{')
	case '}', ']':
		return s.close()
	case ',':
		s.wantName = s.inObject[s.depth]
	case ':':
		s.wantName = false
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number()
	case 'n':
		s.null = true
	}
	s.pos++
	return nil
}

func (s *scanner) open(object bool) error {
	if s.depth == s.maxDepth {
		return s.fault(s.pos, "nested too deeply")
	}
	s.depth++
	s.inObject[s.depth] = object
	s.first[s.depth] = len(s.names)
	s.wantName = object
	s.pos++
	return nil
}

func (s *scanner) close() error {
	if s.depth == 0 {
		return s.fault(s.pos, "not JSON by its grammar")
	}
	if names := s.names[s.first[s.depth]:]; len(names) > 1 && !s.suspectNames {
		s.suspectNames = repeats(names)
	}
	s.names = s.names[:s.first[s.depth]]
	s.depth--
	s.wantName = false
	s.pos++
	return nil
}

// repeats may reorder names.
func repeats(names []uint64) bool {
	if len(names) > 12 {
		slices.Sort(names)
		for i, h := range names[1:] {
			if h == names[i] {
				return true
			}
		}
		return false
	}
	for i, h := range names[1:] {
		if slices.Contains(names[:i+1], h) {
			return true
		}
	}
	return false
}

// str passes over a string literal and, where it stands for a name, notes its folded hash.
func (s *scanner) str() error {
	start, plain := s.pos, true
	hash := uint64(fnvOffset)
	i := start + 1
	for ; i < len(s.data); i++ {
		c := s.data[i]
		if c == '"' {
			break
		}
		if c == '\\' {
			plain = false
			end, ok := escape(s.data, i)
			if !ok {
				return s.fault(i, "lone surrogate")
			}
			i = end - 1
			continue
		}
		if c >= utf8.RuneSelf {
			plain = false
		}
		if s.wantName {
			hash = (hash ^ uint64(upper(c))) * fnvPrime
		}
	}
	s.pos = min(i+1, len(s.data))
	if !s.wantName {
		return nil
	}
	s.wantName = false
	if !plain {
		name, err := jsontext.AppendUnquote(nil, s.data[start:s.pos])
		if err != nil {
			return s.fault(start, "not JSON by its grammar")
		}
		hash = foldedHash(name)
	}
	s.names = append(s.names, hash)
	return nil
}

// escape returns the index after the escape sequence at i, a surrogate pair being one sequence.
// It is not ok where half a pair stands alone.
func escape(data []byte, i int) (end int, ok bool) {
	u, isU := hex4(data, i)
	if !isU {
		return i + 2, true
	}
	if u < 0xd800 || u > 0xdfff {
		return i + 6, true
	}
	low, isU := hex4(data, i+6)
	return i + 12, u < 0xdc00 && isU && low >= 0xdc00 && low <= 0xdfff
}

// hex4 reads \uXXXX at i.
func hex4(data []byte, i int) (u rune, ok bool) {
	if i+6 > len(data) || data[i] != '\\' || data[i+1] != 'u' {
		return 0, false
	}
	for _, c := range data[i+2 : i+6] {
		switch {
		case '0' <= c && c <= '9':
			u = u<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			u = u<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return u, true
}

func (s *scanner) number() error {
	start := s.pos
	for s.pos < len(s.data) && numeric(s.data[s.pos]) {
		s.pos++
	}
	literal := s.data[start:s.pos]
	if s.integersOnly && !smallInteger(literal) {
		return s.fault(start, "a number that is not an integer literal in 0…2^53−1")
	}
	if len(literal) == 2 && literal[0] == '-' && literal[1] == '0' {
		s.negativeZero = true
	}
	if !keepsValue(literal) {
		return s.fault(start, "a number that double precision would change")
	}
	return nil
}

func (s *scanner) fault(at int, what string) error {
	return &Error{Offset: int64(at), What: what}
}

// FNV-1a. Collisions can be made at will; all they do is send one text through checkNames.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func foldedHash(name []byte) uint64 {
	hash := uint64(fnvOffset)
	var buf [utf8.UTFMax]byte
	for _, r := range string(name) {
		for _, c := range buf[:utf8.EncodeRune(buf[:], fold(r))] {
			hash = (hash ^ uint64(c)) * fnvPrime
		}
	}
	return hash
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

// fold maps all runes that are equal under Unicode simple case folding to the least of them, which
// for the ASCII letters, and so for U+017F and U+212A, is the capital.
func fold(r rune) rune {
	if r < utf8.RuneSelf {
		return rune(upper(byte(r)))
	}
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}

// checkNames is the exact search for duplicates, for texts in which hashes met. data is valid JSON.
func checkNames(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	var open []map[string]bool
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return nil // the end: the grammar has been checked
		}
		switch kind := tok.Kind(); kind {
		case '{', '[':
			open = append(open, map[string]bool{})
		case '}', ']':
			open = open[:len(open)-1]
		case '"':
			if within, n := dec.StackIndex(dec.StackDepth()); within != '{' || n%2 == 0 {
				continue
			}
			name := folded(tok.String())
			if open[len(open)-1][name] {
				return &Error{
					Offset: dec.InputOffset(), duplicate: true,
					What: "two members of an object have the same name, letter case aside",
				}
			}
			open[len(open)-1][name] = true
		}
	}
}

func folded(name string) string {
	runes := []rune(name)
	for i, r := range runes {
		runes[i] = fold(r)
	}
	return string(runes)
}

func invalidUTF8(data []byte) int64 {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size <= 1 {
			return int64(i)
		}
		i += size
	}
	return int64(len(data))
}
