package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

const maxCredits = 1<<53 - 1

var walletColumns = []column{
	{"id", "id"},
	{"name", "name"},
	{"balance (credits)", "balance"},
	{"held (credits)", "held"},
	{"available (credits)", "available"},
	{"frozen", "frozen"},
}

func (a *app) walletCommand() *cobra.Command {
	return a.operate("wallet", "Wallets, deposits and transfers", `  counterfoil wallet create operations --id wal_ops
  counterfoil wallet deposit wal_ops 1000 --reference invoice-77
  counterfoil wallet get wal_ops`, func(r *remote) []*cobra.Command {
		return []*cobra.Command{
			r.walletCreate(),
			r.lister("List wallets", "/v1/wallets", nil, walletColumns...),
			r.getter("WALLET", "Show a wallet", "/v1/wallets/", walletColumns...),
			r.walletDeposit(),
			r.walletAct("freeze", "Refuse new calls of a wallet"),
			r.walletAct("unfreeze", "Allow calls of a wallet again"),
			r.walletTransfers(), r.walletStatement(),
		}
	})
}

func (r *remote) walletCreate() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a wallet", Args: takes("NAME"),
		Example: "  counterfoil wallet create operations --id wal_ops",
		RunE: does(func(ctx context.Context, args []string) error {
			body := object{"name": args[0]}
			optional(body, "id", id)
			o, err := r.ask(ctx, http.MethodPost, "/v1/wallets", nil, body)
			if err != nil {
				return err
			}
			return r.sheet(o, walletColumns...)
		}),
	}
	c.Flags().StringVar(&id, "id", "", "your own id, such as wal_ops")
	return c
}

func (r *remote) walletDeposit() *cobra.Command {
	var reference string
	c := &cobra.Command{
		Use: "deposit WALLET CREDITS", Short: "Add credits; the same reference again adds nothing", Args: takes("WALLET", "CREDITS"),
		Example: "  counterfoil wallet deposit wal_ops 1000 --reference invoice-77",
		RunE: does(func(ctx context.Context, args []string) error {
			credits, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || credits < 1 || credits > maxCredits {
				return refused(fmt.Errorf("%q is not a whole number of credits from 1 to %d", args[1], int64(maxCredits)))
			}
			body := object{"credits": credits, "reference": reference}
			o, err := r.ask(ctx, http.MethodPost, "/v1/wallets/"+url.PathEscape(args[0])+"/deposits", nil, body)
			if err != nil {
				return err
			}
			return r.sheet(o, column{"transfer", "transfer_id"}, column{"balance (credits)", "balance"},
				column{"available (credits)", "available"})
		}),
	}
	c.Flags().StringVar(&reference, "reference", "", "names this deposit, so that a repeat is no second one (required)")
	_ = c.MarkFlagRequired("reference")
	return c
}

func (r *remote) walletAct(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " WALLET", Short: short, Args: takes("WALLET"),
		RunE: does(func(ctx context.Context, args []string) error {
			o, err := r.ask(ctx, http.MethodPost, "/v1/wallets/"+url.PathEscape(args[0])+"/"+verb, nil, nil)
			if err != nil {
				return err
			}
			return r.sheet(o, walletColumns...)
		}),
	}
}

func (r *remote) walletTransfers() *cobra.Command {
	limit := 100
	c := &cobra.Command{
		Use: "transfers WALLET", Short: "List the transfers of a wallet", Args: takes("WALLET"),
		RunE: does(func(ctx context.Context, args []string) error {
			items, err := r.list(ctx, "/v1/wallets/"+url.PathEscape(args[0])+"/transfers", nil, limit)
			if err != nil {
				return err
			}
			return r.table(items, column{"id", "id"}, column{"kind", "kind"}, column{"credits", "credits"},
				column{"operation", "operation_id"}, column{"reference", "reference"}, column{"at", "created_at"})
		}),
	}
	c.Flags().IntVar(&limit, "limit", limit, "the most rows to show")
	return c
}

// walletStatement prints the signed text as it came: what is signed is not re-written.
func (r *remote) walletStatement() *cobra.Command {
	var from, to int64
	var file string
	c := &cobra.Command{
		Use: "statement WALLET", Short: "Fetch a signed statement of a wallet", Args: takes("WALLET"),
		Example: "  counterfoil wallet statement wal_ops --from-seq 1 --out wal_ops.statement.json",
		RunE: does(func(ctx context.Context, args []string) error {
			query := url.Values{}
			if from > 0 {
				query.Set("from_seq", strconv.FormatInt(from, 10))
			}
			if to > 0 {
				query.Set("to_seq", strconv.FormatInt(to, 10))
			}
			return r.download(ctx, "/v1/wallets/"+url.PathEscape(args[0])+"/statement", query, file)
		}),
	}
	c.Flags().Int64Var(&from, "from-seq", 0, "the first receipt, by its number in the wallet's chain")
	c.Flags().Int64Var(&to, "to-seq", 0, "the last receipt, by its number in the wallet's chain")
	c.Flags().StringVar(&file, "out", "", "write to this file instead of the output")
	return c
}
