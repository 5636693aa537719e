package receipts

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
)

const (
	// MediaType is the mediaType member of a bundle.
	MediaType = "application/vnd.counterfoil.bundle.v1+json"
	// MaxBundleBytes bounds the text of one bundle: the default limits of arguments
	// and results, in base64, several times over.
	MaxBundleBytes = 32 << 20

	mediaTypePrefix = "application/vnd.counterfoil.bundle."
)

// ErrBundle says that a text is not a bundle of this format.
var ErrBundle = errors.New("not a bundle")

// Bundle is a receipt and what is needed to check it offline.
type Bundle struct {
	Receipt string   // compact JWS
	Related []string // other receipts of the same operation
	Permit  string   // compact JWS
	Keys    []byte   // JWKS: hints, never trust anchors
	Content *Content
	Proof   string
	// Hints is Keys as ParseBundle read it; JSON does not look at it.
	Hints []jws.Key
}

// Content holds the exact bytes that the receipt's hashes are of; nil where they
// are not supplied.
type Content struct{ Arguments, Result []byte }

// wireBundle leaves the strings of a bundle apart from what they mean.
type wireBundle struct {
	MediaType string         `json:"mediaType"`
	Receipt   string         `json:"receipt"`
	Related   []string       `json:"related"`
	Permit    string         `json:"permit"`
	Keys      jsontext.Value `json:"keys"`
	Content   *wireContent   `json:"content"`
	Proof     string         `json:"proof"`
}

type wireContent struct {
	Arguments *string `json:"arguments_b64"`
	Result    *string `json:"result_b64"`
}

// JSON returns the bundle's RFC 8785 form. Of Keys it keeps those that the
// bundle's own tokens name, and of these only what never changes: everything in a
// bundle can then be checked against something that is signed or trusted.
func (b *Bundle) JSON() []byte {
	w := &wireBundle{
		MediaType: MediaType, Receipt: b.Receipt, Related: b.Related, Permit: b.Permit,
		Keys: b.hints(), Proof: b.Proof,
	}
	if b.Content != nil && (b.Content.Arguments != nil || b.Content.Result != nil) {
		w.Content = &wireContent{Arguments: encode(b.Content.Arguments), Result: encode(b.Content.Result)}
	}
	return w.append(nil)
}

// append writes the members in canonical order; Keys must be canonical already.
func (w *wireBundle) append(dst []byte) []byte {
	dst = append(dst, '{')
	if w.Content != nil {
		dst = append(dst, `"content":{`...)
		if s := w.Content.Arguments; s != nil {
			dst = appendString(dst, `"arguments_b64":`, *s)
		}
		if s := w.Content.Result; s != nil {
			if w.Content.Arguments != nil {
				dst = append(dst, ',')
			}
			dst = appendString(dst, `"result_b64":`, *s)
		}
		dst = append(dst, `},`...)
	}
	dst = append(dst, `"keys":`...)
	dst = append(dst, w.Keys...)
	dst = appendString(dst, `,"mediaType":`, w.MediaType)
	dst = appendString(dst, `,"permit":`, w.Permit)
	if w.Proof != "" {
		dst = appendString(dst, `,"proof":`, w.Proof)
	}
	dst = appendString(dst, `,"receipt":`, w.Receipt)
	dst = append(dst, `,"related":[`...)
	for i, r := range w.Related {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = canon.AppendString(dst, r)
	}
	return append(dst, `]}`...)
}

// ParseBundle reads a bundle with exactly the members of the format, in any order
// and spacing. It judges none of them, but that the keys are what they say.
func ParseBundle(data []byte) (*Bundle, error) {
	if len(data) > MaxBundleBytes {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrBundle, MaxBundleBytes)
	}
	w, err := decodeBundle(data)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Receipt: w.Receipt, Related: w.Related, Permit: w.Permit, Keys: w.Keys, Proof: w.Proof}
	if b.Hints, err = ParseHints(b.Keys); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	if w.Content != nil {
		b.Content = &Content{}
		if b.Content.Arguments, err = decodeBase64(w.Content.Arguments); err != nil {
			return nil, fmt.Errorf("%w: content.arguments_b64: %w", ErrBundle, err)
		}
		if b.Content.Result, err = decodeBase64(w.Content.Result); err != nil {
			return nil, fmt.Errorf("%w: content.result_b64: %w", ErrBundle, err)
		}
	}
	return b, nil
}

func decodeBundle(data []byte) (*wireBundle, error) {
	if w, ok := scanBundle(data); ok {
		return w, nil
	}
	canonical, err := canon.Canonical(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	if media, ok := canon.Lookup(canonical, "/mediaType"); ok && string(media) != `"`+MediaType+`"` {
		if strings.HasPrefix(string(media), `"`+mediaTypePrefix) {
			return nil, fmt.Errorf("%w: a bundle", ErrVersion)
		}
		return nil, fmt.Errorf("%w: mediaType is another", ErrBundle)
	}
	w := &wireBundle{}
	if err := canon.Decode(canonical, w); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	// As with claims: what is absent, null or empty does not write the same bytes.
	if !bytes.Equal(canonical, w.append(make([]byte, 0, len(canonical)))) {
		return nil, fmt.Errorf("%w: a member is missing, or null or empty where it must not be", ErrBundle)
	}
	if w.Receipt == "" || w.Permit == "" || w.Content != nil && *w.Content == (wireContent{}) {
		return nil, fmt.Errorf("%w: an empty token or content", ErrBundle)
	}
	return w, nil
}

// scanBundle reads the form that JSON writes, for the same reason as scanClaims. All
// that stands between the strings is literal, and ParseHints will find one JSON value
// in the keys, however they are spelled.
func scanBundle(data []byte) (*wireBundle, bool) {
	s := &scanner{rest: string(data)}
	w := &wireBundle{}
	s.literal(`{`)
	if s.has(`"content":{"arguments_b64":`) {
		arguments := s.text(`"content":{"arguments_b64":`)
		result := s.text(`,"result_b64":`)
		w.Content = &wireContent{Arguments: &arguments, Result: &result}
		s.literal(`},`)
	}
	w.Keys = jsontext.Value(s.until(`"keys":`, `,"mediaType":`))
	w.MediaType = s.text(`,"mediaType":`)
	w.Permit = s.text(`,"permit":`)
	w.Receipt = s.text(`,"receipt":`)
	s.literal(`,"related":[`)
	for !s.failed && !s.has(`]`) {
		if len(w.Related) > 0 {
			s.literal(`,`)
		}
		w.Related = append(w.Related, s.text(``))
	}
	s.literal(`]}`)
	return w, !s.failed && s.rest == "" && w.MediaType == MediaType && w.Permit != "" && w.Receipt != ""
}

func encode(data []byte) *string {
	if data == nil {
		return nil
	}
	s := base64.StdEncoding.EncodeToString(data)
	return &s
}

func decodeBase64(s *string) ([]byte, error) {
	if s == nil {
		return nil, nil
	}
	// The decoder skips line breaks, even when strict.
	if strings.ContainsAny(*s, "\r\n") {
		return nil, errors.New("line break in base64")
	}
	out, err := base64.StdEncoding.Strict().DecodeString(*s)
	if err != nil {
		return nil, errors.New("not base64 (RFC 4648, padded)")
	}
	return out, nil
}
