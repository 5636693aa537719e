package gateway

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"

	"counterfoil/internal/canon"
	"counterfoil/ledger"
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
	switch {
	case op.Round != nil:
		raw, d.Members = bytes.TrimSpace(op.Round.Result), "" // it has its type already
	case op.Pruned():
		raw = prunedResult(op)
	case !IsObject(raw):
		raw = Explain(ledger.Ending{Outcome: op.Outcome, Reason: op.Reason, Charged: op.Charged, Resolution: op.Resolution})
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
	if op.Round != nil { // nothing is charged, and there is no receipt of what has not happened
		return append(b, `"pending","counterfoil/credits_charged":0`...)
	}
	b = canon.AppendString(b, string(op.Outcome))
	if op.Resolution != "" {
		b = append(b, `,"counterfoil/resolution":`...)
		b = canon.AppendString(b, op.Resolution)
	}
	if reason := reasonOf(op); reason != "" {
		b = append(b, `,"counterfoil/reason":`...)
		b = canon.AppendString(b, string(reason))
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

// reasonOf is the reason of an answer: the stored one, or that the stored answer is no longer kept.
func reasonOf(op *ledger.Operation) receipts.Reason {
	if op.Pruned() {
		return receipts.ReasonResponsePruned
	}
	return op.Reason
}

func retryOf(op *ledger.Operation) Retry {
	if op.Pruned() {
		return ProblemFor(receipts.ReasonResponsePruned).Retry
	}
	return Advice(op)
}

// Explain is the stored result of an outcome for which the upstream gave no
// result of its own. It is an error to the client even where the tool did act:
// a client would refuse a success without the structured content that a tool's
// output schema promises, and nobody would read these words.
func Explain(e ledger.Ending) []byte { return explained(plainWords(e)) }

func explained(text string) []byte {
	b := append([]byte(nil), `{"content":[`...)
	b = appendTextBlock(b, text)
	return append(b, `],"isError":true}`...)
}

// maxQuotation bounds what is quoted of an upstream's message, in characters.
const maxQuotation = 500

// quotation repeats the message of an upstream's JSON-RPC error, for whoever wants to
// know why it refused. It is somebody else's text: bounded, in one line, and marked as
// a quotation.
func quotation(fail []byte) string {
	message := ""
	Members(fail, func(name, value []byte) bool {
		if string(name) == "message" {
			message, _ = String(value)
		}
		return true
	})
	message = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), unicode.IsSpace(r):
			return ' '
		case unicode.Is(unicode.Cf, r): // what turns or hides text
			return -1
		}
		return r
	}, message)), " ")
	if message == "" {
		return ""
	}
	if all := []rune(message); len(all) > maxQuotation {
		message = string(all[:maxQuotation]) + "…"
	}
	return ` Its server's message: "` + message + `"`
}

// prunedResult stands in for an answer that is no longer kept. It is an error to the client, since it has no
// structured content that a tool's output schema may promise.
func prunedResult(op *ledger.Operation) []byte {
	text := "Counterfoil: " + ProblemFor(receipts.ReasonResponsePruned).Message + " Its outcome was: " + string(op.Outcome) + "."
	if op.Charged == 0 {
		text += " No credits were charged."
	} else {
		text += " Charged: " + credits(op.Charged) + "."
	}
	text += " Nothing ran now. The receipt says what happened then. " + adviceWords(RetryNever)
	return append(appendTextBlock([]byte(`{"content":[`), text), `],"isError":true}`...)
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
func plainWords(e ledger.Ending) string {
	if e.Outcome == receipts.Reconciled {
		return decisionWords(e)
	}
	p := ProblemFor(e.Reason)
	text := "Counterfoil: " + p.Message
	if e.DuplicateOf != "" {
		text += " It is operation " + e.DuplicateOf + "."
	}
	if d := e.Detail; d != nil {
		text += " (limit " + strconv.FormatInt(d.Limit, 10) + ", needed " + strconv.FormatInt(d.Needed, 10) +
			", remaining " + strconv.FormatInt(d.Remaining, 10) + ")"
	}
	if e.Outcome == receipts.Denied {
		text += " The tool was not called."
	}
	switch {
	case e.Charged == 0:
		text += " No credits were charged."
	case e.Outcome == receipts.Uncertain:
		text += " Charged for now, until a person has settled what happened: " + credits(e.Charged) + "."
	default:
		text += " Charged: " + credits(e.Charged) + "."
	}
	if e.DuplicateOf != "" {
		return text + " That call may have acted: look at it before you act again. The same idempotency key only returns this answer."
	}
	return text + " " + adviceWords(p.Retry)
}

// decisionWords says what was found out about a call whose answer was lost.
func decisionWords(e ledger.Ending) string {
	text := "Counterfoil: The answer to this call was lost. It has been found out since that the tool did not act."
	if e.Resolution == receipts.Delivered {
		text = "Counterfoil: The answer to this call was lost. It has been found out since that the tool did act: do not act again."
	}
	if e.Charged == 0 {
		text += " No credits were charged."
	} else {
		text += " Charged: " + credits(e.Charged) + "."
	}
	if e.Resolution == receipts.Delivered {
		return text
	}
	return text + " " + adviceWords(RetryNewKey)
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
