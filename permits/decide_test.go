package permits_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/permits"
)

// faults are in the contract's order of verdicts. Each changes what no other one changes, so that any two can be
// present at once.
func faults() []struct {
	name   string
	reason permits.Reason
	add    func(*call)
} {
	return []struct {
		name   string
		reason permits.Reason
		add    func(*call)
	}{
		{"revoked", permits.ReasonRevoked, func(c *call) { c.state.Revoked = true }},
		{"not yet valid", permits.ReasonNotYetValid, func(c *call) { c.permit.NotBefore = nowMS/1000 + 1 }},
		{"expired", permits.ReasonExpired, func(c *call) { c.permit.Expires = nowMS / 1000 }},
		{"tool", permits.ReasonToolNotAllowed, func(c *call) { c.permit.Grant.Tools = []string{"refund"} }},
		{"scope", permits.ReasonScopeMissing, func(c *call) { c.permit.Scopes = []string{"payments.read"} }},
		{"argument", permits.ReasonArgumentForbidden, func(c *call) { c.permit.Grant.DenyArgs = []string{"/bcc", "amount"} }},
		{"recipient", permits.ReasonRecipientNotAllowed, func(c *call) { c.permit.Grant.Recipient.Domains[0] = "other.example" }},
		{"calls in all", permits.ReasonCallsExceeded, func(c *call) { c.state.CallsTotal++ }},
		{"calls of the tool", permits.ReasonCallsExceeded, func(c *call) { c.state.ToolCalls++ }},
		{"value missing", permits.ReasonValueMissing, func(c *call) { c.permit.Grant.Limits.Value.Currency = "EUR" }},
		{"value per call", permits.ReasonValueExceeded, func(c *call) { c.permit.Grant.Limits.Value.PerCall = ptr(1199) }},
		{"value in all", permits.ReasonValueExceeded, func(c *call) { c.state.ValueCommitted++ }},
		{"credits per call", permits.ReasonCreditsExceeded, func(c *call) { c.permit.Grant.Limits.CreditsPerCall = ptr(4) }},
		{"credits of the permit", permits.ReasonCreditsExceeded, func(c *call) { c.state.CreditsCommitted++ }},
		{"wallet frozen", permits.ReasonWalletFrozen, func(c *call) { c.state.WalletFrozen = true }},
		{"credits of the wallet", permits.ReasonWalletCreditsInsufficient, func(c *call) { c.state.WalletAvailable-- }},
		{"approval", permits.ReasonApprovalRequired, func(c *call) { c.permit.Grant.Approval.Always = true }},
	}
}

func TestVerdictsAndTheirOrder(t *testing.T) {
	t.Parallel()
	if d := admitted().decide(); d != nil {
		t.Fatalf("the call without a fault is denied: %+v", d)
	}
	all := faults()
	for i, first := range all {
		t.Run(first.name, func(t *testing.T) {
			t.Parallel()
			c := admitted()
			first.add(c)
			if got := c.reason(); got != first.reason {
				t.Errorf("alone: %q, want %q", got, first.reason)
			}
			for _, second := range all[i+1:] {
				c := admitted()
				second.add(c)
				first.add(c)
				if got := c.reason(); got != first.reason {
					t.Errorf("with %s: %q, want %q", second.name, got, first.reason)
				}
			}
			// All later faults together change nothing either.
			c = admitted()
			for _, later := range all[i:] {
				later.add(c)
			}
			if got := c.reason(); got != first.reason {
				t.Errorf("with all later faults: %q, want %q", got, first.reason)
			}
		})
	}
}

func TestFaultsCoverEveryReason(t *testing.T) {
	t.Parallel()
	seen := map[permits.Reason]bool{}
	for _, f := range faults() {
		seen[f.reason] = true
	}
	if len(seen) != 14 {
		t.Errorf("the table of verdicts has %d of 14 reasons", len(seen))
	}
}

func TestWindowIsHalfOpenInMilliseconds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		iat, nbf, exp int64
		nowMS         int64
		want          permits.Reason
	}{
		{"a millisecond before nbf", 50, 100, 200, 99_999, permits.ReasonNotYetValid},
		{"at nbf", 50, 100, 200, 100_000, ""},
		{"last millisecond", 50, 100, 200, 199_999, ""},
		{"at exp", 50, 100, 200, 200_000, permits.ReasonExpired},
		{"issued in the future", 101, 100, 200, 100_999, permits.ReasonNotYetValid},
		{"at iat", 101, 100, 200, 101_000, ""},
		{"from the beginning of time", 0, 0, 1, 0, ""},
		{"before the beginning of time", 0, 0, 1, -1, permits.ReasonNotYetValid},
		{"largest exp", 0, 0, permits.MaxInteger, nowMS, ""},
		{"largest nbf", 0, permits.MaxInteger - 1, permits.MaxInteger, 1<<63 - 1, permits.ReasonExpired},
		{"largest nbf, later", 0, permits.MaxInteger - 1, permits.MaxInteger, nowMS, permits.ReasonNotYetValid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := admitted()
			c.permit.IssuedAt, c.permit.NotBefore, c.permit.Expires = tc.iat, tc.nbf, tc.exp
			c.state.NowMS = tc.nowMS
			if got := c.reason(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNumericDenialsSayWhatWasLeft(t *testing.T) {
	t.Parallel()
	const top = permits.MaxInteger
	for _, tc := range []struct {
		name string
		set  func(*call)
		want *permits.Denial
	}{
		{"calls in all", func(c *call) { c.state.CallsTotal = 100 }, &permits.Denial{Reason: permits.ReasonCallsExceeded, Detail: &permits.Detail{Limit: 100, Needed: 1, Remaining: 0}}},
		{"calls of the tool", func(c *call) { c.state.ToolCalls = 10 }, &permits.Denial{Reason: permits.ReasonCallsExceeded, Detail: &permits.Detail{Limit: 10, Needed: 1, Remaining: 0}}},
		{"no calls granted", func(c *call) { c.permit.Grant.Limits.CallsTotal = ptr(0); c.state.CallsTotal = 0 }, &permits.Denial{Reason: permits.ReasonCallsExceeded, Detail: &permits.Detail{Limit: 0, Needed: 1, Remaining: 0}}},
		{"value per call", func(c *call) { c.args = `{"amount":1201,"to":"ap@vendor.example"}` }, &permits.Denial{Reason: permits.ReasonValueExceeded, Detail: &permits.Detail{Limit: 1200, Needed: 1201, Remaining: 1200}}},
		{"value in all", func(c *call) { c.state.ValueCommitted = 3801 }, &permits.Denial{Reason: permits.ReasonValueExceeded, Detail: &permits.Detail{Limit: 5000, Needed: 1200, Remaining: 1199}}},
		{"credits per call", func(c *call) { c.price = 6 }, &permits.Denial{Reason: permits.ReasonCreditsExceeded, Detail: &permits.Detail{Limit: 5, Needed: 6, Remaining: 5}}},
		{"credits", func(c *call) { c.state.CreditsCommitted = 496 }, &permits.Denial{Reason: permits.ReasonCreditsExceeded, Detail: &permits.Detail{Limit: 500, Needed: 5, Remaining: 4}}},
		{"wallet", func(c *call) { c.state.WalletAvailable = 4 }, &permits.Denial{Reason: permits.ReasonWalletCreditsInsufficient, Detail: &permits.Detail{Limit: 4, Needed: 5, Remaining: 4}}},
		{"frozen", func(c *call) { c.state.WalletFrozen = true }, &permits.Denial{Reason: permits.ReasonWalletFrozen}},
		{"expired", func(c *call) { c.permit.Expires = iat }, &permits.Denial{Reason: permits.ReasonExpired}},
		{"largest price, limit one short", func(c *call) {
			c.permit.Grant.Limits.CreditsPerCall = nil
			c.permit.Grant.Limits.Credits, c.state.CreditsCommitted, c.state.WalletAvailable = top, 1, top
			c.price = top
		}, &permits.Denial{Reason: permits.ReasonCreditsExceeded, Detail: &permits.Detail{Limit: top, Needed: top, Remaining: top - 1}}},
		{"sum that would overflow", func(c *call) {
			c.permit.Grant.Limits.CreditsPerCall = nil
			c.permit.Grant.Limits.Credits, c.state.CreditsCommitted = top, 1<<62
			c.price = 1 << 62
		}, &permits.Denial{Reason: permits.ReasonCreditsExceeded, Detail: &permits.Detail{Limit: top, Needed: 1 << 62, Remaining: top - 1<<62}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := admitted()
			tc.set(c)
			if diff := cmp.Diff(tc.want, c.decide()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLargestNumbersAreAdmittedWhenTheyFit(t *testing.T) {
	t.Parallel()
	c := admitted()
	c.permit.Grant.Limits = permits.Limits{
		Credits: permits.MaxInteger, CallsTotal: ptr(permits.MaxInteger), CreditsPerCall: ptr(permits.MaxInteger),
		Value: &permits.ValueLimit{Currency: "USD", Total: ptr(permits.MaxInteger), PerCall: ptr(permits.MaxInteger)},
	}
	c.permit.Grant.Approval = nil
	c.args = `{"amount":9007199254740991,"to":"ap@vendor.example"}`
	c.price = permits.MaxInteger
	c.state = permits.State{NowMS: nowMS, CallsTotal: permits.MaxInteger - 1, WalletAvailable: permits.MaxInteger}
	if d := c.decide(); d != nil {
		t.Errorf("denied: %+v", d)
	}
}

func TestAbsentLimitsAreNoLimits(t *testing.T) {
	t.Parallel()
	c := admitted()
	c.permit.Grant = permits.Grant{Tools: []string{"payout"}, Limits: permits.Limits{Credits: 500}}
	c.args = `{"bcc":null}`
	c.state.CallsTotal, c.state.ToolCalls, c.state.ValueCommitted = permits.MaxInteger, permits.MaxInteger, permits.MaxInteger
	if d := c.decide(); d != nil {
		t.Errorf("denied: %+v", d)
	}
}

func TestFreeCallNeedsNoCredits(t *testing.T) {
	t.Parallel()
	c := admitted()
	c.price, c.state.WalletAvailable, c.state.CreditsCommitted = 0, 0, 500
	if d := c.decide(); d != nil {
		t.Errorf("denied: %+v", d)
	}
	c.state.WalletFrozen = true
	if got := c.reason(); got != permits.ReasonWalletFrozen {
		t.Errorf("a frozen wallet pays for free calls: %q", got)
	}
}

// A negative number can only come from a broken caller. It must not turn into room.
func TestNegativeNumbersNeverMakeRoom(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*call){
		"price":             func(c *call) { c.price = -1 },
		"calls":             func(c *call) { c.state.CallsTotal = -1 },
		"calls of the tool": func(c *call) { c.state.ToolCalls = -1 },
		"value":             func(c *call) { c.state.ValueCommitted = -1 },
		"credits":           func(c *call) { c.state.CreditsCommitted = -1 << 63 },
		"limit":             func(c *call) { c.permit.Grant.Limits.Credits = -1 << 63 },
		"wallet":            func(c *call) { c.state.WalletAvailable = -1 << 63; c.price = 0 },
	} {
		c := admitted()
		set(c)
		if c.decide() == nil {
			t.Errorf("%s: admitted", name)
		}
	}
}

func TestApproval(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		approval *permits.Approval
		args     string
		want     permits.Reason
	}{
		{"none", nil, `{"amount":9}`, ""},
		{"asks for nothing", &permits.Approval{}, `{"amount":9}`, ""},
		{"always", &permits.Approval{Always: true}, `{"amount":9}`, permits.ReasonApprovalRequired},
		{"value at the line", &permits.Approval{ValueOver: ptr(9)}, `{"amount":9}`, ""},
		{"value over the line", &permits.Approval{ValueOver: ptr(9)}, `{"amount":10}`, permits.ReasonApprovalRequired},
		{"value unknown", &permits.Approval{ValueOver: ptr(9)}, `{}`, permits.ReasonApprovalRequired},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := admitted()
			c.permit.Grant = permits.Grant{Tools: []string{"payout"}, Limits: permits.Limits{Credits: 500}, Approval: tc.approval}
			c.args = tc.args
			if got := c.reason(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestFitThatWasNotComputedIsDenied(t *testing.T) {
	t.Parallel()
	c := admitted()
	if d := c.permit.Decide(permits.Fit{}, c.price, c.state); d == nil {
		t.Error("admitted")
	}
}
