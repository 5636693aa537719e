//go:build unix && !aix && !solaris

package embeddedpg_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"counterfoil/internal/embeddedpg"
)

// A cluster of another major version is neither converted nor deleted.
func TestOtherMajorVersion(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	marker := filepath.Join(dir, "data", "marker")
	write(t, marker, "mine", 0o600)
	write(t, filepath.Join(dir, "data", "PG_VERSION"), "14\n", 0o600)
	message := refused(t, embeddedpg.Options{Dir: dir}, embeddedpg.ErrVersion)
	for _, part := range []string{"data in " + dir + " was written by PostgreSQL 14 but only ", "Nothing was changed. Install 14, run pg_upgrade, or use another directory"} {
		if !strings.Contains(message, part) {
			t.Errorf("the message has no %q: %s", part, message)
		}
	}
	if readFile(t, marker) != "mine" || !exists(filepath.Join(dir, "data", "global")) {
		t.Error("the cluster was touched")
	}
}

func TestDamagedDirectories(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, dir string){
		"files without PG_VERSION": func(t *testing.T, dir string) { t.Helper(); remove(t, filepath.Join(dir, "data", "PG_VERSION")) },
		"PG_VERSION without version": func(t *testing.T, dir string) {
			t.Helper()
			write(t, filepath.Join(dir, "data", "PG_VERSION"), "", 0o600)
		},
		"password missing": func(t *testing.T, dir string) { t.Helper(); remove(t, filepath.Join(dir, "password")) },
		"password cut":     func(t *testing.T, dir string) { t.Helper(); write(t, filepath.Join(dir, "password"), "abc\n", 0o600) },
		"password of another": func(t *testing.T, dir string) {
			t.Helper()
			write(t, filepath.Join(dir, "password"), strings.Repeat("ab", 32)+"\n", 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := cluster(t)
			damage(t, dir)
			if message := refused(t, embeddedpg.Options{Dir: dir}, embeddedpg.ErrDamaged); !strings.Contains(message, dir) {
				t.Errorf("the message does not name the directory: %s", message)
			}
			if !exists(filepath.Join(dir, "data", "global")) {
				t.Error("the cluster was touched")
			}
		})
	}
}

func TestNoServerInstalled(t *testing.T) {
	t.Parallel()
	empty := tempDir(t)
	message := refused(t, embeddedpg.Options{Dir: filepath.Join(empty, "pg"), BinDir: empty}, embeddedpg.ErrNotFound)
	want := "no PostgreSQL found. Set database.url, or install the server: apt-get install -y postgresql | brew install postgresql@17 | " +
		"dnf install postgresql-server. Looked in: " + empty
	if message != want {
		t.Errorf("got  %s\nwant %s", message, want)
	}
	if _, _, err := embeddedpg.Find(t.Context(), embeddedpg.Options{}); err != nil {
		t.Errorf("the installed server is not found: %v", err)
	}
}

func TestNoDirectory(t *testing.T) {
	t.Parallel()
	if _, err := embeddedpg.Start(t.Context(), embeddedpg.Options{}); err == nil {
		t.Error("it started in the working directory")
	}
}

func TestChoiceOfVersion(t *testing.T) {
	t.Parallel()
	install := func(version string) string {
		dir := tempDir(t)
		write(t, filepath.Join(dir, "initdb"), "#!/bin/sh\n", 0o755)
		write(t, filepath.Join(dir, "postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) "+version+" (Debian)'\n", 0o755)
		return dir
	}
	v14, v15, v17, v17b, beta, odd := install("14.9"), install("15.3"), install("17.2"), install("17.10"), install("18beta1"), install("what?")
	client := tempDir(t)
	write(t, filepath.Join(client, "postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) 19.1'\n", 0o755)
	for name, c := range map[string]struct {
		major  int
		places []string
		want   string
		err    string
	}{
		"newest major and minor":           {0, []string{v15, v17, v17b, v14}, v17b, ""},
		"beta counts as its major":         {0, []string{v17, beta}, beta, ""},
		"cluster's major first":            {15, []string{v17, v15}, v15, ""},
		"cluster's major, newest minor":    {17, []string{v17b, v17, v15}, v17b, ""},
		"cluster's major missing":          {16, []string{v15, v17}, "", "written by PostgreSQL 16 but only 17 is installed (" + v17 + ")"},
		"too old":                          {0, []string{v14}, "", "14.9, the oldest that works is 15"},
		"without initdb or version: none":  {0, []string{client, odd}, "", "no PostgreSQL found"},
		"without initdb or version: other": {0, []string{client, odd, v15}, v15, ""},
	} {
		got, err := embeddedpg.Choose(t.Context(), c.major, c.places...)
		if got != c.want || (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestUnreachableDirectory(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(tempDir(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(closed, "pg")
	want := dir + " is not reachable for user someone (" + closed + " is mode 0700). Use /var/lib/counterfoil"
	if err := embeddedpg.Reach("someone", 54321, 54321, dir); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := embeddedpg.Reach("owner", os.Getuid(), 54321, dir); err != nil {
		t.Errorf("the owner: %v", err)
	}
	if err := os.Chmod(closed, 0o710); err != nil {
		t.Fatal(err)
	}
	if err := embeddedpg.Reach("group", 54321, os.Getgid(), dir); err != nil {
		t.Errorf("the group: %v", err)
	}
	if os.Geteuid() != 0 {
		return // nobody else to become
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if message := refused(t, embeddedpg.Options{Dir: dir}, embeddedpg.ErrUnreachable); !strings.Contains(message, closed+" is mode 0700") {
		t.Error(message)
	}
	if exists(dir) {
		t.Error("a directory was made all the same")
	}
}

func TestUnknownUid(t *testing.T) {
	t.Parallel()
	const uid = 54321
	want := "uid 54321 has no passwd entry, PostgreSQL cannot initialise: set database.url"
	if err := embeddedpg.Known(uid); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := embeddedpg.Known(os.Getuid()); err != nil {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		return // nobody else to become
	}
	dir := tempDir(t)
	chown(t, dir, uid, uid)
	p := spawn(t, "serve", filepath.Join(dir, "pg"), &syscall.Credential{Uid: uid, Gid: uid})
	if line := p.line(t); line != "error "+want {
		t.Errorf("the helper says %q", line)
	}
}

// When these tests run as root, a plain user gets a server as well, from nothing.
func TestPlainUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		start(t, embeddedpg.Options{Dir: filepath.Join(tempDir(t), "pg")})
		return
	}
	const nobody = 65534
	dir := tempDir(t)
	chown(t, dir, nobody, nobody)
	p := spawn(t, "serve", filepath.Join(dir, "pg"), &syscall.Credential{Uid: nobody, Gid: nobody})
	pid := p.up(t)
	if uid := uidOf(t, filepath.Join(dir, "pg")); uid != nobody {
		t.Errorf("the cluster belongs to uid %d", uid)
	}
	p.kill()
	eventually(t, "the server goes with its owner", func() bool { return !running(t, pid) })
	// Root serves a plain user's cluster as that user.
	start(t, embeddedpg.Options{Dir: filepath.Join(dir, "pg")})
}

func TestDefaultDir(t *testing.T) {
	t.Parallel()
	dir, err := embeddedpg.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && dir != "/var/lib/counterfoil" {
		t.Errorf("as root: %s", dir)
	}
	if !filepath.IsAbs(dir) {
		t.Errorf("%s is not absolute", dir)
	}
}

// write replaces a file and keeps its owner.
func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func chown(t *testing.T, path string, uid, gid int) {
	t.Helper()
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}
