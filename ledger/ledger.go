// Package ledger is the durable record: an operation it calls granted is on disk before that is said, is
// granted once for ever, and ends with one outcome, one receipt and its money in one transaction.
//
// Every write of the hot path is a batch, and one is a batch of one. Wallets map to shards; a shard has a
// claim lane (T1) and a settle lane (T2), and two for rounds of input, each with its own transaction. Locks are
// always taken in the order wallets, permit usage, chain heads, holds, rounds, each by id.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"time"

	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Options is what a ledger is made of. URL, Issuer, Signer, Explain, Lease, Logger and Now are required.
type Options struct {
	URL    string
	Issuer string // of receipts: the gateway's issuer URL
	Signer jws.Signer
	// Signers finds an older key, for receipts that a crash left unsigned. Nil: only Signer.
	Signers func(kid string) (jws.Signer, bool)
	// Explain writes the result of an outcome for which no upstream result exists.
	Explain func(Ending) []byte
	// Lease is how long an instance may be silent before any gateway settles its operations as uncertain.
	Lease time.Duration
	// OperationKeyPool lets new operations take their private keys from those that an operator has loaded.
	OperationKeyPool bool
	// Endpoint names what only one live process can hold (host and listen address): a restarted gateway
	// recovers its own predecessor at once. Empty: after the lease.
	Endpoint string

	Shards    int           // pairs of lanes; 0: 1
	Readers   int           // lanes of replay reads; 0: 2
	QueueSize int           // requests waiting in a lane; 0: 4096
	MaxBatch  int           // requests of one transaction; 0: 256
	Patience  time.Duration // how long a caller waits for the store; 0: 20 s
	Attempt   time.Duration // the longest try of one transaction; 0: 15 s
	// Retention is how long response bodies are kept after their call; 0: for ever.
	Retention time.Duration

	Logger *slog.Logger
	Now    func() time.Time // for caches and durations; what is recorded has the database's time
	// OnCommit is told of each committed batch. Nil: nobody is.
	OnCommit func(lane string, size int, took time.Duration)
	// OnUncertain is told now and then what waits for a reconciliation. Nil: nobody is.
	OnUncertain func(AtRisk)
	// OnInterrupted is told of each operation that a takeover of this ledger has settled. Nil: nobody is.
	OnInterrupted func(tool string)
	// OnAbandoned is told of each operation that this ledger has given up because nobody answered its tool. Nil: nobody is.
	OnAbandoned func(tool string)
}

func (o *Options) check() error {
	var faults []error
	require := func(ok bool, what string) {
		if !ok {
			faults = append(faults, errors.New("ledger: "+what))
		}
	}
	require(o.URL != "", "a database URL is required")
	require(o.Issuer != "", "an issuer is required")
	require(o.Signer.KeyID() != "", "a receipt signer is required")
	require(o.Explain != nil, "Explain is required")
	require(o.Lease >= time.Second, "the lease must be at least 1s")
	require(o.Logger != nil, "a logger is required")
	require(o.Now != nil, "a clock is required")
	o.Shards = defaulted(o.Shards, 1)
	o.Readers = defaulted(o.Readers, 2)
	o.QueueSize = defaulted(o.QueueSize, 4096)
	o.MaxBatch = defaulted(o.MaxBatch, 256)
	o.Patience = defaulted(o.Patience, 20*time.Second)
	o.Attempt = defaulted(o.Attempt, 15*time.Second)
	require(o.Retention >= 0, "the retention must not be negative")
	require(o.Shards <= 64 && o.Readers <= 64, "at most 64 shards and readers")
	if o.OnCommit == nil {
		o.OnCommit = func(string, int, time.Duration) {}
	}
	if o.OnUncertain == nil {
		o.OnUncertain = func(AtRisk) {}
	}
	if o.OnInterrupted == nil {
		o.OnInterrupted = func(string) {}
	}
	if o.OnAbandoned == nil {
		o.OnAbandoned = func(string) {}
	}
	return errors.Join(faults...)
}

func defaulted[T int | time.Duration](v, fallback T) T {
	if v <= 0 {
		return fallback
	}
	return v
}

// maxBatchBytes bounds the arguments and results of one transaction.
const maxBatchBytes = 4 << 20

// cachedRecords bounds the agents, and the permits, that are kept parsed.
const cachedRecords = 4096

// Ledger is safe for concurrent use. Many ledgers, in one process or many, may share one database.
type Ledger struct {
	issuer    string
	signer    jws.Signer
	header    string // of receipts under signer, as it is signed
	signers   func(kid string) (jws.Signer, bool)
	explain   func(Ending) []byte
	retention time.Duration
	pooled    bool // see pool.go
	attempt   time.Duration
	lease     time.Duration
	endpoint  string
	instance  uuid.UUID
	// installation is set by Open, and never changes.
	installation string
	log          *slog.Logger
	now          func() time.Time
	onCommit     func(lane string, size int, took time.Duration)
	onUncertain  func(AtRisk)

	onInterrupted func(tool string)
	onAbandoned   func(tool string)

	hot  *pgxpool.Pool // lanes only
	pool *pgxpool.Pool // everything else

	shards  []shard
	lookups *lane[*lookupJob]
	keeper  keeper
	waiters waiters
	tenure  tenure
	agents  *cache[[32]byte, *Agent]
	permits *cache[string, *permits.Permit]

	stop       chan struct{} // closed by Close: lanes end after their batch
	background sync.WaitGroup
}

// shard is the lanes of the wallets that hash to it: a pair for calls, and a pair for the rounds of those that ask.
type shard struct {
	claims    *lane[*claimJob]
	settles   *lane[*settleJob]
	asks      *lane[*askJob]
	continues *lane[*continueJob]
}

// Open connects, checks that the schema is this program's, registers this process as an instance, and
// settles what its predecessor at the same endpoint left behind.
func Open(ctx context.Context, o Options) (*Ledger, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	id, err := newID()
	if err != nil {
		return nil, fmt.Errorf("make instance id: %w", err)
	}
	l := &Ledger{
		issuer: o.Issuer, signer: o.Signer, signers: o.Signers, explain: o.Explain, lease: o.Lease,
		retention: o.Retention, pooled: o.OperationKeyPool, attempt: o.Attempt,
		endpoint: o.Endpoint, instance: id, log: o.Logger, now: o.Now, onCommit: o.OnCommit, onUncertain: o.OnUncertain,
		onInterrupted: o.OnInterrupted, onAbandoned: o.OnAbandoned, stop: make(chan struct{}),
		agents: newCache[[32]byte, *Agent](cachedRecords), permits: newCache[string, *permits.Permit](cachedRecords),
	}
	l.header, _, _ = strings.Cut(jws.SigningInput(receipts.Type, o.Signer.KeyID(), nil), ".")
	if l.hot, err = hotPool(ctx, o); err != nil {
		return nil, err
	}
	if l.pool, err = coldPool(ctx, o); err != nil {
		l.hot.Close()
		return nil, err
	}
	if err := l.begin(ctx); err != nil {
		l.hot.Close()
		l.pool.Close()
		return nil, err
	}
	l.makeLanes(o)
	l.startWorkers()
	return l, nil
}

func (l *Ledger) begin(ctx context.Context) error {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Release()
	if err := sql.CheckSchema(ctx, conn.Conn()); err != nil {
		return err
	}
	if err := l.checkDurability(ctx, conn.Conn()); err != nil {
		return err
	}
	if err := l.install(ctx, conn.Conn()); err != nil {
		return err
	}
	registered := l.now()
	if _, err := conn.Exec(ctx, sql.Query("insert_instance"), pgUUID(l.instance), l.endpoint, l.lease.Milliseconds()); err != nil {
		return fmt.Errorf("register instance: %w", err)
	}
	l.tenure.renew(registered, registered, l.lease)
	return nil
}

// checkDurability refuses a database that acknowledges commits which it may lose.
func (l *Ledger) checkDurability(ctx context.Context, conn *pgx.Conn) error {
	var commit, names string
	var standbys int
	if err := conn.QueryRow(ctx, sql.Query("durability")).Scan(&commit, &names, &standbys); err != nil {
		return fmt.Errorf("read how durable commits are: %w", err)
	}
	switch {
	case commit == "off":
		return errors.New("the database runs with synchronous_commit=off: a commit would be acknowledged before it is durable; set it to on")
	case commit == "local" && names != "":
		return errors.New("the database runs with synchronous_commit=local: a commit would be acknowledged before a standby has it; set it to on")
	case standbys > 0 && names == "":
		l.log.WarnContext(ctx, "the database has standbys, but no commit waits for one: a key that a fail-over loses may run again; set synchronous_standby_names", "standbys", standbys)
	}
	return nil
}

func (l *Ledger) makeLanes(o Options) {
	for range o.Shards {
		s := shard{
			claims:    &lane[*claimJob]{queue: make(chan *ticket[*claimJob], o.QueueSize), run: l.runClaims},
			settles:   &lane[*settleJob]{queue: make(chan *ticket[*settleJob], o.QueueSize), run: l.runSettles},
			asks:      &lane[*askJob]{queue: make(chan *ticket[*askJob], o.QueueSize), run: l.runAsks},
			continues: &lane[*continueJob]{queue: make(chan *ticket[*continueJob], o.QueueSize), run: l.runContinues},
		}
		s.claims.limit(l.stop, o)
		s.settles.limit(l.stop, o)
		s.asks.limit(l.stop, o)
		s.continues.limit(l.stop, o)
		s.settles.keep, s.asks.keep = true, true
		l.shards = append(l.shards, s)
	}
	l.lookups = &lane[*lookupJob]{queue: make(chan *ticket[*lookupJob], o.QueueSize), run: l.runLookups}
	l.lookups.limit(l.stop, o)
	for range o.Readers {
		l.background.Go(l.lookups.work)
	}
	for _, s := range l.shards {
		l.background.Go(s.claims.work)
		l.background.Go(s.settles.work)
		l.background.Go(s.asks.work)
		l.background.Go(s.continues.work)
	}
}

func (l *lane[T]) limit(stop <-chan struct{}, o Options) {
	l.stop, l.maxBatch, l.maxBytes, l.patience = stop, o.MaxBatch, maxBatchBytes, o.Patience
}

func (l *Ledger) startWorkers() {
	l.background.Go(l.beat)
	l.background.Go(l.recoverForever)
	l.background.Go(l.keepSignatures)
	l.background.Go(l.prune)
}

// Close stops the lanes after their current batch, stores the signatures that wait, and ends this
// instance's lease. The caller has drained its calls before.
func (l *Ledger) Close(ctx context.Context) error {
	close(l.stop)
	l.background.Wait()
	err := l.endInstance(ctx)
	if err != nil && ctx.Err() == nil {
		// A connection may have died unseen while it was idle: once more, on a new one. Said twice it is said once.
		l.pool.Reset()
		err = l.endInstance(ctx)
	}
	l.hot.Close()
	l.pool.Close()
	return err
}

func (l *Ledger) endInstance(ctx context.Context) error {
	if _, err := l.pool.Exec(ctx, sql.Query("end_instance"), pgUUID(l.instance)); err != nil {
		return fmt.Errorf("end instance: %w", err)
	}
	return nil
}

// Ready reports whether the store answers.
func (l *Ledger) Ready(ctx context.Context) error {
	if err := l.pool.Ping(ctx); err != nil {
		return ErrUnavailable
	}
	return nil
}

func (l *Ledger) shard(wallet string) shard {
	if len(l.shards) == 1 {
		return l.shards[0]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(wallet))
	return l.shards[h.Sum32()%uint32(len(l.shards))]
}
