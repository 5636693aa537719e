//go:build unix && !aix && !solaris

package testdb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"counterfoil/internal/embeddedpg"
)

// standbyName is the standby's cluster_name, by which its primary knows it, and its replication slot.
const standbyName = "sb"

// Pair is a durable primary and a standby that streams from it, for tests of a fail-over. Replication is
// asynchronous until Synchronise.
type Pair struct {
	Primary, Standby *embeddedpg.Server

	stream string // the standby's way to its primary
}

// NewPair returns two servers of the test's own. Their database "counterfoil" is migrated.
func NewPair(t testing.TB) *Pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p := &Pair{Primary: NewDurable(t)}
	dir := filepath.Join(Dir(t), "pg")
	if err := p.copyPrimary(ctx, dir); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	var err error
	p.Standby, err = embeddedpg.Start(ctx, embeddedpg.Options{Dir: dir, Settings: map[string]string{
		"dynamic_shared_memory_type":  "mmap",
		"cluster_name":                standbyName,
		"wal_retrieve_retry_interval": "100ms",
	}})
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Standby.Stop(); err != nil {
			t.Errorf("testdb: %v", err)
		}
	})
	p.stream = query[string](t, p.Standby.URL(), "show primary_conninfo")
	p.streaming(t, "async")
	return p
}

// copyPrimary makes the standby's directory as embeddedpg expects it: a cluster and its password.
func (p *Pair) copyPrimary(ctx context.Context, dir string) error {
	var owner syscall.Stat_t
	if err := syscall.Stat(filepath.Join(p.Primary.Dir(), "data"), &owner); err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	if err := errors.Join(os.MkdirAll(data, 0o700), os.Chmod(dir, 0o711), os.Chown(data, int(owner.Uid), int(owner.Gid))); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(p.Primary.Dir(), "password"), filepath.Join(dir, "password"), 0o600); err != nil {
		return err
	}
	primary, err := pgx.ParseConfig(p.Primary.URL())
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.Primary.BinDir(), "pg_basebackup"), "-D", data,
		"-d", fmt.Sprintf("host=%s port=%d user=%s", primary.Host, primary.Port, primary.User),
		"-R", "-C", "-S", standbyName, "--checkpoint=fast", "--no-sync")
	cmd.Dir = "/"
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=" + p.Primary.BinDir() + ":/usr/bin:/bin", "PGPASSWORD=" + primary.Password}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy the primary: %w: %s", err, out)
	}
	return nil
}

// URL names both servers; whoever connects gets the one that may be written to.
func (p *Pair) URL() string {
	u, err := url.Parse(p.Primary.URL())
	if err != nil {
		return p.Primary.URL() // pgx reports it
	}
	standby, err := url.Parse(p.Standby.URL())
	if err != nil {
		return p.Standby.URL()
	}
	q := u.Query()
	q.Set("host", q.Get("host")+","+standby.Query().Get("host"))
	q.Set("target_session_attrs", "read-write")
	u.RawQuery = q.Encode()
	return u.String()
}

// Synchronise makes each commit of the primary wait for its standby.
func (p *Pair) Synchronise(t testing.TB) {
	t.Helper()
	p.set(t, p.Primary, "synchronous_standby_names", standbyName)
	p.streaming(t, "sync")
}

// Cut ends the stream. The primary runs on, and so does the standby.
func (p *Pair) Cut(t testing.TB) {
	t.Helper()
	p.set(t, p.Standby, "primary_conninfo", "")
	waitFor(t, "the stream to end", func() bool {
		return query[int](t, p.Primary.URL(), "select count(*) from pg_stat_replication") == 0
	})
}

// Rejoin starts the stream again, where Cut has ended it.
func (p *Pair) Rejoin(t testing.TB) {
	t.Helper()
	p.set(t, p.Standby, "primary_conninfo", p.stream)
	p.streaming(t, "%sync")
}

func (p *Pair) streaming(t testing.TB, state string) {
	t.Helper()
	ask := "select count(*) from pg_stat_replication where state = 'streaming' and sync_state like '" + state + "'"
	waitFor(t, "the standby to stream", func() bool { return query[int](t, p.Primary.URL(), ask) == 1 })
}

// KillPrimary ends every process of the primary as a loss of power would. The postmaster is held first, so
// that it starts nothing and tells nobody.
func (p *Pair) KillPrimary(t testing.TB) {
	t.Helper()
	postmaster := p.Primary.PID()
	if err := syscall.Kill(postmaster, syscall.SIGSTOP); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	out, err := exec.CommandContext(context.Background(), "ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		t.Fatalf("testdb: list the primary's processes: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(postmaster) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
	}
	if err := syscall.Kill(postmaster, syscall.SIGKILL); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	<-p.Primary.Done()
}

// Promote makes the standby a primary, and returns when it is one.
func (p *Pair) Promote(t testing.TB) {
	t.Helper()
	if !query[bool](t, p.Standby.URL(), "select pg_promote(true, 60)") {
		t.Fatal("testdb: the standby was not promoted within 60 s")
	}
}

// set changes a setting of a running server.
func (p *Pair) set(t testing.TB, s *embeddedpg.Server, name, value string) {
	t.Helper()
	statement := "alter system set " + name + " = '" + strings.ReplaceAll(value, "'", "''") + "'"
	onServer(t, s.URL(), func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement)
		return err
	})
	query[bool](t, s.URL(), "select pg_reload_conf()")
}

func query[T any](t testing.TB, databaseURL, statement string) T {
	t.Helper()
	var value T
	onServer(t, databaseURL, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, statement).Scan(&value)
	})
	return value
}

func onServer(t testing.TB, databaseURL string, do func(context.Context, *pgx.Conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	if err := errors.Join(do(ctx, conn), conn.Close(ctx)); err != nil {
		t.Fatalf("testdb: %v", err)
	}
}

func waitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("testdb: in vain waited for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
