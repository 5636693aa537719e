package canon

import "strconv"

func numeric(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E'
}

// smallInteger reports whether literal is an integer literal in 0…2^53−1.
func smallInteger(literal []byte) bool {
	if len(literal) == 0 || len(literal) > 16 || (literal[0] == '0' && len(literal) > 1) {
		return false
	}
	var n int64
	for _, c := range literal {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int64(c-'0')
	}
	return n <= MaxInteger
}

const (
	// Doubles keep any 15 significant digits (DBL_DIG) within this range of exponents.
	safeDigits   = 15
	safeExponent = 290
	// The shortest text of a double has at most 17 significant digits.
	mostDigits = 17
	// strconv stops counting an exponent at this size, so beyond it only its own answer counts.
	mostExponent = 9999
)

// keepsValue reports whether the RFC 8785 form of a number literal denotes the same decimal value.
func keepsValue(literal []byte) bool {
	if len(literal) <= safeDigits && onlyDigits(literal) {
		return true
	}
	d, ok := decimalOf(literal)
	if !ok {
		return false
	}
	if d.digits == 0 || (d.digits <= safeDigits && d.exponent >= -safeExponent && d.exponent <= safeExponent && !d.far) {
		return true
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || f == 0 {
		return false
	}
	var buf [32]byte
	kept, ok := decimalOf(strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
	return ok && d.digits == kept.digits && d.exponent == kept.exponent && d.text == kept.text
}

func onlyDigits(literal []byte) bool {
	for _, c := range literal {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// decimal is the magnitude 0.d1d2d3… × 10^exponent without leading or trailing zeros; zero has no digits.
type decimal struct {
	text     [mostDigits]byte
	digits   int
	exponent int64
	far      bool // the literal's own exponent is beyond mostExponent
}

// decimalOf reads a literal; it is not ok if it has more digits than the text of any double.
// A literal outside the grammar gives some decimal: jsontext refuses it later.
func decimalOf(literal []byte) (d decimal, ok bool) {
	i, seen, point := 0, 0, false
	if i < len(literal) && literal[i] == '-' {
		i++
	}
	for ; i < len(literal) && literal[i] != 'e' && literal[i] != 'E'; i++ {
		c := literal[i]
		switch {
		case c == '.':
			point = true
			continue
		case seen == 0 && c == '0':
			if point {
				d.exponent--
			}
			continue
		case !point:
			d.exponent++
		}
		seen++
		if c == '0' {
			continue // a zero counts only once a digit follows it
		}
		if seen > mostDigits {
			return d, false
		}
		d.text[seen-1] = c
		d.digits = seen
	}
	for j, c := range d.text[:d.digits] {
		if c == 0 {
			d.text[j] = '0'
		}
	}
	d.addExponent(literal[min(i+1, len(literal)):])
	return d, true
}

func (d *decimal) addExponent(text []byte) {
	negative := false
	var e int64
	for _, c := range text {
		switch {
		case c == '-':
			negative = true
		case c >= '0' && c <= '9' && e < 1e15:
			e = e*10 + int64(c-'0')
		}
	}
	d.far = e > mostExponent
	if negative {
		e = -e
	}
	d.exponent += e
}
