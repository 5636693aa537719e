//go:build unix && !aix && !solaris

package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	owner    = "app"         // the cluster's superuser
	database = "counterfoil" // made at the first start
	// socketPathMax is what fits into sockaddr_un on every system.
	socketPathMax = 103
	socketName    = "/.s.PGSQL.5432"
	// longRun begins the socket's directory when ours has too long a name.
	longRun = "/tmp/counterfoil-"
)

// errStillAttached means that backends of a killed postmaster have not left yet.
var errStillAttached = errors.New("the previous server's processes still run")

// Server is a running private server. Its methods may be called from any goroutine.
type Server struct {
	cluster  *cluster
	child    *child
	run      string // the socket's directory
	log      *tail
	stopping atomic.Bool
	done     chan struct{} // closed when the process has ended and the directory is free again
}

// Start starts the server of o.Dir, making the cluster when there is none, and returns when it takes
// connections. ctx bounds only the start.
func Start(ctx context.Context, o Options) (*Server, error) {
	c, err := openCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	s, err := c.serve(ctx)
	if err != nil {
		return nil, errors.Join(err, c.lock.Close())
	}
	o.logger().InfoContext(ctx, "private PostgreSQL is up; data is kept", "version", c.bin.version, "dir", c.Dir)
	return s, nil
}

func (c *cluster) serve(ctx context.Context) (*Server, error) {
	if err := c.ensure(ctx); err != nil {
		return nil, err
	}
	if err := c.clearPostmaster(ctx); err != nil {
		return nil, err
	}
	// The backends of a postmaster that was killed leave within milliseconds, unless one is busy.
	var s *Server
	var err error
	attached := func() bool {
		s, err = c.launch(ctx)
		return !errors.Is(err, errStillAttached)
	}
	poll(ctx, stopStep, attached)
	return s, err
}

// launch starts the postmaster and waits until it takes connections.
func (c *cluster) launch(ctx context.Context) (*Server, error) {
	run, err := c.makeRun()
	if err != nil {
		return nil, err
	}
	s := &Server{cluster: c, run: run, log: newTail(c.logger()), done: make(chan struct{})}
	cmd := c.command(context.WithoutCancel(ctx), "postgres", s.log, c.serverArgs(run)...)
	if s.child, err = startChild(cmd, c.account, syscall.SIGINT); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	if err := s.ready(ctx); err != nil {
		s.stopping.Store(true)
		s.halt()
		c.removeRun(run)
		return nil, err
	}
	go func() {
		<-s.child.done
		c.removeRun(run)
		_ = c.lock.Close()
		close(s.done)
	}()
	return s, nil
}

// serverArgs puts every setting that a promise rests on upon the command line, where it beats
// whatever postgresql.conf says.
func (c *cluster) serverArgs(run string) []string {
	args := []string{"-D", c.path(dataName)}
	set := func(name, value string) { args = append(args, "-c", name+"="+value) }
	set("listen_addresses", "")
	set("unix_socket_directories", run)
	set("unix_socket_permissions", "0700")
	set("port", "5432") // only names the socket
	set("logging_collector", "off")
	set("log_destination", "stderr")
	set("fsync", "on")
	set("full_page_writes", "on")
	set("synchronous_commit", "on")
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		set(name, c.Settings[name])
	}
	return args
}

// makeRun makes the socket's directory: in ours when the socket's path fits into its 103 bytes, else
// a temporary one, remembered by a link so that the next start can remove it after a crash.
func (c *cluster) makeRun() (string, error) {
	run := c.path(runName)
	c.removeRun(run)
	dir := run
	if len(run+socketName) > socketPathMax {
		var err error
		if dir, err = os.MkdirTemp(filepath.Dir(longRun), filepath.Base(longRun)); err != nil {
			return "", err
		}
		if err := os.Symlink(dir, run); err != nil {
			return "", err
		}
	} else if err := os.Mkdir(run, 0o700); err != nil {
		return "", err
	}
	return dir, c.account.own(dir)
}

func (c *cluster) removeRun(dir string) {
	link := c.path(runName)
	if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, longRun) && filepath.Dir(target) == filepath.Dir(longRun) {
		_ = os.RemoveAll(target)
	}
	_ = os.RemoveAll(dir)
	_ = os.Remove(link)
}

// ready waits for the first connection and makes the database when it is missing.
func (s *Server) ready(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			err = ensureDatabase(ctx, conn)
			return errors.Join(err, conn.Close(ctx))
		}
		if refused := new(pgconn.PgError); errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28") {
			return fmt.Errorf("%s %w: its password file does not fit: %w", s.Dir(), ErrDamaged, err)
		}
		select {
		case <-s.child.done:
			return s.failure("did not start")
		case <-ctx.Done():
			return fmt.Errorf("wait for PostgreSQL in %s: %w", s.Dir(), ctx.Err())
		case <-tick.C:
		}
	}
}

func ensureDatabase(ctx context.Context, conn *pgx.Conn) error {
	var found bool
	err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", database).Scan(&found)
	if err != nil || found {
		return err
	}
	_, err = conn.Exec(ctx, "create database "+database)
	return err
}

// failure describes an end that nobody asked for. It may be called after the process has ended.
func (s *Server) failure(what string) error {
	lines := s.log.String()
	err := fmt.Errorf("PostgreSQL in %s %s: %s%s", s.Dir(), what, s.child.cmd.ProcessState, lines)
	if strings.Contains(lines, "is still in use") {
		return fmt.Errorf("%w: %w", errStillAttached, err)
	}
	return err
}

// URL returns the connection URL of the owner, a superuser, for the database "counterfoil". It holds
// the password: never log it.
func (s *Server) URL() string { return s.url(database) }

func (s *Server) url(name string) string { return connectionURL(s.run, s.cluster.password, name) }

func connectionURL(run, password, name string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(owner, password), Path: "/" + name,
		RawQuery: url.Values{"host": {run}, "port": {"5432"}, "sslmode": {"disable"}}.Encode(),
	}
	return u.String()
}

// Running returns the URL of the server that another process runs in dir, for programs that work
// beside it. Whether the server answers, the first connection tells.
func Running(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	c := &cluster{Options: Options{Dir: dir}}
	run := c.path(runName)
	if target, err := os.Readlink(run); err == nil {
		run = target
	} else if resolved, err := filepath.EvalSymlinks(run); err == nil {
		run = resolved
	}
	if _, err := os.Stat(run + socketName); err != nil {
		return "", fmt.Errorf("PostgreSQL in %s %w: %w", dir, ErrNotRunning, err)
	}
	if err := c.loadPassword(false); err != nil {
		return "", err
	}
	return connectionURL(run, c.password, database), nil
}

// Dir returns the absolute path of the server's directory.
func (s *Server) Dir() string { return s.cluster.Dir }

// BinDir returns the directory of the server's programs.
func (s *Server) BinDir() string { return s.cluster.bin.dir }

// Version returns the server's version, such as 15.18.
func (s *Server) Version() string { return s.cluster.bin.version }

// PID returns the process id of the postmaster.
func (s *Server) PID() int { return s.child.cmd.Process.Pid }

// Done is closed when the server has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns nil while the server runs and after Stop, and otherwise says how it ended, with its
// last log lines. The process should then end too: a restart in a loop would hide corruption.
func (s *Server) Err() error {
	select {
	case <-s.done:
	default:
		return nil
	}
	if s.stopping.Load() {
		return nil
	}
	return s.failure("ended by itself")
}

// Stop ends the server and returns when its process is gone and its directory is free. Connections
// are cut, so close pools first. Stopping it twice is fine.
func (s *Server) Stop() error {
	select {
	case <-s.done:
		return nil
	default:
	}
	s.stopping.Store(true)
	last, ended := s.halt()
	if !ended {
		return fmt.Errorf("PostgreSQL in %s does not stop (process %d)", s.Dir(), s.PID())
	}
	<-s.done
	if last != syscall.SIGINT {
		return fmt.Errorf("PostgreSQL in %s stopped only on %s; the next start recovers", s.Dir(), last)
	}
	return nil
}

func (s *Server) halt() (syscall.Signal, bool) {
	return escalate(
		func(sig syscall.Signal) error { return s.child.cmd.Process.Signal(sig) },
		func(within time.Duration) bool {
			timer := time.NewTimer(within)
			defer timer.Stop()
			select {
			case <-s.child.done:
				return true
			case <-timer.C:
				return false
			}
		})
}
