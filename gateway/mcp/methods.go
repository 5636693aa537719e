package mcp

import (
	"context"
	"strings"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/gateway/upstream"
	"counterfoil/internal/canon"
	"counterfoil/receipts"
)

// callTool decodes a call and has it governed.
func (d *door) callTool(c echo.Context, r call) error {
	d.diagnose(c, r)
	if name, ok := gateway.String(r.params.name); ok && isBuiltin(name) {
		return d.callBuiltin(c, r, name)
	}
	req, refusal, f := d.request(c, r)
	if f == nil {
		f = r.relay(&req)
	}
	if f != nil {
		if r.era == modern && f.code == codeParams {
			f.status = statusBadRequest
		}
		return writeFault(c, r.id, f)
	}
	var answer gateway.Answer
	if refusal == nil {
		answer, refusal = r.told(c, req, d.g.Govern)
	}
	if refusal != nil {
		return writeRefusal(c, r.id, refusal)
	}
	return d.writeAnswer(c, r, answer)
}

// relay gives a call what goes between its caller and its tool besides the arguments:
// it is no part of what is hashed.
func (r call) relay(req *gateway.Request) *fault {
	if r.era == modern {
		req.Modern, req.Capabilities = true, r.params.caps
	}
	responses, state := r.params.responses, r.params.state
	switch {
	case responses == nil && state == nil:
		return nil
	case r.era != modern:
		return badForm(statusOK, codeParams, "inputResponses and requestState are of the revision "+modernVersion+"; this request speaks an older one.")
	case responses != nil && !objectOfObjects(responses):
		return badForm(statusBadRequest, codeParams, "The member inputResponses must be an object of objects.")
	case state != nil && state[0] != '"':
		return badForm(statusBadRequest, codeParams, "The member requestState must be a string.")
	}
	req.Input = &upstream.Input{Responses: responses, State: state}
	return nil
}

func objectOfObjects(value []byte) bool {
	ok := gateway.IsObject(value)
	gateway.Members(value, func(_, member []byte) bool {
		ok = ok && gateway.IsObject(member)
		return ok
	})
	return ok
}

// told has a call run, and tells of its progress while it runs where the caller asked
// for that.
func (r call) told(c echo.Context, req gateway.Request, run func(context.Context, gateway.Request) (gateway.Answer, *gateway.Refusal)) (gateway.Answer, *gateway.Refusal) {
	to := progressTo(c, r.params.progress)
	if to == nil {
		return run(c.Request().Context(), req)
	}
	req.Progress = to.progress
	defer to.end() // whatever befalls the call
	return run(c.Request().Context(), req)
}

func (d *door) writeAnswer(c echo.Context, r call, a gateway.Answer) error {
	if a.Replayed {
		c.Response().Header().Set("Idempotent-Replayed", "true")
	}
	op := a.Operation
	dressing := gateway.Dressing{}
	if r.era == modern {
		if fail := gateway.MissingCapability(op); fail != nil {
			return writeError(c, r.id, fail)
		}
		dressing = d.modern
	}
	b := append(envelope(len(op.Result)+len(op.Receipt)+768, r.id), `,"result":`...)
	b = gateway.AppendResult(b, op, dressing)
	return writeJSON(c, statusOK, append(b, '}'))
}

// request reads a governed call. Its arguments are made canonical here, once:
// the bytes that are hashed are the bytes that go upstream (I10).
func (d *door) request(c echo.Context, r call) (gateway.Request, *gateway.Refusal, *fault) {
	var none gateway.Request
	name, ok := gateway.String(r.params.name)
	if !ok {
		return none, nil, badForm(statusOK, codeParams, "The params lack the name of a tool.")
	}
	args := []byte("{}")
	if raw := r.params.arguments; raw != nil {
		if !gateway.IsObject(raw) {
			return none, nil, badForm(statusOK, codeParams, "The arguments must be an object.")
		}
		var err error
		if args, err = canon.Canonical(raw); err != nil {
			return none, nil, strictFault(err)
		}
	}
	h := c.Request().Header
	if r.era == modern {
		if f := checkParamHeaders(d.g.ParamHeaders(name), args, h); f != nil {
			return none, nil, f
		}
	}
	ctx, refusal := readContext(r.params, h)
	if refusal == nil {
		refusal = d.nameCall(r, &ctx)
	}
	if refusal != nil {
		return none, refusal, nil
	}
	return gateway.Request{
		Agent: r.agent, Wallet: ctx.wallet.value, WalletNamed: ctx.wallet.is, Permit: ctx.permit.value, PermitNamed: ctx.permit.is,
		Key: ctx.key.value, KeySource: ctx.keySource, Tool: name, Arguments: args, Wait: preferredWait(h), Trace: r.params.trace,
	}, nil, nil
}

// nameCall gives a call its key by what its harness says, where it gives none itself.
// The state of a round may stand for both.
func (d *door) nameCall(r call, ctx *callContext) *gateway.Refusal {
	if ctx.key.is {
		return nil
	}
	id, refusal := Identify(r.params.meta, d.platforms)
	switch {
	case refusal == nil:
		ctx.key.value, ctx.keySource = d.g.HarnessKey(r.agent.ID, id.Platform, id.CallID), id.Platform
	case r.params.state == nil || refusal.Reason != receipts.ReasonIdempotencyKeyRequired:
		return refusal
	}
	return nil
}

func (d *door) discover(c echo.Context, r call) error {
	versions := strings.Join(gateway.ProtocolVersions(), `","`)
	return writeResult(c, r.id, []byte(`{"resultType":"complete","supportedVersions":["`+versions+
		`"],"capabilities":{"tools":{}},"ttlMs":300000,"cacheScope":"public","_meta":{`+d.serverInfo+`}}`))
}

// initializeSession answers the handshake; there is no session to begin.
func (d *door) initializeSession(c echo.Context, r call) error {
	version := latestHandshake
	gateway.Members(r.raw, func(name, value []byte) bool {
		if v, ok := gateway.String(value); ok && string(name) == "protocolVersion" && handshakeVersion(v) {
			version = v
		}
		return true
	})
	return writeResult(c, r.id, []byte(`{"protocolVersion":"`+version+`"`+d.initialize))
}
