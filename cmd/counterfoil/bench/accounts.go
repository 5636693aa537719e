package bench

import (
	"context"
	"fmt"
	"time"
)

// funds are what each wallet gets, in credits.
const funds = int64(1) << 50

// allowance is what a permit grants.
type allowance struct {
	tools   []string
	credits int64
}

// payouts lets an agent call the bench's tool without an end.
func payouts() allowance { return allowance{tools: []string{"payout"}, credits: funds} }

// openAccounts makes n funded wallets, each with a permit, under a handful of agents.
func openAccounts(ctx context.Context, o operator, prefix string, n int, a allowance) ([]account, error) {
	const perAgent = 100
	var list []account
	for first := 0; first < n; first += perAgent {
		batch, err := openAgent(ctx, o, fmt.Sprintf("%s%d", prefix, first/perAgent), min(perAgent, n-first), a)
		if err != nil {
			return nil, err
		}
		list = append(list, batch...)
	}
	return list, nil
}

func openAgent(ctx context.Context, o operator, name string, wallets int, a allowance) ([]account, error) {
	ids := make([]string, wallets)
	for i := range ids {
		ids[i] = fmt.Sprintf("wal_%s.%d", name, i)
		if err := o.post(ctx, "/v1/wallets", map[string]any{"id": ids[i], "name": "bench"}, nil); err != nil {
			return nil, err
		}
		deposit := map[string]any{"credits": funds, "reference": "bench"}
		if err := o.post(ctx, "/v1/wallets/"+ids[i]+"/deposits", deposit, nil); err != nil {
			return nil, err
		}
	}
	agent := "agt_" + name
	if err := o.post(ctx, "/v1/agents", map[string]any{"id": agent, "name": "bench", "wallets": ids}, nil); err != nil {
		return nil, err
	}
	var made struct {
		Key string `json:"key"`
	}
	if err := o.post(ctx, "/v1/agents/"+agent+"/keys", map[string]any{}, &made); err != nil {
		return nil, err
	}
	list := make([]account, wallets)
	for i, wallet := range ids {
		permit := fmt.Sprintf("prm_%s.%d", name, i)
		body := map[string]any{
			"id": permit, "wallet_id": wallet, "agent_id": agent, "scope": "payments.write",
			"expires_at": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339), "grant": a.grant(),
		}
		if err := o.post(ctx, "/v1/permits", body, nil); err != nil {
			return nil, err
		}
		list[i] = account{APIKey: made.Key, Wallet: wallet, Permit: permit}
	}
	return list, nil
}

func (a allowance) grant() map[string]any {
	return map[string]any{
		"tools": a.tools, "deny_args": []string{"/bcc"},
		"limits": map[string]any{
			"credits": a.credits, "calls_total": int64(1) << 50,
			"value": map[string]any{"currency": "USD", "total": int64(1) << 50, "per_call": 100000},
		},
		"recipient": map[string]any{"domains": []string{"vendor.example"}, "subdomains": false},
	}
}
