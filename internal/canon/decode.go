package canon

import (
	"errors"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode checks data as Check does and reads it into the struct v points to. Member names match in
// exact case; a member v does not know is refused, and so is null where v has no pointer, interface
// or raw value for it. Integers are read from integer literals only: not from 5.0, 5e3, "5" or -0.
func Decode(data []byte, v any) error {
	f, err := check(data, rules{maxDepth: MaxDepth})
	if err != nil {
		return err
	}
	opts := []json.Options{json.RejectUnknownMembers(true)}
	if f.null || f.negativeZero {
		// Rare, and slow because it looks at every value, so it is not the usual way.
		opts = append(opts, json.WithUnmarshalers(json.UnmarshalFromFunc(refuseLax)))
	}
	if err := json.Unmarshal(data, v, opts...); err != nil {
		return decodeError(err)
	}
	return nil
}

var (
	errNull         = errors.New("null where a value is needed")
	errNegativeZero = errors.New("-0 where an integer is needed")
)

// refuseLax refuses the two things json v2 reads without complaint: null as the zero value, -0 as 0.
func refuseLax(dec *jsontext.Decoder, v any) error {
	target := reflect.TypeOf(v).Elem()
	switch dec.PeekKind() {
	case 'n':
		if !nullable(target) {
			return errNull
		}
	case '0':
		if target.Kind() < reflect.Int || target.Kind() > reflect.Uintptr {
			return errors.ErrUnsupported
		}
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if string(value) == "-0" {
			return errNegativeZero
		}
		return json.Unmarshal(value, v)
	}
	return errors.ErrUnsupported
}

func nullable(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface || t == reflect.TypeFor[jsontext.Value]()
}

func decodeError(err error) error {
	out := &Error{What: "a member of the wrong type or out of range"}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		out.Offset = semantic.ByteOffset
		out.Pointer = shown(string(semantic.JSONPointer))
	}
	switch {
	case errors.Is(err, json.ErrUnknownName):
		out.What = "unknown member"
	case errors.Is(err, errNull):
		out.What = errNull.Error()
	case errors.Is(err, errNegativeZero):
		out.What = errNegativeZero.Error()
	}
	return out
}

// shown makes a pointer, whose names the sender chose, fit for a log line.
func shown(pointer string) string {
	const most = 100
	quoted := strconv.QuoteToASCII(pointer)
	if len(quoted) > most {
		return quoted[:most] + "…"
	}
	return quoted
}
