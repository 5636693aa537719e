package mcp

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/internal/canon"
	"counterfoil/receipts"
)

// writeJSON sends one body, whole and with its length, or as the last event where
// progress was told before: the status has been sent by then.
func writeJSON(c echo.Context, status int, body []byte) error {
	if streaming(c) {
		return writeEvent(c, body)
	}
	h := c.Response().Header()
	h["Content-Type"] = jsonType
	h["Cache-Control"] = noStore
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	c.Response().WriteHeader(status)
	_, err := c.Response().Write(body)
	return err
}

var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// envelope begins an answer up to its result or error.
func envelope(capacity int, id []byte) []byte {
	b := make([]byte, 0, capacity+len(id)+64)
	b = append(b, `{"jsonrpc":"2.0"`...)
	if id != nil {
		b = append(append(b, `,"id":`...), id...)
	}
	return b
}

func writeResult(c echo.Context, id, result []byte) error {
	b := append(envelope(len(result), id), `,"result":`...)
	return writeJSON(c, http.StatusOK, append(append(b, result...), '}'))
}

// writeFault answers with a JSON-RPC error. Where the id is not known it is left
// out and the status is no success: clients wait in vain for an answer that they
// cannot match.
func writeFault(c echo.Context, id []byte, f *fault) error {
	status := f.status
	if id == nil && status == statusOK {
		status = statusBadRequest
	}
	b := append(envelope(512, id), `,"error":{"code":`...)
	b = strconv.AppendInt(b, int64(f.code), 10)
	b = append(b, `,"message":`...)
	b = canon.AppendString(b, f.message)
	b = append(b, `,"data":{`...)
	if f.data != "" {
		b = append(b, f.data...)
		b = append(b, ',')
	}
	b = append(b, `"reason":`...)
	b = canon.AppendString(b, string(f.reason))
	b = append(b, `,"retry":`...)
	b = canon.AppendString(b, string(f.retry))
	return writeJSON(c, status, append(b, "}}}"...))
}

// writeError relays an upstream's own error object, which is a protocol error of the
// modern era.
func writeError(c echo.Context, id, fail []byte) error {
	b := append(envelope(len(fail), id), `,"error":`...)
	return writeJSON(c, statusBadRequest, append(append(b, fail...), '}'))
}

// writeRefusal answers a call that became no governed outcome, at HTTP 200, so
// that client libraries keep its data.
func writeRefusal(c echo.Context, id []byte, r *gateway.Refusal) error {
	p := r.Problem()
	f := &fault{status: statusOK, code: codeRefusal - p.Status, message: r.Message(), reason: p.Reason, retry: p.Retry}
	if r.Params {
		f.status, f.code = statusBadRequest, codeParams
	}
	switch p.Reason {
	case receipts.ReasonToolUnknown:
		f.code = codeParams
	case receipts.ReasonIdempotencyInProgress, receipts.ReasonRateLimited,
		receipts.ReasonStoreUnavailable, receipts.ReasonOutcomeUnknown:
		c.Response().Header().Set(echo.HeaderRetryAfter, "1")
	}
	return writeFault(c, id, f)
}
