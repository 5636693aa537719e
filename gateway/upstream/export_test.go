package upstream

import "github.com/go-json-experiment/json/jsontext"

// Undress is what becomes of a result before it is scrubbed; nil where it is rejected.
func Undress(result []byte) []byte {
	if !jsontext.Value(result).IsValid() {
		return nil
	}
	s, ok := shapeOf(result)
	if !ok {
		return nil
	}
	return s.undress(result)
}

// Scrub takes the operation key of call and the secrets of c out of text.
func Scrub(c *Client, text []byte, call Call) (clean []byte, scrubbed, ok bool) {
	return c.scrub(text, &peer{}, call)
}
