package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

// CreateAgentKey adds an API key to an agent by the SHA-256 of its secret, which is never stored.
func (a *Admin) CreateAgentKey(ctx context.Context, agent string, sha256 [32]byte, roles []string, expires *time.Time) (*AgentKey, error) {
	var locked string
	if err := a.tx.QueryRow(ctx, sql.Query("lock_agent"), agent).Scan(&locked); err != nil {
		return nil, coldError("create agent key", err)
	}
	id, err := newID()
	if err != nil {
		return nil, err
	}
	if roles == nil {
		roles = []string{}
	}
	key := &AgentKey{ID: prefixKey + id.String(), Agent: agent, Roles: roles, ExpiresAt: expires}
	err = a.tx.QueryRow(ctx, sql.Query("insert_agent_key"), key.ID, agent, sha256[:], roles, expires).Scan(&key.CreatedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: expires_at is not in the future", ErrReference)
	}
	if err != nil {
		return nil, coldError("create agent key", err)
	}
	detail := map[string]any{"key_id": key.ID, "roles": roles}
	if expires != nil {
		detail["expires_at"] = expires.UTC().Format(time.RFC3339)
	}
	return key, a.event(ctx, "agent_key.created", agent, detail)
}

// DeleteAgentKey ends an API key. Ending it again changes nothing.
func (a *Admin) DeleteAgentKey(ctx context.Context, agent, key string) error {
	var ended bool
	if err := a.tx.QueryRow(ctx, sql.Query("revoke_agent_key"), agent, key).Scan(&ended); err != nil {
		return coldError("delete agent key", err)
	}
	if !ended {
		return nil
	}
	a.onCommit = append(a.onCommit, a.ledger.agents.reset)
	return a.event(ctx, "agent_key.deleted", agent, map[string]any{"key_id": key})
}
