package operator

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/ledger"
)

// StatementType is the typ of a signed wallet statement.
const StatementType = "vnd.counterfoil.wallet-statement+jwt"

// statementClaims is what the gateway signs. Checkpoint is null until there is a transparency log.
type statementClaims struct {
	Version    int              `json:"v"`
	Issuer     string           `json:"iss"`
	IssuedAt   int64            `json:"iat"`
	Wallet     string           `json:"wallet"`
	FromSeq    int64            `json:"from_seq"`
	ToSeq      int64            `json:"to_seq"`
	Count      int64            `json:"count"`
	Head       string           `json:"head"`
	Opening    int64            `json:"opening"`
	Deposited  int64            `json:"deposited"`
	Charged    int64            `json:"charged_total"`
	Closing    int64            `json:"closing"`
	Outcomes   map[string]int64 `json:"outcomes"`
	OpenedMS   int64            `json:"opened_ms"`
	ClosedMS   int64            `json:"closed_ms"`
	Checkpoint *string          `json:"checkpoint"`
}

type statementWire struct {
	Wallet    string         `json:"wallet_id"`
	JWS       string         `json:"jws"`
	Statement jsontext.Value `json:"statement"`
}

func (a *api) getStatement(c echo.Context) error {
	q, err := query(c, "from_seq", "to_seq")
	if err != nil {
		return a.problem(c, err)
	}
	from, to := int64(1), int64(0)
	for name, into := range map[string]*int64{"from_seq": &from, "to_seq": &to} {
		if text := q.Get(name); text != "" {
			if *into, err = integer(text); err != nil || *into < 1 {
				return a.problem(c, invalid("%s must be an integer of at least 1.", name))
			}
		}
	}
	statement, err := a.ledger.Statement(c.Request().Context(), c.Param("id"), from, to)
	if err != nil {
		return a.problem(c, err)
	}
	wire, err := a.signStatement(statement)
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, wire)
}

func (a *api) signStatement(s *ledger.Statement) (*statementWire, error) {
	outcomes := make(map[string]int64, len(s.Outcomes))
	for outcome, n := range s.Outcomes {
		outcomes[string(outcome)] = n
	}
	text, err := encode(statementClaims{
		Version: 1, Issuer: a.g.Config().Issuer, IssuedAt: s.AsOf.Unix(), Wallet: s.Wallet,
		FromSeq: s.FromSeq, ToSeq: s.ToSeq, Count: s.Count, Head: s.Head,
		Opening: s.Opening, Deposited: s.Deposited, Charged: s.Charged, Closing: s.Closing,
		Outcomes: outcomes, OpenedMS: s.OpenedAt.UnixMilli(), ClosedMS: s.ClosedAt.UnixMilli(),
	})
	if err != nil {
		return nil, err
	}
	payload, err := canon.Canonical(text)
	if err != nil {
		return nil, err
	}
	signer, err := a.g.Keyring().Active(jws.PurposeReceipt)
	if err != nil {
		return nil, err
	}
	input := jws.SigningInput(StatementType, signer.KeyID(), payload)
	signature, err := signer.Sign(input)
	if err != nil {
		return nil, err
	}
	return &statementWire{Wallet: s.Wallet, JWS: input + "." + signature, Statement: payload}, nil
}
