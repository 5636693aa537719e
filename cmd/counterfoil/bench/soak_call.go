package bench

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Tools of the soak.
const (
	toolPayout  = "payout"
	toolFlaky   = "flaky"
	toolWire    = "wire"    // no permit allows it
	toolMissing = "missing" // not in the catalogue
)

// callKind is one sort of call under a new key, and what its answer may not be.
type callKind struct {
	tool    string
	mode    string
	share   int  // of the calls under new keys, per 100
	tight   bool // from the wallet whose permit is soon spent
	silent  bool // the upstream never answers it properly: it cannot have succeeded
	refused bool // it never goes upstream
}

// callKinds is the load. Its order is that of record.kind.
func callKinds() []callKind {
	return []callKind{
		{tool: toolPayout, mode: modeOK, share: 58},
		{tool: toolPayout, mode: modeSlow, share: 11},
		{tool: toolFlaky, mode: modeDrop, share: 3, silent: true},
		{tool: toolFlaky, mode: modeHalf, share: 2, silent: true},
		{tool: toolFlaky, mode: modeStatus, share: 3, silent: true},
		{tool: toolFlaky, mode: modeGarbage, share: 2, silent: true},
		{tool: toolFlaky, mode: modeSilent, share: 1, silent: true},
		{tool: toolFlaky, mode: modeFailed, share: 3, silent: true},
		{tool: toolFlaky, mode: modeUndone, share: 3, silent: true},
		{tool: toolFlaky, mode: modeRefused, share: 3, silent: true},
		{tool: toolPayout, mode: modeOK, share: 4, tight: true},
		{tool: toolWire, mode: modeOK, share: 4, refused: true},
		{tool: toolMissing, mode: modeOK, share: 3, refused: true},
	}
}

const keyPrefix = "soak-"

// soakBody is call n. It is a function of its arguments, so that a repeat is the same bytes; the amount is
// what a changed repeat changes.
func soakBody(from account, k callKind, n, amount int) []byte {
	b := make([]byte, 0, 512)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, `,"method":"tools/call","params":{"name":"`...)
	b = append(b, k.tool...)
	b = append(b, `","arguments":{"to":"ap@vendor.example","amount":`...)
	b = strconv.AppendInt(b, int64(amount), 10)
	b = append(b, `,"invoice_id":"`+keyPrefix...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, `","mode":"`...)
	b = append(b, k.mode...)
	b = append(b, `","wait_ms":`...)
	b = strconv.AppendInt(b, slowness(k, n), 10)
	b = append(b, `},"mcpContext":{"wallet_id":"`...)
	b = append(append(b, from.Wallet...), `","permit_id":"`...)
	b = append(append(b, from.Permit...), `","idempotency_key":"`+keyPrefix...)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, `"}}}`...)
}

// slowness is how long the upstream keeps the answer of a slow call, in milliseconds.
func slowness(k callKind, n int) int64 {
	if k.mode != modeSlow {
		return 0
	}
	return 20 + int64(n*7919%380)
}

// callNumber reads n out of a key or an invoice.
func callNumber(key string) (int, bool) {
	digits, ok := strings.CutPrefix(key, keyPrefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0
}

// reply is what a gateway said.
type reply struct {
	sum       [16]byte // of the whole body
	text      string   // for a complaint
	replayed  bool
	operation string
	outcome   string // of a governed call
	reason    string // of a reconciled one, the resolution
	charged   int64  // credits
	final     bool   // the same key will never be answered anything else
}

// readReply understands an answer; one that is none of the contract's is an error.
func readReply(body []byte, replayed bool) (reply, error) {
	var doc struct {
		Result *struct {
			Meta struct {
				Operation  string `json:"counterfoil/operation_id"`
				Outcome    string `json:"counterfoil/outcome"`
				Reason     string `json:"counterfoil/reason"`
				Resolution string `json:"counterfoil/resolution"`
				Charged    int64  `json:"counterfoil/credits_charged"`
			} `json:"_meta"`
		} `json:"result"`
		Error *struct {
			Data refusal `json:"data"`
		} `json:"error"`
		refusal // of a problem document: the gateway refuses requests before it has read them
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return reply{}, fmt.Errorf("not JSON: %w", err)
	}
	sum := sha256.Sum256(body)
	r := reply{sum: [16]byte(sum[:16]), text: string(body[:min(len(body), 400)]), replayed: replayed}
	switch {
	case doc.Result != nil && doc.Result.Meta.Outcome != "":
		meta := &doc.Result.Meta
		r.operation, r.outcome, r.reason, r.charged, r.final = meta.Operation, meta.Outcome, meta.Reason, meta.Charged, true
		if r.outcome == outcomeReconciled {
			r.reason = meta.Resolution
		}
	case doc.Error != nil && doc.Error.Data.Reason != "":
		doc.Error.Data.into(&r)
	case doc.Result == nil && doc.Reason != "":
		doc.refusal.into(&r)
	default:
		return reply{}, fmt.Errorf("neither an outcome nor a refusal: %.300s", body)
	}
	return r, nil
}

// refusal is an answer without an operation.
type refusal struct {
	Reason string `json:"reason"`
	Retry  string `json:"retry"`
}

func (f refusal) into(r *reply) {
	r.outcome, r.reason, r.final = verdictRefused, f.Reason, f.Retry != "same_key"
}

// Outcomes of the contract.
const (
	outcomeSucceeded  = "succeeded"
	outcomeDenied     = "denied"
	outcomeFailed     = "failed"
	outcomeUncertain  = "delivery_uncertain"
	outcomeReconciled = "reconciled"
)

// verdictRefused is the outcome, in our words, of a call that became no operation.
const verdictRefused = "refused"

// verdict is outcome and reason in one word.
func (r reply) verdict() string { return joinVerdict(r.outcome, r.reason) }

func joinVerdict(outcome, reason string) string {
	if reason == "" {
		return outcome
	}
	return outcome + "/" + reason
}
