package main

import "github.com/spf13/cobra"

var operationColumns = []column{
	{"id", "id"},
	{"state", "state"},
	{"outcome", "outcome"},
	{"reason", "reason"},
	{"tool", "tool"},
	{"wallet", "wallet_id"},
	{"permit", "permit_id"},
	{"agent", "agent_id"},
	{"held (credits)", "credits_held"},
	{"charged (credits)", "credits_charged"},
	{"receipt", "receipt_id"},
	{"created", "created_at"},
}

func (a *app) operationCommand() *cobra.Command {
	return a.operate("operation", "Operations: what was asked for, and how it ended", `  counterfoil operation list --wallet wal_ops
  counterfoil operation get op_0198…`, func(r *remote) []*cobra.Command {
		sheet := append(operationColumns[:len(operationColumns):len(operationColumns)],
			column{"finished", "finished_at"}, column{"late result", "late_result.outcome"})
		return []*cobra.Command{
			r.lister("List operations", "/v1/operations", []string{"wallet", "agent", "permit", "state"}, operationColumns...),
			r.getter("OPERATION", "Show an operation", "/v1/operations/", sheet...),
		}
	})
}
