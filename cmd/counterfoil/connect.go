package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/config"
	"counterfoil/cmd/counterfoil/connect"
)

// agentConnect asks nobody: what it prints follows from its flags, and it needs no token.
func (r *remote) agentConnect() *cobra.Command {
	var client string
	var target connect.Target
	var list, showKey bool
	c := &cobra.Command{
		Use: "connect", Short: "Print the configuration that connects an MCP client", Args: cobra.NoArgs,
		Long: `Prints what makes an MCP client use this gateway, ready to paste: URL, headers, wallet and permit filled in. Nothing is sent
and nothing is written. The agent's API key is left in the environment variable ` + connect.KeyVariable + `; only --show-key puts it into the
texts, from --key-file or from that variable.`,
		Example: `  counterfoil agent connect --list
  counterfoil agent connect --client claude-code --server https://gateway.example --wallet wal_ops --permit prm_q4
  counterfoil agent connect --client codex --key-file ./agent.key --json`,
		RunE: does(func(context.Context, []string) error {
			if list {
				return r.listClients()
			}
			if client == "" {
				return refused(errors.New("say which client: --client NAME, or --list for their names"))
			}
			target.Server = r.server
			if err := r.connectKey(&target, showKey); err != nil {
				return refused(err)
			}
			guide, err := connect.For(client, target)
			if err != nil {
				return refused(err)
			}
			return r.printGuide(guide)
		}),
	}
	c.Flags().StringVar(&client, "client", "", "the MCP client, by the name that --list shows")
	c.Flags().StringVar(&target.Wallet, "wallet", "", "the wallet that pays (default: the agent's default wallet)")
	c.Flags().StringVar(&target.Permit, "permit", "", "the permit that calls are made under (default: the agent's default permit)")
	c.Flags().StringVar(&target.KeyFile, "key-file", "", "file with the agent's API key, mode 0600 (else "+connect.KeyVariable+")")
	c.Flags().BoolVar(&showKey, "show-key", false, "put the key itself into the texts; whoever reads them can spend")
	c.Flags().BoolVar(&list, "list", false, "only name the clients")
	return c
}

// connectKey reads the key where there is a file, so that a wrong one is found out now, and hands it on only to be shown.
func (r *remote) connectKey(target *connect.Target, show bool) error {
	key := r.a.env[connect.KeyVariable]
	if target.KeyFile != "" {
		text, err := config.ReadSecret(target.KeyFile)
		if err != nil {
			return err
		}
		if key = strings.TrimRight(text, "\r\n"); !strings.HasPrefix(key, "cf_") {
			return fmt.Errorf("%s does not hold an agent's API key: those begin with cf_", target.KeyFile)
		}
	}
	if show {
		if key == "" {
			return errors.New("there is no key to show: give --key-file FILE, or set " + connect.KeyVariable)
		}
		target.Key = key
	}
	return nil
}

func (r *remote) listClients() error {
	items := []object{}
	for _, c := range connect.Clients() {
		items = append(items, object{"name": c.Name, "title": c.Title})
	}
	return r.table(items, column{"client", "name"}, column{"what it is", "title"})
}

type guideWire struct {
	Client         string     `json:"client"`
	Title          string     `json:"title"`
	Endpoint       string     `json:"endpoint"`
	Wallet         *string    `json:"wallet_id"`
	Permit         *string    `json:"permit_id"`
	Steps          []stepWire `json:"steps"`
	IdempotencyKey string     `json:"idempotency_key"`
	Notes          []string   `json:"notes"`
}

type stepWire struct {
	Do       string  `json:"do"`
	File     *string `json:"file"`
	Language string  `json:"language"`
	Text     string  `json:"text"`
}

func (r *remote) printGuide(g *connect.Guide) error {
	if r.asJSON {
		w := guideWire{
			Client: g.Client, Title: g.Title, Endpoint: g.Endpoint, Wallet: orNull(g.Wallet), Permit: orNull(g.Permit),
			IdempotencyKey: g.IdempotencyKey, Notes: g.Notes,
		}
		for _, s := range g.Steps {
			w.Steps = append(w.Steps, stepWire{s.Do, orNull(s.File), s.Language, s.Text})
		}
		return r.printJSON(w)
	}
	w := tabwriter.NewWriter(r.a.out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "client\t%s\nendpoint\t%s\nwallet\t%s\npermit\t%s\n", g.Title, g.Endpoint, orDefaultOf(g.Wallet), orDefaultOf(g.Permit))
	if err := w.Flush(); err != nil {
		return err
	}
	for i, s := range g.Steps {
		do := s.Do
		if s.File != "" {
			do += ", in " + s.File
		}
		fmt.Fprintf(r.a.out, "\n%d. %s:\n\n%s\n", i+1, do, s.Text)
	}
	fmt.Fprintf(r.a.out, "\nThe idempotency key comes %s\n", g.IdempotencyKey)
	for _, note := range g.Notes {
		fmt.Fprintf(r.a.out, "- %s\n", note)
	}
	return nil
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orDefaultOf(id string) string {
	if id == "" {
		return "the agent's default"
	}
	return id
}
