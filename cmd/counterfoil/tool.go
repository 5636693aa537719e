package main

import "github.com/spf13/cobra"

func (a *app) toolCommand() *cobra.Command {
	return a.operate("tool", "The catalogue of tools", "  counterfoil tool list", func(r *remote) []*cobra.Command {
		return []*cobra.Command{r.lister("List the tools that agents can call", "/v1/tools", nil,
			column{"name", "name"}, column{"upstream", "upstream"}, column{"price (credits, at most)", "credits.max"},
			column{"actual cost", "credits.actual"},
			column{"scopes", "scopes"}, column{"value", "value.pointer"}, column{"currency", "value.currency"}, column{"on tool error", "on_tool_error"})}
	})
}
