package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// batch is a pipeline of named statements: one round trip.
type batch struct{ pgx.Batch }

func (b *batch) exec(name string, args ...any) { b.Queue(sql.Query(name), args...) }

// query queues a statement whose rows go to scan, one call a row.
func (b *batch) query(name string, scan func(pgx.CollectableRow) error, args ...any) {
	b.Queue(sql.Query(name), args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// transact runs one transaction in two round trips: begin, lock and read; then, after deciding, write and
// commit. decide fills the second; it may read more through conn first. An error is a *storeError that says
// what is known about the commit, unless decide itself refused.
func (l *Ledger) transact(lock func(*batch), decide func(context.Context, *pgxpool.Conn, *batch) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.attempt)
	defer cancel()
	conn, err := l.hot.Acquire(ctx)
	if err != nil {
		return &storeError{kind: storeUnavailable, err: err}
	}
	defer conn.Release()
	first := &batch{}
	first.exec("begin")
	lock(first)
	if err := conn.SendBatch(ctx, &first.Batch).Close(); err != nil {
		l.rollback(ctx, conn)
		return translate(err, false)
	}
	second := &batch{}
	if err := decide(ctx, conn, second); err != nil {
		l.rollback(ctx, conn)
		return err
	}
	second.exec("commit")
	forgetWarning(conn.Conn())
	if err := conn.SendBatch(ctx, &second.Batch).Close(); err != nil {
		l.rollback(ctx, conn)
		return translate(err, true)
	}
	if err := warningOf(conn.Conn()); err != nil {
		return &storeError{kind: storeUnknown, err: err}
	}
	return nil
}

// barrier queues a write that means nothing, so that this transaction's commit is as durable as what it has
// read must be.
func (l *Ledger) barrier(b *batch) { b.exec("heartbeat", pgUUID(l.instance)) }

// confirm returns when all that was visible before is as durable as what is acknowledged. A log is replicated in
// order, so that it commits a write of its own, and wants no warning.
func (l *Ledger) confirm(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, l.attempt)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	forgetWarning(conn.Conn())
	if _, err := conn.Exec(ctx, sql.Query("heartbeat"), pgUUID(l.instance)); err != nil {
		return err
	}
	return warningOf(conn.Conn())
}

// warned is where a connection keeps the last warning that its server sent.
const warned = "counterfoil.warned"

// keepWarning remembers warnings. A server whose wait for its standby is cancelled commits, and says so by a
// warning only; its text is translated, so that every warning counts.
func keepWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warned] = n.Message
	}
}

func forgetWarning(conn *pgx.Conn) { delete(conn.PgConn().CustomData(), warned) }

// warningOf is what the server warned of since forgetWarning: a COMMIT with a warning is not known to be
// where it must be.
func warningOf(conn *pgx.Conn) error {
	if message, ok := conn.PgConn().CustomData()[warned]; ok {
		return fmt.Errorf("committed with a warning: %v", message)
	}
	return nil
}

// more runs further reads inside the transaction that conn is in.
func more(ctx context.Context, conn *pgxpool.Conn, fill func(*batch)) error {
	b := &batch{}
	fill(b)
	if err := conn.SendBatch(ctx, &b.Batch).Close(); err != nil {
		return translate(err, false)
	}
	return nil
}

// rollback keeps a connection usable after a refused batch. Its own failure costs only the connection,
// which the pool then discards.
func (l *Ledger) rollback(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	if _, err := conn.Exec(ctx, sql.Query("rollback")); err != nil {
		l.log.Warn("rollback failed, connection discarded", "error", err)
	}
}

// What is known after a failed batch.
type storeKind int

const (
	storeRetry       storeKind = iota // rolled back by a conflict: the whole batch may run again
	storeData                         // rolled back because of one member's data
	storeUnavailable                  // not committed: the store was away or refused
	storeUnknown                      // the COMMIT was sent and not answered
)

// storeError is a failure of a batch with what is known about it.
type storeError struct {
	kind storeKind
	err  error
}

func (e *storeError) Error() string { return fmt.Sprintf("store: %v", e.err) }
func (e *storeError) Unwrap() error { return e.err }

// translate is the one place that reads PostgreSQL's errors. committing tells whether a COMMIT may have
// reached the server.
func translate(err error, committing bool) error {
	var known *storeError
	if errors.As(err, &known) {
		return err
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || connectionEnded(pgErr) {
		if committing {
			return &storeError{kind: storeUnknown, err: err}
		}
		return &storeError{kind: storeUnavailable, err: err}
	}
	switch {
	case pgErr.Code == "40001", pgErr.Code == "40P01", pgErr.Code == "55P03":
		return &storeError{kind: storeRetry, err: err}
	case strings.HasPrefix(pgErr.Code, "22"), strings.HasPrefix(pgErr.Code, "23"):
		return &storeError{kind: storeData, err: err}
	}
	return &storeError{kind: storeUnavailable, err: err}
}

// connectionEnded reports an error with which the server ends a connection. After a COMMIT was sent it says
// nothing about that. The plain severity is translated.
func connectionEnded(err *pgconn.PgError) bool {
	return err.SeverityUnlocalized == "FATAL" || err.SeverityUnlocalized == "PANIC"
}

// kindOf reads what is known; an error that is no store error is a member's own.
func kindOf(err error) storeKind {
	var known *storeError
	if errors.As(err, &known) {
		return known.kind
	}
	return storeData
}

// hotPool opens the pool of the lanes. Its plans are pinned to index look-ups: a plan made while a table
// was small or unanalysed must not turn into a scan when it has grown.
func hotPool(ctx context.Context, o Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, errors.New("the database URL cannot be parsed")
	}
	config.MaxConns = int32(4*o.Shards + o.Readers + 2)
	config.MinConns = 1
	config.ConnConfig.OnNotice = keepWarning
	params := config.ConnConfig.RuntimeParams
	bindSession(params, o)
	for name, value := range map[string]string{
		"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_bitmapscan": "off",
		"plan_cache_mode": "force_generic_plan", "jit": "off",
		"statement_timeout": "10000",
	} {
		params[name] = value
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// bindSession names the session and its role, and lets the server end it, and with it its locks, when nobody is at its
// other end. Half a pipeline from a host that has vanished is no idle transaction: only probes of the
// connection tell.
func bindSession(params map[string]string, o Options) {
	params["application_name"] = "counterfoil"
	params["role"] = sql.Role
	params["idle_in_transaction_session_timeout"] = milliseconds(idleLimit(o.Lease))
	params["tcp_keepalives_idle"], params["tcp_keepalives_interval"], params["tcp_keepalives_count"] = "5", "2", "3"
}

// coldPool opens the pool of everything that is no hot path.
func coldPool(ctx context.Context, o Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, errors.New("the database URL cannot be parsed")
	}
	config.MaxConns = 6
	config.ConnConfig.OnNotice = keepWarning
	params := config.ConnConfig.RuntimeParams
	bindSession(params, o)
	params["statement_timeout"] = "30000"
	return pgxpool.NewWithConfig(ctx, config)
}

// idleLimit is how long the database keeps the locks of a transaction whose process says nothing. A process
// that lives decides in milliseconds. One that is frozen, or whose host lost power, would make the calls of
// these wallets wait at every other gateway, and their takeover too: so it is well below the lease.
func idleLimit(lease time.Duration) time.Duration {
	return min(max(lease/2, time.Second), 5*time.Second)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
