package operator

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"counterfoil/internal/jws"
	"counterfoil/ledger"
	"counterfoil/permits"
)

type permitBody struct {
	ID        *string        `json:"id" validate:"omitnil,id"`
	Wallet    string         `json:"wallet_id" validate:"required,id"`
	Agent     string         `json:"agent_id" validate:"required,id"`
	Scope     *string        `json:"scope" validate:"required"`
	NotBefore *time.Time     `json:"not_before"`
	ExpiresAt *time.Time     `json:"expires_at" validate:"required"`
	Grant     jsontext.Value `json:"grant" validate:"required"`
}

type permitWire struct {
	ID        string         `json:"id"`
	Token     string         `json:"token"`
	SHA256    string         `json:"sha256"`
	Status    string         `json:"status"`
	Issuer    string         `json:"issuer"`
	Wallet    string         `json:"wallet_id"`
	Agent     string         `json:"agent_id"`
	Scope     string         `json:"scope"`
	IssuedAt  time.Time      `json:"issued_at"`
	NotBefore time.Time      `json:"not_before"`
	ExpiresAt time.Time      `json:"expires_at"`
	RevokedAt *time.Time     `json:"revoked_at"`
	CreatedAt time.Time      `json:"created_at"`
	Grant     jsontext.Value `json:"grant"`
	Usage     usageWire      `json:"usage"`
	Remaining remainingWire  `json:"remaining"`
}

type usageWire struct {
	CreditsSpent int64            `json:"credits_spent"`
	CreditsHeld  int64            `json:"credits_held"`
	CallsTotal   int64            `json:"calls_total"`
	Calls        map[string]int64 `json:"calls"`
	ValueSpent   int64            `json:"value_spent"`
	ValueHeld    int64            `json:"value_held"`
}

// remainingWire is what is left of each limit; a limit that the permit does not have is absent.
type remainingWire struct {
	Credits    int64            `json:"credits"`
	CallsTotal *int64           `json:"calls_total,omitempty"`
	Calls      map[string]int64 `json:"calls,omitempty"`
	Value      *int64           `json:"value,omitempty"`
}

func permitOf(r *ledger.PermitRecord) permitWire {
	p, u := r.Permit, r.Usage
	return permitWire{
		ID: p.ID, Token: p.Token, SHA256: p.SHA256, Status: r.Status, Issuer: p.Issuer, Wallet: p.Wallet, Agent: p.Agent,
		Scope: strings.Join(p.Scopes, " "), IssuedAt: seconds(p.IssuedAt), NotBefore: seconds(p.NotBefore),
		ExpiresAt: seconds(p.Expires), RevokedAt: stamp(r.RevokedAt), CreatedAt: r.CreatedAt.UTC(), Grant: p.Grant.JSON(false),
		Usage: usageWire{
			CreditsSpent: u.CreditsSpent, CreditsHeld: u.CreditsHeld, CallsTotal: u.CallsTotal, Calls: u.Calls,
			ValueSpent: u.ValueSpent, ValueHeld: u.ValueHeld,
		},
		Remaining: remainingWire(r.Remaining()),
	}
}

func seconds(unix int64) time.Time { return time.Unix(unix, 0).UTC() }

func (a *api) createPermit(c echo.Context) error {
	var b permitBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	wanted, err := a.wanted(&b)
	if err != nil {
		return a.problem(c, err)
	}
	return a.administer(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		permit, err := a.sign(*wanted, b.NotBefore == nil, admin.Now())
		if err != nil {
			return ledger.Answer{}, err
		}
		record, err := admin.IssuePermit(ctx, permit)
		if err != nil {
			return ledger.Answer{}, err
		}
		return answer(http.StatusCreated, permitOf(record))
	})
}

// wanted is the permit that was asked for, but for its times, id and signature. Times are whole seconds: what
// is finer is dropped.
func (a *api) wanted(b *permitBody) (*permits.Permit, error) {
	grant, err := permits.ParseGrant(b.Grant)
	if err == nil {
		err = grant.Validate()
	}
	if err != nil {
		return nil, invalid("grant: %v.", err)
	}
	issuer := a.g.Config().Issuer
	p := &permits.Permit{
		ID: text(b.ID), Issuer: issuer, Audience: issuer, Wallet: b.Wallet, Agent: b.Agent, Expires: b.ExpiresAt.Unix(), Grant: grant,
	}
	if *b.Scope != "" {
		p.Scopes = strings.Split(*b.Scope, " ")
	}
	if b.NotBefore != nil {
		p.NotBefore = b.NotBefore.Unix()
	}
	if err := p.CheckTools(a.g.PermitTool); err != nil {
		return nil, invalid("grant: %v.", err)
	}
	return p, nil
}

// sign issues a permit as of the database's clock, by which it will be judged.
func (a *api) sign(p permits.Permit, fromNow bool, now time.Time) (*permits.Permit, error) {
	if p.ID == "" {
		id, err := ledger.NewPermitID()
		if err != nil {
			return nil, err
		}
		p.ID = id
	}
	p.IssuedAt = now.Unix()
	if fromNow {
		p.NotBefore = p.IssuedAt
	}
	signer, err := a.g.Keyring().Active(jws.PurposePermit)
	if err != nil {
		return nil, err
	}
	config := a.g.Config()
	issued, err := p.Issue(signer, permits.Expect{Issuers: []string{config.Issuer}, Audience: config.Issuer, MaxLifetime: config.MaxPermitLifetime})
	if errors.Is(err, permits.ErrInvalid) {
		return nil, invalid("The permit cannot be issued: %v.", err)
	}
	return issued, err
}

func (a *api) importPermit(c echo.Context) error {
	token, err := a.g.ReadBody(c)
	if err != nil {
		return a.problem(c, readError(err))
	}
	return a.administer(c, token, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		record, err := admin.ImportPermit(ctx, string(token), a.g.PermitTrust(), func(p *permits.Permit) error {
			return p.CheckTools(a.g.PermitTool)
		})
		if err != nil {
			return ledger.Answer{}, err
		}
		return answer(http.StatusCreated, permitOf(record))
	})
}

func (a *api) listPermits(c echo.Context) error {
	q, err := query(c, "limit", "after", "wallet", "agent")
	if err != nil {
		return a.problem(c, err)
	}
	p, err := pageOf(q)
	if err != nil {
		return a.problem(c, err)
	}
	filter := ledger.PermitFilter{Wallet: q.Get("wallet"), Agent: q.Get("agent")}
	records, err := a.ledger.Permits(c.Request().Context(), filter, p.after, p.ask())
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, listOf(p, records, func(r *ledger.PermitRecord) string { return r.Permit.ID }, permitOf))
}

func (a *api) getPermit(c echo.Context) error {
	record, err := a.ledger.Permit(c.Request().Context(), c.Param("id"))
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, permitOf(record))
}

func (a *api) revokePermit(c echo.Context) error {
	var b noteBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	return a.administer(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		record, err := admin.RevokePermit(ctx, c.Param("id"), text(b.Note))
		if err != nil {
			return ledger.Answer{}, err
		}
		return answer(http.StatusOK, permitOf(record))
	})
}
