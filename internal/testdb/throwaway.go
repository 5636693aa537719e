//go:build unix && !aix && !solaris

package testdb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"counterfoil/internal/embeddedpg"
)

const (
	prefix    = "counterfoil-testdb-"
	ownerName = "owner" // in each directory; its flock is free when the process is gone
)

// throwaway is a server whose data nobody will miss.
type throwaway struct {
	dir    string
	owner  *os.File
	server *embeddedpg.Server
}

// settings trade every promise about crashes for speed. Shared memory goes into the data directory,
// so that a killed server leaves nothing outside of it.
func settings() map[string]string {
	return map[string]string{
		"fsync":                      "off",
		"full_page_writes":           "off",
		"wal_level":                  "minimal",
		"max_wal_senders":            "0",
		"max_connections":            "300",
		"autovacuum":                 "off",
		"checkpoint_timeout":         "1h",
		"dynamic_shared_memory_type": "mmap",
	}
}

func startThrowaway(ctx context.Context) (*throwaway, error) {
	t, err := claimDir(baseDir())
	if err != nil {
		return nil, err
	}
	pg := filepath.Join(t.dir, "pg")
	if err := fill(ctx, pg); err != nil {
		return nil, errors.Join(err, t.close())
	}
	if t.server, err = embeddedpg.Start(ctx, embeddedpg.Options{Dir: pg, Settings: settings()}); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *throwaway) close() error {
	var err error
	if t.server != nil {
		err = t.server.Stop()
	}
	return errors.Join(err, os.RemoveAll(t.dir), t.owner.Close())
}

// baseDir is memory when there is plenty of it: containers often have 64 MB of /dev/shm.
func baseDir() string {
	if roomInMemory() {
		return memoryDir
	}
	return os.TempDir()
}

// claimDir makes a directory that is ours until this process ends, and removes those whose process is
// gone. One lock serialises this, so that no directory is seen between its making and its locking.
func claimDir(base string) (*throwaway, error) {
	mine := fmt.Sprintf("%s%d-", prefix, os.Geteuid())
	gate, err := lockFile(filepath.Join(base, mine+"gate"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer func() { _ = gate.Close() }()
	if err := prune(base, mine); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(base, mine)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	owner, err := lockFile(filepath.Join(dir, ownerName), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return &throwaway{dir: dir, owner: owner}, nil
}

func prune(base, mine string) error {
	dirs, err := filepath.Glob(filepath.Join(base, mine+"*", ownerName))
	if err != nil {
		return err
	}
	for _, path := range dirs {
		owner, err := lockFile(path, syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue // in use, or going away
		}
		err = os.RemoveAll(filepath.Dir(path))
		if err = errors.Join(err, owner.Close()); err != nil {
			return err
		}
	}
	return nil
}

func lockFile(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return file, nil
}

// fill puts a fresh cluster into dir: a copy of one that an earlier run made, because initdb takes a
// second and a copy a tenth of it. Without a cache directory the server will initialise itself.
func fill(ctx context.Context, dir string) error {
	cached, err := cachePlace(ctx)
	if err != nil || cached == "" {
		return err
	}
	err = copyCluster(cached, dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s, err := embeddedpg.Start(ctx, embeddedpg.Options{Dir: dir, Settings: settings()})
	if err != nil {
		return err
	}
	if err := s.Stop(); err != nil {
		return err
	}
	return remember(dir, cached)
}

// cachePlace names the cache of the installed version, or nothing when this user has no cache.
func cachePlace(ctx context.Context) (string, error) {
	bin, version, err := embeddedpg.Find(ctx, embeddedpg.Options{})
	if err != nil {
		return "", err
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", nil // a user without a home is no fault
	}
	base = filepath.Join(base, "counterfoil", "testdb")
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", nil // nor is a home that cannot be written
	}
	sum := sha256.Sum256([]byte(bin))
	return filepath.Join(base, version+"-"+hex.EncodeToString(sum[:4])), nil
}

// remember keeps the stopped cluster for later runs. Whoever is first wins.
func remember(dir, cached string) error {
	staging, err := os.MkdirTemp(filepath.Dir(cached), "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staging) }()
	complete := filepath.Join(staging, "pg")
	if err := copyCluster(dir, complete); err != nil {
		return err
	}
	if err := os.Rename(complete, cached); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

// copyCluster copies the data and its password, with modes and, for root, owners.
func copyCluster(from, to string) error {
	if _, err := os.Stat(filepath.Join(from, "data")); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o711); err != nil {
		return err
	}
	for _, name := range []string{"password", "data"} {
		if err := copyTree(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return fmt.Errorf("copy the cluster: %w", err)
		}
	}
	return nil
}

func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		if entry.IsDir() {
			err = os.Mkdir(target, info.Mode().Perm())
		} else {
			err = copyFile(path, target, info.Mode().Perm())
		}
		if err != nil || os.Geteuid() != 0 {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		return os.Lchown(target, int(st.Uid), int(st.Gid))
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
