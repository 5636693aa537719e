// Package bench measures a real gateway from outside: its own database, gateway, upstream and load
// generator run as processes of their own, effects are counted at the upstream, and every figure that is
// compared was measured in the same run.
package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"counterfoil/internal/embeddedpg"
	"counterfoil/internal/jws"
	"counterfoil/ledger"

	"github.com/jackc/pgx/v5"
)

// Options is how a run is made.
type Options struct {
	Program string  // this program, to run the parts
	Dir     string  // an empty directory that the database's user can reach; kept
	Rounds  int     // each phase runs once a round; odd, so that a median is a measurement
	Seconds float64 // of a phase
	Wallets int     // of "many"
	Log     func(string, ...any)
	Keyring func(dir string) (*jws.Keyring, error)
}

// run is one bench.
type run struct {
	Options
	db       *embeddedpg.Server
	gateway  *child
	base     string
	upstream string
	plain    string
	hot      []account
	many     []account
	upPID    int
	plainPID int
	report   *Report
}

// ErrUnsound means that a figure cannot be trusted: a call failed, an effect happened twice, or the
// database does not hold its invariants.
var ErrUnsound = errors.New("the run is void")

// Run measures and returns the report; the error is ErrUnsound where the product, and not the bench, is at fault.
func Run(ctx context.Context, o Options, out io.Writer) (*Report, error) {
	b := &run{Options: o, report: &Report{
		Rounds: o.Rounds, Seconds: o.Seconds, phases: make(map[string]*Phase),
	}}
	var children []*child
	defer func() {
		for _, c := range children {
			c.stop()
		}
		if b.db != nil {
			_ = b.db.Stop()
		}
	}()
	var err error
	b.Log("starting a database, an upstream and a gateway in %s", o.Dir)
	if b.db, err = embeddedpg.Start(ctx, embeddedpg.Options{
		Dir: filepath.Join(o.Dir, "database"), Logger: slog.New(slog.DiscardHandler),
		Settings: map[string]string{"max_connections": "200", "max_wal_size": "8GB", "checkpoint_timeout": "15min", "shared_buffers": "1GB"},
	}); err != nil {
		return nil, err
	}
	b.report.Machine = machineWith(b.db)
	if children, err = b.startChildren(ctx); err != nil {
		return nil, err
	}
	if err := b.measure(ctx); err != nil {
		return nil, err
	}
	if err := b.conclude(ctx); err != nil {
		return nil, err
	}
	if out != nil {
		if err := b.report.print(out); err != nil {
			return nil, err
		}
	}
	return b.report, b.verdict()
}

func (b *run) startChildren(ctx context.Context) ([]*child, error) {
	var list []*child
	w := crew{program: b.Program, dir: b.Dir}
	up, url, err := w.start(ctx, "the upstream", true, "bench", "upstream")
	if err != nil {
		return list, err
	}
	list, b.upstream, b.upPID = append(list, up), url, up.cmd.Process.Pid
	plain, url, err := w.start(ctx, "the pass-through", true, "bench", "passthrough", b.upstream)
	if err != nil {
		return list, err
	}
	list, b.plain, b.plainPID = append(list, plain), url, plain.cmd.Process.Pid
	listen, err := freeAddress(ctx)
	if err != nil {
		return list, err
	}
	file, token, err := writeConfig(b.Dir, listen, b.db.URL(), b.upstream)
	if err != nil {
		return list, err
	}
	if err := w.makeKeys(ctx, file); err != nil {
		return list, err
	}
	if b.gateway, _, err = w.start(ctx, "the gateway", false, "serve", "--config", file, "--migrate"); err != nil {
		return list, err
	}
	// The gateway stops before what it calls.
	list = append([]*child{b.gateway}, list...)
	b.base = "http://" + listen
	if err := awaitReady(ctx, b.gateway, b.base); err != nil {
		return list, err
	}
	b.Log("opening 1 and %d funded wallets with their permits", b.Wallets)
	o := operator{base: b.base, token: token}
	if b.hot, err = openAccounts(ctx, o, "hot", 1, payouts()); err != nil {
		return list, err
	}
	b.many, err = openAccounts(ctx, o, "many", b.Wallets, payouts())
	return list, err
}

// load runs one phase in the generator's own process, on one CPU.
func (b *run) load(ctx context.Context, spec loadSpec) (loadResult, error) {
	var result loadResult
	text, err := json.Marshal(spec)
	if err != nil {
		return result, err
	}
	cmd := exec.CommandContext(ctx, b.Program, "bench", "load")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stdin = bytes.NewReader(text)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return result, fmt.Errorf("the generator: %w: %s", err, complaint.String())
	}
	return result, json.Unmarshal(out, &result)
}

// conclude reads what is only known at the end: effects, batches, memory, and the database's own proof.
func (b *run) conclude(ctx context.Context) error {
	text, err := fetch(ctx, strings.TrimSuffix(b.upstream, "/mcp")+"/effects")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &b.report.Effects); err != nil {
		return err
	}
	b.report.Duplicates = b.report.Effects.Duplicates
	metrics, err := fetch(ctx, b.base+"/metrics")
	if err != nil {
		return err
	}
	b.report.MeanBatch = meanBatch(string(metrics))
	b.report.GatewayRSS = processUsage(b.gateway.cmd.Process.Pid).rssKB << 10
	b.report.conclude()
	b.Log("checking the whole database (fsck)")
	keys, err := b.Keyring(filepath.Join(b.Dir, "keys"))
	if err != nil {
		return err
	}
	b.report.FsckReport, b.report.Fsck, err = prove(ctx, b.db.URL(), keys, b.Log)
	return err
}

// prove checks the whole database, and gives the report with its verdict in a word or a sentence.
func prove(ctx context.Context, url string, keys *jws.Keyring, log func(string, ...any)) (*ledger.FsckReport, string, error) {
	report, err := ledger.Fsck(ctx, url, keys.Public(), func(n int64) { log("  %d receipts", n) })
	switch {
	case err != nil:
		return nil, "", err
	case report.FirstFault != nil:
		return report, report.FirstFault.Error(), nil
	}
	return report, "clean", nil
}

func (b *run) verdict() error {
	var faults []error
	if b.report.Duplicates > 0 {
		faults = append(faults, fmt.Errorf("%d effects happened twice", b.report.Duplicates))
	}
	if b.report.Fsck != "clean" {
		faults = append(faults, errors.New(b.report.Fsck))
	}
	for _, p := range b.report.Phases {
		if p.Errors > 0 {
			faults = append(faults, fmt.Errorf("%s at %d in flight: %d calls failed", p.Name, p.Clients, p.Errors))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnsound, errors.Join(faults...))
}

// walPosition is how many bytes of WAL the server has written.
func (b *run) walPosition(ctx context.Context) (int64, error) {
	conn, err := pgx.Connect(ctx, b.db.URL())
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	var n int64
	err = conn.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint").Scan(&n)
	return n, err
}

// pause lets the machine settle between phases.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(300 * time.Millisecond):
	}
}
