package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

var uncertainColumns = []column{
	{"operation", "operation_id"},
	{"tool", "tool"},
	{"age", "age"},
	{"credits", "credits_charged"},
	{"value (minor units)", "amount"},
	{"reason", "reason"},
	{"late answer", "late_result"},
	{"probes", "probes"},
}

func (r *remote) operationUncertain() *cobra.Command {
	var wallet string
	c := &cobra.Command{
		Use: "uncertain", Short: "List what waits for a decision, and what is at risk", Args: cobra.NoArgs,
		Long: `List what waits for a decision, and what is at risk.

These calls may have been sent, and no answer is known. Their price is kept until somebody has looked at the
tool and said what became of them, with "operation reconcile". A late answer is one that came after all:
"operation get" shows it. Takes the operator token or the reconciler token.`,
		Example: `  counterfoil operation uncertain
  counterfoil operation uncertain --wallet wal_ops --json`,
		RunE: does(func(ctx context.Context, _ []string) error {
			items, risk, err := r.uncertain(ctx, wallet)
			if err != nil {
				return err
			}
			if r.asJSON {
				return r.printJSON(object{"items": items, "at_risk": risk})
			}
			for _, item := range items {
				item["age"] = age(item["age_seconds"])
				item["amount"] = amount(item["value"])
			}
			if len(items) > 0 {
				if err := r.table(items, uncertainColumns...); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintln(r.a.out, atRisk(risk))
			return err
		}),
	}
	c.Flags().StringVar(&wallet, "wallet", "", "only of this wallet")
	return c
}

// uncertain follows the queue to its end.
func (r *remote) uncertain(ctx context.Context, wallet string) (items []object, risk object, err error) {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if wallet != "" {
		query.Set("wallet", wallet)
	}
	items = []object{}
	for {
		page, err := r.ask(ctx, http.MethodGet, "/v1/reconciliations", query, nil)
		if err != nil {
			return nil, nil, err
		}
		risk, _ = page["at_risk"].(map[string]any)
		listed := objects(page["items"])
		items = append(items, listed...)
		next, _ := page["next"].(string)
		if next == "" || len(listed) == 0 {
			return items, risk, nil
		}
		query.Set("after", next)
	}
}

// atRisk is the queue in one sentence.
func atRisk(risk object) string {
	if shown(risk["count"]) == "0" {
		return "Nothing waits for a decision."
	}
	at := []string{counted(risk["credits"], "credit", "credits")}
	for _, value := range objects(risk["values"]) {
		at = append(at, amount(map[string]any(value)))
	}
	return fmt.Sprintf("%s for a decision; at risk: %s; the oldest is %s old.",
		counted(risk["count"], "operation waits", "operations wait"), strings.Join(at, ", "), age(risk["oldest_age_seconds"]))
}

func counted(n any, one, many string) string {
	if text := shown(n); text != "1" {
		return text + " " + many
	}
	return "1 " + one
}

// age shows seconds as a person would say them.
func age(seconds any) string {
	literal, _ := seconds.(json.Number)
	n, err := literal.Int64()
	if err != nil {
		return "-"
	}
	d := time.Duration(n) * time.Second
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return d.String()
}

// amount shows a value as 1200 USD.
func amount(value any) string {
	v, ok := value.(map[string]any)
	if !ok {
		return "-"
	}
	return shown(v["amount"]) + " " + shown(v["currency"])
}
