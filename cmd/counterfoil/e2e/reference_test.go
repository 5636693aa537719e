package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"counterfoil/internal/testdb"
)

// referencedTools name their effect by an argument; flaky's is its mode, so that each outcome has a reference.
const referencedTools = `
  - {name: payout, upstream: payments, credits: 5, scopes: [payments.write], operation_ref: /invoice_id}
  - {name: metered, upstream: payments, upstream_tool: payout, credits: 1, operation_ref: /invoice_id}
  - {name: refund, upstream: payments, credits: 1, operation_ref: /amount}
  - {name: flaky, upstream: payments, credits: 4, operation_ref: /mode}
  - {name: send_email, upstream: payments, credits: 1}`

func newReferencedSystem(t *testing.T) *system {
	t.Helper()
	return newSystemWith(t, fmt.Sprintf("database: {url: %q}", testdb.New(t)), "", referencedTools)
}

// invoice is a payout for an invoice, which is raw JSON.
func (x tenant) invoice(key, invoice string) call {
	c := x.payout(key)
	c.args = fmt.Sprintf(`{"to":"%svendor.example","amount":1200,"invoice_id":%s}`, x.marker(), invoice)
	return c
}

func (x tenant) flaky(key, mode string) call {
	return call{tool: "flaky", args: fmt.Sprintf(`{"mode":%q}`, mode), wallet: x.wallet, permit: x.permit, key: key}
}

// duplicate wants a call to be denied because of another operation, which its receipt names.
func (x tenant) duplicate(t *testing.T, what string, a answer, first string) {
	t.Helper()
	if a.status != http.StatusOK || a.meta.Outcome != "denied" || a.reason() != "operation_ref_reused" || a.meta.Retry != "check" || *a.meta.Charged != 0 {
		t.Errorf("%s: not denied for its reference: %s", what, a)
		return
	}
	r := x.s.receipt(t, a)
	if r.Detail == nil || r.Detail.OperationID != first || !strings.Contains(strings.Join(a.text, " "), first) {
		t.Errorf("%s: the first was %s: %+v, %s", what, first, r.Detail, a)
	}
}

// verified gives an answer's bundle to the offline verifier.
func (s *system) verified(t *testing.T, a answer, require string) {
	t.Helper()
	dir := t.TempDir()
	trust, bundle := filepath.Join(dir, "jwks.json"), filepath.Join(dir, "a.bundle.json")
	writeFile(t, trust, string(s.published(t)))
	writeFile(t, bundle, string(s.download(t, "/v1/receipts/"+a.meta.ReceiptID+"/bundle", "application/vnd.counterfoil.bundle+json")))
	if status, out := program(t, "counterfoil-verify", "--trust", trust, "--issuer", s.url, "--require", require, bundle); status != 0 {
		t.Errorf("the bundle: status %d: %s", status, out)
	}
}

// TestReferenceInUse: while an operation may have acted, no other key does it again; what did not act is no hindrance.
func TestReferenceInUse(t *testing.T) {
	t.Parallel()
	s := newReferencedSystem(t)
	x := s.newTenant(t, 1000, anything())

	// While it runs, and when it has succeeded; also after a restart.
	release := s.tool.keep("INV-1")
	running := make(chan answer, 1)
	go func() {
		a, err := x.try(s.url, x.invoice("k1", `"INV-1"`))
		if err != nil {
			t.Error(err)
		}
		running <- a
	}()
	eventually(t, "the effect", func() bool { return len(s.tool.effects(t, "INV-1")) == 1 })
	second := x.do(t, x.invoice("k2", `"INV-1"`))
	release()
	first := receive(t, running, "the first answer")
	x.duplicate(t, "running", second, first.meta.Operation)
	s.verified(t, second, "permit,content")
	x.duplicate(t, "succeeded", x.do(t, x.invoice("k3", `"INV-1"`)), first.meta.Operation)
	s.restart(t)
	x.duplicate(t, "after a restart", x.do(t, x.invoice("k4", `"INV-1"`)), first.meta.Operation)
	if again := x.do(t, x.invoice("k2", `"INV-1"`)); !again.replayed() || string(again.result) != string(second.result) {
		t.Errorf("the denial again: %s", again)
	}
	if again := x.do(t, x.invoice("k1", `"INV-1"`)); !again.replayed() || again.meta.Outcome != "succeeded" {
		t.Errorf("the first again: %s", again)
	}

	// What may have acted holds its reference, what was refused does not.
	for i, c := range []struct {
		mode, reason string
		held         bool
	}{{"drop", "no_response", true}, {"500", "upstream_error", true}, {"error", "tool_error", true}, {"?", "upstream_rejected", false}} {
		a := x.do(t, x.flaky(fmt.Sprint("f", i), c.mode))
		if a.reason() != c.reason {
			t.Fatalf("%s: %s", c.mode, a)
		}
		b := x.do(t, x.flaky(fmt.Sprint("g", i), c.mode))
		if c.held {
			x.duplicate(t, c.reason, b, a.meta.Operation)
		} else if b.reason() != c.reason {
			t.Errorf("%s: not free: %s", c.reason, b)
		}
	}
	if n := len(s.tool.effects(t, "mode")); n != 2 {
		t.Errorf("%d effects of flaky, want one of each mode that acts", n)
	}

	// Others are others: reference, tool, wallet.
	x.succeed(t, x.invoice("k5", `"inv-1"`))
	other := x.invoice("k6", `"INV-1"`)
	other.tool = "metered"
	x.succeed(t, other)
	y := s.newTenant(t, 100, anything())
	y.succeed(t, y.invoice("k1", `"INV-1"`))
	colleague := x.colleague(t)
	x.duplicate(t, "another agent of the wallet", colleague.do(t, colleague.invoice("k7", `"INV-1"`)), first.meta.Operation)
	if n := len(s.tool.effects(t, `"INV-1"`)); n != 3 {
		t.Errorf("%d effects of the invoice, want one for each tool and wallet", n)
	}
}

// TestReferenceOfWhatWasNotSent: a denial, and a tool that could not be reached, leave the reference free.
func TestReferenceOfWhatWasNotSent(t *testing.T) {
	t.Parallel()
	s := newReferencedSystem(t)
	x := s.newTenant(t, 1000, anything())
	poor := x
	poor.permit = x.issue(t, terms{grant: object{"tools": []string{"payout"}, "limits": object{"credits": 4}}})
	if a := poor.do(t, poor.invoice("k1", `"INV-1"`)); a.reason() != "permit_credits_exceeded" {
		t.Fatalf("not denied: %s", a)
	}

	address := s.tool.server.Listener.Addr().String()
	_ = s.tool.server.Listener.Close()
	s.tool.server.CloseClientConnections()
	tries := 0
	eventually(t, "an unreachable tool", func() bool { // a connection that was open may still take a call
		tries++
		mail := call{tool: "send_email", args: `{"to":"a@b.example","subject":"","body":""}`, wallet: x.wallet, permit: x.permit, key: fmt.Sprint("m", tries)}
		return x.do(t, mail).reason() == "upstream_unreachable"
	})
	if a := x.do(t, x.invoice("k2", `"INV-1"`)); a.reason() != "upstream_unreachable" {
		t.Fatalf("not unreachable: %s", a)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() { _ = s.tool.server.Config.Serve(listener) }()
	a := x.succeed(t, x.invoice("k3", `"INV-1"`))
	x.duplicate(t, "after all", x.do(t, x.invoice("k4", `"INV-1"`)), a.meta.Operation)
	// Who may not make the call learns of the permit, and nothing of the invoice.
	if b := poor.do(t, poor.invoice("k5", `"INV-1"`)); b.reason() != "permit_credits_exceeded" || strings.Contains(string(b.body), a.meta.Operation) {
		t.Errorf("a permit that does not allow it: %s", b)
	}
	s.revoke(t, poor.permit)
	if b := poor.do(t, poor.invoice("k6", `"INV-1"`)); b.reason() != "permit_revoked" {
		t.Errorf("a revoked permit: %s", b)
	}
}

// TestRacersOnOneReference: fifty keys, two gateways, one invoice.
func TestRacersOnOneReference(t *testing.T) {
	t.Parallel()
	const racers = 50
	s := newReferencedSystem(t)
	_, second := s.second(t)
	urls := []string{s.url, second}
	x := s.newTenant(t, 1000, anything())
	answers := s.together(t, racers, func(i int) (answer, error) {
		return x.try(urls[i%2], x.invoice(fmt.Sprintf("k%d", i), `"INV-1"`))
	})
	var winner answer
	for _, a := range answers {
		if a.meta.Outcome == "succeeded" {
			if winner.meta.Operation != "" {
				t.Errorf("two succeeded: %s\n%s", winner, a)
			}
			winner = a
		}
	}
	if winner.meta.Operation == "" {
		t.Fatal("nobody succeeded")
	}
	for i, a := range answers {
		if a.meta.Operation != winner.meta.Operation {
			x.duplicate(t, fmt.Sprintf("racer %d", i), a, winner.meta.Operation)
		}
	}
	want := state{Balance: 995, Available: 995, Spent: 5, Calls: 1, Charges: 1, Receipts: racers, Operations: racers, Effects: 1}
	unchanged(t, "after the race", want, x.state(t))
}

// TestReferenceValues: a number and a string that look alike are one reference; what is no reference is refused, and
// nothing is stored of it.
func TestReferenceValues(t *testing.T) {
	t.Parallel()
	s := newReferencedSystem(t)
	x := s.newTenant(t, 1000, anything())
	first := x.succeed(t, x.invoice("k1", `"4417"`))
	for i, same := range []string{`4417`, `4417.0`, `4.417e3`, `"\u0034417"`} {
		x.duplicate(t, same, x.do(t, x.invoice(fmt.Sprint("s", i), same)), first.meta.Operation)
	}
	x.succeed(t, x.invoice("k2", `"4417.0"`)) // a string is taken verbatim
	x.succeed(t, x.invoice("k3", `" 4417"`))
	x.succeed(t, x.invoice("k4", `"`+strings.Repeat("é", 256)+`"`))
	refund := call{tool: "refund", args: `{"invoice_id":"i","amount":70}`, wallet: x.wallet, permit: x.permit, key: "r1"}
	number := x.succeed(t, refund)
	refund.key, refund.args = "r2", `{"invoice_id":"i","amount":"70"}`
	x.duplicate(t, "a string after a number", x.do(t, refund), number.meta.Operation)

	before := x.state(t)
	bad := []string{`null`, `true`, `{}`, `[]`, `["INV-2"]`, `""`, `"  "`, `"\u00a0"`, `"a\u0001b"`, `"a\u0085b"`, `"` + strings.Repeat("é", 257) + `"`}
	for i, value := range bad {
		x.invalidReference(t, value, x.invoice(fmt.Sprint("b", i), value))
	}
	x.invalidReference(t, "none", x.payout("b-none"))
	strange := x.invoice("b-order", `null`)
	strange.permit = "prm_nothing"
	if a := x.do(t, strange); a.reason() != "permit_not_found" {
		t.Errorf("whose permit it is counts first: %s", a)
	}
	unchanged(t, "after what is no reference", before, x.state(t))
	x.succeed(t, x.invoice("b0", `"INV-2"`)) // its key was not used
	for _, tool := range s.operator(t, http.MethodGet, "/v1/tools", nil, http.StatusOK).list(t, "items") {
		if want := map[string]any{"payout": "/invoice_id", "metered": "/invoice_id", "refund": "/amount", "flaky": "/mode"}[tool["name"].(string)]; tool["operation_ref"] != want {
			t.Errorf("the catalogue says %v", tool)
		}
	}
}

func (x tenant) invalidReference(t *testing.T, what string, c call) {
	t.Helper()
	a := x.do(t, c)
	if a.refusal == nil || a.refusal.Code != -31400 || a.reason() != "arguments_invalid" || a.refusal.Data.Retry != "never" || !strings.Contains(a.refusal.Message, "/invoice_id") {
		t.Errorf("%s: %s", what, a)
	}
}
