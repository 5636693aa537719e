package sql_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"counterfoil/internal/testdb"
	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Every statement is checked by a real server under the gateway's own role: columns, types, privileges.
func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.New(t))
	ctx := context.Background()
	if _, err := conn.Exec(ctx, "set role "+sql.Role); err != nil {
		t.Fatal(err)
	}
	names := sql.Names()
	if len(names) < 30 {
		t.Fatalf("only %d statements found", len(names))
	}
	for _, name := range names {
		text := sql.Query(name)
		if !strings.HasPrefix(text, "-- ") {
			t.Errorf("%s: its first line does not say which locks it takes", name)
		}
		description, err := conn.Prepare(ctx, name, text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		explain(t, conn, name, text, len(description.ParamOIDs))
	}
}

// explain plans a statement with unknown parameters, so that missing privileges and tables show.
func explain(t *testing.T, conn *pgx.Conn, name, text string, params int) {
	t.Helper()
	body := strings.TrimSpace(withoutComments(text))
	switch strings.ToLower(strings.Fields(body)[0]) {
	case "select", "insert", "update", "delete", "with":
	default:
		return // begin, commit, rollback
	}
	nulls := strings.TrimSuffix(strings.Repeat("null, ", params), ", ")
	if params > 0 {
		nulls = "(" + nulls + ")"
	}
	if _, err := conn.PgConn().Exec(context.Background(), "set plan_cache_mode = force_generic_plan; explain execute \""+name+"\""+nulls).ReadAll(); err != nil {
		t.Errorf("%s: explain: %v", name, err)
	}
}

func withoutComments(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestConcurrentMigratorsAgree(t *testing.T) {
	t.Parallel()
	url := testdb.New(t)
	conn := connect(t, url)
	ctx := context.Background()
	for _, statement := range []string{"drop schema public cascade", "create schema public"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := sql.CheckSchema(ctx, conn); !errors.Is(err, sql.ErrSchemaMissing) {
		t.Fatalf("an empty database: %v, want ErrSchemaMissing", err)
	}
	var wg sync.WaitGroup
	for range 4 {
		migrator := connect(t, url)
		wg.Go(func() {
			if err := sql.Migrate(ctx, migrator); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := sql.CheckSchema(ctx, conn); err != nil {
		t.Fatal(err)
	}
}

func TestAForeignSchemaIsRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, statement := range map[string]string{
		"newer": "insert into schema_migrations (version, name, sha256) values (9999, '9999_future.sql', 'x')",
		"other": "update schema_migrations set sha256 = 'x'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, testdb.New(t))
			if _, err := conn.Exec(ctx, statement); err != nil {
				t.Fatal(err)
			}
			if err := sql.CheckSchema(ctx, conn); !errors.Is(err, sql.ErrSchemaForeign) {
				t.Errorf("check: %v, want ErrSchemaForeign", err)
			}
			if err := sql.Migrate(ctx, conn); !errors.Is(err, sql.ErrSchemaForeign) {
				t.Errorf("migrate: %v, want ErrSchemaForeign", err)
			}
		})
	}
}
