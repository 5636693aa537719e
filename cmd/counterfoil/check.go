package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/config"
)

func (a *app) checkCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "check --config FILE", Short: "Check a configuration and the secrets it names; touches nothing", Args: cobra.NoArgs,
		Example: "  counterfoil check --config counterfoil.yaml",
		RunE: does(func(context.Context, []string) error {
			cfg, err := config.Load(file, a.env)
			if err != nil {
				return refused(err)
			}
			if err := checkUpstreams(cfg); err != nil {
				return refused(err)
			}
			return a.describe(cfg)
		}),
	}
	a.configFlag(c, &file)
	return c
}

// configFlag is the same for every command that reads a configuration.
func (a *app) configFlag(c *cobra.Command, file *string) {
	c.Flags().StringVar(file, "config", a.env["COUNTERFOIL_CONFIG"], "the configuration file (COUNTERFOIL_CONFIG)")
}

// describe says what a configuration means, secrets as fingerprints.
func (a *app) describe(cfg *config.Config) error {
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	line := func(what, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	line("issuer", "%s", cfg.Issuer)
	line("listen", "%s", cfg.Listen)
	line("database", "%s", cfg.Database.Place())
	line("keys", "%s", keyState(cfg))
	line("tokens", "operator %s, approver %s, reconciler %s", cfg.Tokens.Operator.Fingerprint(),
		cfg.Tokens.Approver.Fingerprint(), cfg.Tokens.Reconciler.Fingerprint())
	for _, u := range cfg.Upstreams {
		line("upstream", "%s %s, %s for an answer, %s", u.Name, way(u), u.Timeout, pace(u))
	}
	limits := cfg.Limits
	line("limits", "%d connections, %d calls in flight; of one agent %s calls a second, %s in flight",
		limits.Connections, limits.InFlight, orAny(limits.AgentRate), orAny(limits.AgentConcurrent))
	for _, t := range cfg.Tools {
		price := fmt.Sprintf("%d credits", t.Credits)
		if t.ActualPointer != "" {
			price = fmt.Sprintf("up to %d credits, by %s", t.Credits, t.ActualPointer)
		}
		if t.DefinitionSHA256 != "" {
			price += ", pinned to definition " + t.DefinitionSHA256
		}
		line("tool", "%s (%s of %s), %s", t.Name, t.UpstreamTool, t.Upstream, price)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.out, "%s is valid\n", cfg.File)
	return err
}

// way says how an upstream is reached, without what is secret.
func way(u config.Upstream) string {
	if u.URL != "" {
		return fmt.Sprintf("at %s, %d headers", u.URL, len(u.Headers))
	}
	words := make([]string, 0, len(u.Command))
	for _, word := range u.Command {
		if quoted := strconv.Quote(word); strings.ContainsRune(word, ' ') || len(quoted) != len(word)+2 {
			word = quoted
		}
		words = append(words, word)
	}
	dir := "the working directory"
	if u.Dir != "" {
		dir = u.Dir
	}
	return fmt.Sprintf("runs %s in %s, %d variables", strings.Join(words, " "), dir, len(u.Env))
}

func pace(u config.Upstream) string {
	at := "512"
	if u.Concurrency > 0 {
		at = strconv.Itoa(u.Concurrency)
	}
	return fmt.Sprintf("%s calls at a time, %s a second", at, orAny(u.Rate))
}

// orAny shows a limit of which 0 is none.
func orAny(n int) string {
	if n == 0 {
		return "any"
	}
	return strconv.Itoa(n)
}

// keyState is a remark, not a fault: a configuration is written before its keys are made.
func keyState(cfg *config.Config) string {
	if _, err := openKeys(cfg); err != nil {
		return fmt.Sprintf("%s: %s", cfg.KeysDir, err)
	}
	return cfg.KeysDir
}
