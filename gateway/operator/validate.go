package operator

import (
	"errors"
	"reflect"
	"regexp"
	"strings"

	"github.com/go-playground/validator/v10"
)

// idPattern is what an id of an agent, a wallet or a permit looks like.
var idPattern = regexp.MustCompile(`\A[a-z]{2,4}_[A-Za-z0-9._-]{1,64}\z`)

// poolKeyPattern is what an operation key of the pool looks like. It goes to tools in a header, and is looked for in
// what they answer: short ones would be found where they are not.
var poolKeyPattern = regexp.MustCompile(`\A[A-Za-z0-9._~:/+=-]{16,256}\z`)

func newValidator() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name
	})
	// Registration fails for an empty name or function only.
	for name, check := range map[string]validator.Func{
		"id":      func(f validator.FieldLevel) bool { return idPattern.MatchString(f.Field().String()) },
		"plain":   func(f validator.FieldLevel) bool { return isPlain(f.Field().String()) },
		"poolkey": func(f validator.FieldLevel) bool { return poolKeyPattern.MatchString(f.Field().String()) },
		"prose":   func(f validator.FieldLevel) bool { return isProse(f.Field().String()) },
	} {
		if err := v.RegisterValidation(name, check); err != nil {
			panic(err)
		}
	}
	return v
}

// isPlain wants text that can be shown: not blank, no control characters.
func isPlain(s string) bool {
	return strings.TrimSpace(s) != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// isProse wants text of one line or more: not blank, no control characters but tabs and line breaks.
func isProse(s string) bool {
	return isPlain(strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(s))
}

// faults puts what is wrong into words, without the values.
func faults(err error) string {
	var list validator.ValidationErrors
	if !errors.As(err, &list) {
		return "The body is not accepted"
	}
	words := make([]string, 0, len(list))
	for _, f := range list {
		_, path, _ := strings.Cut(f.Namespace(), ".")
		words = append(words, path+" "+fault(f))
	}
	return strings.Join(words, "; ")
}

func fault(f validator.FieldError) string {
	switch f.Tag() {
	case "required":
		return "is required"
	case "id":
		return "must be an id: two to four lower-case letters, an underscore, and 1 to 64 letters, digits, dots, underscores or hyphens"
	case "plain":
		return "must not be blank or hold control characters"
	case "prose":
		return "must not be blank or hold control characters other than tabs and line breaks"
	case "poolkey":
		return "must be an operation key: 16 to 256 letters, digits and . _ ~ : / + = -"
	case "unique":
		return "must not name anything twice"
	case "oneof":
		return "must be one of: " + f.Param()
	case "min":
		return "must be at least " + f.Param()
	case "max":
		if f.Kind() == reflect.Slice || f.Kind() == reflect.String {
			return "must not be longer than " + f.Param()
		}
		return "must be at most " + f.Param()
	}
	return "is not accepted (" + f.Tag() + ")"
}
