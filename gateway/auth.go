package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"counterfoil/ledger"
)

// ErrUnauthenticated means no credential, more than one, or one that is not known.
var ErrUnauthenticated = errors.New("credential missing or not valid")

// Role is what a credential may do.
type Role string

// The credentials of contract 2.
const (
	RoleAgent      Role = "agent"
	RoleOperator   Role = "operator"
	RoleApprover   Role = "approver"
	RoleReconciler Role = "reconciler"
)

// Principal is who asks. Agent is set for RoleAgent only.
type Principal struct {
	Role  Role
	Agent *ledger.Agent
}

// Actor names the principal in audit events.
func (p Principal) Actor() string {
	if p.Agent != nil {
		return p.Agent.ID
	}
	return string(p.Role)
}

// role holds the SHA-256 of a configured token; the token itself is not kept.
type roleToken struct {
	role Role
	sum  [sha256.Size]byte
}

func roleTokens(cfg Config) ([]roleToken, error) {
	var out []roleToken
	for _, t := range []struct {
		role  Role
		token string
	}{{RoleOperator, cfg.OperatorToken}, {RoleApprover, cfg.ApproverToken}, {RoleReconciler, cfg.ReconcilerToken}} {
		if t.token == "" {
			continue
		}
		sum := sha256.Sum256([]byte(t.token))
		for _, o := range out {
			if o.sum == sum {
				return nil, fmt.Errorf("the %s token equals the %s token", t.role, o.role)
			}
		}
		out = append(out, roleToken{t.role, sum})
	}
	return out, nil
}

// credential takes the one secret out of the headers. Two that differ are as
// bad as none: which of them is meant cannot be known.
func credential(h http.Header) (string, bool) {
	secret, found := "", false
	for _, v := range h["X-Api-Key"] {
		if found && v != secret {
			return "", false
		}
		secret, found = v, true
	}
	for _, v := range h["Authorization"] {
		scheme, token, ok := strings.Cut(v, " ")
		token = strings.TrimLeft(token, " ")
		if !ok || !strings.EqualFold(scheme, "Bearer") || (found && token != secret) {
			return "", false
		}
		secret, found = token, true
	}
	return secret, found && secret != ""
}

// Authenticate finds who sent the request: ErrUnauthenticated, or an error of
// the store, when it cannot.
func (g *Gateway) Authenticate(r *http.Request) (Principal, error) {
	secret, ok := credential(r.Header)
	if !ok {
		return Principal{}, ErrUnauthenticated
	}
	sum := sha256.Sum256([]byte(secret))
	if strings.HasPrefix(secret, "cf_") {
		return g.agentBySum(r.Context(), sum)
	}
	if role := g.roleBySum(sum); role != "" {
		return Principal{Role: role}, nil
	}
	return Principal{}, ErrUnauthenticated
}

// AgentFromRequest is Authenticate for the doors that only agents may use.
func (g *Gateway) AgentFromRequest(r *http.Request) (*ledger.Agent, error) {
	p, err := g.Authenticate(r)
	if err != nil {
		return nil, err
	}
	if p.Agent == nil {
		return nil, ErrUnauthenticated
	}
	return p.Agent, nil
}

func (g *Gateway) agentBySum(ctx context.Context, sum [sha256.Size]byte) (Principal, error) {
	// Configured tokens may begin with cf_ as well; they are tried last, so that
	// an agent's call does not pay for them.
	agent, err := g.ledger.AgentByKey(ctx, sum)
	if errors.Is(err, ledger.ErrNotFound) {
		if role := g.roleBySum(sum); role != "" {
			return Principal{Role: role}, nil
		}
		return Principal{}, ErrUnauthenticated
	}
	if err != nil {
		return Principal{}, fmt.Errorf("find agent by key: %w", err)
	}
	return Principal{Role: RoleAgent, Agent: agent}, nil
}

// roleBySum compares with every token, so that the time taken tells nothing.
func (g *Gateway) roleBySum(sum [sha256.Size]byte) Role {
	var found Role
	for _, t := range g.tokens {
		if subtle.ConstantTimeCompare(t.sum[:], sum[:]) == 1 {
			found = t.role
		}
	}
	return found
}

const principalKey = "counterfoil.principal"

// Require lets only these roles pass: 401 without a good credential, 403 with
// one of another role.
func (g *Gateway) Require(roles ...Role) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			p, err := g.Authenticate(c.Request())
			if errors.Is(err, ErrUnauthenticated) {
				return WriteProblem(c, "unauthenticated", "")
			}
			if err != nil {
				return WriteProblem(c, g.ReasonOf(err), "")
			}
			if !slices.Contains(roles, p.Role) {
				return WriteProblem(c, "forbidden", "")
			}
			if p.Agent != nil {
				leave, refusal := g.limiter.enter(p.Agent.ID, g.now())
				if refusal != nil {
					return WriteProblem(c, refusal.Reason, refusal.Detail)
				}
				defer leave()
			}
			c.Set(principalKey, p)
			return next(c)
		}
	}
}

// RequireOperator lets the operator token pass.
func (g *Gateway) RequireOperator() echo.MiddlewareFunc { return g.Require(RoleOperator) }

// RequireReconciler lets the reconciler token pass.
func (g *Gateway) RequireReconciler() echo.MiddlewareFunc { return g.Require(RoleReconciler) }

// RequireApprover lets the approver token pass.
func (g *Gateway) RequireApprover() echo.MiddlewareFunc { return g.Require(RoleApprover) }

// RequireReader lets the operator and agents pass; PrincipalOf(c).Agent is nil
// for the operator.
func (g *Gateway) RequireReader() echo.MiddlewareFunc { return g.Require(RoleOperator, RoleAgent) }

// PrincipalOf returns whom Require let pass.
func PrincipalOf(c echo.Context) Principal {
	p, _ := c.Get(principalKey).(Principal)
	return p
}
