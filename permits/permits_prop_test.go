package permits_test

import (
	"errors"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"counterfoil/internal/canon"
	"counterfoil/permits"
)

// Issue, parse is the identity, and what is signed is its own canonical form.
func TestEveryPermitWeIssueIsReadBack(t *testing.T) {
	t.Parallel()
	s := signer(t, 1)
	e := expect()
	e.MaxLifetime = permits.AnyLifetime
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPermit(rt)
		canonical, err := canon.Canonical(p.Payload())
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(string(canonical), string(p.Payload())); diff != "" {
			rt.Fatal(diff)
		}
		issued, err := p.Issue(s, e)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(string(p.Payload()), string(issued.Payload())); diff != "" {
			rt.Fatal(diff)
		}
		issued.Token, issued.SHA256 = "", ""
		if diff := cmp.Diff(p, issued); diff != "" {
			rt.Fatal(diff)
		}
		g, err := permits.ParseGrant(p.Grant.JSON(false))
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(p.Grant, g); diff != "" {
			rt.Fatal(diff)
		}
	})
}

// A permit's whole life (I7): however calls are priced, settled and given back, no sum ever passes a limit, and a
// denial always names a limit that the call would have passed.
func TestNoSequenceOfCallsExceedsAPermit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := admitted()
		c.permit.Grant.Limits = drawLimits(rt, c.permit.Grant.Tools)
		c.permit.Grant.Approval = nil
		if v := c.permit.Grant.Limits.Value; v != nil {
			v.Currency = "USD"
		}
		l := c.permit.Grant.Limits
		deposit := drawAmount(rt, "deposit")
		c.state = permits.State{NowMS: nowMS, WalletAvailable: deposit}
		type hold struct{ price, value int64 }
		var holds []hold
		rt.Repeat(map[string]func(*rapid.T){
			"call": func(rt *rapid.T) {
				h := hold{drawAmount(rt, "price"), drawAmount(rt, "value")}
				fit := permits.Fit{Tool: "payout", Value: &permits.Value{Currency: "USD", Amount: h.value}}
				if d := c.permit.Decide(fit, h.price, c.state); d != nil {
					if d.Detail == nil || d.Detail.Needed <= d.Detail.Remaining || d.Detail.Remaining < 0 {
						rt.Fatalf("denied without a need: %+v %+v", d, d.Detail)
					}
					return
				}
				holds = append(holds, h)
				c.state.CreditsCommitted += h.price
				c.state.WalletAvailable -= h.price
				c.state.ValueCommitted += h.value
				c.state.CallsTotal++
				c.state.ToolCalls++
			},
			"give back": func(rt *rapid.T) {
				if len(holds) == 0 {
					rt.Skip("nothing held")
				}
				i := rapid.IntRange(0, len(holds)-1).Draw(rt, "which")
				c.state.CreditsCommitted -= holds[i].price
				c.state.WalletAvailable += holds[i].price
				c.state.ValueCommitted -= holds[i].value
				c.state.CallsTotal--
				c.state.ToolCalls--
				holds = slices.Delete(holds, i, i+1)
			},
			"": func(rt *rapid.T) {
				credits, value := new(big.Int), new(big.Int)
				for _, h := range holds {
					credits.Add(credits, big.NewInt(h.price))
					value.Add(value, big.NewInt(h.value))
				}
				within := func(name string, sum *big.Int, limit *int64) {
					if limit != nil && sum.Cmp(big.NewInt(*limit)) > 0 {
						rt.Fatalf("%s: %s of %d", name, sum, *limit)
					}
				}
				within("credits", credits, &l.Credits)
				within("wallet", credits, &deposit)
				within("calls", big.NewInt(int64(len(holds))), l.CallsTotal)
				if n, ok := l.Calls["payout"]; ok {
					within("calls of the tool", big.NewInt(int64(len(holds))), &n)
				}
				if l.Value != nil {
					within("value", value, l.Value.Total)
				}
				for _, h := range holds {
					within("credits per call", big.NewInt(h.price), l.CreditsPerCall)
					if l.Value != nil {
						within("value per call", big.NewInt(h.value), l.Value.PerCall)
					}
				}
			},
		})
	})
}

// deny_args finds a member wherever it is, by its exact pointer, by a starred pointer and by its bare name.
func TestDenyArgsFindsEveryPlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfN(rapid.StringMatching(`[a-z/~]{0,3}`), 1, 5).Draw(rt, "path")
		args := `1`
		pointer, starred := "", ""
		for _, name := range slices.Backward(names) {
			args = `{` + string(canon.AppendString(nil, name)) + `:` + args + `,"zz":[0]}`
			escaped := strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
			pointer = "/" + escaped + pointer
			if rapid.Bool().Draw(rt, "star") {
				escaped = "*"
			}
			starred = "/" + escaped + starred
		}
		for pattern, want := range map[string]bool{pointer: true, starred: true, pointer + "/x": false, "zz": true, "zzz": false} {
			p := permits.Permit{Grant: permits.Grant{Tools: []string{"payout"}, DenyArgs: []string{pattern}}}
			if got := p.Fit(permits.Tool{Name: "payout"}, []byte(args)).Denial != nil; got != want {
				rt.Fatalf("%s in %s: %v, want %v", pattern, args, got, want)
			}
		}
	})
}

// Accepted means: the canonical form of what was read is read as the same permit, and is signed as the same bytes.
func FuzzParse(f *testing.F) {
	seeds := []string{basePayload}
	for _, r := range refusals() {
		if len(r.new) < 1000 {
			seeds = append(seeds, strings.Replace(basePayload, r.old, r.new, 1))
		}
	}
	if len(seeds) < 100 {
		f.Fatalf("%d seeds", len(seeds))
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		p, err := parse(t, payload)
		if err != nil {
			if !errors.Is(err, permits.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		first := p.Payload()
		canonical, err := canon.Canonical(first)
		if err != nil || string(canonical) != string(first) {
			t.Fatalf("not canonical: %s (%v)", first, err)
		}
		again, err := parse(t, string(first))
		if err != nil {
			t.Fatalf("own form refused: %v\n%s", err, first)
		}
		p.Token, p.SHA256, again.Token, again.SHA256 = "", "", "", ""
		if diff := cmp.Diff(p, again); diff != "" {
			t.Fatal(diff)
		}
		if string(again.Payload()) != string(first) {
			t.Fatal("a second form")
		}
	})
}

func drawPermit(rt *rapid.T) *permits.Permit {
	id := func(prefix string) string {
		return prefix + rapid.StringMatching(`[A-Za-z0-9._-]{1,64}`).Draw(rt, prefix)
	}
	exp := rapid.Int64Range(1, permits.MaxInteger).Draw(rt, "exp")
	p := &permits.Permit{
		ID: id("prm_"), Issuer: issuer, Audience: audience, Wallet: id("wal_"), Agent: id("agt_"), Expires: exp,
		IssuedAt:  rapid.Int64Range(0, exp-1).Draw(rt, "iat"),
		NotBefore: rapid.Int64Range(0, exp-1).Draw(rt, "nbf"),
	}
	for range rapid.IntRange(0, 3).Draw(rt, "scopes") {
		p.Scopes = append(p.Scopes, rapid.StringMatching(`[!#-\[\]-~]{1,12}`).Draw(rt, "scope"))
	}
	// Names beyond the basic plane, where byte order and member order part.
	name := rapid.StringOfN(rapid.RuneFrom([]rune("az09_.-é\uffee\U0001F600\"\\")), 1, 20, -1)
	p.Grant.Tools = rapid.SliceOfNDistinct(name, 1, 5, rapid.ID[string]).Draw(rt, "tools")
	p.Grant.Limits = drawLimits(rt, p.Grant.Tools)
	if rapid.Bool().Draw(rt, "deny_args") {
		p.Grant.DenyArgs = rapid.SliceOfN(rapid.SampledFrom([]string{"/bcc", "bcc", "/*/x", "/a~1b", "/\u2028", "/"}), 0, 3).Draw(rt, "patterns")
	}
	if rapid.Bool().Draw(rt, "recipient") {
		p.Grant.Recipient = &permits.Recipient{
			Domains:    rapid.SliceOfN(rapid.SampledFrom([]string{"vendor.example", "A.Example", "bücher.example"}), 1, 3).Draw(rt, "domains"),
			Subdomains: rapid.Bool().Draw(rt, "subdomains"),
		}
	}
	if rapid.Bool().Draw(rt, "approval") {
		p.Grant.Approval = &permits.Approval{Always: rapid.Bool().Draw(rt, "always"), ValueOver: drawOptional(rt, "value_over")}
	}
	return p
}

func drawLimits(rt *rapid.T, tools []string) permits.Limits {
	l := permits.Limits{
		Credits: drawAmount(rt, "credits"), CallsTotal: drawOptional(rt, "calls_total"), CreditsPerCall: drawOptional(rt, "credits_per_call"),
	}
	if rapid.Bool().Draw(rt, "calls") {
		l.Calls = maps.Collect(func(yield func(string, int64) bool) {
			for _, tool := range tools {
				if !yield(tool, drawAmount(rt, "calls of a tool")) {
					return
				}
			}
		})
	}
	if rapid.Bool().Draw(rt, "value") {
		l.Value = &permits.ValueLimit{Currency: rapid.StringMatching(`[A-Z]{3}`).Draw(rt, "currency"), Total: drawOptional(rt, "total"), PerCall: drawOptional(rt, "per_call")}
	}
	return l
}

func drawOptional(rt *rapid.T, name string) *int64 {
	if !rapid.Bool().Draw(rt, name+"?") {
		return nil
	}
	return ptr(drawAmount(rt, name))
}

// Small numbers meet each other; the largest meet the edge.
func drawAmount(rt *rapid.T, name string) int64 {
	return rapid.OneOf(rapid.Int64Range(0, 12), rapid.Int64Range(permits.MaxInteger-3, permits.MaxInteger), rapid.Int64Range(0, permits.MaxInteger)).Draw(rt, name)
}
