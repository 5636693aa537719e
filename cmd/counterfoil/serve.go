package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/config"
)

// closeTimeout bounds what comes after the drain: the last signatures, the end of the lease.
const closeTimeout = 15 * time.Second

func (a *app) serveCommand() *cobra.Command {
	var file string
	var migrate bool
	drain := 30 * time.Second
	c := &cobra.Command{
		Use: "serve --config FILE", Short: "Run a gateway", Args: cobra.NoArgs,
		Long: `Run a gateway until SIGTERM or SIGINT. It then takes no new calls, waits for those in flight, and records
those that the drain time does not suffice for as uncertain; a second signal ends it at once, which loses nothing either:
the next start, or another gateway, records what was in flight.

Exit status: 0 stopped as asked, 1 it failed, 2 it did not start (configuration, keys, schema).`,
		Example: `  counterfoil keys new --config counterfoil.yaml
  counterfoil serve --config counterfoil.yaml --migrate`,
		RunE: does(func(ctx context.Context, _ []string) error {
			return a.serve(ctx, file, migrate, drain)
		}),
	}
	a.configFlag(c, &file)
	c.Flags().BoolVar(&migrate, "migrate", false, "bring the schema of database.url up to this version first")
	c.Flags().DurationVar(&drain, "drain", drain, "how long calls in flight may take to end after SIGTERM")
	return c
}

func (a *app) serve(ctx context.Context, file string, migrate bool, drain time.Duration) (err error) {
	cfg, err := config.Load(file, a.env)
	if err != nil {
		return refused(err)
	}
	keys, err := openKeys(cfg)
	if err != nil {
		return refused(err)
	}
	if err := checkUpstreams(cfg); err != nil {
		return refused(err)
	}
	log := logger(a.errOut, cfg.Log)
	a.tuneCollector()
	// Whoever cannot have the port does not touch the database.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	db, err := openDatabase(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	if err := a.prepareSchema(ctx, cfg, db, migrate); err != nil {
		return err
	}
	n, err := openNode(ctx, cfg, db.url, keys, listener, log)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "serving", "version", version(), "listen", listener.Addr().String(), "issuer", cfg.Issuer,
		"database", cfg.Database.Place(), "tools", len(cfg.Tools), "upstreams", len(cfg.Upstreams))
	err = n.serveUntil(ctx, db, drain)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err = errors.Join(err, n.close(closing))
	log.InfoContext(closing, "stopped", "clean", err == nil)
	return err
}

// collectorPercent lets garbage grow to this share of the live heap before it is collected. The live heap is
// a few megabytes and what a call leaves is short-lived, so the default collects many times a second.
const collectorPercent = 400

// tuneCollector leaves the choice to GOGC where that is set.
func (a *app) tuneCollector() {
	if a.env["GOGC"] == "" {
		debug.SetGCPercent(collectorPercent)
	}
}

// prepareSchema migrates what is this program's own, and somebody's database only when asked to.
func (a *app) prepareSchema(ctx context.Context, cfg *config.Config, db *database, migrate bool) error {
	if migrate || cfg.Database.Embedded() {
		return db.migrate(ctx)
	}
	return db.checkSchema(ctx, cfg)
}

// serveUntil serves until ctx ends or the embedded database dies. A database that died is not started
// again here: a loop of restarts would hide that something is wrong with it.
func (n *node) serveUntil(ctx context.Context, db *database, drain time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	died := make(chan struct{})
	go func() {
		select {
		case <-db.failed():
			close(died)
			cancel()
		case <-ctx.Done():
		}
	}()
	err := n.gateway.Serve(ctx, n.listener, drain)
	select {
	case <-died:
		return errors.Join(fmt.Errorf("the embedded database ended by itself: %w", db.server.Err()), err)
	default:
		return err
	}
}

// logger writes to the error output. What it is given holds no secrets: those are config.Secret, or
// never reach a log call.
func logger(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // one of four words, checked by config
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
