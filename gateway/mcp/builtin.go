package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/internal/canon"
	"counterfoil/receipts"
)

// The built-in tools (contract 3.6). They need no idempotency key, cost nothing, leave no receipt and count against no
// permit: two of them only read, the third answers a call that was made before.
const (
	builtinPrefix   = "counterfoil_"
	operationGet    = builtinPrefix + "operation_get"
	operationResume = builtinPrefix + "operation_resume"
	permitGet       = builtinPrefix + "permit_get"
)

// isBuiltin: no tool of the catalogue has such a name, the configuration refuses it.
func isBuiltin(name string) bool { return strings.HasPrefix(name, builtinPrefix) }

// callBuiltin answers a call of a tool of the gateway's own. Its place is after everything that a call passes before it
// is looked up: credential, strict decoding, headers, context, wallet.
func (d *door) callBuiltin(c echo.Context, r call, name string) error {
	member, there := builtinMember(name)
	if !there {
		return writeRefusal(c, r.id, &gateway.Refusal{Reason: receipts.ReasonToolUnknown})
	}
	if r.params.arguments != nil && !gateway.IsObject(r.params.arguments) || (r.params.responses != nil || r.params.state != nil) && name != operationResume {
		f := badForm(statusOK, codeParams, "The arguments of a built-in tool are an object, and it asks for no input.")
		if r.era == modern {
			f.status = statusBadRequest
		}
		return writeFault(c, r.id, f)
	}
	ctx, refusal := readContext(r.params, c.Request().Header)
	if refusal == nil && ctx.wallet.is && !r.agent.MayUse(ctx.wallet.value) {
		refusal = &gateway.Refusal{Reason: receipts.ReasonWalletForbidden}
	}
	var given named
	if refusal == nil {
		given, refusal = onlyArgument(r.params.arguments, member)
	}
	if refusal != nil {
		return writeRefusal(c, r.id, refusal)
	}
	switch name {
	case operationGet:
		return d.showOperation(c, r, given)
	case operationResume:
		return d.resumeOperation(c, r, given)
	}
	return d.showPermit(c, r, given, ctx)
}

// builtinMember is the one argument that a built-in tool takes.
func builtinMember(name string) (member string, there bool) {
	switch name {
	case operationGet, operationResume:
		return "operation_id", true
	case permitGet:
		return "permit_id", true
	}
	return "", false
}

// onlyArgument reads arguments that have this one member, a string, or none.
func onlyArgument(args []byte, member string) (named, *gateway.Refusal) {
	var given named
	var refusal *gateway.Refusal
	gateway.Members(args, func(name, value []byte) bool {
		text, isString := gateway.String(value)
		switch {
		case string(name) != member:
			refusal = invalidArguments(fmt.Sprintf("There is no argument %q: this tool takes only %s.", name, member))
		case !isString:
			refusal = invalidArguments(fmt.Sprintf("The argument %s must be a string.", member))
		default:
			given = named{value: text, is: true}
		}
		return refusal == nil
	})
	return given, refusal
}

func invalidArguments(text string) *gateway.Refusal {
	return &gateway.Refusal{Reason: receipts.ReasonArgumentsInvalid, Detail: text}
}

func (d *door) showOperation(c echo.Context, r call, id named) error {
	if !id.is {
		return writeRefusal(c, r.id, invalidArguments("The argument operation_id is missing."))
	}
	record, stored, refusal := d.g.OwnOperation(c.Request().Context(), r.agent, id.value)
	if refusal != nil {
		return d.builtinRefusal(c, r, refusal)
	}
	return d.builtinResult(c, r, operationView(record, stored, r.agent))
}

// resumeOperation answers as the original call would be answered if it came again.
func (d *door) resumeOperation(c echo.Context, r call, id named) error {
	if !id.is {
		return writeRefusal(c, r.id, invalidArguments("The argument operation_id is missing."))
	}
	again := gateway.Request{Agent: r.agent, Wait: preferredWait(c.Request().Header), Trace: r.params.trace}
	if f := r.relay(&again); f != nil {
		return writeFault(c, r.id, f)
	}
	answer, refusal := r.told(c, again, func(ctx context.Context, again gateway.Request) (gateway.Answer, *gateway.Refusal) {
		return d.g.Resume(ctx, again, id.value)
	})
	if refusal != nil {
		return d.builtinRefusal(c, r, refusal)
	}
	return d.writeAnswer(c, r, answer)
}

// showPermit shows the named permit, else the one that a call would be made under.
func (d *door) showPermit(c echo.Context, r call, id named, ctx callContext) error {
	switch {
	case id.is:
	case ctx.permit.is:
		id = ctx.permit
	case r.agent.DefaultPermit != "":
		id.value = r.agent.DefaultPermit
	default:
		return d.builtinRefusal(c, r, &gateway.Refusal{Reason: receipts.ReasonPermitRequired})
	}
	record, refusal := d.g.OwnPermit(c.Request().Context(), r.agent, id.value)
	if refusal != nil {
		return d.builtinRefusal(c, r, refusal)
	}
	return d.builtinResult(c, r, permitView(record))
}

// builtinResult gives a view twice, as MCP wants it: structured, and as text for those who read only that.
func (d *door) builtinResult(c echo.Context, r call, view []byte) error {
	b := append(make([]byte, 0, 2*len(view)+512), `{`...)
	if r.era == modern {
		b = append(append(b, d.modern.Members...), `,"_meta":{`...)
		b = append(append(b, d.serverInfo...), "},"...)
	}
	b = append(b, `"content":[{"type":"text","text":`...)
	b = canon.AppendString(b, string(view))
	b = append(append(b, `}],"structuredContent":`...), view...)
	return writeResult(c, r.id, append(b, '}'))
}

// builtinRefusal tells the model what it asked for in vain, in a result. Everything else is the caller's program's to
// read, as with any call.
func (d *door) builtinRefusal(c echo.Context, r call, refusal *gateway.Refusal) error {
	text := ""
	switch refusal.Reason {
	case receipts.ReasonNotFound:
		text = "There is no such operation, or it is not one of this agent's wallets."
	case receipts.ReasonPermitNotFound:
		text = "There is no such permit, or it was not given to this agent."
	case receipts.ReasonPermitRequired:
		text = "No permit is named, and the agent has no default permit: name one in permit_id."
	default:
		return writeRefusal(c, r.id, refusal)
	}
	b := []byte(`{`)
	if r.era == modern {
		b = append(append(b, d.modern.Members...), ',')
	}
	b = append(b, `"_meta":{"counterfoil/reason":`...)
	b = canon.AppendString(b, string(refusal.Reason))
	b = append(b, `,"counterfoil/retry":`...)
	b = canon.AppendString(b, string(refusal.Problem().Retry))
	if r.era == modern {
		b = append(append(b, ','), d.serverInfo...)
	}
	b = append(b, `},"content":[{"type":"text","text":`...)
	b = canon.AppendString(b, "Counterfoil: "+text+" Nothing was called, and nothing was charged.")
	return writeResult(c, r.id, append(b, `}],"isError":true}`...))
}
