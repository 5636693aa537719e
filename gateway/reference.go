package gateway

import (
	"fmt"

	"counterfoil/internal/canon"
	"counterfoil/receipts"
)

// maxReferenceRunes bounds an operation reference, in characters.
const maxReferenceRunes = 256

// reference reads what names the effect itself from canonical arguments; "" where the tool has no such argument.
// A number is its canonical literal, so that 4417 and "4417" are one: nobody acts twice by changing a type.
func (t *entry) reference(arguments []byte) (string, *Refusal) {
	if t.OperationRef == "" {
		return "", nil
	}
	value, ok := canon.Lookup(arguments, t.OperationRef)
	if ok {
		if text, isText := String(value); isText && validText(text, maxReferenceRunes) {
			return text, nil
		}
		if first := value[0]; first == '-' || first >= '0' && first <= '9' {
			return string(value), nil
		}
	}
	return "", &Refusal{
		Reason: receipts.ReasonArgumentsInvalid,
		Detail: fmt.Sprintf("The argument %s names what this call does, so that it is done once. It must be there: a number, "+
			"or a string of 1 to %d characters, not blank, without control characters.", t.OperationRef, maxReferenceRunes),
	}
}
