package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func (a *app) toolCommand() *cobra.Command {
	example := `  counterfoil tool list
  counterfoil tool definition 3f2a…   # what a receipt's tool_sha256 stands for`
	return a.operate("tool", "The catalogue of tools", example, func(r *remote) []*cobra.Command {
		return []*cobra.Command{
			r.lister("List the tools that agents can call", "/v1/tools", nil,
				column{"name", "name"}, column{"upstream", "upstream"}, column{"price (credits, at most)", "credits.max"},
				column{"actual cost", "credits.actual"},
				column{"scopes", "scopes"}, column{"value", "value.pointer"}, column{"currency", "value.currency"}, column{"on tool error", "on_tool_error"},
				column{"in force", "in_force"}, column{"pinned to", "definition_sha256"}, column{"definition (sha256)", "sha256"}),
			r.toolDefinition(),
		}
	})
}

// toolDefinition prints exactly the bytes that the hash is of, and only if it is.
func (r *remote) toolDefinition() *cobra.Command {
	return &cobra.Command{
		Use: "definition SHA256", Short: "Print the definition of that hash, as it was hashed", Args: takes("SHA256"),
		RunE: does(func(ctx context.Context, args []string) error {
			ctx, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			resp, err := r.open(ctx, http.MethodGet, "/v1/tools/definitions/"+url.PathEscape(args[0]), nil, nil, "")
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
			if err != nil {
				return fmt.Errorf("read the gateway's answer: %w", err)
			}
			if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != args[0] {
				return fmt.Errorf("what the gateway answered is not what %s is the hash of", args[0])
			}
			_, err = r.a.out.Write(data)
			return err
		}),
	}
}
