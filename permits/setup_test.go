package permits_test

import (
	"bytes"
	"crypto/ed25519"
	"testing"
	"time"

	"counterfoil/internal/jws"
	"counterfoil/permits"
)

const (
	issuer   = "https://issuer.example"
	audience = "https://gateway.example"
	iat      = int64(1_790_000_000)
	nowMS    = (iat + 60) * 1000
)

// basePayload is the contract's own permit: one accepted text, of which the negative tests change one thing each.
const basePayload = `{"iss":"https://issuer.example","aud":"https://gateway.example","sub":"wal_ops","act":{"sub":"agt_buyer"},` +
	`"jti":"prm_q4","iat":1790000000,"nbf":1790000000,"exp":1790003600,"scope":"payments.write payments.read",` +
	`"authorization_details":[` + baseGrant + `]}`

const baseGrant = `{"type":"counterfoil.tool-permit.v1","tools":["payout"],` +
	`"limits":{"credits":500,"calls_total":100,"calls":{"payout":10},"credits_per_call":50,` +
	`"value":{"currency":"USD","total":500000,"per_call":100000}},` +
	`"deny_args":["/bcc","/headers/*"],` +
	`"recipient":{"domains":["vendor.example"],"subdomains":false},` +
	`"approval":{"always":false,"value_over":50000}}`

// A key's seed is one repeated byte, so that every run signs the same texts.
func signer(t testing.TB, seed byte) jws.Signer {
	t.Helper()
	s, err := jws.SignerFromKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keySet(t testing.TB, keys ...jws.Key) jws.KeySet {
	t.Helper()
	set, err := jws.NewKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func permitKey(s jws.Signer) jws.Key {
	return jws.Key{ID: s.KeyID(), Public: s.Public(), Purpose: jws.PurposePermit, Status: jws.StatusActive}
}

// sign signs any payload, well-formed or not.
func sign(t testing.TB, s jws.Signer, payload string) string {
	t.Helper()
	input := jws.SigningInput(permits.Type, s.KeyID(), []byte(payload))
	sig, err := s.Sign(input)
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + sig
}

func expect() permits.Expect {
	return permits.Expect{Issuers: []string{issuer}, Audience: audience, MaxLifetime: time.Hour}
}

func parse(t testing.TB, payload string) (*permits.Permit, error) {
	t.Helper()
	s := signer(t, 1)
	return permits.Parse(sign(t, s, payload), keySet(t, permitKey(s)), expect())
}

func ptr(n int64) *int64 { return &n }

// call is one call and all that decides on it; every test starts from an admitted one with nothing to spare.
type call struct {
	permit permits.Permit
	tool   permits.Tool
	args   string
	price  int64
	state  permits.State
}

func admitted() *call {
	return &call{
		permit: permits.Permit{
			ID: "prm_q4", Issuer: issuer, Audience: audience, Wallet: "wal_ops", Agent: "agt_buyer",
			IssuedAt: iat, NotBefore: iat, Expires: iat + 3600,
			Scopes: []string{"payments.write", "payments.read"},
			Grant: permits.Grant{
				Tools: []string{"payout"},
				Limits: permits.Limits{
					Credits: 500, CallsTotal: ptr(100), Calls: map[string]int64{"payout": 10}, CreditsPerCall: ptr(5),
					Value: &permits.ValueLimit{Currency: "USD", Total: ptr(5000), PerCall: ptr(1200)},
				},
				DenyArgs:  []string{"/bcc"},
				Recipient: &permits.Recipient{Domains: []string{"vendor.example"}},
				Approval:  &permits.Approval{ValueOver: ptr(1200)},
			},
		},
		tool: permits.Tool{
			Name: "payout", Scopes: []string{"payments.write"}, Price: 5,
			Value: &permits.ValuePointer{Pointer: "/amount", Currency: "USD"}, Recipients: []string{"/to"},
		},
		args:  `{"amount":1200,"to":"ap@vendor.example"}`,
		price: 5,
		state: permits.State{
			NowMS: nowMS, CreditsCommitted: 495, CallsTotal: 99, ToolCalls: 9, ValueCommitted: 3800, WalletAvailable: 5,
		},
	}
}

func (c *call) decide() *permits.Denial {
	return c.permit.Decide(c.permit.Fit(c.tool, []byte(c.args)), c.price, c.state)
}

func (c *call) reason() permits.Reason {
	if d := c.decide(); d != nil {
		return d.Reason
	}
	return ""
}
