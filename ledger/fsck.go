package ledger

import (
	"context"
	"errors"
	"fmt"

	"counterfoil/internal/jws"
	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

// Finding is the first row that breaks an invariant of the design.
type Finding struct {
	Invariant string `json:"invariant"` // "I1", "I2", "I5", "I6", "I7", "I9", "I11"
	Table     string `json:"table"`
	Row       string `json:"row"`
	What      string `json:"what"`
}

func (f *Finding) Error() string {
	return fmt.Sprintf("%s broken: %s %s: %s", f.Invariant, f.Table, f.Row, f.What)
}

// FsckReport is what a walk over the whole database has seen.
type FsckReport struct {
	Wallets    int64    `json:"wallets"`
	Permits    int64    `json:"permits"`
	Receipts   int64    `json:"receipts"`
	Unsigned   int64    `json:"unsigned"` // receipts whose signature is not stored yet
	Open       int64    `json:"open"`     // operations that are dispatching
	Awaiting   int64    `json:"awaiting"` // operations that wait for input
	FirstFault *Finding `json:"first_fault,omitempty"`
}

// fsck is one walk, all of it in one snapshot.
type fsck struct {
	tx       pgx.Tx
	keys     jws.KeySet
	report   *FsckReport
	progress func(receipts int64)
	heads    map[string]chainHead
	calls    map[pair]map[string]int64
}

// Fsck proves the database against the invariants I1, I2, I5, I6, I7, I9 and I11: references and answers that
// must be kept, rounds that can be answered once, operation keys of the pool, balances from transfers and
// holds, usage from receipts and holds, chains and signatures against keys, one receipt an operation. It
// reads one snapshot and may run beside gateways. A broken row is a report with FirstFault; an error means
// that nothing can be told. progress is called now and then; it may be nil.
func Fsck(ctx context.Context, url string, keys jws.KeySet, progress func(receipts int64)) (*FsckReport, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := sql.CheckSchema(ctx, conn); err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: sql.Query("fsck_begin")})
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if progress == nil {
		progress = func(int64) {}
	}
	f := &fsck{
		tx: tx, keys: keys, report: &FsckReport{}, progress: progress,
		heads: make(map[string]chainHead), calls: make(map[pair]map[string]int64),
	}
	for _, step := range []func(context.Context) error{
		f.wallets, f.transfers, f.callCounts, f.usage, f.operations, f.references, f.uncertain, f.orphans, f.rounds, f.operationKeys, f.receipts,
	} {
		err := step(ctx)
		if errors.As(err, &f.report.FirstFault) {
			return f.report, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return f.report, nil
}

// each runs a statement and calls row for each of its rows.
func (f *fsck) each(ctx context.Context, name string, row func(pgx.Rows) error) error {
	rows, err := f.tx.Query(ctx, sql.Query(name))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// wallets checks I6: what is deposited and committed is what transfers and holds add up to.
func (f *fsck) wallets(ctx context.Context) error {
	return f.each(ctx, "fsck_wallets", func(rows pgx.Rows) error {
		var id string
		var deposited, committed, deposits, charges, reversals, held int64
		var seq *int64
		var head *string
		if err := rows.Scan(&id, &deposited, &committed, &deposits, &charges, &reversals, &held, &seq, &head); err != nil {
			return fmt.Errorf("read wallet: %w", err)
		}
		f.report.Wallets++
		broken := func(format string, args ...any) error {
			return &Finding{Invariant: "I6", Table: "wallets", Row: id, What: fmt.Sprintf(format, args...)}
		}
		switch {
		case deposited != deposits:
			return broken("deposited is %d credits, its transfers say %d", deposited, deposits)
		case committed != charges-reversals+held:
			return broken("committed is %d credits, charges %d − reversals %d + held %d say otherwise", committed, charges, reversals, held)
		case seq == nil:
			return &Finding{Invariant: "I11", Table: "chains", Row: id, What: "the wallet has no chain head"}
		}
		f.heads[id] = chainHead{seq: *seq, head: *head}
		return nil
	})
}

func (f *fsck) transfers(ctx context.Context) error {
	return f.each(ctx, "fsck_transfers", func(rows pgx.Rows) error {
		var wallet, kind string
		var id pgUUIDText
		if err := rows.Scan(&wallet, &id, &kind); err != nil {
			return fmt.Errorf("read transfer: %w", err)
		}
		return &Finding{
			Invariant: "I6", Table: "transfers", Row: wallet + " " + prefixTransfer + id.String(),
			What: "a " + kind + " with the wrong accounts, or whose receipt or deposit does not say its amount",
		}
	})
}

func (f *fsck) callCounts(ctx context.Context) error {
	return f.each(ctx, "fsck_calls", func(rows pgx.Rows) error {
		var wallet, permit, tool string
		var n int64
		if err := rows.Scan(&wallet, &permit, &tool, &n); err != nil {
			return fmt.Errorf("read calls: %w", err)
		}
		key := pair{wallet, permit}
		if f.calls[key] == nil {
			f.calls[key] = make(map[string]int64)
		}
		f.calls[key][tool] = n
		return nil
	})
}

func (f *fsck) operations(ctx context.Context) error {
	err := f.each(ctx, "fsck_open", func(rows pgx.Rows) error { return rows.Scan(&f.report.Open, &f.report.Awaiting) })
	if err != nil {
		return err
	}
	return f.each(ctx, "fsck_operations", func(rows pgx.Rows) error {
		var wallet string
		var id pgUUIDText
		var held, ended bool
		if err := rows.Scan(&wallet, &id, &held, &ended); err != nil {
			return fmt.Errorf("read operation: %w", err)
		}
		what := "its hold is not what the operation reserved"
		switch {
		case !held && !ended:
			what = "it has neither a hold nor a terminal receipt"
		case held && ended:
			what = "it has a terminal receipt and still a hold"
		}
		return &Finding{Invariant: "I5", Table: "operations", Row: wallet + " " + prefixOperation + id.String(), What: what}
	})
}

// references checks that what may have acted keeps its operation reference from others, and nothing else does.
func (f *fsck) references(ctx context.Context) error {
	return f.each(ctx, "fsck_refs", func(rows pgx.Rows) error {
		var wallet string
		var id pgUUIDText
		var held bool
		if err := rows.Scan(&wallet, &id, &held); err != nil {
			return fmt.Errorf("read reference: %w", err)
		}
		what := "it may have acted, and its reference is free"
		if held {
			what = "a reference is held that is not its own, or that it has to give back"
		}
		return &Finding{Invariant: "I1", Table: "operation_refs", Row: wallet + " " + prefixOperation + id.String(), What: what}
	})
}

// rounds checks that whatever waits for input can be answered or given up, once, and nothing else can.
func (f *fsck) rounds(ctx context.Context) error {
	return f.each(ctx, "fsck_rounds", func(rows pgx.Rows) error {
		var wallet string
		var id pgUUIDText
		var parked, asked bool
		if err := rows.Scan(&wallet, &id, &parked, &asked); err != nil {
			return fmt.Errorf("read round: %w", err)
		}
		table, what := "rounds", "it is another round than its operation waits in"
		switch {
		case !asked:
			table, what = "holds", "its operation waits for input, and nobody knows which"
		case !parked:
			what = "its operation does not wait for input"
		}
		return &Finding{Invariant: "I1", Table: table, Row: wallet + " " + prefixOperation + id.String(), What: what}
	})
}

// uncertain checks that the queue of reconciliations holds what is uncertain, and each decision resolves one.
func (f *fsck) uncertain(ctx context.Context) error {
	return f.each(ctx, "fsck_uncertain", func(rows pgx.Rows) error {
		var wallet string
		var id pgUUIDText
		var uncertain, queued bool
		if err := rows.Scan(&wallet, &id, &uncertain, &queued); err != nil {
			return fmt.Errorf("read queue: %w", err)
		}
		table, what := "uncertain", "its place in the queue is not what its receipt says"
		switch {
		case uncertain && !queued:
			what = "it is uncertain, and nobody is asked to reconcile it"
		case queued && !uncertain:
			what = "it waits for a reconciliation, and is not uncertain"
		case !queued:
			table, what = "reconciliations", "the decision resolves no uncertain receipt, or has none of its own"
		}
		return &Finding{Invariant: "I5", Table: table, Row: wallet + " " + prefixOperation + id.String(), What: what}
	})
}

func (f *fsck) orphans(ctx context.Context) error {
	return f.each(ctx, "fsck_orphans", func(rows pgx.Rows) error {
		var table, wallet string
		var id pgUUIDText
		if err := rows.Scan(&table, &wallet, &id); err != nil {
			return fmt.Errorf("read orphan: %w", err)
		}
		return &Finding{Invariant: "I5", Table: table, Row: wallet + " " + id.String(), What: "belongs to no operation or receipt"}
	})
}
