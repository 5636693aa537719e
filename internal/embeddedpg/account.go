//go:build unix && !aix && !solaris

package embeddedpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user the server runs as. PostgreSQL refuses to run as root.
type account struct {
	name     string
	uid, gid int
	drop     bool // this process is root and becomes the account in the child
}

// serverAccount picks the user for the cluster in data: ourselves, or, when we are root, the owner of
// a cluster that is there, else postgres, else nobody.
func serverAccount(data string) (account, error) {
	if uid := os.Geteuid(); uid != 0 {
		return account{name: accountName(uid), uid: uid, gid: os.Getegid()}, nil
	}
	var st syscall.Stat_t
	if err := syscall.Stat(data, &st); err == nil && st.Uid != 0 {
		uid := int(st.Uid)
		return account{name: accountName(uid), uid: uid, gid: int(st.Gid), drop: true}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if errUID == nil && errGID == nil && uid != 0 {
			return account{name: name, uid: uid, gid: gid, drop: true}, nil
		}
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody: set database.url")
}

func accountName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return strconv.Itoa(uid)
	}
	return u.Username
}

// known fails for a uid without a passwd entry, as containers with random uids have: initdb refuses
// it even when it is told a user name.
func (a account) known() error {
	if _, err := user.LookupId(strconv.Itoa(a.uid)); err != nil {
		return fmt.Errorf("uid %d %w, PostgreSQL cannot initialise: set database.url", a.uid, ErrNoAccount)
	}
	return nil
}

// own gives a file to the account.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// reach checks that the account can enter dir, as far as dir exists. Without this check, exec fails
// in the child with a bare "permission denied" that names the program instead of the directory.
func (a account) reach(dir, advice string) error {
	if !a.drop {
		return nil
	}
	for _, part := range pathTo(dir) {
		var st syscall.Stat_t
		if err := syscall.Stat(part, &st); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return fmt.Errorf("look at %s: %w", part, err)
		}
		mode := uint32(st.Mode) & 0o777 // 16 bits wide on macOS
		if !a.enters(mode, int(st.Uid), int(st.Gid)) {
			return fmt.Errorf("%s %w for user %s (%s is mode %04o)%s", dir, ErrUnreachable, a.name, part, mode, advice)
		}
	}
	return nil
}

// enters reads the search bit of the class the account falls in, as the kernel does. Supplementary
// groups do not count: the child has none.
func (a account) enters(mode uint32, uid, gid int) bool {
	switch {
	case uid == a.uid:
		return mode&0o100 != 0
	case gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// pathTo lists dir's ancestors from the root down, dir last.
func pathTo(dir string) []string {
	parts := []string{dir}
	for parent := filepath.Dir(dir); parent != parts[0]; parent = filepath.Dir(parent) {
		parts = append([]string{parent}, parts...)
	}
	return parts
}
