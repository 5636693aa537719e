// Package mcp is the front door for MCP clients: what it passes on was decoded
// strictly, once, and belongs to the agent that sent it. It serves 2026-07-28 and
// the handshake revisions on the same URL, without sessions.
package mcp

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/internal/canon"
	"counterfoil/ledger"
	"counterfoil/receipts"
)

// door serves one gateway. The texts that never change are made once.
type door struct {
	g          *gateway.Gateway
	serverInfo string // a member of `_meta`
	modern     gateway.Dressing
	initialize string // the end of an initialize result

	platforms   []string // whose envelopes name a call
	diagnostics bool
	digest      Digest // of what is logged of calls
}

// Register adds the MCP endpoint to the gateway's router.
func Register(g *gateway.Gateway) {
	info := `{"name":"counterfoil","version":` + string(canon.AppendString(nil, g.Config().Version)) + `}`
	d := &door{
		g: g, serverInfo: `"` + metaPrefix + `serverInfo":` + info,
		initialize: `,"capabilities":{"tools":{}},"serverInfo":` + info + `}`,
		platforms:  g.Config().Platforms, diagnostics: g.Config().Diagnostics, digest: NewDigest(),
	}
	d.modern = gateway.Dressing{Members: `"resultType":"complete"`, Meta: d.serverInfo}
	for _, path := range []string{"/mcp", "/mcp/messages"} {
		g.Echo().POST(path, d.post)
		g.Echo().Match([]string{
			http.MethodGet, http.MethodDelete, http.MethodPut, http.MethodPatch, http.MethodHead, http.MethodOptions,
			http.MethodConnect, http.MethodTrace, echo.PROPFIND, echo.REPORT,
		}, path, notAllowed)
	}
}

func notAllowed(c echo.Context) error {
	c.Response().Header().Set(echo.HeaderAllow, http.MethodPost)
	return gateway.WriteProblemStatus(c, receipts.ReasonInvalidRequest, http.StatusMethodNotAllowed, "Only POST is served here.")
}

// post keeps the order of checks that clients rely on: credential, media type,
// size, JSON, envelope, era, headers, method.
func (d *door) post(c echo.Context) error {
	agent, authErr := d.g.AgentFromRequest(c.Request())
	if errors.Is(authErr, gateway.ErrUnauthenticated) {
		return gateway.WriteProblem(c, receipts.ReasonUnauthenticated, "")
	}
	if !isJSON(c.Request().Header) {
		return gateway.WriteProblemStatus(c, receipts.ReasonInvalidRequest, http.StatusUnsupportedMediaType, "The media type must be application/json.")
	}
	body, err := d.g.ReadBody(c)
	if errors.Is(err, gateway.ErrTooLarge) {
		p := gateway.ProblemFor(receipts.ReasonRequestTooLarge)
		return writeFault(c, nil, &fault{status: p.Status, code: codeRefusal - p.Status, message: p.Message, reason: p.Reason, retry: p.Retry})
	}
	if err != nil {
		return writeFault(c, nil, badForm(statusBadRequest, codeParse, "The body could not be read to its end."))
	}
	m, f := decode(body)
	if f != nil {
		return writeFault(c, m.id, f)
	}
	if authErr != nil {
		return writeRefusal(c, m.id, &gateway.Refusal{Reason: d.g.ReasonOf(authErr)})
	}
	if m.response && speaksModern(c.Request().Header) {
		return writeFault(c, m.id, badForm(statusBadRequest, codeEnvelope, "Nothing is asked of clients here: a response answers nothing."))
	}
	if m.response || m.id == nil {
		return c.NoContent(http.StatusAccepted)
	}
	return d.serve(c, agent, m)
}

// serve answers one request. A fault of ours in it is answered under its id.
func (d *door) serve(c echo.Context, agent *ledger.Agent, m message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			d.g.Logger().Error("a request panicked", "method", m.method, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			if !c.Response().Committed || streaming(c) {
				err = writeRefusal(c, m.id, &gateway.Refusal{Reason: receipts.ReasonInternal})
			}
		}
	}()
	p, f := readParams(m.params)
	e, wrongEra := eraOf(p, c.Request().Header)
	if f == nil {
		f = wrongEra
	}
	if f == nil && e == modern {
		f = checkHeaders(m, c.Request().Header)
	}
	if f != nil {
		// In the modern era a malformed params is a protocol error with its status.
		if e == modern && f.code == codeParams {
			f.status = statusBadRequest
		}
		return writeFault(c, m.id, f)
	}
	return d.method(c, call{agent: agent, id: m.id, era: e, params: p, raw: m.params}, m.method)
}

// call is one request on its way to its method.
type call struct {
	agent  *ledger.Agent
	id     []byte
	era    era
	params params
	raw    []byte
}

func (d *door) method(c echo.Context, r call, method string) error {
	switch {
	case method == "tools/call":
		return d.callTool(c, r)
	case method == "tools/list":
		return d.listTools(c, r)
	case method == "server/discover" && r.era == modern:
		return d.discover(c, r)
	case method == "initialize" && r.era == handshake:
		return d.initializeSession(c, r)
	case method == "ping" && r.era == handshake:
		return writeResult(c, r.id, []byte("{}"))
	}
	f := &fault{status: statusOK, code: codeMethod, message: "This method is not served.", reason: receipts.ReasonArgumentsInvalid, retry: gateway.RetryNever}
	if r.era == modern {
		f.status = statusNotFound
	}
	return writeFault(c, r.id, f)
}

// isJSON compares the media type by its essence.
func isJSON(h http.Header) bool {
	v := h.Get("Content-Type")
	if v == "application/json" {
		return true
	}
	essence, _, err := mime.ParseMediaType(v)
	return (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)) && strings.EqualFold(essence, "application/json")
}
