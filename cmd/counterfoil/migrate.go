package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/config"
)

func (a *app) migrateCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "migrate --config FILE", Short: "Bring the database's schema up to this version", Args: cobra.NoArgs,
		Long: `Bring the database's schema and roles up to this version, forward only. Run it as the owner of the database;
a gateway needs less. Several at once wait for one another, and one that finds nothing to do changes nothing.`,
		Example: "  counterfoil migrate --config counterfoil.yaml",
		RunE: does(func(ctx context.Context, _ []string) (err error) {
			cfg, err := config.LoadStructure(file, a.env)
			if err != nil {
				return refused(err)
			}
			db, err := openDatabase(ctx, cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.close()) }()
			if err := db.migrate(ctx); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "the schema in %s is this version's\n", cfg.Database.Place())
			return err
		}),
	}
	a.configFlag(c, &file)
	return c
}
