package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/config"
	"counterfoil/ledger"
)

const exitUnclear = 2 // fsck cannot tell

func (a *app) fsckCommand() *cobra.Command {
	var file string
	asJSON := false
	c := &cobra.Command{
		Use: "fsck --config FILE", Short: "Prove the whole database against the invariants", Args: cobra.NoArgs,
		Long: `Walk the whole database in one snapshot and prove it: balances from transfers and holds, what permits have
used from receipts and holds, gap-free receipt chains, signatures, and one receipt an operation. It only
reads, and may run beside a gateway.

Exit status: 0 clean, 1 broken (the first broken row is named), 2 it cannot tell.`,
		Example: `  counterfoil fsck --config counterfoil.yaml
  counterfoil fsck --config counterfoil.yaml --json`,
		RunE: does(func(ctx context.Context, _ []string) error { return a.fsck(ctx, file, asJSON) }),
	}
	a.configFlag(c, &file)
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return c
}

func (a *app) fsck(ctx context.Context, file string, asJSON bool) (err error) {
	unclear := func(err error) error { return &ranError{code: exitUnclear, err: err} }
	cfg, err := config.Load(file, a.env)
	if err != nil {
		return unclear(err)
	}
	keys, err := openKeys(cfg)
	if err != nil {
		return unclear(err)
	}
	db, err := joinDatabase(ctx, cfg, logger(a.errOut, cfg.Log))
	if err != nil {
		return unclear(err)
	}
	defer func() {
		if closeErr := db.close(); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
	}()
	began := time.Now()
	report, err := ledger.Fsck(ctx, db.url, keys.Public(), func(n int64) {
		fmt.Fprintf(a.errOut, "%d receipts checked, %.0f s\n", n, time.Since(began).Seconds())
	})
	if err != nil {
		return unclear(err)
	}
	return a.printFsck(report, asJSON)
}

func (a *app) printFsck(r *ledger.FsckReport, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(a.out).Encode(r); err != nil {
			return err
		}
	}
	if r.FirstFault != nil {
		return r.FirstFault
	}
	if !asJSON {
		fmt.Fprintf(a.out, "clean: %d wallets, %d permits, %d receipts (%d not yet signed), %d operations in flight, %d waiting for input\n",
			r.Wallets, r.Permits, r.Receipts, r.Unsigned, r.Open, r.Awaiting)
	}
	return nil
}
