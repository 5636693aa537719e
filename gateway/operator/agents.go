package operator

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"counterfoil/ledger"
)

type agentBody struct {
	ID            *string  `json:"id" validate:"omitnil,id"`
	Name          string   `json:"name" validate:"required,max=200,plain"`
	Wallets       []string `json:"wallets" validate:"required,max=1000,unique,dive,id"`
	DefaultWallet *string  `json:"default_wallet_id" validate:"omitnil,id"`
	DefaultPermit *string  `json:"default_permit_id" validate:"omitnil,id"`
}

type agentPatch struct {
	Wallets       *[]string      `json:"wallets" validate:"omitnil,max=1000,unique,dive,id"`
	DefaultPermit jsontext.Value `json:"default_permit_id"` // null takes it away
}

type agentWire struct {
	ID            string     `json:"id"`
	Name          string     `json:"name"`
	Wallets       []string   `json:"wallets"`
	DefaultWallet *string    `json:"default_wallet_id"`
	DefaultPermit *string    `json:"default_permit_id"`
	Keys          []*keyWire `json:"keys"`
	CreatedAt     time.Time  `json:"created_at"`
}

func agentOf(a *ledger.Agent, keys []ledger.AgentKey) agentWire {
	w := agentWire{
		ID: a.ID, Name: a.Name, Wallets: a.Wallets, DefaultWallet: optional(a.DefaultWallet),
		DefaultPermit: optional(a.DefaultPermit), Keys: []*keyWire{}, CreatedAt: a.CreatedAt.UTC(),
	}
	for i := range keys {
		if keys[i].Agent == a.ID {
			w.Keys = append(w.Keys, keyOf(&keys[i]))
		}
	}
	return w
}

// optional shows an absent text as null.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (a *api) createAgent(c echo.Context) error {
	var b agentBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	return a.administer(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		agent, err := admin.CreateAgent(ctx, ledger.Agent{
			ID: text(b.ID), Name: b.Name, Wallets: b.Wallets, DefaultWallet: text(b.DefaultWallet), DefaultPermit: text(b.DefaultPermit),
		})
		if err != nil {
			return ledger.Answer{}, err
		}
		return answer(http.StatusCreated, agentOf(agent, nil))
	})
}

func (a *api) listAgents(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return a.problem(c, err)
	}
	p, err := pageOf(q)
	if err != nil {
		return a.problem(c, err)
	}
	ctx := c.Request().Context()
	agents, err := a.ledger.Agents(ctx, p.after, p.ask())
	if err != nil {
		return a.problem(c, err)
	}
	ids := make([]string, len(agents))
	for i, agent := range agents {
		ids[i] = agent.ID
	}
	keys, err := a.ledger.AgentKeys(ctx, ids...)
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, listOf(p, agents, func(a *ledger.Agent) string { return a.ID },
		func(a *ledger.Agent) agentWire { return agentOf(a, keys) }))
}

func (a *api) getAgent(c echo.Context) error {
	ctx := c.Request().Context()
	agent, err := a.ledger.Agent(ctx, c.Param("id"))
	if err != nil {
		return a.problem(c, err)
	}
	keys, err := a.ledger.AgentKeys(ctx, agent.ID)
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, agentOf(agent, keys))
}

func (a *api) updateAgent(c echo.Context) error {
	var b agentPatch
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	change := ledger.AgentChange{Wallets: b.Wallets}
	if b.DefaultPermit != nil {
		var permit *string
		if err := json.Unmarshal(b.DefaultPermit, &permit); err != nil || (permit != nil && !idPattern.MatchString(*permit)) {
			return a.problem(c, invalid("default_permit_id must be a permit's id or null."))
		}
		value := text(permit)
		change.DefaultPermit = &value
	}
	id := c.Param("id")
	// Read before, since an agent's keys do not change here.
	keys, err := a.ledger.AgentKeys(c.Request().Context(), id)
	if err != nil {
		return a.problem(c, err)
	}
	return a.administer(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		agent, err := admin.UpdateAgent(ctx, id, change)
		if err != nil {
			return ledger.Answer{}, err
		}
		return answer(http.StatusOK, agentOf(agent, keys))
	})
}
