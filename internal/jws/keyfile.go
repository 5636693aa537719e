package jws

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const maxKeyFileBytes = 1 << 20

// readOwnFile reads a regular file that is no symbolic link and on which nobody has been given any of
// the permission bits in forbidden.
func readOwnFile(path string, forbidden os.FileMode) ([]byte, error) {
	f, err := openNoFollow(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Judged on the open file: the name may mean another one by now.
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrKey, path)
	}
	if got := info.Mode().Perm() & forbidden; got != 0 {
		return nil, fmt.Errorf("%w: %s is open to others: mode %04o, of which %04o must go", ErrKey, path, info.Mode().Perm(), got)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFileBytes+1))
	if err == nil && len(data) > maxKeyFileBytes {
		err = fmt.Errorf("%w: %s is too large", ErrKey, path)
	}
	return data, err
}

// createFile writes a new file only its owner can read. When it returns, the file is on disk.
func createFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := writeAndSync(f, data); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// replaceFile puts data in the place of a file so that at every moment, and after any crash, the old
// or the new content is there whole.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already when the rename has succeeded
	if err := f.Chmod(0o644); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := writeAndSync(f, data); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeAndSync(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
