package bench

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// replaySample bounds how many answers are asked for again at the end.
const replaySample = 100_000

// replayAll asks once more for what was acknowledged: all of it, or a random sample. It gives how many were compared.
func (s *soak) replayAll(ctx context.Context) int64 {
	s.book.close()
	order := rand.New(rand.NewPCG(s.Seed, 0)).Perm(s.book.len())
	order = order[:min(len(order), replaySample)]
	var next, compared atomic.Int64
	var wg sync.WaitGroup
	for range soakClients {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(len(order)) || ctx.Err() != nil {
					return
				}
				if n := order[i]; s.book.repeatable(n) && s.replayOnce(ctx, n, int(i)) {
					compared.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return compared.Load()
}

// replayOnce repeats one call until it is answered; by now everything runs.
func (s *soak) replayOnce(ctx context.Context, n, at int) bool {
	for range 20 {
		r, err := s.ask(ctx, n, at%len(s.fleet.nodes), usualAmount)
		if err == nil && s.same(n, r) {
			return true
		}
		if at++; !rest(ctx, 200*time.Millisecond) {
			return false
		}
	}
	if ctx.Err() == nil {
		s.report(foundLost, s.name(n)+" had an answer, and its repeats get none")
	}
	return false
}

// The operations with their first outcome, whose receipt has the operation's id, and the decision about it.
const listOperations = `select o.wallet_id, o.key, o.operation_key, coalesce(r.outcome, ''), coalesce(r.reason, ''), coalesce(r.charged, 0),
    coalesce(c.resolution, ''), coalesce(d.charged, 0)
from operations o
left join receipts r on r.id = o.id and r.wallet_id = o.wallet_id
left join reconciliations c on c.wallet_id = o.wallet_id and c.operation_id = o.id
left join receipts d on d.id = c.receipt_id and d.wallet_id = c.wallet_id`

// The age of the oldest operation that is still dispatching, in seconds, and how many there are.
const oldestHold = `select count(*), coalesce(max(extract(epoch from clock_timestamp()) - o.started_ms / 1000.0), 0)::float8
from holds h join operations o on o.id = h.operation_id and o.wallet_id = h.wallet_id`

// holds reads how many operations are dispatching, and since when the oldest is.
func (s *soak) holds(ctx context.Context, url string) (n int64, oldest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var seconds float64
	err = conn.QueryRow(ctx, oldestHold).Scan(&n, &seconds)
	return n, time.Duration(seconds * float64(time.Second)), err
}

// gather reads what the ledger, the upstream and the operator API say at the end.
func (s *soak) gather(ctx context.Context) (*evidence, error) {
	e := &evidence{book: s.book, balances: make(map[string]balance)}
	var err error
	if e.effects, err = readJournal(s.fleet.journal); err != nil {
		return nil, err
	}
	if e.operations, err = readOperations(ctx, s.fleet.db.URL()); err != nil {
		return nil, err
	}
	o := operator{base: s.fleet.nodes[0].base, token: s.fleet.token}
	for _, a := range s.accounts {
		var b balance
		if err := o.get(ctx, "/v1/wallets/"+a.Wallet, &b); err != nil {
			return nil, err
		}
		e.wallets = append(e.wallets, a.Wallet)
		e.balances[a.Wallet] = b
	}
	return e, nil
}

func readOperations(ctx context.Context, url string) ([]operation, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, listOperations)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o operation, err error) {
		err = row.Scan(&o.wallet, &o.key, &o.operationKey, &o.outcome, &o.reason, &o.charged, &o.resolution, &o.final)
		return o, err
	})
}
