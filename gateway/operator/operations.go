package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
	"counterfoil/ledger"
	"counterfoil/receipts"
)

type operationWire struct {
	ID           string              `json:"id"`
	State        string              `json:"state"`
	Outcome      *string             `json:"outcome"`
	Reason       *string             `json:"reason"`
	Wallet       string              `json:"wallet_id"`
	Permit       string              `json:"permit_id"`
	Agent        string              `json:"agent_id"`
	Tool         string              `json:"tool"`
	Key          *string             `json:"idempotency_key,omitempty"`
	Call         *callWire           `json:"call_identity,omitempty"`
	OperationKey *string             `json:"operation_key,omitempty"`
	KeySource    string              `json:"key_source"`
	Authorized   int64               `json:"credits_authorized"`
	Held         int64               `json:"credits_held"`
	Charged      int64               `json:"credits_charged"`
	Value        *amountWire         `json:"value"`
	Ref          *string             `json:"operation_ref"`
	HoldsRef     bool                `json:"operation_ref_held"`
	Receipt      *string             `json:"receipt_id"`
	Late         *lateWire           `json:"late_result"`
	Round        *roundWire          `json:"round"`
	Resolution   *string             `json:"resolution"`
	Decision     *reconciliationWire `json:"reconciliation"`
	CreatedAt    time.Time           `json:"created_at"`
	FinishedAt   *time.Time          `json:"finished_at"`
}

// callWire is which call of which harness an operation is, where the harness said so and no key was given.
type callWire struct {
	Platform string `json:"platform"`
	CallID   string `json:"call_id"`
}

// reconciliationWire is what was decided about an uncertain operation. What the decision rests on and who took
// it are the operator's business: an agent does not see them.
type reconciliationWire struct {
	Resolution        string    `json:"resolution"`
	Evidence          *string   `json:"evidence,omitempty"`
	ProviderReference *string   `json:"provider_reference"`
	ChargedBefore     int64     `json:"charged_before"`
	DecidedBy         *string   `json:"decided_by,omitempty"`
	DecidedAt         time.Time `json:"decided_at"`
	FirstReceipt      string    `json:"first_receipt_id"`
}

func reconciliationOf(r *ledger.ReconciliationRecord, viewer gateway.Principal) *reconciliationWire {
	if r == nil {
		return nil
	}
	w := &reconciliationWire{
		Resolution: r.Resolution, ProviderReference: optional(r.ProviderReference), ChargedBefore: r.ChargedBefore,
		DecidedAt: r.DecidedAt, FirstReceipt: r.FirstReceiptID,
	}
	if viewer.Agent == nil {
		w.Evidence, w.DecidedBy = &r.Evidence, &r.Actor
	}
	return w
}

// lateWire shows that an answer came after its operation was settled as uncertain, and what it was.
type lateWire struct {
	Outcome   string    `json:"outcome"`
	Reason    *string   `json:"reason"`
	SHA256    string    `json:"sha256"`
	Bytes     int       `json:"bytes"`
	ArrivedAt time.Time `json:"arrived_at"`
}

// roundWire shows that a tool waits for input, not what it asked for.
type roundWire struct {
	Number    int64     `json:"number"`
	AskedAt   time.Time `json:"asked_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

func roundOf(r *ledger.RoundRecord) *roundWire {
	if r == nil {
		return nil
	}
	return &roundWire{Number: r.Number, AskedAt: r.Asked, ExpiresAt: r.ExpiresAt}
}

// operationOf shows the key only to the operator and to the agent that used it: a second agent of the wallet
// learns no more of it than that it is used. By the operation key somebody can look for the call at the provider;
// no agent sees it.
func operationOf(o *ledger.OperationRecord, viewer gateway.Principal) operationWire {
	w := operationWire{
		ID: o.ID, State: o.State, Outcome: optional(string(o.Outcome)), Reason: optional(string(o.Reason)),
		Wallet: o.Wallet, Permit: o.Permit, Agent: o.Agent, Tool: o.Tool, KeySource: o.KeySource,
		Authorized: o.Authorized, Held: o.Held, Charged: o.Charged, Receipt: optional(o.ReceiptID),
		Value: amountOf(o.Value), Ref: optional(o.Reference), HoldsRef: o.HoldsReference, Round: roundOf(o.Round),
		Decision: reconciliationOf(o.Reconciliation, viewer), CreatedAt: o.CreatedAt, FinishedAt: o.FinishedAt,
	}
	if viewer.Agent == nil || viewer.Agent.ID == o.Agent {
		if platform, id, ok := gateway.HarnessCall(o.Key); ok {
			w.Call = &callWire{Platform: platform, CallID: id}
		} else {
			w.Key = &o.Key
		}
	}
	if viewer.Agent == nil && o.Outcome != receipts.Denied {
		w.OperationKey = &o.OperationKey
	}
	if o.Reconciliation != nil {
		w.Resolution = &o.Reconciliation.Resolution
	}
	if l := o.Late; l != nil {
		sum := sha256.Sum256(l.Result)
		w.Late = &lateWire{
			Outcome: string(l.Outcome), Reason: optional(string(l.Reason)),
			SHA256: hex.EncodeToString(sum[:]), Bytes: len(l.Result), ArrivedAt: l.ArrivedAt,
		}
	}
	return w
}

// visible are the wallets whose records the caller may see; nil is all of them. What is asked for and may not
// be seen does not exist.
func visible(c echo.Context, asked string) ([]string, error) {
	agent := gateway.PrincipalOf(c).Agent
	switch {
	case agent == nil && asked == "":
		return nil, nil
	case agent == nil:
		return []string{asked}, nil
	case asked == "":
		return agent.Visible(), nil
	case agent.MayUse(asked):
		return []string{asked}, nil
	}
	return nil, ledger.ErrNotFound
}

func (a *api) listOperations(c echo.Context) error {
	q, err := query(c, "limit", "after", "wallet", "agent", "permit", "state")
	if err != nil {
		return a.problem(c, err)
	}
	p, err := pageOf(q)
	if err != nil {
		return a.problem(c, err)
	}
	states := []string{"", ledger.StateDispatching, ledger.StateFinished, "awaiting_approval", ledger.StateAwaitingInput, ledger.StateReconciled}
	state := q.Get("state")
	if !slices.Contains(states, state) {
		return a.problem(c, invalid("There is no state %q.", state))
	}
	wallets, err := visible(c, q.Get("wallet"))
	if err != nil {
		return a.problem(c, err)
	}
	filter := ledger.OperationFilter{Wallets: wallets, Agent: q.Get("agent"), Permit: q.Get("permit"), State: state}
	ops, err := a.ledger.Operations(c.Request().Context(), filter, p.after, p.ask())
	if err != nil {
		return a.problem(c, err)
	}
	viewer := gateway.PrincipalOf(c)
	return a.ok(c, listOf(p, ops, func(o *ledger.OperationRecord) string { return o.ID },
		func(o *ledger.OperationRecord) operationWire { return operationOf(o, viewer) }))
}

func (a *api) getOperation(c echo.Context) error {
	wallets, err := visible(c, "")
	if err != nil {
		return a.problem(c, err)
	}
	op, err := a.ledger.Operation(c.Request().Context(), c.Param("id"), wallets)
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, operationOf(op, gateway.PrincipalOf(c)))
}
