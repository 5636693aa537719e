package mcp

import (
	"crypto/sha256"
	"encoding/base64"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/internal/canon"
)

// listTools shows what the caller could call in this context, a page at a time.
func (d *door) listTools(c echo.Context, r call) error {
	after, f := readCursor(r.agent.ID, r.params.cursor)
	if f != nil {
		if r.era == modern {
			f.status = statusBadRequest
		}
		return writeFault(c, r.id, f)
	}
	ctx, refusal := readContext(r.params, c.Request().Header)
	if refusal != nil {
		return writeRefusal(c, r.id, refusal)
	}
	page, refusal := d.g.List(c.Request().Context(), gateway.ListRequest{
		Agent: r.agent, Wallet: ctx.wallet.value, WalletNamed: ctx.wallet.is, Permit: ctx.permit.value, PermitNamed: ctx.permit.is, After: after,
	})
	if refusal != nil {
		return writeRefusal(c, r.id, refusal)
	}
	b := append(make([]byte, 0, 4096), '{')
	if r.era == modern {
		b = append(b, `"resultType":"complete","ttlMs":30000,"cacheScope":"private","_meta":{`...)
		b = append(append(b, d.serverInfo...), "},"...)
	}
	if page.Last != "" {
		b = append(b, `"nextCursor":`...)
		b = append(canon.AppendString(b, cursorOf(r.agent.ID, page.Last)), ',')
	}
	b = append(b, `"tools":[`...)
	definitions := page.Definitions
	if after == "" {
		// Not every client asks for a second page: our own are in the first.
		definitions = append(definitions, []byte(builtinDefinitions))
	}
	for i, def := range definitions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, def...)
	}
	return writeResult(c, r.id, append(b, "]}"...))
}

// cursorSum is how many bytes of a cursor say that we made it, for this agent.
const cursorSum = 8

// cursorOf names the place behind a tool. It is checked and not secret: whoever makes one learns nothing, since
// each page shows only what the caller may see.
func cursorOf(agent, tool string) string {
	sum := sha256.Sum256([]byte("counterfoil tools/list\x00" + agent + "\x00" + tool))
	return base64.RawURLEncoding.EncodeToString(append(sum[:cursorSum], tool...))
}

// readCursor returns the tool's name; "" where there is no cursor, or an empty one.
func readCursor(agent string, raw []byte) (string, *fault) {
	if raw == nil {
		return "", nil
	}
	cursor, ok := gateway.String(raw)
	if ok && cursor == "" {
		return "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if ok && err == nil && len(text) > cursorSum && utf8.Valid(text[cursorSum:]) {
		if tool := string(text[cursorSum:]); cursorOf(agent, tool) == cursor {
			return tool, nil
		}
	}
	return "", badForm(statusOK, codeParams, "There is no such cursor: begin again without one.")
}
