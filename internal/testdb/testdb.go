// Package testdb gives every test a fresh, migrated database of its own, on a throw-away server that
// cannot outlive the test process.
//
// A test binary starts one server, when the first test asks, and migrates one template; every database
// is a copy of the template's files. With TEST_DATABASE_URL set, that server is used instead; its role
// must be able to create databases and roles. Nothing here ever skips a test.
package testdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"counterfoil/internal/embeddedpg"
	"counterfoil/sql"
)

// patience bounds each step; a machine that compiles beside the tests can be slow.
const patience = 2 * time.Minute

// migrationLock serialises the processes that migrate templates on a shared server: the schema's
// roles belong to the whole server.
const migrationLock = 7246001

// Main is for TestMain: it runs the tests, stops the server and exits.
func Main(m *testing.M) { os.Exit(Runner(m).Run()) }

// Runner is Main for a TestMain that wraps it: goleak.VerifyTestMain(testdb.Runner(m)).
func Runner(m *testing.M) interface{ Run() int } { return runner{m} }

type runner struct{ m *testing.M }

func (r runner) Run() int {
	code := r.m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		code = max(code, 1)
	}
	return code
}

// New returns the owner's URL of a fresh, migrated, empty database. The database is dropped at
// cleanup, whoever is still connected. Parallel tests may call it.
func New(t testing.TB) string {
	t.Helper()
	srv, err := shared.open()
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	name := fmt.Sprintf("%s_%d", srv.template, srv.count.Add(1))
	if err := srv.exec(fmt.Sprintf("create database %s template %s strategy file_copy", name, srv.template)); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() {
		if err := srv.exec(fmt.Sprintf("drop database %s with (force)", name)); err != nil {
			t.Errorf("testdb: %v", err)
		}
	})
	return withDatabase(srv.admin, name)
}

// NewDurable returns a server of the test's own that syncs every commit to disk, for tests that kill:
// on the shared server they would hide a loss. Its database "counterfoil" is migrated. To start it
// again after a kill, start embeddedpg on its Dir.
func NewDurable(t testing.TB) *embeddedpg.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dir := filepath.Join(Dir(t), "pg")
	if err := fill(ctx, dir); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	// A killed server would leave its shared memory outside of its directory.
	inside := map[string]string{"dynamic_shared_memory_type": "mmap"}
	s, err := embeddedpg.Start(ctx, embeddedpg.Options{Dir: dir, Settings: inside})
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("testdb: %v", err)
		}
	})
	if err := migrate(ctx, s.URL()); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	return s
}

// Dir returns an empty directory on disk that the database's user can enter, which t.TempDir is not
// when the tests run as root. It is removed at cleanup.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "counterfoil-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("testdb: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// shared is the process's server. It is a global because TestMain and the tests share nothing else.
var shared lazy

type lazy struct {
	mu     sync.Mutex
	opened bool
	server *server
	err    error
}

// server is where the databases are: one of our own, or the one that TEST_DATABASE_URL names.
type server struct {
	admin    string // URL of a database from which others are made
	template string
	count    atomic.Int64
	own      *throwaway // nil for TEST_DATABASE_URL
}

func (l *lazy) open() (*server, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.opened {
		l.opened = true
		l.server, l.err = openServer()
	}
	return l.server, l.err
}

func (l *lazy) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server == nil {
		return nil
	}
	defer func() { l.server, l.err = nil, errors.New("the server has been stopped") }()
	if l.server.own != nil {
		return l.server.own.close()
	}
	return errors.Join(
		l.server.exec("alter database "+l.server.template+" is_template false"),
		l.server.exec("drop database "+l.server.template+" with (force)"))
}

func openServer() (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// A name of our own: with TEST_DATABASE_URL, several test binaries use one server at once.
	srv := &server{admin: os.Getenv("TEST_DATABASE_URL"), template: "counterfoil_test_" + strings.ToLower(rand.Text()[:10])}
	if srv.admin != "" && !strings.HasPrefix(srv.admin, "postgres") {
		return nil, errors.New("TEST_DATABASE_URL is no postgres:// URL")
	}
	if srv.admin == "" {
		own, err := startThrowaway(ctx)
		if err != nil {
			return nil, err
		}
		srv.own, srv.admin = own, withDatabase(own.server.URL(), "postgres")
	}
	if err := srv.makeTemplate(ctx); err != nil {
		if srv.own != nil {
			err = errors.Join(err, srv.own.close())
		}
		return nil, err
	}
	return srv, nil
}

// makeTemplate migrates a database once and closes it: PostgreSQL copies only a database that nobody
// uses.
func (s *server) makeTemplate(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.admin)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "create database "+s.template); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", migrationLock); err != nil {
		return err
	}
	if err := migrate(ctx, withDatabase(s.admin, s.template)); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("alter database %s with allow_connections false is_template true", s.template))
	return err
}

func (s *server) exec(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.admin)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func migrate(ctx context.Context, databaseURL string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	return errors.Join(sql.Migrate(ctx, conn), conn.Close(ctx))
}

// withDatabase names another database of the same server. The parameter form of the URL, which has
// the host in its query, keeps its shape.
func withDatabase(databaseURL, name string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return databaseURL // pgx reports it
	}
	u.Path = "/" + name
	return u.String()
}
