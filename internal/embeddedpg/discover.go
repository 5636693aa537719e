//go:build unix && !aix && !solaris

package embeddedpg

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// minMajor is the oldest PostgreSQL that the schema runs on.
const minMajor = 15

// binaries is one installed PostgreSQL.
type binaries struct {
	dir          string
	version      string // "15.18"
	major, minor int
}

// Find says which PostgreSQL Start would run for o, without touching anything. o.Dir may be empty.
func Find(ctx context.Context, o Options) (binDir, version string, err error) {
	bin, err := findBinaries(ctx, o.BinDir, o.Dir)
	return bin.dir, bin.version, err
}

// findBinaries returns the newest installed PostgreSQL, but of the major version that wrote the
// cluster in dir when there is one: another major cannot read it.
func findBinaries(ctx context.Context, configured, dir string) (binaries, error) {
	major := 0
	if dir != "" {
		var err error
		if major, err = clusterMajor(filepath.Join(dir, dataName)); err != nil {
			return binaries{}, err
		}
	}
	places := []string{configured}
	if configured == "" {
		places = binaryPlaces(ctx)
	}
	var found []binaries
	for _, place := range places {
		if bin, ok := inspect(ctx, place); ok {
			found = append(found, bin)
		}
	}
	if err := ctx.Err(); err != nil {
		return binaries{}, err
	}
	return choose(found, major, dir, places)
}

func choose(found []binaries, major int, dir string, places []string) (binaries, error) {
	slices.SortStableFunc(found, func(a, b binaries) int {
		if a.major != b.major {
			return b.major - a.major
		}
		return b.minor - a.minor
	})
	if len(found) == 0 {
		return binaries{}, fmt.Errorf("%w. Set database.url, or install the server: apt-get install -y postgresql | "+
			"brew install postgresql@17 | dnf install postgresql-server. Looked in: %s", ErrNotFound, strings.Join(places, ", "))
	}
	newest := found[0]
	if major == 0 {
		if newest.major < minMajor {
			return binaries{}, fmt.Errorf("%w that is new enough: %s is %s, the oldest that works is %d",
				ErrNotFound, newest.dir, newest.version, minMajor)
		}
		return newest, nil
	}
	for _, bin := range found {
		if bin.major == major {
			return bin, nil
		}
	}
	return binaries{}, fmt.Errorf("data in %s %w PostgreSQL %d but only %d is installed (%s). Nothing was changed. "+
		"Install %d, run pg_upgrade, or use another directory", dir, ErrVersion, major, newest.major, newest.dir, major)
}

// inspect asks a directory's postgres for its version. A directory without initdb is a client-only
// installation.
func inspect(ctx context.Context, dir string) (binaries, bool) {
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, false
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version")
	cmd.Env = environment(dir)
	out, err := cmd.Output()
	if err != nil {
		return binaries{}, false
	}
	fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
	if len(fields) < 3 || fields[1] != "(PostgreSQL)" {
		return binaries{}, false
	}
	bin := binaries{dir: dir, version: fields[2]}
	if bin.major, bin.minor = parseVersion(bin.version); bin.major == 0 {
		return binaries{}, false
	}
	return bin, true
}

// parseVersion reads "15.18" and "18beta1".
func parseVersion(text string) (major, minor int) {
	digits := func(s string) string {
		if i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
			return s[:i]
		}
		return s
	}
	first, rest, _ := strings.Cut(text, ".")
	major, _ = strconv.Atoi(digits(first))
	minor, _ = strconv.Atoi(digits(rest))
	return major, minor
}

// binaryPlaces lists where packages put the server's programs; Debian and Homebrew keep them out of
// the PATH.
func binaryPlaces(ctx context.Context) []string {
	var places []string
	add := func(dir string) {
		if !slices.Contains(places, dir) {
			places = append(places, dir)
		}
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			add(filepath.Dir(resolved))
		}
	}
	if config, err := exec.LookPath("pg_config"); err == nil {
		if out, err := exec.CommandContext(ctx, config, "--bindir").Output(); err == nil {
			add(strings.TrimSpace(string(out)))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin",
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil || len(matches) == 0 {
			matches = []string{pattern} // named in the message when nothing is found
		}
		for _, match := range matches {
			add(match)
		}
	}
	return places
}
