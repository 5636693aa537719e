//go:build unix && !aix && !solaris

package embeddedpg_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"counterfoil/internal/embeddedpg"
)

func TestDataIsKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "new", "pg")
	var log bytes.Buffer
	o := embeddedpg.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s := start(t, o)
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d log lines, want 1:\n%s", n, &log)
	}
	for _, part := range []string{s.Version(), dir, "data is kept"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log line has no %q: %s", part, &log)
		}
	}
	if secret := strings.TrimSpace(readFile(t, filepath.Join(dir, "password"))); strings.Contains(log.String(), secret) {
		t.Error("the log shows the password")
	}
	execute(t, s, "create table kept as select 'row' as value")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	default:
		t.Error("Done is open after Stop")
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err after Stop: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if got := query(t, start(t, o), "select value from kept"); got != "row" {
		t.Errorf("after a restart the row is %q", got)
	}
}

func TestClusterIsSafe(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	// Whatever the configuration file says, the command line keeps the promises.
	uid, gid := owner(t, dir)
	conf := filepath.Join(dir, "data", "postgresql.auto.conf")
	if err := os.WriteFile(conf, []byte("fsync = off\nsynchronous_commit = off\nlisten_addresses = '*'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(conf, uid, gid); err != nil {
		t.Fatal(err)
	}
	s := start(t, embeddedpg.Options{Dir: dir, Settings: map[string]string{"work_mem": "5MB"}})
	for statement, want := range map[string]string{
		"show data_checksums":     "on",
		"show fsync":              "on",
		"show full_page_writes":   "on",
		"show synchronous_commit": "on",
		"show listen_addresses":   "",
		"show server_encoding":    "UTF8",
		"show work_mem":           "5MB",
		"select datcollate from pg_database where datname = current_database()": "C",
		"select current_database()": "counterfoil",
		"select current_user":       "app",
		"select rolsuper::text from pg_roles where rolname = current_user":          "true",
		"select string_agg(distinct auth_method, ' ') from pg_hba_file_rules":       "scram-sha-256",
		"select left(current_setting('unix_socket_permissions'), 4)":                "0700",
		"select split_part(current_setting('server_version'), ' ', 1)":              s.Version(),
		"select current_setting('data_directory')":                                  filepath.Join(dir, "data"),
		"select count(*)::text from pg_stat_activity where client_addr is not null": "0",
	} {
		if got := query(t, s, statement); got != want {
			t.Errorf("%s: %q, want %q", statement, got, want)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "password"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the password file has mode %o", info.Mode().Perm())
	}
	if exists(filepath.Join(dir, "pwfile")) {
		t.Error("initdb's copy of the password is still there")
	}
	if uid == 0 {
		t.Error("the server runs as root")
	}
	if !strings.HasPrefix(s.BinDir(), "/") || !exists(filepath.Join(s.BinDir(), "postgres")) {
		t.Errorf("BinDir is %q", s.BinDir())
	}
}

// A caller's PG variables are not for the private server, and its working directory may be one that
// the database's user cannot enter.
func TestSurroundingsDoNotMatter(t *testing.T) {
	dir := filepath.Join(tempDir(t), "pg")
	t.Chdir(t.TempDir())
	for _, name := range []string{"PGDATA", "PGPORT", "PGHOST", "PGUSER", "PGPASSWORD", "PGDATABASE"} {
		t.Setenv(name, "9999")
	}
	t.Setenv("LC_ALL", "xx_XX.UTF-8")
	t.Setenv("TZ", "Asia/Tokyo")
	s := start(t, embeddedpg.Options{Dir: dir})
	if got := query(t, s, "select current_user || current_database()"); got != "appcounterfoil" {
		t.Errorf("connected as %s", got)
	}
	if got := query(t, s, "show timezone"); strings.Contains(got, "Tokyo") {
		t.Errorf("initdb took the timezone %s from its caller", got)
	}
}

// The socket's path must fit into 103 bytes, however long the directory's name is.
func TestLongDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), strings.Repeat("long", 30))
	if err := os.Rename(cluster(t), dir); err != nil {
		t.Fatal(err)
	}
	s := start(t, embeddedpg.Options{Dir: dir})
	short, err := os.Readlink(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(short)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory has mode %o", info.Mode().Perm())
	}
	execute(t, s, "select")
	if got, err := embeddedpg.Running(dir); err != nil || got != s.URL() {
		t.Errorf("Running: %v, or another URL", err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if exists(short) || exists(filepath.Join(dir, "run")) {
		t.Error("the socket's directory was left behind")
	}
	// A crash leaves it behind; the next start takes it away.
	if err := os.Mkdir(short, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(short, filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	start(t, embeddedpg.Options{Dir: dir})
	if exists(short) {
		t.Error("the socket's directory of the earlier run is still there")
	}
}

func TestStartIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := embeddedpg.Start(ended, embeddedpg.Options{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	// A server that never answers where it should: the caller gives up while it runs.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	elsewhere := map[string]string{"unix_socket_directories": filepath.Join(dir, "data")}
	failed := make(chan error, 1)
	go func() {
		_, err := embeddedpg.Start(ctx, embeddedpg.Options{Dir: dir, Settings: elsewhere})
		failed <- err
	}()
	pidFile := filepath.Join(dir, "data", "postmaster.pid")
	eventually(t, "the server is up", func() bool {
		text, err := os.ReadFile(pidFile)
		return err == nil && strings.Contains(string(text), "ready")
	})
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("when the context ends: %v", err)
	}
	// Neither a process nor the lock is left.
	if exists(pidFile) {
		t.Error("the server still runs")
	}
	start(t, embeddedpg.Options{Dir: dir})
}

// A second program works beside the owner of the directory.
func TestRunning(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	if _, err := embeddedpg.Running(dir); !errors.Is(err, embeddedpg.ErrNotRunning) {
		t.Errorf("before the start: %v", err)
	}
	p := spawn(t, "serve", dir, nil)
	p.up(t)
	url, err := embeddedpg.Running(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := tryExec(t.Context(), url, "select"); err != nil {
		t.Error(err)
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	_, err := embeddedpg.Start(t.Context(), embeddedpg.Options{Dir: dir, Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil {
		t.Fatal("it started")
	}
	for _, part := range []string{dir, "did not start", `unrecognized configuration parameter "no_such_setting"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message has no %q: %v", part, err)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
