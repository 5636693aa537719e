//go:build unix && !aix && !solaris

package embeddedpg_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"counterfoil/internal/embeddedpg"
)

const (
	helperMode = "EMBEDDEDPG_TEST_HELPER" // makes the test binary a program that can be killed
	helperDir  = "EMBEDDEDPG_TEST_DIR"
	patience   = 60 * time.Second
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperMode); mode != "" {
		if err := helper(mode, os.Getenv(helperDir)); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if dir, err := prepared(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// helper is the program under test in another process. It prints one line when it is up.
func helper(mode, dir string) error {
	ctx := context.Background()
	if mode == "watch" {
		sleeper := exec.CommandContext(ctx, "sleep", "600")
		if err := sleeper.Start(); err != nil {
			return err
		}
		if _, err := embeddedpg.Watch(sleeper.Process.Pid, syscall.SIGINT); err != nil {
			return err
		}
		fmt.Println("up", sleeper.Process.Pid)
		select {}
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	s, err := embeddedpg.Start(ctx, embeddedpg.Options{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println("up", s.PID())
	<-interrupted
	// A drain: the database must still be there some time after the signal came.
	select {
	case <-time.After(300 * time.Millisecond):
	case <-s.Done():
		return fmt.Errorf("the database went with the signal: %w", s.Err())
	}
	if err := tryExec(ctx, s.URL(), "create table drained ()"); err != nil {
		return err
	}
	if err := s.Stop(); err != nil {
		return err
	}
	fmt.Println("drained")
	return nil
}

// process is a running helper.
type process struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	kill func() // kill -9, and wait
}

// spawn runs this test binary as a helper, as another user when attr says so, in a process group of
// its own.
func spawn(t *testing.T, mode, dir string, credential *syscall.Credential) *process {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if credential != nil { // the build's directory is closed to others
		open := filepath.Join(tempDir(t), "helper")
		run(t, "cp", binary, open)
		run(t, "chmod", "755", open)
		binary = open
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), helperMode+"="+mode, helperDir+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: credential}
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		_ = write.Close()
		close(ended)
	}()
	p := &process{cmd: cmd, out: bufio.NewReader(read)}
	p.kill = func() { _ = cmd.Process.Kill(); <-ended }
	t.Cleanup(func() { _ = read.Close(); p.kill() })
	return p
}

// line reads what the helper prints next.
func (p *process) line(t *testing.T) string {
	t.Helper()
	text, err := p.out.ReadString('\n')
	if err != nil && text == "" {
		t.Fatalf("the helper ended: %v", err)
	}
	return strings.TrimSpace(text)
}

// up waits for the helper and returns the process id it names.
func (p *process) up(t *testing.T) int {
	t.Helper()
	line := p.line(t)
	pid, err := strconv.Atoi(strings.TrimPrefix(line, "up "))
	if err != nil {
		t.Fatalf("the helper says %q", line)
	}
	return pid
}

// tempDir is a directory that any user can enter, in memory when there is such a place.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := makeTemp()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func makeTemp() (string, error) {
	base := "/dev/shm"
	if _, err := os.Stat(base); err != nil {
		base = os.TempDir()
	}
	dir, err := os.MkdirTemp(base, "embeddedpg-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// prepared returns a directory with a cluster that was stopped cleanly, made once.
var prepared = sync.OnceValues(func() (string, error) {
	dir, err := makeTemp()
	if err != nil {
		return "", err
	}
	s, err := embeddedpg.Start(context.Background(), embeddedpg.Options{Dir: filepath.Join(dir, "pg")})
	if err != nil {
		return dir, err
	}
	return dir, s.Stop()
})

// cluster returns a directory with a cluster of the test's own.
func cluster(t *testing.T) string {
	t.Helper()
	from, err := prepared()
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(tempDir(t), "pg")
	run(t, "cp", "-a", filepath.Join(from, "pg"), to)
	return to
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// start starts a server that is stopped at the end of the test.
func start(t *testing.T, o embeddedpg.Options) *embeddedpg.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := embeddedpg.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// refused starts a server that must not start.
func refused(t *testing.T, o embeddedpg.Options, want error) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := embeddedpg.Start(ctx, o)
	if err == nil {
		_ = s.Stop()
		t.Fatal("it started")
	}
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	return err.Error()
}

func tryExec(ctx context.Context, url, statement string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func execute(t *testing.T, s *embeddedpg.Server, statement string) {
	t.Helper()
	if err := tryExec(t.Context(), s.URL(), statement); err != nil {
		t.Fatal(err)
	}
}

func query(t *testing.T, s *embeddedpg.Server, statement string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var value string
	if err := conn.QueryRow(t.Context(), statement).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// eventually waits for something that another process does.
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

// running says whether the process is there and not a zombie.
func running(t *testing.T, pid int) bool {
	t.Helper()
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	out, _ := exec.CommandContext(t.Context(), "ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	state := strings.TrimSpace(string(out))
	return state != "" && !strings.HasPrefix(state, "Z")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// owner is the user of the cluster in dir, as whom the server runs.
func owner(t *testing.T, dir string) (uid, gid int) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(dir, "data"), &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Uid), int(st.Gid)
}
