package gateway

import (
	"bytes"
	"strconv"

	"counterfoil/internal/canon"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// Dressing is what a front door adds to a stored result for its own protocol
// version. The same operation and dressing give the same bytes, always.
type Dressing struct {
	Members string // members of the result, `"resultType":"complete"`, or ""
	Meta    string // further members of `_meta`, or ""
}

// AppendResult appends the answer to an operation: the stored bytes, untouched,
// with our `_meta` members spliced in. It is a function of the stored operation
// alone, so a replay is byte for byte the first answer.
func AppendResult(dst []byte, op *ledger.Operation, d Dressing) []byte {
	raw := bytes.TrimSpace(op.Result)
	if !IsObject(raw) {
		raw = Explain(op.Outcome, op.Reason, nil, op.Charged)
	}
	meta := appendMeta(make([]byte, 0, 512+len(op.Receipt)), op)
	if d.Meta != "" {
		meta = append(append(meta, ','), d.Meta...)
	}
	dst = append(dst, '{')
	if d.Members != "" {
		dst = append(append(dst, d.Members...), ',')
	}
	start, end := find(raw, "_meta")
	if start == 0 {
		dst = append(append(append(dst, `"_meta":{`...), meta...), '}')
		if !emptyObject(raw) {
			dst = append(dst, ',')
		}
		return append(dst, raw[1:]...)
	}
	if !IsObject(raw[start:end]) {
		dst = append(append(dst, raw[1:start]...), '{')
		dst = append(append(dst, meta...), '}')
		return append(dst, raw[end:]...)
	}
	dst = append(dst, raw[1:end-1]...)
	if !emptyObject(raw[start:end]) {
		dst = append(dst, ',')
	}
	return append(append(dst, meta...), raw[end-1:]...)
}

// find returns where the value of a member stands in an object, or 0, 0. The
// usual result has no such member, and then no byte of it is walked.
func find(raw []byte, member string) (start, end int) {
	if !bytes.Contains(raw, []byte(`"`+member+`"`)) && !bytes.Contains(raw, []byte(`\u00`)) {
		return 0, 0
	}
	Members(raw, func(name, value []byte) bool {
		if string(name) != member {
			return true
		}
		// value is a slice of raw: what is left of raw's capacity says where.
		start = cap(raw) - cap(value)
		end = start + len(value)
		return false
	})
	return start, end
}

func emptyObject(obj []byte) bool {
	i := skipSpace(obj, 1)
	return i < len(obj) && obj[i] == '}'
}

func appendMeta(b []byte, op *ledger.Operation) []byte {
	b = append(b, `"counterfoil/operation_id":`...)
	b = canon.AppendString(b, op.ID)
	b = append(b, `,"counterfoil/outcome":`...)
	b = canon.AppendString(b, string(op.Outcome))
	if op.Reason != "" {
		b = append(b, `,"counterfoil/reason":`...)
		b = canon.AppendString(b, string(op.Reason))
	}
	if retry := retryOf(op); retry != "" {
		b = append(b, `,"counterfoil/retry":`...)
		b = canon.AppendString(b, string(retry))
	}
	b = append(b, `,"counterfoil/credits_charged":`...)
	b = strconv.AppendInt(b, op.Charged, 10)
	if op.ReceiptID != "" {
		b = append(b, `,"counterfoil/receipt_id":`...)
		b = canon.AppendString(b, op.ReceiptID)
	}
	if op.Receipt == "" {
		return append(b, `,"counterfoil/receipt_pending":true`...)
	}
	b = append(b, `,"counterfoil/receipt":`...)
	return canon.AppendString(b, op.Receipt)
}

func retryOf(op *ledger.Operation) Retry {
	if op.Outcome == receipts.Succeeded || op.Reason == "" {
		return ""
	}
	return ProblemFor(op.Reason).Retry
}

// Explain is the stored result of an outcome for which the upstream gave no
// result of its own.
func Explain(outcome receipts.Outcome, reason receipts.Reason, detail *permits.Detail, charged int64) []byte {
	b := append([]byte(nil), `{"content":[`...)
	b = appendTextBlock(b, plainWords(outcome, reason, detail, charged))
	return append(b, `],"isError":true}`...)
}

// withText puts one text block of ours after the upstream's own content.
func withText(raw []byte, text string) []byte {
	block := appendTextBlock(nil, text)
	raw = bytes.TrimSpace(raw)
	start, end := find(raw, "content")
	if start == 0 || raw[start] != '[' {
		return withContent(raw, block)
	}
	out := append(make([]byte, 0, len(raw)+len(block)+1), raw[:end-1]...)
	if raw[skipSpace(raw, start+1)] != ']' {
		out = append(out, ',')
	}
	return append(append(out, block...), raw[end-1:]...)
}

// withContent gives a content list to a result that has none, or something
// else in its place.
func withContent(raw, block []byte) []byte {
	out := append(append([]byte(`{"content":[`), block...), ']')
	Members(raw, func(name, value []byte) bool {
		if string(name) != "content" {
			out = canon.AppendString(append(out, ','), string(name))
			out = append(append(out, ':'), value...)
		}
		return true
	})
	return append(out, '}')
}

func appendTextBlock(b []byte, text string) []byte {
	b = append(b, `{"type":"text","text":`...)
	return append(canon.AppendString(b, text), '}')
}

// plainWords says what happened, whether money moved, and what to do next.
func plainWords(outcome receipts.Outcome, reason receipts.Reason, d *permits.Detail, charged int64) string {
	p := ProblemFor(reason)
	text := "Counterfoil: " + p.Message
	if d != nil {
		text += " (limit " + strconv.FormatInt(d.Limit, 10) + ", needed " + strconv.FormatInt(d.Needed, 10) +
			", remaining " + strconv.FormatInt(d.Remaining, 10) + ")"
	}
	if outcome == receipts.Denied {
		text += " The tool was not called."
	}
	switch {
	case charged == 0:
		text += " No credits were charged."
	case outcome == receipts.Uncertain:
		text += " Charged for now, until a person has settled what happened: " + credits(charged) + "."
	default:
		text += " Charged: " + credits(charged) + "."
	}
	return text + " " + adviceWords(p.Retry)
}

func credits(n int64) string {
	if n == 1 {
		return "1 credit"
	}
	return strconv.FormatInt(n, 10) + " credits"
}

func adviceWords(r Retry) string {
	switch r {
	case RetryNever:
	case RetrySameKey:
		return "Ask again with the same idempotency key: nothing new will run."
	case RetryNewKey:
		return "Nothing ran. Once the cause is removed, a new call needs a new idempotency key; the old key only returns this answer."
	case RetryCheck:
		return "The tool may have acted: look before you act again. The same idempotency key only returns this answer."
	}
	return "Do not repeat this call: the answer would be the same."
}
