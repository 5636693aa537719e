//go:build unix && !aix && !solaris

package embeddedpg

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// What the directory holds.
const (
	lockName     = "lock"      // flock of the owner, with its pid
	dataName     = "data"      // the cluster
	initName     = "data.init" // a cluster in the making; renamed to data when it is complete
	passwordName = "password"  // of the owner role, 0600
	pwfileName   = "pwfile"    // the same for initdb, readable by the database's user; short-lived
	runName      = "run"       // the socket's directory, or a link to one
)

// cluster is a directory that this process owns.
type cluster struct {
	Options
	lock     *os.File
	account  account
	bin      binaries
	password string
}

// openCluster takes the directory and decides which user and which programs serve it. It starts and
// initialises nothing.
func openCluster(ctx context.Context, o Options) (*cluster, error) {
	if o.Dir == "" {
		return nil, errors.New("the embedded database needs a directory")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	o.Dir = dir
	c := &cluster{Options: o}
	if c.account, err = serverAccount(c.path(dataName)); err != nil {
		return nil, err
	}
	if err := c.makeDir(); err != nil {
		return nil, err
	}
	if c.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	if c.bin, err = findBinaries(ctx, o.BinDir, dir); err == nil {
		err = c.account.reach(c.bin.dir, "")
	}
	if err != nil {
		return nil, errors.Join(err, c.lock.Close())
	}
	return c, nil
}

func (c *cluster) path(name string) string { return filepath.Join(c.Dir, name) }

// makeDir makes the directory when it is missing and checks that the database's user can enter it.
// That user needs no other right in it: it owns only data and run.
func (c *cluster) makeDir() error {
	advice := ". Use " + rootDir
	if err := c.account.reach(c.Dir, advice); err != nil {
		return err
	}
	mode := fs.FileMode(0o700)
	if c.account.drop {
		mode = 0o711
	}
	if _, err := os.Stat(c.Dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(c.Dir, mode); err != nil {
			return err
		}
		if err := os.Chmod(c.Dir, mode); err != nil { // the umask may have taken the search bit
			return err
		}
	}
	return c.account.reach(c.Dir, advice)
}

// lockDir takes the directory for this process. The kernel gives the lock back however the process
// ends, so a lock that is held always names a living owner.
func lockDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		owner := make([]byte, 20)
		n, _ := file.ReadAt(owner, 0)
		_ = file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		return nil, fmt.Errorf("%s %w by process %s. To run a second gateway, give both a database.url",
			dir, ErrInUse, bytes.TrimSpace(owner[:n]))
	}
	if err := file.Truncate(0); err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		if err == nil {
			return file, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("write %s", file.Name()), file.Close())
}

// clusterMajor returns the major version of the cluster in data, 0 when there is none.
func clusterMajor(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err == nil {
		major, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return 0, fmt.Errorf("%s %w: PG_VERSION has no version. Nothing was changed", data, ErrDamaged)
		}
		return major, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	entries, err := os.ReadDir(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if len(entries) > 0 {
		return 0, fmt.Errorf("%s %w: it has files but no PG_VERSION. Nothing was changed", data, ErrDamaged)
	}
	return 0, nil
}

// ensure makes the cluster when there is none, and knows its password afterwards.
func (c *cluster) ensure(ctx context.Context) error {
	major, err := clusterMajor(c.path(dataName))
	if err != nil {
		return err
	}
	// Left behind by a kill in the middle of initdb; never a cluster that was in use.
	for _, name := range []string{initName, pwfileName} {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return err
		}
	}
	if err := c.loadPassword(major == 0); err != nil || major != 0 {
		return err
	}
	if err := c.account.known(); err != nil {
		return err
	}
	return c.initialise(ctx)
}

func (c *cluster) loadPassword(create bool) error {
	text, err := os.ReadFile(c.path(passwordName))
	if err == nil {
		if c.password = strings.TrimSpace(string(text)); len(c.password) < 32 {
			return fmt.Errorf("%s %w: its password file is damaged", c.Dir, ErrDamaged)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !create {
		return fmt.Errorf("%s %w: its password file is missing", c.Dir, ErrDamaged)
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	c.password = hex.EncodeToString(secret)
	return writeFile(c.path(passwordName), c.password)
}

// initialise runs initdb beside the final place, so that a cluster is either complete or not there.
func (c *cluster) initialise(ctx context.Context) error {
	pwfile, building := c.path(pwfileName), c.path(initName)
	// A file descriptor made by root could not be reopened after the uid has changed: use a file.
	if err := writeFile(pwfile, c.password); err != nil {
		return err
	}
	defer func() { _ = os.Remove(pwfile) }()
	if err := os.Mkdir(building, 0o700); err != nil {
		return err
	}
	for _, path := range []string{pwfile, building} {
		if err := c.account.own(path); err != nil {
			return err
		}
	}
	log := newTail(c.logger())
	cmd := c.command(ctx, "initdb", log, "-D", building, "-U", owner, "--encoding=UTF8", "--locale=C",
		"--data-checksums", "--auth-local=scram-sha-256", "--auth-host=scram-sha-256", "--pwfile="+pwfile, "--no-instructions")
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	child, err := startChild(cmd, c.account, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("run initdb: %w", err)
	}
	<-child.done
	if child.err != nil {
		return fmt.Errorf("initdb in %s: %w%s", c.Dir, errors.Join(ctx.Err(), child.err), log)
	}
	if err := os.Rename(building, c.path(dataName)); err != nil {
		return err
	}
	return syncDir(c.Dir)
}

// command is a program of the installation with nothing of our environment: no PG… variable of the
// caller may change what it does, and macOS needs a locale without threads.
func (c *cluster) command(ctx context.Context, program string, log *tail, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin.dir, program), args...)
	cmd.Dir = "/" // the working directory may be closed to the database's user
	cmd.Env = environment(c.bin.dir)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd
}

// environment is all that a program of the installation sees. glibc gives freed memory back to the system at
// the end of almost every statement and faults it in again for the next; a backend that keeps a few megabytes
// spares that. Other C libraries ignore these names.
func environment(binDir string) []string {
	return []string{
		"LC_ALL=C", "TZ=UTC", "PATH=" + binDir + ":/usr/local/bin:/usr/bin:/bin",
		"MALLOC_TRIM_THRESHOLD_=67108864", "MALLOC_TOP_PAD_=1048576", "MALLOC_MMAP_THRESHOLD_=4194304",
	}
}

// writeFile writes a secret durably, or not at all.
func writeFile(path, text string) error {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
