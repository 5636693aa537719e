package ledger

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"

	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

const (
	prefixAgent = "agt_"
	prefixKey   = "key_"

	// keyTTL bounds how long a key that another process deleted is still honoured here.
	keyTTL = time.Second
)

// Agent is a caller. Roles are those of the key it came with; they are empty where it was found otherwise.
// An Agent is shared between requests: it is not changed.
type Agent struct {
	ID, Name                     string
	Wallets                      []string // sorted
	DefaultWallet, DefaultPermit string   // "" = none
	CreatedAt                    time.Time
	Roles                        []string
}

// MayUse reports whether the agent may use the wallet.
func (a *Agent) MayUse(wallet string) bool {
	_, found := slices.BinarySearch(a.Wallets, wallet)
	return found
}

// Visible are the wallets whose records the agent may see. It is never nil, which to the queries is every wallet.
func (a *Agent) Visible() []string { return append([]string{}, a.Wallets...) }

// AgentKey is an API key of an agent, without its secret.
type AgentKey struct {
	ID, Agent            string
	Roles                []string
	CreatedAt            time.Time
	ExpiresAt, RevokedAt *time.Time
}

// AgentByKey finds the agent of an API key by the key's SHA-256. ErrNotFound stands for unknown, deleted and
// expired alike. An answer is at most a second old; a key deleted through this process is gone at once.
func (l *Ledger) AgentByKey(ctx context.Context, sha256 [32]byte) (*Agent, error) {
	return l.agents.get(ctx, l.now(), sha256, func(ctx context.Context) (*Agent, time.Duration, error) {
		var a Agent
		var sum []byte
		row := l.pool.QueryRow(ctx, sql.Query("agent_by_key"), sha256[:])
		err := row.Scan(&a.ID, &a.Name, &a.DefaultWallet, &a.DefaultPermit, &a.CreatedAt, &a.Wallets, &a.Roles, &sum)
		if err != nil {
			return nil, 0, coldError("find agent by key", err)
		}
		if subtle.ConstantTimeCompare(sum, sha256[:]) != 1 {
			return nil, 0, ErrNotFound
		}
		slices.Sort(a.Wallets)
		return &a, keyTTL, nil
	})
}

// Agent returns one agent.
func (l *Ledger) Agent(ctx context.Context, id string) (*Agent, error) {
	rows, err := l.pool.Query(ctx, sql.Query("agent"), id)
	if err != nil {
		return nil, coldError("read agent", err)
	}
	agent, err := pgx.CollectExactlyOneRow(rows, scanAgent)
	return agent, coldError("read agent", err)
}

// Agents lists agents after an id, in the order of their ids.
func (l *Ledger) Agents(ctx context.Context, after string, limit int) ([]*Agent, error) {
	rows, err := l.pool.Query(ctx, sql.Query("list_agents"), after, limit)
	if err != nil {
		return nil, coldError("list agents", err)
	}
	agents, err := pgx.CollectRows(rows, scanAgent)
	return agents, coldError("list agents", err)
}

// AgentKeys lists the keys of agents, deleted ones too, oldest first.
func (l *Ledger) AgentKeys(ctx context.Context, agents ...string) ([]AgentKey, error) {
	rows, err := l.pool.Query(ctx, sql.Query("list_agent_keys"), agents)
	if err != nil {
		return nil, coldError("list agent keys", err)
	}
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (AgentKey, error) {
		var k AgentKey
		err := row.Scan(&k.ID, &k.Agent, &k.Roles, &k.CreatedAt, &k.ExpiresAt, &k.RevokedAt)
		return k, err
	})
	return keys, coldError("list agent keys", err)
}

func scanAgent(row pgx.CollectableRow) (*Agent, error) {
	var a Agent
	if err := row.Scan(&a.ID, &a.Name, &a.DefaultWallet, &a.DefaultPermit, &a.CreatedAt, &a.Wallets); err != nil {
		return nil, err
	}
	slices.Sort(a.Wallets)
	return &a, nil
}

// CreateAgent makes an agent; an empty id is given one. Its wallets must exist and hold the default wallet.
// The default permit may be issued later.
func (a *Admin) CreateAgent(ctx context.Context, n Agent) (*Agent, error) {
	if n.ID == "" {
		id, err := newID()
		if err != nil {
			return nil, err
		}
		n.ID = prefixAgent + id.String()
	}
	if n.DefaultWallet != "" && !slices.Contains(n.Wallets, n.DefaultWallet) {
		return nil, fmt.Errorf("%w: the default wallet %s is not one of the agent's wallets", ErrReference, n.DefaultWallet)
	}
	if err := a.checkWallets(ctx, n.Wallets); err != nil {
		return nil, err
	}
	if err := a.checkDefaultPermit(ctx, n.ID, n.DefaultPermit); err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	if _, err := a.tx.Exec(ctx, sql.Query("insert_agent"), n.ID, n.Name, n.DefaultWallet, n.DefaultPermit); err != nil {
		return nil, coldError("create agent "+n.ID, err)
	}
	if _, err := a.tx.Exec(ctx, sql.Query("insert_agent_wallets"), n.ID, n.Wallets); err != nil {
		return nil, coldError("give agent its wallets", err)
	}
	detail := map[string]any{"wallets": n.Wallets, "default_wallet_id": n.DefaultWallet, "default_permit_id": n.DefaultPermit}
	if err := a.event(ctx, "agent.created", n.ID, detail); err != nil {
		return nil, err
	}
	return a.agent(ctx, n.ID)
}

// AgentChange is what may change of an agent. A nil member stays as it is; an empty default permit is none.
type AgentChange struct {
	Wallets       *[]string
	DefaultPermit *string
}

// UpdateAgent changes an agent. Its default wallet never changes: a retry must find its operation.
func (a *Admin) UpdateAgent(ctx context.Context, id string, c AgentChange) (*Agent, error) {
	var locked string
	if err := a.tx.QueryRow(ctx, sql.Query("lock_agent"), id).Scan(&locked); err != nil {
		return nil, coldError("change agent", err)
	}
	detail := map[string]any{}
	if c.Wallets != nil {
		if err := a.setWallets(ctx, id, *c.Wallets); err != nil {
			return nil, err
		}
		detail["wallets"] = *c.Wallets
	}
	if c.DefaultPermit != nil {
		err := a.checkDefaultPermit(ctx, id, *c.DefaultPermit)
		if errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("%w: there is no permit %s", ErrReference, *c.DefaultPermit)
		}
		if err != nil {
			return nil, err
		}
		if _, err := a.tx.Exec(ctx, sql.Query("update_agent_permit"), id, *c.DefaultPermit); err != nil {
			return nil, coldError("change default permit", err)
		}
		detail["default_permit_id"] = *c.DefaultPermit
	}
	if len(detail) == 0 {
		return a.agent(ctx, id)
	}
	if err := a.event(ctx, "agent.updated", id, detail); err != nil {
		return nil, err
	}
	a.onCommit = append(a.onCommit, a.ledger.agents.reset)
	return a.agent(ctx, id)
}

func (a *Admin) setWallets(ctx context.Context, id string, wallets []string) error {
	if err := a.checkWallets(ctx, wallets); err != nil {
		return err
	}
	if _, err := a.tx.Exec(ctx, sql.Query("delete_agent_wallets"), id, wallets); err != nil {
		return coldError("take wallets from agent", err)
	}
	_, err := a.tx.Exec(ctx, sql.Query("insert_agent_wallets"), id, wallets)
	return coldError("give agent its wallets", err)
}

func (a *Admin) checkWallets(ctx context.Context, wallets []string) error {
	var missing string
	err := a.tx.QueryRow(ctx, sql.Query("missing_wallets"), wallets).Scan(&missing)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return coldError("check wallets", err)
	}
	return fmt.Errorf("%w: there is no wallet %s", ErrReference, missing)
}

// checkDefaultPermit refuses a permit that is another agent's. ErrNotFound: there is none yet.
func (a *Admin) checkDefaultPermit(ctx context.Context, agent, permit string) error {
	if permit == "" {
		return nil
	}
	stored, err := readPermit(ctx, a.tx, permit)
	if err != nil {
		return err
	}
	if stored.agent != agent {
		return fmt.Errorf("%w: permit %s is not for this agent", ErrReference, permit)
	}
	return nil
}

// agent reads an agent inside the transaction, so that the answer is what was written.
func (a *Admin) agent(ctx context.Context, id string) (*Agent, error) {
	rows, err := a.tx.Query(ctx, sql.Query("agent"), id)
	if err != nil {
		return nil, coldError("read agent", err)
	}
	agent, err := pgx.CollectExactlyOneRow(rows, scanAgent)
	return agent, coldError("read agent", err)
}
