package operator

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"counterfoil/internal/jws"
	"counterfoil/ledger"
)

type issuerBody struct {
	Issuer string         `json:"issuer" validate:"required,max=2048,plain"`
	Keys   jsontext.Value `json:"keys" validate:"required"` // a JWKS
}

type issuerWire struct {
	Issuer    string         `json:"issuer"`
	Keys      jsontext.Value `json:"keys"`
	CreatedAt time.Time      `json:"created_at"`
}

func issuerOf(i *ledger.Issuer) (issuerWire, error) {
	keys, err := i.KeySet()
	return issuerWire{Issuer: i.Name, Keys: keys.JWKS(), CreatedAt: i.CreatedAt.UTC()}, err
}

// issuerKeys reads the keys of an outside issuer. A key that says nothing of itself is an active permit key.
func (a *api) issuerKeys(b *issuerBody) ([]jws.Key, error) {
	if b.Issuer == a.g.Config().Issuer {
		return nil, invalid("issuer must not be this gateway.")
	}
	set, err := jws.ParseJWKS(b.Keys)
	if err != nil {
		return nil, invalid("keys must be a JWKS of Ed25519 public keys: %v.", err)
	}
	keys := set.Keys()
	if len(keys) == 0 || len(keys) > 100 {
		return nil, invalid("keys must hold 1 to 100 keys.")
	}
	own := a.g.Keyring().Public()
	for i, k := range keys {
		if k.Purpose != "" && k.Purpose != jws.PurposePermit {
			return nil, invalid("keys: a key for another purpose than permits cannot issue permits.")
		}
		for _, mine := range own.Keys() {
			if mine.ID == k.ID {
				return nil, invalid("keys: a key of this gateway cannot be an outside issuer's.")
			}
		}
		if k.Status == "" {
			keys[i].Status = jws.StatusActive
		}
		keys[i].Purpose = jws.PurposePermit
	}
	return keys, nil
}

func (a *api) registerIssuer(c echo.Context) error {
	var b issuerBody
	body, err := a.body(c, &b)
	if err != nil {
		return a.problem(c, err)
	}
	keys, err := a.issuerKeys(&b)
	if err != nil {
		return a.problem(c, err)
	}
	return a.administer(c, body, func(ctx context.Context, admin *ledger.Admin) (ledger.Answer, error) {
		issuer, created, err := admin.RegisterIssuer(ctx, b.Issuer, keys)
		if err != nil {
			return ledger.Answer{}, err
		}
		wire, err := issuerOf(issuer)
		if err != nil {
			return ledger.Answer{}, err
		}
		if created {
			return answer(http.StatusCreated, wire)
		}
		return answer(http.StatusOK, wire)
	})
}

func (a *api) listIssuers(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return a.problem(c, err)
	}
	p, err := pageOf(q)
	if err != nil {
		return a.problem(c, err)
	}
	issuers, err := a.ledger.Issuers(c.Request().Context(), p.after, p.ask())
	if err != nil {
		return a.problem(c, err)
	}
	var broken error
	out := listOf(p, issuers, func(i *ledger.Issuer) string { return i.Name }, func(i *ledger.Issuer) issuerWire {
		wire, err := issuerOf(i)
		if err != nil {
			broken = err
		}
		return wire
	})
	if broken != nil {
		return a.problem(c, broken)
	}
	return a.ok(c, out)
}
