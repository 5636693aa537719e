//go:build unix && !aix && !solaris

package testdb_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"counterfoil/internal/embeddedpg"
	"counterfoil/internal/testdb"
	"counterfoil/sql"
)

const (
	helperMode = "TESTDB_TEST_HELPER"
	patience   = time.Minute
)

func TestMain(m *testing.M) { testdb.Main(m) }

func TestDatabasesAreMigratedEmptyAndApart(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, testdb.New(t))
			if err := sql.CheckSchema(t.Context(), conn); err != nil {
				t.Error(err)
			}
			if n := scan[int](t, conn, "select count(*) from wallets"); n != 0 {
				t.Errorf("%d wallets in a fresh database", n)
			}
			// Fails in the second test if two of them share a database.
			execute(t, conn, "create table mine ()")
			execute(t, conn, "insert into wallets (id, name) values ('w_x', 'x')")
		})
	}
}

func TestServerSettings(t *testing.T) {
	t.Parallel()
	if os.Getenv("TEST_DATABASE_URL") != "" {
		return // somebody else's server
	}
	conn := connect(t, testdb.New(t))
	for name, want := range map[string]string{"fsync": "off", "max_connections": "300", "wal_level": "minimal", "listen_addresses": ""} {
		if got := scan[string](t, conn, "show "+name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestDatabaseIsDroppedAtCleanup(t *testing.T) {
	t.Parallel()
	admin := connect(t, testdb.New(t))
	var name string
	t.Run("user", func(t *testing.T) {
		databaseURL := testdb.New(t)
		// Still connected when the cleanup comes.
		conn, err := pgx.Connect(t.Context(), databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		name = scan[string](t, conn, "select current_database()")
	})
	if n := scan[int](t, admin, "select count(*) from pg_database where datname = '"+name+"'"); n != 0 {
		t.Error("the database is still there")
	}
}

// Data of the durable server survives a kill of the server.
func TestNewDurable(t *testing.T) {
	t.Parallel()
	s := testdb.NewDurable(t)
	conn := connect(t, s.URL())
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if got := scan[string](t, conn, "show "+name); got != "on" {
			t.Errorf("%s is %s", name, got)
		}
	}
	if err := sql.CheckSchema(t.Context(), conn); err != nil {
		t.Error(err)
	}
	execute(t, conn, "create table kept as select 'row' as value")
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	again, err := embeddedpg.Start(t.Context(), embeddedpg.Options{Dir: s.Dir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Stop() })
	if got := scan[string](t, connect(t, again.URL()), "select value from kept"); got != "row" {
		t.Errorf("the row is %q", got)
	}
}

// However the test process ends, its server ends too, and a later run removes its directory.
func TestKilledProcessLeavesNothing(t *testing.T) {
	t.Parallel()
	h := spawn(t, nil, "TEST_DATABASE_URL=")
	line := h.line(t)
	data, pid, found := strings.Cut(line, " ")
	if !found {
		t.Fatalf("the helper says %q", line)
	}
	h.kill()
	eventually(t, "the server goes with its process", func() bool {
		out, _ := exec.CommandContext(t.Context(), "ps", "-o", "stat=", "-p", pid).Output()
		return len(out) == 0 || out[0] == 'Z'
	})
	dir := filepath.Dir(filepath.Dir(data))
	if _, err := os.Stat(dir); err != nil {
		return // another test binary has already removed it
	}
	next := spawn(t, nil, "TEST_DATABASE_URL=")
	next.line(t)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	next.finish(t)
}

// A server that somebody else runs is used, and left as it was.
func TestDatabaseURLFromTheEnvironment(t *testing.T) {
	t.Parallel()
	s := testdb.NewDurable(t)
	conn := connect(t, s.URL())
	const list = "select string_agg(datname, ' ' order by datname) from pg_database"
	before := scan[string](t, conn, list)
	h := spawn(t, nil, "TEST_DATABASE_URL="+s.URL())
	data, _, _ := strings.Cut(h.line(t), " ")
	if want := filepath.Join(s.Dir(), "data"); data != want {
		t.Errorf("the database is in %s, want %s", data, want)
	}
	if during := scan[string](t, conn, list); len(strings.Fields(during)) != len(strings.Fields(before))+2 {
		t.Errorf("databases: %s", during)
	}
	h.finish(t)
	if after := scan[string](t, conn, list); after != before {
		t.Errorf("databases before: %s, after: %s", before, after)
	}
}

// A user without a home has no cache of clusters, and a directory of its own.
func TestPlainUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // every other test shows it
	}
	h := spawn(t, &syscall.Credential{Uid: 65534, Gid: 65534}, "TEST_DATABASE_URL=", "HOME=/nonexistent", "XDG_CACHE_HOME=")
	if line := h.line(t); !strings.Contains(line, "testdb-65534-") {
		t.Errorf("the helper says %q", line)
	}
	h.finish(t)
}

// TestHelper is the program under test in another process: it takes a database, says where, and keeps
// it until its input ends.
func TestHelper(t *testing.T) {
	if os.Getenv(helperMode) == "" {
		return
	}
	conn := connect(t, testdb.New(t))
	fmt.Println("at", scan[string](t, conn, "select current_setting('data_directory') || ' ' || split_part(pg_read_file('postmaster.pid'), e'\\n', 1)"))
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

type helper struct {
	cmd    *exec.Cmd
	out    *bufio.Scanner
	finish func(t *testing.T) // lets it end by itself
	kill   func()
}

func spawn(t *testing.T, credential *syscall.Credential, env ...string) *helper {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if credential != nil { // the build's directory is closed to others
		text, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		binary = filepath.Join(testdb.Dir(t), "helper")
		if err := os.WriteFile(binary, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestHelper$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(append(os.Environ(), helperMode+"=1"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	h := &helper{cmd: cmd, out: bufio.NewScanner(out)}
	h.kill = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	h.finish = func(t *testing.T) {
		t.Helper()
		_ = in.Close()
		for h.out.Scan() { // until it has closed its output
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the helper ended with %v", err)
		}
	}
	t.Cleanup(h.kill)
	return h
}

// line returns what the helper says after "at".
func (h *helper) line(t *testing.T) string {
	t.Helper()
	var said []string
	for h.out.Scan() {
		if line, found := strings.CutPrefix(h.out.Text(), "at "); found {
			return line
		}
		said = append(said, h.out.Text())
	}
	t.Fatalf("the helper says %q", said)
	return ""
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func connect(t *testing.T, databaseURL string) *pgx.Conn {
	t.Helper()
	if _, err := url.Parse(databaseURL); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func scan[T any](t *testing.T, conn *pgx.Conn, query string) T {
	t.Helper()
	var value T
	if err := conn.QueryRow(t.Context(), query).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}
