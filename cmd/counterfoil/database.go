package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"counterfoil/cmd/counterfoil/config"
	"counterfoil/internal/embeddedpg"
	"counterfoil/sql"
)

// database is where the ledger is: somebody's server, or a child of this process.
type database struct {
	url    string
	server *embeddedpg.Server // nil: somebody's
}

// openDatabase starts the embedded server, where the configuration has one. It is never a fall-back
// for a URL that is missing or does not answer.
func openDatabase(ctx context.Context, cfg *config.Config, log *slog.Logger) (*database, error) {
	if !cfg.Database.Embedded() {
		return &database{url: cfg.Database.URL.Reveal()}, nil
	}
	server, err := embeddedpg.Start(ctx, embeddedpg.Options{
		Dir: cfg.Database.EmbeddedDir, BinDir: cfg.Database.EmbeddedBin, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("start the embedded database: %w", err)
	}
	return &database{url: server.URL(), server: server}, nil
}

// joinDatabase works beside a gateway that runs: the server that it has started is used, and left running.
// Without one it starts its own, as openDatabase does.
func joinDatabase(ctx context.Context, cfg *config.Config, log *slog.Logger) (*database, error) {
	if !cfg.Database.Embedded() {
		return openDatabase(ctx, cfg, log)
	}
	url, err := embeddedpg.Running(cfg.Database.EmbeddedDir)
	if errors.Is(err, embeddedpg.ErrNotRunning) {
		return openDatabase(ctx, cfg, log)
	}
	if err != nil {
		return nil, fmt.Errorf("join the embedded database: %w", err)
	}
	return &database{url: url}, nil
}

// close stops the embedded server, after everything that uses it has let go.
func (d *database) close() error {
	if d.server == nil {
		return nil
	}
	return d.server.Stop()
}

// failed is closed when the embedded server dies by itself; nil, which blocks for ever, without one.
func (d *database) failed() <-chan struct{} {
	if d.server == nil {
		return nil
	}
	return d.server.Done()
}

// connect opens one connection of the owner's. Its error never shows the URL, which may hold a password.
func (d *database) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(d.url)
	if err != nil {
		return nil, errors.New("the database URL cannot be parsed")
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, nil
}

// migrate brings the schema up to this program's.
func (d *database) migrate(ctx context.Context) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := sql.Migrate(ctx, conn); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// checkSchema refuses a schema that is not this program's, and says what to do.
func (d *database) checkSchema(ctx context.Context, cfg *config.Config) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = sql.CheckSchema(ctx, conn)
	if errors.Is(err, sql.ErrSchemaMissing) || errors.Is(err, sql.ErrSchemaForeign) {
		return refused(fmt.Errorf("%w; run: counterfoil migrate --config %s, or serve with --migrate", err, cfg.File))
	}
	return err
}
