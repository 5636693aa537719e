package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"counterfoil/internal/embeddedpg"
)

const (
	soakLease   = 3 * time.Second // of the gateways
	soakTimeout = 2 * time.Second // of a call at the upstream
)

// soakConfig is the configuration file of one of the soak's gateways.
const soakConfig = `issuer: http://%[9]s
listen: %[1]s
database: {url: %[2]q}
keys: {dir: %[3]q}
tokens: {operator_file: %[4]q, reconciler_file: %[10]q}
upstreams:
  - {name: payments, url: "http://%[5]s/mcp", timeout: %[6]s, forward_key_header: Idempotency-Key, concurrency: 256}
tools:
%[8]slimits: {lease: %[7]s}
`

const soakTool = `  - {name: %[1]s, upstream: payments, upstream_tool: %[1]s, credits: %[2]d, scopes: [payments.write],
     value: {pointer: /amount, currency: USD}, recipient: {pointers: [/to]}%[3]s}
`

// node is one of the two gateways. Its process changes when it is started again; the rest does not.
type node struct {
	base, file string
	process    *child
}

// fleet is the processes of a soak. Whoever makes the faults owns it while the load runs.
type fleet struct {
	crew
	db       *embeddedpg.Server
	settings embeddedpg.Options
	upstream *child
	listen   string // of the upstream
	journal  string
	nodes    [2]*node
	token    string // of the operator

	reconciler string // token
}

// launch starts a database, an upstream and two gateways. What it has started is in the fleet even when it fails.
func (f *fleet) launch(ctx context.Context) (err error) {
	f.journal = filepath.Join(f.dir, "effects")
	f.settings = embeddedpg.Options{
		Dir: filepath.Join(f.dir, "database"), Logger: slog.New(slog.DiscardHandler),
		// A kill recovers from the last checkpoint: the more often there is one, the more kills fit in.
		Settings: map[string]string{"max_connections": "100", "shared_buffers": "256MB", "max_wal_size": "512MB", "checkpoint_timeout": "30s"},
	}
	if f.db, err = embeddedpg.Start(ctx, f.settings); err != nil {
		return err
	}
	if f.listen, err = freeAddress(ctx); err != nil {
		return err
	}
	if err := f.startUpstream(ctx); err != nil {
		return err
	}
	if err := f.configure(ctx); err != nil {
		return err
	}
	for i := range f.nodes {
		if err := f.startNode(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) configure(ctx context.Context) error {
	token, tokenFile, err := writeToken(f.dir, "operator")
	if err != nil {
		return err
	}
	reconciler, reconcilerFile, err := writeToken(f.dir, "reconciler")
	if err != nil {
		return err
	}
	f.token, f.reconciler = token, reconciler
	var tools strings.Builder
	fmt.Fprintf(&tools, soakTool, toolPayout, 5, "")
	fmt.Fprintf(&tools, soakTool, toolFlaky, 2, ", on_tool_error: charge")
	fmt.Fprintf(&tools, soakTool, toolWire, 7, "")
	issuer := ""
	for i, name := range []string{"gateway-a", "gateway-b"} {
		listen, err := freeAddress(ctx)
		if err != nil {
			return err
		}
		if i == 0 {
			issuer = listen
		}
		n := &node{base: "http://" + listen, file: filepath.Join(f.dir, name+".yaml")}
		text := fmt.Sprintf(soakConfig, listen, f.db.URL(), filepath.Join(f.dir, "keys"), tokenFile, f.listen, soakTimeout, soakLease, tools.String(), issuer, reconcilerFile)
		if err := os.WriteFile(n.file, []byte(text), 0o600); err != nil {
			return err
		}
		f.nodes[i] = n
	}
	return f.makeKeys(ctx, f.nodes[0].file)
}

func (f *fleet) startUpstream(ctx context.Context) (err error) {
	f.upstream, _, err = f.start(ctx, "the upstream", true, "bench", "saboteur", f.listen, f.journal)
	return err
}

// startNode starts a gateway and returns when it takes calls.
func (f *fleet) startNode(ctx context.Context, i int) (err error) {
	n := f.nodes[i]
	name := strings.TrimSuffix(filepath.Base(n.file), ".yaml")
	if n.process, _, err = f.start(ctx, name, false, "serve", "--config", n.file, "--migrate"); err != nil {
		return err
	}
	return awaitReady(ctx, n.process, n.base)
}

// reviveTime is how long a process may take to come back on a busy machine.
const reviveTime = 90 * time.Second

// revive starts a gateway until it stays: while its database is away it ends at once.
func (f *fleet) revive(ctx context.Context, i int) error {
	return persist(ctx, func(ctx context.Context) error {
		err := f.startNode(ctx, i)
		if err != nil && f.nodes[i].process != nil {
			f.nodes[i].process.stop()
		}
		return err
	})
}

// persist tries something until it works, at most for reviveTime.
func persist(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reviveTime)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil || !rest(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// rest waits; false when ctx ends first.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// killDatabase ends the postmaster as a loss of power would; its backends follow it.
func (f *fleet) killDatabase() error {
	if err := syscall.Kill(f.db.PID(), syscall.SIGKILL); err != nil {
		return err
	}
	<-f.db.Done()
	return nil
}

// reviveDatabase starts it again on the same data, at the same place.
func (f *fleet) reviveDatabase(ctx context.Context) error {
	url := f.db.URL()
	err := persist(ctx, func(ctx context.Context) error {
		db, err := embeddedpg.Start(ctx, f.settings)
		if err == nil {
			f.db = db
		}
		return err
	})
	if err == nil && f.db.URL() != url {
		return errors.New("the database came back at another place: name a shorter --dir")
	}
	return err
}

// cutUpstream breaks the upstream's connections, whatever they carry. That of the request is one of them.
func (f *fleet) cutUpstream(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.listen+"/cut", nil)
	if err != nil {
		return err
	}
	_, _ = exchange(&http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}, req)
	return ctx.Err()
}

// stop ends what runs: gateways before what they call.
func (f *fleet) stop() {
	var wg sync.WaitGroup
	for _, n := range f.nodes {
		if n != nil && n.process != nil {
			wg.Go(n.process.stop)
		}
	}
	wg.Wait()
	if f.upstream != nil {
		f.upstream.stop()
	}
	if f.db != nil {
		_ = f.db.Stop()
	}
}
