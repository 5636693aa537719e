package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

var agentColumns = []column{
	{"id", "id"},
	{"name", "name"},
	{"wallets", "wallets"},
	{"default wallet", "default_wallet_id"},
	{"default permit", "default_permit_id"},
}

func (a *app) agentCommand() *cobra.Command {
	return a.operate("agent", "Agents and their API keys", `  counterfoil agent create ops-bot --wallet wal_ops
  counterfoil agent key create agt_ops
  counterfoil agent connect --client claude-code --wallet wal_ops
  counterfoil agent list --json`, func(r *remote) []*cobra.Command {
		return []*cobra.Command{
			r.agentCreate(), r.agentUpdate(), r.agentConnect(),
			r.lister("List agents", "/v1/agents", nil, agentColumns...),
			family("key", "API keys of an agent", `  counterfoil agent key create agt_ops --expires 2160h
  counterfoil agent key revoke agt_ops KEY_ID`, r.keyCreate(), r.keyRevoke()),
		}
	})
}

func (r *remote) agentCreate() *cobra.Command {
	var id, defaultWallet, defaultPermit string
	var wallets []string
	c := &cobra.Command{
		Use: "create NAME", Short: "Create an agent", Args: takes("NAME"),
		Example: "  counterfoil agent create ops-bot --id agt_ops --wallet wal_ops --default-wallet wal_ops",
		RunE: does(func(ctx context.Context, args []string) error {
			body := object{"name": args[0], "wallets": wallets}
			optional(body, "id", id)
			optional(body, "default_wallet_id", defaultWallet)
			optional(body, "default_permit_id", defaultPermit)
			o, err := r.ask(ctx, http.MethodPost, "/v1/agents", nil, body)
			if err != nil {
				return err
			}
			return r.sheet(o, agentColumns...)
		}),
	}
	c.Flags().StringVar(&id, "id", "", "your own id, such as agt_ops")
	c.Flags().StringSliceVar(&wallets, "wallet", []string{}, "a wallet the agent may use (repeatable)")
	c.Flags().StringVar(&defaultWallet, "default-wallet", "", "the wallet of calls that name none; never changed later")
	c.Flags().StringVar(&defaultPermit, "default-permit", "", "the permit of calls that name none")
	return c
}

func (r *remote) agentUpdate() *cobra.Command {
	var defaultPermit string
	var wallets []string
	c := &cobra.Command{
		Use: "update AGENT", Short: "Change an agent's wallets or default permit", Args: takes("AGENT"),
		Example: "  counterfoil agent update agt_ops --default-permit prm_q4",
	}
	c.Flags().StringSliceVar(&wallets, "wallet", nil, "all the wallets the agent may use (repeatable)")
	c.Flags().StringVar(&defaultPermit, "default-permit", "", "the permit of calls that name none")
	c.MarkFlagsOneRequired("wallet", "default-permit")
	c.RunE = does(func(ctx context.Context, args []string) error {
		body := object{}
		optional(body, "default_permit_id", defaultPermit)
		if c.Flags().Changed("wallet") {
			body["wallets"] = wallets
		}
		o, err := r.ask(ctx, http.MethodPatch, "/v1/agents/"+url.PathEscape(args[0]), nil, body)
		if err != nil {
			return err
		}
		return r.sheet(o, agentColumns...)
	})
	return c
}

func (r *remote) keyCreate() *cobra.Command {
	var roles []string
	var expires string
	c := &cobra.Command{
		Use: "create AGENT", Short: "Make an API key; it is shown once", Args: takes("AGENT"),
		Example: "  counterfoil agent key create agt_ops --expires 2160h",
		RunE: does(func(ctx context.Context, args []string) error {
			body := object{}
			if len(roles) > 0 {
				body["roles"] = roles
			}
			if expires != "" {
				at, err := moment(expires, time.Now())
				if err != nil {
					return refused(err)
				}
				body["expires_at"] = at
			}
			o, err := r.ask(ctx, http.MethodPost, "/v1/agents/"+url.PathEscape(args[0])+"/keys", nil, body)
			if err != nil {
				return err
			}
			return r.sheet(o, column{"id", "id"}, column{"key (shown once)", "key"}, column{"expires", "expires_at"})
		}),
	}
	c.Flags().StringSliceVar(&roles, "role", nil, "a role of the key (repeatable)")
	c.Flags().StringVar(&expires, "expires", "", "when: a duration from now (2160h) or RFC 3339; default never")
	return c
}

func (r *remote) keyRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke AGENT KEY_ID", Short: "Revoke an API key", Args: takes("AGENT", "KEY_ID"),
		Example: "  counterfoil agent key revoke agt_ops key_0198…",
		RunE: does(func(ctx context.Context, args []string) error {
			path := "/v1/agents/" + url.PathEscape(args[0]) + "/keys/" + url.PathEscape(args[1])
			o, err := r.ask(ctx, http.MethodDelete, path, nil, nil)
			if err != nil {
				return err
			}
			if r.asJSON {
				return r.printJSON(o)
			}
			_, err = fmt.Fprintf(r.a.out, "revoked %s\n", args[1])
			return err
		}),
	}
}

// optional sets a member only where there is something to say.
func optional(o object, name, text string) {
	if text != "" {
		o[name] = text
	}
}

// moment reads "24h" as from now on, or an RFC 3339 time, and gives RFC 3339 in UTC.
func moment(text string, now time.Time) (string, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d).UTC().Truncate(time.Second).Format(time.RFC3339), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return "", fmt.Errorf("%q is neither a duration such as 24h nor a time such as 2027-01-31T00:00:00Z", text)
	}
	return t.UTC().Format(time.RFC3339), nil
}
