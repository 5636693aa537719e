package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/permits"
)

var permitColumns = []column{
	{"id", "id"},
	{"status", "status"},
	{"wallet", "wallet_id"},
	{"agent", "agent_id"},
	{"scope", "scope"},
	{"spent (credits)", "usage.credits_spent"},
	{"held (credits)", "usage.credits_held"},
	{"left (credits)", "remaining.credits"},
	{"expires", "expires_at"},
}

func (a *app) permitCommand() *cobra.Command {
	return a.operate("permit", "Permits: what an agent may do, and what is left of it", `  counterfoil permit issue --wallet wal_ops --agent agt_ops --scope payments.write \
      --tool payout --credits 500 --expires 2160h
  counterfoil permit get prm_q4
  counterfoil permit revoke prm_q4`, func(r *remote) []*cobra.Command {
		sheet := append(permitColumns[:len(permitColumns):len(permitColumns)],
			column{"calls", "usage.calls_total"}, column{"calls by tool", "usage.calls"},
			column{"value spent (minor units)", "usage.value_spent"}, column{"value held (minor units)", "usage.value_held"},
			column{"token", "token"})
		return []*cobra.Command{
			r.permitIssue(), r.permitImport(),
			r.lister("List permits", "/v1/permits", []string{"wallet", "agent"}, permitColumns...),
			r.getter("PERMIT", "Show a permit, its use and what is left", "/v1/permits/", sheet...),
			r.permitRevoke(),
		}
	})
}

// grantFlags are the limits of a permit as flags; a grant that needs more is a file.
type grantFlags struct {
	file                                              string
	tools, denyArgs, domains                          []string
	calls                                             map[string]int64
	credits, callsTotal, perCall, valueTotal, valueTo int64
	currency                                          string
	subdomains                                        bool
}

func (g *grantFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&g.file, "grant", "", "file with the whole grant as JSON, instead of the flags below")
	f.StringSliceVar(&g.tools, "tool", nil, "a tool it allows (repeatable)")
	f.Int64Var(&g.credits, "credits", 0, "credits it allows in all")
	f.Int64Var(&g.perCall, "credits-per-call", 0, "credits it allows for one call")
	f.Int64Var(&g.callsTotal, "calls-total", 0, "calls it allows in all")
	f.StringToInt64Var(&g.calls, "calls", nil, "calls it allows of one tool, as payout=10 (repeatable)")
	f.StringVar(&g.currency, "currency", "", "currency of the value limits")
	f.Int64Var(&g.valueTotal, "value-total", 0, "value it allows in all, in minor units of the currency")
	f.Int64Var(&g.valueTo, "value-per-call", 0, "value it allows for one call, in minor units of the currency")
	f.StringSliceVar(&g.denyArgs, "deny-arg", nil, "an argument it forbids: a JSON pointer or a bare name (repeatable)")
	f.StringSliceVar(&g.domains, "recipient-domain", nil, "a domain recipients must be of (repeatable)")
	f.BoolVar(&g.subdomains, "recipient-subdomains", false, "allow the subdomains of these too")
	c.MarkFlagsOneRequired("grant", "credits")
	for _, other := range []string{"tool", "credits", "credits-per-call", "calls-total", "calls", "currency", "value-total", "value-per-call", "deny-arg", "recipient-domain"} {
		c.MarkFlagsMutuallyExclusive("grant", other)
	}
}

// json gives the grant; it is checked here too, so that a mistake is told before anything is sent.
func (g *grantFlags) json(changed func(flag string) bool) (json.RawMessage, error) {
	if g.file != "" {
		data, err := os.ReadFile(g.file)
		if err != nil {
			return nil, err
		}
		grant, err := permits.ParseGrant(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g.file, err)
		}
		return grant.JSON(false), nil
	}
	limit := func(flag string, n int64) *int64 {
		if !changed(flag) {
			return nil
		}
		return &n
	}
	grant := permits.Grant{
		Tools:    g.tools,
		DenyArgs: g.denyArgs,
		Limits: permits.Limits{
			Credits: g.credits, Calls: g.calls,
			CallsTotal:     limit("calls-total", g.callsTotal),
			CreditsPerCall: limit("credits-per-call", g.perCall),
		},
	}
	if g.currency != "" {
		grant.Limits.Value = &permits.ValueLimit{
			Currency: g.currency, Total: limit("value-total", g.valueTotal), PerCall: limit("value-per-call", g.valueTo),
		}
	} else if changed("value-total") || changed("value-per-call") {
		return nil, errors.New("a value limit needs --currency")
	}
	if len(g.domains) > 0 {
		grant.Recipient = &permits.Recipient{Domains: g.domains, Subdomains: g.subdomains}
	}
	if err := grant.Validate(); err != nil {
		return nil, err
	}
	return grant.JSON(false), nil
}

func (r *remote) permitIssue() *cobra.Command {
	var id, wallet, agent, notBefore, expires string
	var scopes []string
	var grant grantFlags
	c := &cobra.Command{
		Use: "issue", Short: "Issue a permit", Args: cobra.NoArgs,
		Example: `  counterfoil permit issue --id prm_q4 --wallet wal_ops --agent agt_ops --scope payments.write \
      --tool payout --credits 500 --calls payout=10 --currency USD --value-per-call 100000 --expires 2160h`,
	}
	f := c.Flags()
	f.StringVar(&id, "id", "", "your own id, such as prm_q4")
	f.StringVar(&wallet, "wallet", "", "the wallet that pays (required)")
	f.StringVar(&agent, "agent", "", "the agent that may use it (required)")
	f.StringSliceVar(&scopes, "scope", nil, "a scope it grants (repeatable)")
	f.StringVar(&notBefore, "not-before", "", "when it begins: a duration from now or RFC 3339; default now")
	f.StringVar(&expires, "expires", "", "when it ends: a duration from now (2160h) or RFC 3339 (required)")
	grant.register(c)
	for _, required := range []string{"wallet", "agent", "expires"} {
		_ = c.MarkFlagRequired(required)
	}
	c.RunE = does(func(ctx context.Context, _ []string) error {
		granted, err := grant.json(f.Changed)
		if err != nil {
			return refused(err)
		}
		now := time.Now()
		body := object{"wallet_id": wallet, "agent_id": agent, "scope": strings.Join(scopes, " "), "grant": granted}
		optional(body, "id", id)
		if body["expires_at"], err = moment(expires, now); err != nil {
			return refused(err)
		}
		if notBefore != "" {
			if body["not_before"], err = moment(notBefore, now); err != nil {
				return refused(err)
			}
		}
		o, err := r.ask(ctx, http.MethodPost, "/v1/permits", nil, body)
		if err != nil {
			return err
		}
		return r.sheet(o, append(permitColumns[:len(permitColumns):len(permitColumns)], column{"token", "token"})...)
	})
	return c
}

func (r *remote) permitImport() *cobra.Command {
	return &cobra.Command{
		Use: "import FILE", Short: "Import a permit that a registered outside issuer signed", Args: takes("FILE"),
		Example: "  counterfoil permit import permit.jws",
		RunE: does(func(ctx context.Context, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			o, err := r.ask(ctx, http.MethodPost, "/v1/permits/import", nil, token(strings.TrimSpace(string(data))))
			if err != nil {
				return err
			}
			return r.sheet(o, permitColumns...)
		}),
	}
}

func (r *remote) permitRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke PERMIT", Short: "Revoke a permit; calls that ran can still be replayed", Args: takes("PERMIT"),
		Example: "  counterfoil permit revoke prm_q4",
		RunE: does(func(ctx context.Context, args []string) error {
			o, err := r.ask(ctx, http.MethodPost, "/v1/permits/"+url.PathEscape(args[0])+"/revoke", nil, nil)
			if err != nil {
				return err
			}
			return r.sheet(o, permitColumns...)
		}),
	}
}
