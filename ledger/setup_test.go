package ledger_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/internal/testdb"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testdb.Runner(m)) }

const issuer = "http://gateway.test"

// bundle is a database with a ledger on it, one wallet and one agent.
type bundle struct {
	url     string
	ledger  *ledger.Ledger
	receipt jws.Signer
	permit  jws.Signer
	keys    jws.KeySet
}

func setup(t *testing.T, opts ...func(*ledger.Options)) *bundle {
	t.Helper()
	return setupOn(t, testdb.New(t), opts...)
}

func setupOn(t *testing.T, url string, opts ...func(*ledger.Options)) *bundle {
	t.Helper()
	b := newBundle(t, url)
	b.ledger = b.open(t, opts...)
	return b
}

func newBundle(t *testing.T, url string) *bundle {
	t.Helper()
	b := &bundle{url: url, receipt: newSigner(t, 1), permit: newSigner(t, 2)}
	keys, err := jws.NewKeySet(
		jws.Key{ID: b.receipt.KeyID(), Public: b.receipt.Public(), Purpose: jws.PurposeReceipt, Status: jws.StatusActive},
		jws.Key{ID: b.permit.KeyID(), Public: b.permit.Public(), Purpose: jws.PurposePermit, Status: jws.StatusActive},
	)
	if err != nil {
		t.Fatal(err)
	}
	b.keys = keys
	return b
}

// open opens one more ledger on the bundle's database.
func (b *bundle) open(t *testing.T, opts ...func(*ledger.Options)) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(context.Background(), b.options(opts...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (b *bundle) options(opts ...func(*ledger.Options)) ledger.Options {
	o := ledger.Options{
		Now: time.Now,
		URL: b.url, Issuer: issuer, Signer: b.receipt, Explain: explain, Lease: 15 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

func explain(e ledger.Ending) []byte {
	text, err := json.Marshal(map[string]any{"isError": true, "text": fmt.Sprintf("%+v", e)})
	if err != nil {
		panic(err)
	}
	return text
}

func newSigner(t *testing.T, seed byte) jws.Signer {
	t.Helper()
	s, err := jws.SignerFromKey(ed25519.NewKeyFromSeed(append(make([]byte, 31), seed)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (b *bundle) administer(t *testing.T, do func(context.Context, *ledger.Admin) error) {
	t.Helper()
	_, err := b.ledger.Administer(context.Background(), ledger.Act{Actor: "operator"}, func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
		return ledger.Answer{Status: 200, Body: []byte("{}")}, do(ctx, a)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) wallet(t *testing.T, id string, credits int64) {
	t.Helper()
	b.administer(t, func(ctx context.Context, a *ledger.Admin) error {
		if _, err := a.CreateWallet(ctx, id, id); err != nil {
			return err
		}
		if credits == 0 {
			return nil
		}
		_, err := a.Deposit(ctx, id, "opening", credits)
		return err
	})
}

func (b *bundle) agent(t *testing.T, id string, wallets ...string) {
	t.Helper()
	b.administer(t, func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.CreateAgent(ctx, ledger.Agent{ID: id, Name: id, Wallets: wallets})
		return err
	})
}

// grant issues a permit for the tool "payout".
func (b *bundle) grant(t *testing.T, id, wallet, agent string, limits permits.Limits) *permits.Permit {
	t.Helper()
	issued := b.issue(t, id, wallet, agent, limits)
	b.administer(t, func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.IssuePermit(ctx, issued)
		return err
	})
	return issued
}

func (b *bundle) issue(t *testing.T, id, wallet, agent string, limits permits.Limits) *permits.Permit {
	t.Helper()
	now := time.Now().Unix()
	p := &permits.Permit{
		ID: id, Issuer: issuer, Audience: issuer, Wallet: wallet, Agent: agent,
		IssuedAt: now - 10, NotBefore: now - 10, Expires: now + 3600,
		Scopes: []string{"payments.write"}, Grant: permits.Grant{Tools: []string{"payout"}, Limits: limits},
	}
	issued, err := p.Issue(b.permit, permits.Expect{Issuers: []string{issuer}, Audience: issuer, MaxLifetime: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return issued
}

var payout = permits.Tool{Name: "payout", Scopes: []string{"payments.write"}, Price: 5, Value: &permits.ValuePointer{Pointer: "/amount", Currency: "USD"}}

// claim is a payout of amount under a key.
func claim(t testing.TB, p *permits.Permit, key string, amount int64) *ledger.Claim {
	t.Helper()
	args, err := canon.Canonical(fmt.Appendf(nil, `{"to":"ap@vendor.example","amount":%d}`, amount))
	if err != nil {
		t.Fatal(err)
	}
	return &ledger.Claim{
		Wallet: p.Wallet, Key: key, KeySource: "context", Agent: p.Agent, Permit: p, Tool: "payout",
		ToolSHA256: canon.SHA256Hex([]byte("payout")), RequestHash: sha256.Sum256(args), Arguments: args,
		Fit: p.Fit(payout, args), Price: payout.Price,
	}
}

func succeeded(g *ledger.Granted) *ledger.Settlement {
	return &ledger.Settlement{
		Granted: g, Outcome: receipts.Succeeded, Charged: payout.Price, KeepCall: true, KeepValue: true,
		Result: []byte(`{"content":[{"type":"text","text":"paid"}]}`),
	}
}

// fsck fails the test unless the whole database holds every invariant.
func (b *bundle) fsck(t *testing.T) *ledger.FsckReport {
	t.Helper()
	report, err := ledger.Fsck(context.Background(), b.url, b.keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	if report.FirstFault != nil {
		t.Fatal(report.FirstFault)
	}
	return report
}

// race runs n copies of f at once and waits for them.
func race(n int, f func(i int)) {
	var started atomic.Int64
	gate := make(chan struct{})
	done := make(chan struct{})
	for i := range n {
		go func() {
			if started.Add(1) == int64(n) {
				close(gate)
			}
			<-gate
			f(i)
			done <- struct{}{}
		}()
	}
	for range n {
		<-done
	}
}

func ptr[T any](v T) *T { return &v }
