package operator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"counterfoil/ledger"
)

type keyBody struct {
	Roles     []string   `json:"roles" validate:"max=8,unique,dive,oneof=executor"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// keyWire shows an API key. Key is its secret: it is there once, in the first answer to its making.
type keyWire struct {
	ID        string     `json:"id"`
	Agent     string     `json:"agent_id"`
	Key       string     `json:"key,omitempty"`
	Roles     []string   `json:"roles"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	DeletedAt *time.Time `json:"deleted_at"`
}

func keyOf(k *ledger.AgentKey) *keyWire {
	return &keyWire{
		ID: k.ID, Agent: k.Agent, Roles: k.Roles, CreatedAt: k.CreatedAt.UTC(), ExpiresAt: stamp(k.ExpiresAt), DeletedAt: stamp(k.RevokedAt),
	}
}

// secret makes an API key of 256 random bits.
func secret() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails: the program would have stopped
	return "cf_" + base64.RawURLEncoding.EncodeToString(random[:])
}

func (a *api) createAgentKey(c echo.Context) error {
	var b keyBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return a.administer(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		key := secret()
		made, err := admin.CreateAgentKey(ctx, c.Param("id"), sha256.Sum256([]byte(key)), b.Roles, b.ExpiresAt)
		if err != nil {
			return ledger.Answer{}, err
		}
		wire := keyOf(made)
		kept, err := encode(wire)
		if err != nil {
			return ledger.Answer{}, err
		}
		wire.Key = key
		shown, err := encode(wire)
		return ledger.Answer{Status: http.StatusCreated, Body: shown, Keep: kept}, err
	})
}

func (a *api) deleteAgentKey(c echo.Context) error {
	return a.administer(c, nil, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		err := admin.DeleteAgentKey(ctx, c.Param("id"), c.Param("key_id"))
		return ledger.Answer{Status: http.StatusNoContent}, err
	})
}
