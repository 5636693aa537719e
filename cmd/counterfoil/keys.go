package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/config"
	"counterfoil/internal/jws"
)

func (a *app) keysCommand() *cobra.Command {
	return family("keys", "Signing keys of a gateway", `  counterfoil keys new --config counterfoil.yaml
  counterfoil keys list --config counterfoil.yaml
  counterfoil keys rotate --config counterfoil.yaml --purpose receipt`,
		a.keysNew(), a.keysList(), a.keysRotate())
}

// openKeys opens the keys that a gateway cannot do without. A gateway never makes them by itself: a
// directory that was mounted wrongly must not turn into a new identity.
func openKeys(cfg *config.Config) (*jws.Keyring, error) {
	advice := fmt.Sprintf("run: counterfoil keys new --config %s", cfg.File)
	keyring, err := jws.OpenKeyring(cfg.KeysDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there are no keys in %s; %s", cfg.KeysDir, advice)
	}
	if err != nil {
		return nil, fmt.Errorf("open keys: %w", err)
	}
	for _, p := range []jws.Purpose{jws.PurposeReceipt, jws.PurposePermit} {
		if _, err := keyring.Active(p); err != nil {
			return nil, fmt.Errorf("%w; %s", err, advice)
		}
	}
	return keyring, nil
}

func (a *app) keysNew() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "new --config FILE", Short: "Make the keys that are missing; never replaces one", Args: cobra.NoArgs,
		Example: "  counterfoil keys new --config counterfoil.yaml",
		RunE: does(func(context.Context, []string) error {
			cfg, err := config.LoadStructure(file, a.env)
			if err != nil {
				return refused(err)
			}
			_, made, err := jws.CreateMissing(cfg.KeysDir, time.Now())
			if err != nil {
				return fmt.Errorf("make keys: %w", err)
			}
			for _, k := range made {
				fmt.Fprintf(a.out, "made the %s key %s in %s\n", k.Purpose, k.ID, cfg.KeysDir)
			}
			if len(made) == 0 {
				fmt.Fprintf(a.out, "all keys are in %s already; nothing was changed\n", cfg.KeysDir)
			}
			return nil
		}),
	}
	a.configFlag(c, &file)
	return c
}

func (a *app) keysList() *cobra.Command {
	var file string
	var asJSON bool
	c := &cobra.Command{
		Use: "list --config FILE", Short: "List the keys; --json prints the trust file for counterfoil-verify", Args: cobra.NoArgs,
		Example: "  counterfoil keys list --config counterfoil.yaml --json > trust.json",
		RunE: does(func(context.Context, []string) error {
			cfg, err := config.LoadStructure(file, a.env)
			if err != nil {
				return refused(err)
			}
			keyring, err := openKeys(cfg)
			if err != nil {
				return err
			}
			if asJSON {
				_, err := fmt.Fprintf(a.out, "%s\n", keyring.Public().JWKS())
				return err
			}
			w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "PURPOSE\tSTATUS\tKEY\tNOT BEFORE\tEXPIRES")
			for _, k := range keyring.Public().Keys() {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", k.Purpose, k.Status, k.ID, day(k.NotBefore), day(k.Expires))
			}
			return w.Flush()
		}),
	}
	a.configFlag(c, &file)
	c.Flags().BoolVar(&asJSON, "json", false, "print the public keys as a JWKS")
	return c
}

func day(unix int64) string {
	if unix == 0 {
		return "-"
	}
	return time.Unix(unix, 0).UTC().Format(time.RFC3339)
}

func (a *app) keysRotate() *cobra.Command {
	var file string
	var purposes []string
	var next bool
	c := &cobra.Command{
		Use: "rotate --config FILE", Short: "Take new keys into use; the old ones stay published", Args: cobra.NoArgs,
		Long: `Take new keys into use. The old ones are retired: they stay published, so that what they signed can be
checked for ever, and they sign what a crash left unsigned. A running gateway takes new keys into use when it is
restarted; restart every gateway of these keys right after.`,
		Example: `  counterfoil keys rotate --config counterfoil.yaml --next                 # announce the new keys
  counterfoil keys rotate --config counterfoil.yaml                        # days later: use them
  counterfoil keys rotate --config counterfoil.yaml --purpose receipt`,
		RunE: does(func(context.Context, []string) error {
			return a.rotate(file, purposes, next)
		}),
	}
	a.configFlag(c, &file)
	c.Flags().StringSliceVar(&purposes, "purpose", []string{"receipt", "permit", "checkpoint"}, "which keys: receipt, permit, checkpoint")
	c.Flags().BoolVar(&next, "next", false, "only make and publish the next keys")
	return c
}

func (a *app) rotate(file string, purposes []string, next bool) error {
	for _, p := range purposes {
		switch jws.Purpose(p) {
		case jws.PurposeReceipt, jws.PurposePermit, jws.PurposeCheckpoint:
		default:
			return refused(fmt.Errorf("--purpose %q is none of: receipt, permit, checkpoint", p))
		}
	}
	cfg, err := config.LoadStructure(file, a.env)
	if err != nil {
		return refused(err)
	}
	keyring, err := openKeys(cfg)
	if err != nil {
		return err
	}
	for _, p := range purposes {
		change, verb := keyring.Rotate, "is active"
		if next {
			change, verb = keyring.AddNext, "will be next"
		}
		k, err := change(jws.Purpose(p), time.Now())
		if err != nil {
			return fmt.Errorf("rotate the %s key: %w", p, err)
		}
		fmt.Fprintf(a.out, "the %s key %s %s\n", p, k.ID, verb)
	}
	if !next {
		fmt.Fprintln(a.out, "restart every gateway that uses these keys now")
	}
	return nil
}
