package operator

import (
	"time"

	"github.com/labstack/echo/v4"

	"counterfoil/ledger"
	"counterfoil/permits"
)

// uncertainWire is an operation that waits for a decision.
type uncertainWire struct {
	Operation string      `json:"operation_id"`
	Key       string      `json:"operation_key"`
	Wallet    string      `json:"wallet_id"`
	Agent     string      `json:"agent_id"`
	Permit    string      `json:"permit_id"`
	Tool      string      `json:"tool"`
	Reason    string      `json:"reason"`
	Charged   int64       `json:"credits_charged"`
	Value     *amountWire `json:"value"`
	Since     time.Time   `json:"since"`
	Age       int64       `json:"age_seconds"`
	Late      bool        `json:"late_result"`
	Probes    int         `json:"probes"`
	NextProbe *time.Time  `json:"next_probe_at"`
}

// amountWire is an amount of money in the minor units of its currency.
type amountWire struct {
	Currency string `json:"currency"`
	Amount   int64  `json:"amount"`
}

func amountOf(v *permits.Value) *amountWire {
	if v == nil {
		return nil
	}
	return &amountWire{Currency: v.Currency, Amount: v.Amount}
}

// atRiskWire sums up all that waits, on every page.
type atRiskWire struct {
	Count     int64         `json:"count"`
	Credits   int64         `json:"credits"`
	Values    []*amountWire `json:"values"`
	Oldest    *time.Time    `json:"oldest_since"`
	OldestAge *int64        `json:"oldest_age_seconds"`
}

type queueWire struct {
	Items  []uncertainWire `json:"items"`
	Next   string          `json:"next,omitempty"`
	AtRisk atRiskWire      `json:"at_risk"`
}

// age is never negative: the database and this process have clocks of their own.
func age(now, since time.Time) int64 { return max(0, int64(now.Sub(since)/time.Second)) }

func atRiskOf(total ledger.AtRisk, now time.Time) atRiskWire {
	w := atRiskWire{Count: total.Count, Credits: total.Credits, Values: []*amountWire{}}
	for i := range total.Values {
		w.Values = append(w.Values, amountOf(&total.Values[i]))
	}
	if !total.Oldest.IsZero() {
		seconds := age(now, total.Oldest)
		w.Oldest, w.OldestAge = &total.Oldest, &seconds
	}
	return w
}

func (a *api) listReconciliations(c echo.Context) error {
	q, err := query(c, "limit", "after", "wallet")
	if err != nil {
		return a.problem(c, err)
	}
	p, err := pageOf(q)
	if err != nil {
		return a.problem(c, err)
	}
	wallets, err := visible(c, q.Get("wallet"))
	if err != nil {
		return a.problem(c, err)
	}
	ctx := c.Request().Context()
	queue, err := a.ledger.UncertainQueue(ctx, wallets, p.after, p.ask())
	if err != nil {
		return a.problem(c, err)
	}
	total, err := a.ledger.AtRisk(ctx, wallets)
	if err != nil {
		return a.problem(c, err)
	}
	now := a.g.Now()
	page := listOf(p, queue, func(u *ledger.Uncertain) string { return u.Operation }, func(u *ledger.Uncertain) uncertainWire {
		return uncertainWire{
			Operation: u.Operation, Key: u.OperationKey, Wallet: u.Wallet, Agent: u.Agent, Permit: u.Permit, Tool: u.Tool, Reason: string(u.Reason),
			Charged: u.Charged, Value: amountOf(u.Value), Since: u.Since, Age: age(now, u.Since), Late: u.Late, Probes: u.Probes,
			NextProbe: stamp(u.NextProbe),
		}
	})
	return a.ok(c, queueWire{Items: page.Items, Next: page.Next, AtRisk: atRiskOf(total, now)})
}
