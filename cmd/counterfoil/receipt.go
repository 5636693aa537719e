package main

import (
	"context"
	"net/url"

	"github.com/spf13/cobra"
)

var receiptColumns = []column{
	{"id", "id"},
	{"outcome", "receipt.outcome"},
	{"reason", "receipt.reason"},
	{"wallet", "receipt.sub"},
	{"number", "receipt.chain.seq"},
	{"tool", "receipt.call.tool"},
	{"operation", "receipt.call.id"},
	{"charged (credits)", "receipt.credits.charged"},
}

func (a *app) receiptCommand() *cobra.Command {
	return a.operate("receipt", "Receipts, bundles and exports", `  counterfoil receipt list --wallet wal_ops
  counterfoil receipt bundle rcp_0198… --out payout.bundle.json
  counterfoil receipt export --wallet wal_ops --out wal_ops.jsonl
  counterfoil-verify --trust jwks.json payout.bundle.json`, func(r *remote) []*cobra.Command {
		return []*cobra.Command{
			r.lister("List receipts", "/v1/receipts", []string{"wallet", "from", "to"}, receiptColumns...),
			r.getter("RECEIPT", "Show a receipt", "/v1/receipts/",
				append(receiptColumns[:len(receiptColumns):len(receiptColumns)], column{"jws", "jws"})...),
			r.receiptBundle(), r.receiptExport(),
		}
	})
}

func (r *remote) receiptBundle() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "bundle RECEIPT", Short: "Fetch all that is needed to check a receipt offline", Args: takes("RECEIPT"),
		Example: "  counterfoil receipt bundle rcp_0198… --out payout.bundle.json",
		RunE: does(func(ctx context.Context, args []string) error {
			return r.download(ctx, "/v1/receipts/"+url.PathEscape(args[0])+"/bundle", nil, file)
		}),
	}
	c.Flags().StringVar(&file, "out", "", "write to this file instead of the output")
	return c
}

func (r *remote) receiptExport() *cobra.Command {
	var wallet, from, to, file string
	c := &cobra.Command{
		Use: "export", Short: "Stream bundles, one a line, in the order of the chain", Args: cobra.NoArgs,
		Example: "  counterfoil receipt export --wallet wal_ops --from 2026-01-01T00:00:00Z --out january.jsonl",
		RunE: does(func(ctx context.Context, _ []string) error {
			query := period(from, to)
			if wallet != "" {
				query.Set("wallet", wallet)
			}
			return r.download(ctx, "/v1/receipts/export", query, file)
		}),
	}
	c.Flags().StringVar(&wallet, "wallet", "", "only of this wallet")
	c.Flags().StringVar(&from, "from", "", "from this time on, RFC 3339")
	c.Flags().StringVar(&to, "to", "", "before this time, RFC 3339")
	c.Flags().StringVar(&file, "out", "", "write to this file instead of the output")
	return c
}

// period is a stretch of time as a query.
func period(from, to string) url.Values {
	q := url.Values{}
	if from != "" {
		q.Set("from", from)
	}
	if to != "" {
		q.Set("to", to)
	}
	return q
}
