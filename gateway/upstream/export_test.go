package upstream

import (
	"crypto/x509"

	"github.com/go-json-experiment/json/jsontext"
)

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

// Answers is the request that a message which is not kept would have answered; the text comes in pieces.
func Answers(pieces ...[]byte) (id int64, ok bool) {
	var o outline
	for _, piece := range pieces {
		o.feed(piece)
	}
	return o.answers()
}

// Trust lets c take certificates of pool.
func Trust(c *Client, pool *x509.CertPool) {
	c.carrier.(*web).transport.TLSClientConfig.RootCAs = pool
}
