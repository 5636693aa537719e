package sql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// MinimumServer is the oldest PostgreSQL this schema runs on, as server_version_num counts.
const MinimumServer = 150000

var (
	// ErrSchemaMissing means that the database holds no schema of this program.
	ErrSchemaMissing = errors.New("the database has no Counterfoil schema")
	// ErrSchemaForeign means that the schema is older, newer or other than this program's.
	ErrSchemaForeign = errors.New("the database's schema is not this program's")
)

// Migrate brings the database up to this program's schema and roles. Concurrent migrators wait for one
// another on a lock row. It changes nothing when the schema is already current, and refuses a database
// that a newer program has migrated.
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	if err := checkServer(ctx, conn); err != nil {
		return err
	}
	if err := bootstrap(ctx, conn); err != nil {
		return fmt.Errorf("prepare migrations: %w", err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin migrations: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "select one from schema_lock where one = 1 for update"); err != nil {
		return fmt.Errorf("lock migrations: %w", err)
	}
	// The lock's transaction stays open on one connection while another applies each step in a
	// transaction of its own.
	worker, err := pgx.ConnectConfig(ctx, conn.Config())
	if err != nil {
		return fmt.Errorf("connect for migrations: %w", err)
	}
	defer func() { _ = worker.Close(context.WithoutCancel(ctx)) }()
	if err := apply(ctx, worker); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// CheckSchema returns nil when the database holds exactly this program's schema.
func CheckSchema(ctx context.Context, conn *pgx.Conn) error {
	if err := checkServer(ctx, conn); err != nil {
		return err
	}
	applied, err := appliedMigrations(ctx, conn)
	if err != nil {
		return err
	}
	want := migrations()
	for _, m := range want {
		if applied[m.version] != digest(m.text) {
			return fmt.Errorf("%w: migration %s is missing or differs", ErrSchemaForeign, m.name)
		}
	}
	if len(applied) != len(want) {
		return fmt.Errorf("%w: it has %d migrations, this program knows %d", ErrSchemaForeign, len(applied), len(want))
	}
	return nil
}

func checkServer(ctx context.Context, conn *pgx.Conn) error {
	var version int
	if err := conn.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		return fmt.Errorf("ask the server's version: %w", err)
	}
	if version < MinimumServer {
		return fmt.Errorf("PostgreSQL 15 or newer is needed, this server says %d", version)
	}
	return nil
}

// bootstrap makes what the lock itself needs. "if not exists" does not stop two sessions from racing in
// the catalogue, so a duplicate is success.
func bootstrap(ctx context.Context, conn *pgx.Conn) error {
	steps := []string{
		"create table if not exists schema_lock (one smallint primary key check (one = 1))",
		"create table if not exists schema_migrations (version integer primary key, name text not null, sha256 text not null, applied_at timestamptz not null default now())",
		"insert into schema_lock values (1) on conflict do nothing",
	}
	var exists bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_roles where rolname = $1)", Role).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		steps = append(steps, "create role "+Role+" nologin")
	}
	for _, step := range steps {
		if _, err := conn.Exec(ctx, step); err != nil && !isDuplicate(err) {
			return err
		}
	}
	return nil
}

func isDuplicate(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	switch pgErr.Code {
	case "42P07", "42710", "23505": // table, role, catalogue row
		return true
	}
	return false
}

func apply(ctx context.Context, conn *pgx.Conn) error {
	applied, err := appliedMigrations(ctx, conn)
	if err != nil && !errors.Is(err, ErrSchemaMissing) {
		return err
	}
	known := migrations()
	if len(applied) > len(known) {
		return fmt.Errorf("%w: a newer program has migrated it (%d migrations, this program knows %d)", ErrSchemaForeign, len(applied), len(known))
	}
	for _, m := range known {
		if have, done := applied[m.version]; done {
			if have != digest(m.text) {
				return fmt.Errorf("%w: migration %s was applied with other text", ErrSchemaForeign, m.name)
			}
			continue
		}
		if err := applyOne(ctx, conn, m); err != nil {
			return fmt.Errorf("apply migration %s: %w", m.name, err)
		}
	}
	return applyRoles(ctx, conn)
}

// applyOne runs one migration and records it in the same transaction, so that a crash leaves both or neither.
func applyOne(ctx context.Context, conn *pgx.Conn, m migration) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Conn().PgConn().Exec(ctx, m.text).ReadAll(); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into schema_migrations (version, name, sha256) values ($1, $2, $3)", m.version, m.name, digest(m.text))
		return err
	})
}

func applyRoles(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.PgConn().Exec(ctx, roles()).ReadAll(); err != nil {
		return fmt.Errorf("grant roles: %w", err)
	}
	// A login that is no superuser needs membership to SET ROLE.
	if _, err := conn.Exec(ctx, "grant "+Role+" to current_user"); err != nil {
		return fmt.Errorf("grant %s to the migrating user: %w", Role, err)
	}
	return nil
}

func appliedMigrations(ctx context.Context, conn *pgx.Conn) (map[int]string, error) {
	rows, err := conn.Query(ctx, "select version, sha256 from schema_migrations")
	if err != nil {
		return nil, translateMissing(err)
	}
	defer rows.Close()
	applied := make(map[int]string)
	for rows.Next() {
		var version int
		var sum string
		if err := rows.Scan(&version, &sum); err != nil {
			return nil, err
		}
		applied[version] = sum
	}
	if err := rows.Err(); err != nil {
		return nil, translateMissing(err)
	}
	if len(applied) == 0 {
		return applied, ErrSchemaMissing
	}
	return applied, nil
}

func translateMissing(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "42P01" {
		return ErrSchemaMissing
	}
	return err
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
