package operator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/internal/canon"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// refusal is a request that is refused before the ledger is asked. Its text is for the caller.
type refusal struct {
	reason receipts.Reason
	detail string
}

func (r *refusal) Error() string { return r.detail }

func invalid(format string, args ...any) error {
	return &refusal{receipts.ReasonInvalidRequest, fmt.Sprintf(format, args...)}
}

// problem answers an error. What names nothing that the caller could mend is told by its reason alone.
func (a *api) problem(c echo.Context, err error) error {
	var refused *refusal
	var transport *echo.HTTPError
	switch {
	case errors.As(err, &transport):
		return err
	case errors.As(err, &refused):
		return gateway.WriteProblem(c, refused.reason, refused.detail)
	case errors.Is(err, ledger.ErrReference):
		return gateway.WriteProblem(c, receipts.ReasonInvalidRequest, sentence(err))
	case errors.Is(err, permits.ErrInvalid):
		return gateway.WriteProblem(c, receipts.ReasonPermitInvalid, sentence(err))
	case errors.Is(err, ledger.ErrRequestReused):
		return gateway.WriteProblem(c, receipts.ReasonIdempotencyKeyReused, "")
	case errors.Is(err, ledger.ErrConflict):
		return gateway.WriteProblem(c, receipts.ReasonConflict, sentence(err))
	case errors.Is(err, context.Canceled):
		return gateway.WriteProblem(c, receipts.ReasonStoreUnavailable, "")
	}
	reason := a.g.ReasonOf(err)
	if reason == receipts.ReasonInternal || reason == receipts.ReasonOutcomeUnknown {
		a.g.Logger().Error("an operator request failed", "route", c.Path(), "error", err)
	}
	return gateway.WriteProblem(c, reason, "")
}

func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// body reads a JSON body strictly into v and checks it. An empty body is an empty object. The bytes that are
// returned are its one canonical form: a repeat of a request may order its members otherwise.
func (a *api) body(c echo.Context, v any) ([]byte, error) {
	raw, err := a.g.ReadBody(c)
	if err != nil {
		return nil, readError(err)
	}
	if len(raw) == 0 {
		raw = []byte("{}")
	} else if err := mediaType(c, echo.MIMEApplicationJSON); err != nil {
		return nil, err
	}
	if raw[0] != '{' && !strings.HasPrefix(strings.TrimLeft(string(raw), " \t\r\n"), "{") {
		return nil, invalid("The body must be a JSON object.")
	}
	if err := canon.Decode(raw, v); err != nil {
		return nil, invalid("The body is not accepted: %v.", err)
	}
	if err := a.check.Struct(v); err != nil {
		return nil, invalid("%s.", faults(err))
	}
	canonical, err := canon.Canonical(raw)
	if err != nil {
		return nil, invalid("The body is not accepted: %v.", err)
	}
	return canonical, nil
}

// readError tells a body that is too large from one that did not arrive.
func readError(err error) error {
	if errors.Is(err, gateway.ErrTooLarge) {
		return err
	}
	return invalid("The body could not be read to its end.")
}

// mediaType compares by essence: parameters do not matter.
func mediaType(c echo.Context, want string) error {
	got, _, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	if err != nil || got != want {
		return echo.NewHTTPError(http.StatusUnsupportedMediaType)
	}
	return nil
}

// idempotencyKey reads the header: bare, or as a quoted string. "" is none.
func idempotencyKey(c echo.Context) (string, error) {
	values := c.Request().Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return "", &refusal{receipts.ReasonIdempotencyKeyConflict, ""}
		}
	}
	key := values[0]
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(key[1 : len(key)-1])
	}
	if !gateway.ValidKey(key) {
		return "", &refusal{receipts.ReasonIdempotencyKeyInvalid, ""}
	}
	return key, nil
}

// administer answers a request that changes something. A repeat of its idempotency key gets the stored answer.
func (a *api) administer(c echo.Context, body []byte, do func(context.Context, *ledger.Admin) (ledger.Answer, error)) error {
	answer, err := a.act(c, body, do)
	if err != nil {
		return a.problem(c, err)
	}
	return reply(c, answer)
}

// act is administer without its answer.
func (a *api) act(c echo.Context, body []byte, do func(context.Context, *ledger.Admin) (ledger.Answer, error)) (ledger.Answer, error) {
	key, err := idempotencyKey(c)
	if err != nil {
		return ledger.Answer{}, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", c.Request().Method, c.Request().URL.EscapedPath())
	h.Write(body)
	act := ledger.Act{Actor: gateway.PrincipalOf(c).Actor(), Key: key, SHA256: [32]byte(h.Sum(nil))}
	return a.ledger.Administer(c.Request().Context(), act, do)
}

func reply(c echo.Context, answer ledger.Answer) error {
	if answer.Replayed {
		c.Response().Header().Set("Idempotent-Replayed", "true")
	}
	if answer.Status == http.StatusNoContent {
		return c.NoContent(answer.Status)
	}
	return c.JSONBlob(answer.Status, answer.Body)
}

// answer renders what a change is answered.
func answer(status int, v any) (ledger.Answer, error) {
	body, err := encode(v)
	return ledger.Answer{Status: status, Body: body}, err
}

func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("write answer: %w", err)
	}
	return body, nil
}

func (a *api) ok(c echo.Context, v any) error {
	body, err := encode(v)
	if err != nil {
		return a.problem(c, err)
	}
	return c.JSONBlob(http.StatusOK, body)
}

// query reads the query parameters, of which only those named may be there, each once.
func query(c echo.Context, names ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return nil, invalid("The query cannot be parsed.")
	}
	for name, values := range q {
		if !slices.Contains(names, name) {
			return nil, invalid("There is no query parameter %q here.", name)
		}
		if len(values) != 1 || values[0] == "" {
			return nil, invalid("The query parameter %q must be given once, with a value.", name)
		}
		if !utf8.ValidString(values[0]) || strings.ContainsFunc(values[0], unicode.IsControl) {
			return nil, invalid("The query parameter %q is not plain text.", name)
		}
	}
	return q, nil
}

const (
	defaultLimit = 100
	maxLimit     = 500
)

// page is one page of a list: what comes after the id After, at most limit of it.
type page struct {
	after string
	limit int
}

func pageOf(q url.Values) (page, error) {
	p := page{after: q.Get("after"), limit: defaultLimit}
	if text := q.Get("limit"); text != "" {
		n, err := integer(text)
		if err != nil || n < 1 || n > maxLimit {
			return page{}, invalid("limit must be an integer from 1 to %d.", maxLimit)
		}
		p.limit = int(n)
	}
	if len(p.after) > 2048 {
		return page{}, invalid("after is too long.")
	}
	return p, nil
}

// ask is one more than a page shows: whether there is a next page is seen, not guessed.
func (p page) ask() int { return p.limit + 1 }

// integer reads what was written in the one way an integer is written.
func integer(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0, errors.New("not an integer")
	}
	return n, nil
}

type list[W any] struct {
	Items []W    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// listOf renders a page of rows, of which one too many may have been asked for.
func listOf[R, W any](p page, rows []R, id func(R) string, render func(R) W) list[W] {
	out := list[W]{Items: []W{}}
	for i, r := range rows {
		if i == p.limit {
			out.Next = id(rows[i-1])
			break
		}
		out.Items = append(out.Items, render(r))
	}
	return out
}

// moment reads an RFC 3339 time of a query; "" is the zero time.
func moment(q url.Values, name string) (time.Time, error) {
	text := q.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.UnixMilli() < 0 {
		return time.Time{}, invalid("%s must be a time as in RFC 3339, such as 2026-01-31T00:00:00Z.", name)
	}
	return t, nil
}

// stamp shows a time in UTC; nil stays absent.
func stamp(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
