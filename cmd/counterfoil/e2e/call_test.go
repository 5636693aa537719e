package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// answer is what came back to one POST.
type answer struct {
	status int
	header http.Header
	body   []byte

	id      json.RawMessage
	result  json.RawMessage // byte for byte
	isError bool
	text    []string // of the text blocks
	meta    meta
	refusal *refusal
}

// meta are our members of a result's _meta.
type meta struct {
	Operation string `json:"counterfoil/operation_id"`
	Outcome   string `json:"counterfoil/outcome"`
	Reason    string `json:"counterfoil/reason"`
	Retry     string `json:"counterfoil/retry"`
	ReceiptID string `json:"counterfoil/receipt_id"`
	Receipt   string `json:"counterfoil/receipt"`
	Charged   *int64 `json:"counterfoil/credits_charged"`

	Resolution string `json:"counterfoil/resolution"`
}

// refusal is a JSON-RPC error.
type refusal struct {
	Code    int
	Message string
	Data    struct{ Reason, Retry string }
}

// reason is why nothing was done, in whichever form it was said.
func (a answer) reason() string {
	if a.refusal != nil {
		return a.refusal.Data.Reason
	}
	return a.meta.Reason
}

func (a answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

func (a answer) String() string {
	return fmt.Sprintf("HTTP %d %s", a.status, tail(string(a.body), 3000))
}

func read(resp *http.Response) (answer, error) {
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	var err error
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return a, err
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return a, nil
	}
	var envelope struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  *refusal
	}
	if err := json.Unmarshal(a.body, &envelope); err != nil {
		return a, fmt.Errorf("%w: %s", err, a.body)
	}
	a.id, a.result, a.refusal = envelope.ID, envelope.Result, envelope.Error
	if a.result == nil {
		return a, nil
	}
	var result struct {
		Content []struct{ Type, Text string }
		IsError bool
		Meta    meta `json:"_meta"`
	}
	if err := json.Unmarshal(a.result, &result); err != nil {
		return a, fmt.Errorf("%w: %s", err, a.result)
	}
	for _, block := range result.Content {
		if block.Type == "text" {
			a.text = append(a.text, block.Text)
		}
	}
	a.isError, a.meta = result.IsError, result.Meta
	return a, nil
}

// send posts a body as an agent; pairs are more headers, of which an empty value takes one away.
func (s *system) send(ctx context.Context, client *http.Client, url, key, body string, pairs ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", key)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			req.Header.Del(pairs[i])
			continue
		}
		req.Header.Add(pairs[i], pairs[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	return read(resp)
}

func (s *system) post(t *testing.T, key, body string, pairs ...string) answer {
	t.Helper()
	a, err := s.send(context.Background(), s.client, s.url+"/mcp/messages", key, body, pairs...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// call is one tools/call. Empty members are left out of it.
type call struct {
	id             string // raw JSON; "1"
	tool           string
	args           string // raw JSON
	wallet, permit string
	key            string
}

func (c call) body() string {
	if c.id == "" {
		c.id = "1"
	}
	named := object{}
	for member, value := range map[string]string{"wallet_id": c.wallet, "permit_id": c.permit, "idempotency_key": c.key} {
		if value != "" {
			named[member] = value
		}
	}
	text, _ := json.Marshal(named)
	tool, _ := json.Marshal(c.tool)
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s,"arguments":%s,"mcpContext":%s}}`, c.id, tool, c.args, text)
}

// payout is the tenant's usual call: 12.00 USD to an address that marks it as this tenant's.
func (x tenant) payout(key string) call {
	return call{tool: "payout", args: x.payoutArgs(), wallet: x.wallet, permit: x.permit, key: key}
}

func (x tenant) payoutArgs() string {
	return fmt.Sprintf(`{"to":"%svendor.example","amount":1200}`, x.marker())
}

func (x tenant) do(t *testing.T, c call, pairs ...string) answer {
	t.Helper()
	return x.s.post(t, x.key, c.body(), pairs...)
}

// succeed makes a call that must succeed.
func (x tenant) succeed(t *testing.T, c call, pairs ...string) answer {
	t.Helper()
	a := x.do(t, c, pairs...)
	if a.status != http.StatusOK || a.meta.Outcome != "succeeded" || a.isError || a.replayed() {
		t.Fatalf("the call did not succeed: %s", a)
	}
	return a
}

// unchanged fails the test where two states differ.
func unchanged(t *testing.T, what string, want, got state) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
