//go:build unix && !aix && !solaris

package embeddedpg_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/embeddedpg"
)

// Ctrl-C goes to the whole process group of a terminal: the database must outlive the drain.
func TestInterruptOfTheGroup(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	p := spawn(t, "serve", dir, nil)
	pid := p.up(t)
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if line := p.line(t); line != "drained" {
		t.Fatalf("the helper says %q", line)
	}
	if running(t, pid) {
		t.Error("the server outlived its owner")
	}
}

func TestKillOfTheOwner(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	p := spawn(t, "serve", dir, nil)
	pid := p.up(t)
	p.kill()
	eventually(t, "the server goes with its owner", func() bool { return !running(t, pid) })
	bin, _, err := embeddedpg.Find(t.Context(), embeddedpg.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	state := run(t, filepath.Join(bin, "pg_controldata"), filepath.Join(dir, "data"))
	if !strings.Contains(state, "shut down\n") {
		t.Errorf("the server was not stopped cleanly:\n%s", state)
	}
	start(t, embeddedpg.Options{Dir: dir})
}

func TestKillOfThePostmaster(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	s := start(t, embeddedpg.Options{Dir: dir})
	execute(t, s, "create table kept as select 'row' as value")
	if err := s.Err(); err != nil {
		t.Errorf("Err of a running server: %v", err)
	}
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	case <-time.After(patience):
		t.Fatal("Done stays open")
	}
	err := s.Err()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{dir, "killed", "its last lines", "ready to accept connections"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message has no %q: %v", part, err)
		}
	}
	if err := s.Stop(); err != nil {
		t.Errorf("Stop of a dead server: %v", err)
	}
	if got := query(t, start(t, embeddedpg.Options{Dir: dir}), "select value from kept"); got != "row" {
		t.Errorf("after recovery the row is %q", got)
	}
}

// A postmaster that serves our data although the lock is free was left behind by a crash.
func TestOrphanIsStopped(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	bin, _, err := embeddedpg.Find(t.Context(), embeddedpg.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	orphan := exec.CommandContext(t.Context(), filepath.Join(bin, "postgres"), "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+data)
	asOwner(t, orphan, dir)
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- orphan.Wait() }()
	eventually(t, "the orphan is up", func() bool {
		text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		return err == nil && strings.Contains(string(text), "ready")
	})
	s := start(t, embeddedpg.Options{Dir: dir})
	execute(t, s, "select")
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the orphan was not stopped cleanly: %v", err)
		}
	case <-time.After(patience):
		t.Error("the orphan still runs")
	}
}

// PostgreSQL itself refuses to start when the pid in postmaster.pid lives, whoever has it now.
func TestRecycledPid(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	other := exec.CommandContext(t.Context(), "sleep", "600")
	asOwner(t, other, dir)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	for _, text := range []string{
		fmt.Sprintf("%d\n%s/data\n1\n5432\n%s/run\n\n", other.Process.Pid, dir, dir),
		"", // a power cut can leave it empty
	} {
		pidFile := filepath.Join(dir, "data", "postmaster.pid")
		if err := os.WriteFile(pidFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(pidFile, uidOf(t, dir), gidOf(t, dir)); err != nil {
			t.Fatal(err)
		}
		s := start(t, embeddedpg.Options{Dir: dir})
		execute(t, s, "select")
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if !running(t, other.Process.Pid) {
		t.Error("the innocent process was stopped")
	}
}

func TestKillInTheMiddleOfInitdb(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "pg")
	p := spawn(t, "serve", dir, nil)
	building := filepath.Join(dir, "data.init")
	eventually(t, "initdb is at work", func() bool { return exists(filepath.Join(building, "base")) })
	p.kill()
	if exists(filepath.Join(dir, "data")) {
		t.Fatal("initdb was already done")
	}
	s := start(t, embeddedpg.Options{Dir: dir})
	execute(t, s, "select")
	if exists(building) {
		t.Error("the half-made cluster is still there")
	}
}

func TestSecondOwnerIsRefused(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	p := spawn(t, "serve", dir, nil)
	p.up(t)
	message := refused(t, embeddedpg.Options{Dir: dir}, embeddedpg.ErrInUse)
	want := fmt.Sprintf("%s is in use by process %d. To run a second gateway, give both a database.url", dir, p.cmd.Process.Pid)
	if message != want {
		t.Errorf("got  %s\nwant %s", message, want)
	}
}

// Systems without a parent-death signal have a watchdog instead.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	p := spawn(t, "watch", "", nil)
	pid := p.up(t)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	p.kill()
	eventually(t, "the watched process gets its signal", func() bool { return !running(t, pid) })

	sleeper := exec.CommandContext(t.Context(), "sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	disarm, err := embeddedpg.Watch(sleeper.Process.Pid, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	disarm() // returns when the watchdog has ended
	if !running(t, sleeper.Process.Pid) {
		t.Error("the disarmed watchdog fired")
	}
}

func TestStopEscalates(t *testing.T) {
	t.Parallel()
	order := []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL}
	for obeyed, want := range order {
		var sent []syscall.Signal
		last, ended := embeddedpg.Escalate(
			func(s syscall.Signal) error { sent = append(sent, s); return nil },
			func(time.Duration) bool { return len(sent) == obeyed+1 })
		if last != want || !ended || len(sent) != obeyed+1 {
			t.Errorf("sent %v, last %v, ended %v; want the last %v", sent, last, ended, want)
		}
	}
	if _, ended := embeddedpg.Escalate(func(syscall.Signal) error { return nil }, func(time.Duration) bool { return false }); ended {
		t.Error("a process that does not end was called ended")
	}
	if last, ended := embeddedpg.Escalate(func(syscall.Signal) error { return errors.New("gone") }, func(time.Duration) bool { return true }); last != syscall.SIGINT || !ended {
		t.Errorf("a process that is gone got %v, ended %v", last, ended)
	}
}

// asOwner makes a command run as the owner of the cluster.
func asOwner(t *testing.T, cmd *exec.Cmd, dir string) {
	t.Helper()
	cmd.Dir = "/"
	cmd.Env = []string{"LC_ALL=C"}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uidOf(t, dir)), Gid: uint32(gidOf(t, dir))}}
	}
}

func uidOf(t *testing.T, dir string) int { t.Helper(); uid, _ := owner(t, dir); return uid }
func gidOf(t *testing.T, dir string) int { t.Helper(); _, gid := owner(t, dir); return gid }
