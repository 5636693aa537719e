package mcp

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"counterfoil/gateway"
	"counterfoil/internal/canon"
	"counterfoil/ledger"
	"counterfoil/permits"
)

// operationWire is an operation as an agent sees it: the members of GET /v1/operations/{id} that help it to decide
// what to do next, and the receipt.
type operationWire struct {
	ID         string      `json:"id"`
	State      string      `json:"state"`
	Outcome    string      `json:"outcome,omitempty"`
	Reason     string      `json:"reason,omitempty"`
	Resolution string      `json:"resolution,omitempty"`
	Retry      string      `json:"retry,omitempty"`
	Tool       string      `json:"tool"`
	Wallet     string      `json:"wallet_id"`
	Permit     string      `json:"permit_id"`
	Agent      string      `json:"agent_id"`
	Key        string      `json:"idempotency_key,omitempty"`
	Call       *calledWire `json:"call_identity,omitempty"`
	KeySource  string      `json:"key_source"`
	Authorized int64       `json:"credits_authorized"`
	Held       int64       `json:"credits_held"`
	Charged    int64       `json:"credits_charged"`
	Value      *amountWire `json:"value,omitempty"`
	Reference  string      `json:"operation_ref,omitempty"`
	Round      *roundWire  `json:"round,omitempty"`
	ReceiptID  string      `json:"receipt_id,omitempty"`
	Receipt    string      `json:"receipt,omitempty"`
	Pending    bool        `json:"receipt_pending,omitempty"`
	CreatedAt  time.Time   `json:"created_at"`
	FinishedAt *time.Time  `json:"finished_at,omitempty"`
}

// calledWire is what the agent's harness called a call.
type calledWire struct {
	Platform string `json:"platform"`
	CallID   string `json:"call_id"`
}

// roundWire says until when the tool waits for what it asked for.
type roundWire struct {
	Number    int64     `json:"number"`
	AskedAt   time.Time `json:"asked_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

type amountWire struct {
	Currency string `json:"currency"`
	Amount   int64  `json:"amount"`
}

// operationView shows the key, or what the harness called the call, only to the agent itself: a colleague of the wallet
// learns no more than that it is used. The private key by which the tool knows the call is shown to no agent.
func operationView(record *ledger.OperationRecord, op *ledger.Operation, viewer *ledger.Agent) []byte {
	w := operationWire{
		ID: op.ID, State: op.State, Outcome: string(op.Outcome), Reason: string(op.Reason), Resolution: op.Resolution,
		Retry: string(gateway.Advice(op)), Tool: op.Tool, Wallet: op.Wallet, Permit: op.Permit, Agent: op.Agent,
		KeySource: op.KeySource, Authorized: op.Authorized, Charged: op.Charged, Reference: record.Reference,
		ReceiptID: op.ReceiptID, Receipt: op.Receipt, Pending: op.ReceiptID != "" && op.Receipt == "",
		CreatedAt: time.UnixMilli(op.StartedMS).UTC(),
	}
	if op.Agent == viewer.ID {
		if platform, id, ok := gateway.HarnessCall(op.Key); ok {
			w.Call = &calledWire{platform, id}
		} else {
			w.Key = op.Key
		}
	}
	if record.Value != nil {
		w.Value = &amountWire{record.Value.Currency, record.Value.Amount}
	}
	if r := record.Round; r != nil && op.Round != nil {
		w.Round = &roundWire{r.Number, r.Asked, r.ExpiresAt}
	}
	if op.Finished() {
		ended := time.UnixMilli(op.EndedMS).UTC()
		w.FinishedAt = &ended
	} else {
		w.Held = op.Authorized
	}
	return view(w)
}

// permitWire is a permit as its agent sees it: what it allows, and what is left of that.
type permitWire struct {
	ID        string          `json:"id"`
	Status    string          `json:"status"`
	Wallet    string          `json:"wallet_id"`
	Scope     string          `json:"scope"`
	Tools     json.RawMessage `json:"tools"`
	Limits    json.RawMessage `json:"limits"`
	DenyArgs  json.RawMessage `json:"deny_args,omitempty"`
	Recipient json.RawMessage `json:"recipient,omitempty"`
	Approval  json.RawMessage `json:"approval,omitempty"`
	NotBefore time.Time       `json:"not_before"`
	ExpiresAt time.Time       `json:"expires_at"`
	Usage     usageWire       `json:"usage"`
	Remaining remainingWire   `json:"remaining"`
}

type usageWire struct {
	CreditsSpent int64            `json:"credits_spent"`
	CreditsHeld  int64            `json:"credits_held"`
	CallsTotal   int64            `json:"calls_total"`
	Calls        map[string]int64 `json:"calls"`
	ValueSpent   int64            `json:"value_spent"`
	ValueHeld    int64            `json:"value_held"`
}

// remainingWire: a limit that the permit does not have is absent.
type remainingWire struct {
	Credits    int64            `json:"credits"`
	CallsTotal *int64           `json:"calls_total,omitempty"`
	Calls      map[string]int64 `json:"calls,omitempty"`
	Value      *int64           `json:"value,omitempty"`
}

func permitView(r *ledger.PermitRecord) []byte {
	p := r.Permit
	w := permitWire{
		ID: p.ID, Status: r.Status, Wallet: p.Wallet, Scope: strings.Join(p.Scopes, " "),
		NotBefore: time.Unix(p.NotBefore, 0).UTC(), ExpiresAt: time.Unix(p.Expires, 0).UTC(),
		Usage: usageWire(r.Usage), Remaining: remainingWire(r.Remaining()),
	}
	if w.Usage.Calls == nil {
		w.Usage.Calls = map[string]int64{}
	}
	w.grant(&p.Grant)
	return view(w)
}

// grant takes over the members of the grant as the permit itself writes them.
func (w *permitWire) grant(g *permits.Grant) {
	text := g.JSON(false)
	for pointer, into := range map[string]*json.RawMessage{
		"/tools": &w.Tools, "/limits": &w.Limits, "/deny_args": &w.DenyArgs, "/recipient": &w.Recipient, "/approval": &w.Approval,
	} {
		if value, there := canon.Lookup(text, pointer); there {
			*into = value
		}
	}
}

// view writes a wire struct. Its members are strings, integers and what canon has read before: it cannot fail.
func view(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}
