package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"counterfoil/verify"
)

// step is one thing that the demo shows. It says in plain words what held, or why it did not.
type step struct {
	title string
	do    func(context.Context) (string, error)
}

// take does a step and prints how it went; after one that did not hold, nothing that follows would mean anything.
func (a *app) take(ctx context.Context, s step) error {
	said, err := s.do(ctx)
	if err != nil {
		fmt.Fprintf(a.out, "✗ %-22s %s\n", s.title, err)
		return fmt.Errorf("the demo stopped at %q: %w", s.title, err)
	}
	fmt.Fprintf(a.out, "✓ %-22s %s\n", s.title, said)
	return nil
}

const (
	demoDeposit = 100
	demoPrice   = 5
	demoCredits = 50
	vendor      = "ap@vendor.example"
	stranger    = "ap@evil.example"
)

// story is one run: its own wallet, agent and permit, so that a run never meets an earlier one.
type story struct {
	wallet, agent, permit, key, apiKey string

	operator *remote
	before   int // effects in the tool's journal when the story began
	call     governed
	denied   governed
	bundle   string // file
	trust    string // file
}

// governed is an answer to tools/call, as far as the demo looks at it.
type governed struct {
	raw      json.RawMessage // the result, byte for byte
	replayed bool
	outcome  string
	reason   string
	receipt  string
	charged  int64
}

func (d *demo) tell(ctx context.Context) error {
	run := randomHex(3)
	d.story = story{
		wallet: "wal_demo_" + run, agent: "agt_demo_" + run, permit: "prm_demo_" + run, key: "invoice-4417-" + run,
		operator: &remote{
			a:      &app{env: map[string]string{"COUNTERFOIL_TOKEN": d.config.Tokens.Operator.Reveal()}, out: io.Discard, errOut: io.Discard},
			server: d.config.Issuer,
		},
		before: len(d.tool.Effects()),
	}
	d.node.gateway.WaitCatalogue(ctx)
	for _, s := range []step{
		{"a wallet", d.makeWallet},
		{"an agent", d.makeAgent},
		{"a permit", d.makePermit},
		{"a governed call", d.callOnce},
		{"the same call again", d.callAgain},
		{"one debit", d.oneDebit},
		{"one effect", d.oneEffect},
		{"a call it may not make", d.callDenied},
		{"a bundle", d.exportBundle},
		{"an offline check", d.checkOffline},
	} {
		if err := d.app.take(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) makeWallet(ctx context.Context) (string, error) {
	s := &d.story
	if _, err := s.operator.ask(ctx, http.MethodPost, "/v1/wallets", nil, object{"id": s.wallet, "name": "Demo"}); err != nil {
		return "", err
	}
	body := object{"credits": demoDeposit, "reference": "demo"}
	o, err := s.operator.ask(ctx, http.MethodPost, "/v1/wallets/"+s.wallet+"/deposits", nil, body)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s holds %s credits", s.wallet, shown(o["balance"])), nil
}

func (d *demo) makeAgent(ctx context.Context) (string, error) {
	s := &d.story
	body := object{"id": s.agent, "name": "Demo agent", "wallets": []string{s.wallet}, "default_wallet_id": s.wallet}
	if _, err := s.operator.ask(ctx, http.MethodPost, "/v1/agents", nil, body); err != nil {
		return "", err
	}
	o, err := s.operator.ask(ctx, http.MethodPost, "/v1/agents/"+s.agent+"/keys", nil, object{})
	if err != nil {
		return "", err
	}
	s.apiKey, _ = o["key"].(string)
	if s.apiKey == "" {
		return "", errors.New("the gateway gave no API key")
	}
	return s.agent + " has an API key", nil
}

func (d *demo) makePermit(ctx context.Context) (string, error) {
	s := &d.story
	_, err := s.operator.ask(ctx, http.MethodPost, "/v1/permits", nil, object{
		"id": s.permit, "wallet_id": s.wallet, "agent_id": s.agent, "scope": "payments.write",
		"expires_at": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339),
		"grant": object{
			"tools":     []string{"payout"},
			"limits":    object{"credits": demoCredits, "value": object{"currency": "USD", "per_call": 100000}},
			"recipient": object{"domains": []string{"vendor.example"}, "subdomains": false},
		},
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: payout only, %d credits in all, 1000.00 USD a call, to vendor.example only, for a day", s.permit, demoCredits), nil
}

// callBody is what an agent sends, in the order in which people read it.
func (s *story) callBody(key, to string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"request-%s","method":"tools/call","params":{`+
		`"name":"payout","arguments":{"to":%q,"amount":1200},`+
		`"mcpContext":{"wallet_id":%q,"permit_id":%q,"idempotency_key":%q}}}`, randomHex(2), to, s.wallet, s.permit, key)
}

func (d *demo) governedCall(ctx context.Context, key, to string) (governed, error) {
	body := strings.NewReader(d.story.callBody(key, to))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.config.Issuer+"/mcp/messages", body)
	if err != nil {
		return governed{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("X-Api-Key", d.story.apiKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return governed{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return governed{}, err
	}
	g, err := readGoverned(data)
	g.replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	return g, err
}

func readGoverned(data []byte) (governed, error) {
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  *struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return governed{}, fmt.Errorf("the answer is not JSON-RPC: %w", err)
	}
	if answer.Error != nil {
		return governed{}, errors.New(answer.Error.Message)
	}
	var result struct {
		Meta struct {
			Outcome string `json:"counterfoil/outcome"`
			Reason  string `json:"counterfoil/reason"`
			Receipt string `json:"counterfoil/receipt_id"`
			Charged int64  `json:"counterfoil/credits_charged"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(answer.Result, &result); err != nil {
		return governed{}, fmt.Errorf("the answer has no result: %w", err)
	}
	m := result.Meta
	return governed{raw: answer.Result, outcome: m.Outcome, reason: m.Reason, receipt: m.Receipt, charged: m.Charged}, nil
}

func (d *demo) callOnce(ctx context.Context) (string, error) {
	g, err := d.governedCall(ctx, d.story.key, vendor)
	switch {
	case err != nil:
		return "", err
	case g.outcome != "succeeded" || g.charged != demoPrice || g.replayed || g.receipt == "":
		return "", fmt.Errorf("%s (%s), %d credits, receipt %q", g.outcome, g.reason, g.charged, g.receipt)
	}
	d.story.call = g
	return fmt.Sprintf("payout of 12.00 USD to %s: succeeded, %d credits, receipt %s", vendor, g.charged, g.receipt), nil
}

func (d *demo) callAgain(ctx context.Context) (string, error) {
	g, err := d.governedCall(ctx, d.story.key, vendor)
	switch {
	case err != nil:
		return "", err
	case !g.replayed:
		return "", errors.New("it was not answered from what is stored")
	case g.receipt != d.story.call.receipt:
		return "", fmt.Errorf("another receipt: %s", g.receipt)
	case !bytes.Equal(g.raw, d.story.call.raw):
		return "", errors.New("the result is not the same, byte for byte")
	}
	return "Idempotent-Replayed: the same result byte for byte, the same receipt", nil
}

func (d *demo) oneDebit(ctx context.Context) (string, error) {
	s := &d.story
	o, err := s.operator.ask(ctx, http.MethodGet, "/v1/wallets/"+s.wallet, nil, nil)
	if err != nil {
		return "", err
	}
	want := fmt.Sprint(demoDeposit - demoPrice)
	if shown(o["balance"]) != want || shown(o["held"]) != "0" {
		return "", fmt.Errorf("balance %s, held %s, where %s and 0 would be right", shown(o["balance"]), shown(o["held"]), want)
	}
	transfers, err := s.operator.list(ctx, "/v1/wallets/"+s.wallet+"/transfers", nil, pageSize)
	if err != nil {
		return "", err
	}
	if len(transfers) != 2 {
		return "", fmt.Errorf("%d transfers, where one deposit and one charge would be right", len(transfers))
	}
	return fmt.Sprintf("one transfer of %d credits; %d of %d are left, none held", demoPrice, demoDeposit-demoPrice, demoDeposit), nil
}

func (d *demo) oneEffect(context.Context) (string, error) {
	if n := len(d.tool.Effects()) - d.story.before; n != 1 {
		return "", fmt.Errorf("the tool's journal has %d payouts of this run", n)
	}
	return "the tool's own journal has one payout of this run", nil
}

func (d *demo) callDenied(ctx context.Context) (string, error) {
	g, err := d.governedCall(ctx, d.story.key+"-b", stranger)
	switch {
	case err != nil:
		return "", err
	case g.outcome != "denied" || g.reason != "permit_recipient_not_allowed" || g.charged != 0 || g.receipt == "":
		return "", fmt.Errorf("%s (%s), %d credits, receipt %q", g.outcome, g.reason, g.charged, g.receipt)
	}
	if n := len(d.tool.Effects()) - d.story.before; n != 1 {
		return "", errors.New("it reached the tool")
	}
	d.story.denied = g
	return fmt.Sprintf("payout to %s: denied (%s), 0 credits, no effect, receipt %s", stranger, g.reason, g.receipt), nil
}

// exportBundle saves what an auditor needs: the bundles, and the keys to judge them by.
func (d *demo) exportBundle(ctx context.Context) (string, error) {
	s := &d.story
	out := filepath.Join(d.dir, "receipts")
	if err := os.MkdirAll(out, 0o700); err != nil {
		return "", err
	}
	s.trust = filepath.Join(out, "trust.json")
	s.bundle = filepath.Join(out, s.wallet+".bundle.json")
	if err := os.WriteFile(s.trust, d.keys.Public().JWKS(), 0o600); err != nil {
		return "", err
	}
	if err := s.operator.download(ctx, "/v1/receipts/"+s.call.receipt+"/bundle", nil, s.bundle); err != nil {
		return "", err
	}
	second := strings.TrimSuffix(s.bundle, ".bundle.json") + ".denied.bundle.json"
	if err := s.operator.download(ctx, "/v1/receipts/"+s.denied.receipt+"/bundle", nil, second); err != nil {
		return "", err
	}
	return "receipt, permit, keys and content, in " + s.bundle, nil
}

// checkOffline judges the files alone, and then one that was changed, which must not pass.
func (d *demo) checkOffline(context.Context) (string, error) {
	s := &d.story
	keys, err := os.ReadFile(s.trust)
	if err != nil {
		return "", err
	}
	var trust verify.Trust
	if err := trust.Add(s.trust, keys); err != nil {
		return "", err
	}
	data, err := os.ReadFile(s.bundle)
	if err != nil {
		return "", err
	}
	v := verify.New(verify.Options{Trust: &trust, Issuer: d.config.Issuer, Require: []string{"permit", "content"}})
	if verdict := v.Judge(verify.Entry{File: s.bundle, Data: data}); verdict.State != verify.Valid {
		return "", fmt.Errorf("the bundle is %s: %+v", verdict.State, verdict.Checks)
	}
	bent := slices.Clone(data)
	at := bytes.Index(bent, []byte(`"receipt":"`)) + len(`"receipt":"`) + 200
	bent[at] ^= 1
	if verdict := v.Judge(verify.Entry{File: "a changed copy", Data: bent}); verdict.State == verify.Valid {
		return "", errors.New("a copy with one changed bit passes too")
	}
	return "valid; a copy with one bit changed is not\n" + strings.Repeat(" ", 25) +
		fmt.Sprintf("counterfoil-verify --trust %s --issuer %s %s", s.trust, d.config.Issuer, s.bundle), nil
}

// invite prints what to try next.
func (d *demo) invite() {
	s := &d.story
	fmt.Fprintf(d.app.out, `
Every step held. The gateway keeps serving; Ctrl-C ends it. Try, twice:

curl -si %s/mcp/messages \
  -H 'Content-Type: application/json' -H 'X-API-Key: %s' \
  -d '%s'

And look at it as its operator:

export COUNTERFOIL_SERVER=%s COUNTERFOIL_TOKEN=$(cat %s)
counterfoil wallet get %s
counterfoil receipt list --wallet %s
`, d.config.Issuer, s.apiKey, s.callBody("invoice-4418", vendor), d.config.Issuer, filepath.Join(d.dir, "operator.token"), s.wallet, s.wallet)
}
