package receipts

import (
	"strconv"

	"counterfoil/internal/canon"
)

// AppendPayload appends the RFC 8785 form of the claims. The members stand in
// sorted order by hand, so that the hot path needs no reflection and no second
// pass; a property test compares it with canon.Canonical.
func (c *Claims) AppendPayload(dst []byte) []byte {
	dst = appendString(dst, `{"act":{"sub":`, c.Agent)
	dst = appendString(dst, `},"audit":{"event":`, c.AuditEvent)
	dst = c.appendCall(dst)
	dst = appendString(dst, `,"chain":{"prev":`, c.Prev)
	dst = appendInt(dst, `,"seq":`, c.Seq)
	dst = appendInt(dst, `},"credits":{"authorized":`, c.Authorized)
	dst = appendInt(dst, `,"charged":`, c.Charged)
	dst = c.appendDetail(append(dst, '}'))
	dst = appendInt(dst, `,"iat":`, c.IssuedAt)
	dst = appendString(dst, `,"iss":`, c.Issuer)
	dst = appendString(dst, `,"jti":`, c.ID)
	if c.LedgerEntry == "" {
		dst = append(dst, `,"ledger":null`...)
	} else {
		dst = appendString(dst, `,"ledger":{"entry":`, c.LedgerEntry)
		dst = append(dst, '}')
	}
	dst = appendString(dst, `,"outcome":`, string(c.Outcome))
	dst = appendString(dst, `,"permit":{"jti":`, c.PermitID)
	dst = appendString(dst, `,"sha256":`, c.PermitSHA256)
	dst = append(dst, '}')
	if c.Reason != "" {
		dst = appendString(dst, `,"reason":`, string(c.Reason))
	}
	dst = c.appendReconciles(dst)
	dst = appendString(dst, `,"req":{"request_hash":`, c.RequestHash)
	dst = appendString(dst, `,"sha256":`, c.ArgumentsSHA256)
	dst = c.appendResult(append(dst, '}'))
	dst = appendString(dst, `,"sub":`, c.Wallet)
	dst = append(dst, `,"v":1`...)
	if v := c.Value; v != nil {
		dst = appendInt(dst, `,"value":{"amount":`, v.Amount)
		dst = appendString(dst, `,"currency":`, v.Currency)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func (c *Claims) appendCall(dst []byte) []byte {
	dst = appendInt(dst, `},"call":{"ended_ms":`, c.EndedMS)
	dst = appendString(dst, `,"id":`, c.Operation)
	dst = appendString(dst, `,"key_source":`, c.KeySource)
	dst = appendInt(dst, `,"started_ms":`, c.StartedMS)
	dst = appendString(dst, `,"tool":`, c.Tool)
	dst = appendString(dst, `,"tool_sha256":`, c.ToolSHA256)
	return append(dst, '}')
}

func (c *Claims) appendDetail(dst []byte) []byte {
	switch d := c.Detail; {
	case c.DuplicateOf != "":
		dst = appendString(dst, `,"detail":{"operation_id":`, c.DuplicateOf)
	case d != nil:
		dst = appendInt(dst, `,"detail":{"limit":`, d.Limit)
		dst = appendInt(dst, `,"needed":`, d.Needed)
		dst = appendInt(dst, `,"remaining":`, d.Remaining)
	default:
		return dst
	}
	return append(dst, '}')
}

func (c *Claims) appendReconciles(dst []byte) []byte {
	r := c.Reconciles
	if r == nil {
		return dst
	}
	dst = appendInt(dst, `,"reconciles":{"charged_before":`, r.ChargedBefore)
	dst = appendString(dst, `,"evidence_sha256":`, r.EvidenceSHA256)
	dst = appendString(dst, `,"jti":`, r.ID)
	dst = appendString(dst, `,"resolution":`, r.Resolution)
	return append(dst, '}')
}

func (c *Claims) appendResult(dst []byte) []byte {
	r := c.Result
	if r == nil {
		return append(dst, `,"res":null`...)
	}
	dst = appendInt(dst, `,"res":{"bytes":`, r.Bytes)
	if r.Scrubbed {
		dst = append(dst, `,"scrubbed":true`...)
	}
	dst = appendString(dst, `,"sha256":`, r.SHA256)
	return append(dst, '}')
}

func appendString(dst []byte, name, value string) []byte {
	return canon.AppendString(append(dst, name...), value)
}

func appendInt(dst []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(dst, name...), value, 10)
}
