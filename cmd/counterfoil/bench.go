package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/bench"
	"counterfoil/internal/embeddedpg"
	"counterfoil/internal/jws"
)

func (a *app) benchCommand() *cobra.Command {
	o := bench.Options{Rounds: 3, Seconds: 5, Wallets: 1000, Keyring: jws.OpenKeyring}
	soak := bench.SoakOptions{Keyring: jws.OpenKeyring}
	asJSON := false
	c := &cobra.Command{
		Use: "bench", Short: "Measure this program on this machine, or try to break it", Args: cobra.NoArgs,
		Long: `Measure governed calls, replays and latency from outside: a database, a gateway, an upstream and a load
generator of the bench's own run as processes, next to PostgreSQL's pgbench and to a pass-through that governs
nothing. Effects are counted at the upstream, and fsck proves the database at the end.

Every ratio compares figures of the same run. Absolute figures are of this machine, this day.

With --soak nothing is measured. Two gateways on one database take mixed load for so long, while gateways, database and
upstream are killed, paused and cut off at random. Each answer that was given is asked for again at the end, and
answers, records and the upstream's journal must agree: nothing lost, nothing sent twice, credits that add up, memory that
stays. Ctrl-C ends it early; what was done until then is judged.

Exit status: 0 sound, 1 void (a call failed, an answer was lost, an effect happened twice, memory grew, or fsck found a
fault), 2 usage.`,
		Example: `  counterfoil bench
  counterfoil bench --rounds 1 --seconds 2 --json
  counterfoil bench --soak 10m
  counterfoil bench --soak 1m --seed 42 --json`,
	}
	f := c.Flags()
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "how often each phase runs; figures are medians")
	f.Float64Var(&o.Seconds, "seconds", o.Seconds, "length of a phase, in seconds")
	f.IntVar(&o.Wallets, "wallets", o.Wallets, "wallets of the phase with many")
	f.StringVar(&o.Dir, "dir", "", "a directory for the data and logs, kept afterwards (default: a temporary one, removed)")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	f.DurationVar(&soak.Duration, "soak", 0, "break things at random for so long instead, such as 10m")
	f.Uint64Var(&soak.Seed, "seed", 0, "of the soak's faults and load (default: random, and printed)")
	c.RunE = does(func(ctx context.Context, _ []string) error {
		if !f.Changed("soak") {
			return a.bench(ctx, o, asJSON)
		}
		if !f.Changed("seed") {
			soak.Seed = bench.RandomSeed()
		}
		soak.Dir = o.Dir
		return a.soak(ctx, soak, asJSON)
	})
	c.AddCommand(a.benchParts()...)
	return c
}

// benchParts are the bench's own processes; a person has no use for them.
func (a *app) benchParts() []*cobra.Command {
	part := func(use string, args cobra.PositionalArgs, body func(ctx context.Context, args []string) error) *cobra.Command {
		return &cobra.Command{Use: use, Hidden: true, Args: args, RunE: does(body)}
	}
	return []*cobra.Command{
		part("upstream", cobra.NoArgs, func(ctx context.Context, _ []string) error { return bench.ServeUpstream(ctx, a.out) }),
		part("passthrough URL", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
			return bench.ServePassthrough(ctx, args[0], a.out)
		}),
		part("saboteur ADDRESS JOURNAL", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
			return bench.ServeSaboteur(ctx, args[0], args[1], a.out)
		}),
		part("load", cobra.NoArgs, func(ctx context.Context, _ []string) error { return bench.RunLoad(ctx, os.Stdin, a.out) }),
	}
}

func (a *app) bench(ctx context.Context, o bench.Options, asJSON bool) error {
	if o.Rounds < 1 || o.Seconds <= 0 || o.Wallets < 2 {
		return refused(errors.New("bench needs at least one round, a positive number of seconds and two wallets"))
	}
	return a.benchAt(&o.Program, &o.Dir, &o.Log, asJSON, func(table io.Writer) (any, error) {
		report, err := bench.Run(ctx, o, table)
		if report == nil {
			return nil, err
		}
		return report, err
	})
}

func (a *app) soak(ctx context.Context, o bench.SoakOptions, asJSON bool) error {
	if o.Duration < time.Second {
		return refused(errors.New("a soak takes at least a second"))
	}
	return a.benchAt(&o.Program, &o.Dir, &o.Log, asJSON, func(table io.Writer) (any, error) {
		report, err := bench.Soak(ctx, o, table)
		if report == nil {
			return nil, err
		}
		return report, err
	})
}

// benchAt fills in where a bench runs and how it says how it goes, runs it, and prints what it found as JSON where that
// is wanted. Without a report there is nothing to print.
func (a *app) benchAt(program, dir *string, log *func(string, ...any), asJSON bool, run func(table io.Writer) (any, error)) (err error) {
	if *program, err = os.Executable(); err != nil {
		return err
	}
	remove, err := benchDir(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	began := time.Now()
	*log = func(format string, args ...any) {
		fmt.Fprintf(a.errOut, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	var table io.Writer
	if !asJSON {
		table = a.out
	}
	report, err := run(table)
	if report != nil && asJSON {
		encoder := json.NewEncoder(a.out)
		encoder.SetIndent("", "  ")
		err = errors.Join(err, encoder.Encode(report))
	}
	return err
}

// benchDir makes a directory that the database's user can reach, where none is given.
func benchDir(dir *string) (remove func() error, err error) {
	if *dir != "" {
		return func() error { return nil }, os.MkdirAll(*dir, 0o755)
	}
	parent, err := embeddedpg.DefaultDir()
	if err != nil {
		return nil, err
	}
	parent = filepath.Dir(parent)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	if *dir, err = os.MkdirTemp(parent, "counterfoil-bench-"); err != nil {
		return nil, err
	}
	return func() error { return os.RemoveAll(*dir) }, os.Chmod(*dir, 0o755)
}
