package ledger

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"counterfoil/permits"
	"counterfoil/receipts"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// claimJob is one claim in a batch, and what was decided about it.
type claimJob struct {
	claim        *Claim
	ownKey       string // random
	operationKey string // ownKey, or one of the pool
	term         int64
	record       record
	verdict      verdict
}

type verdict int

const (
	undecided verdict = iota
	existing          // the key is used
	denied
	granted
	keyless // the pool of operation keys has none for it
	unknownPermit
	unknownWallet
)

// Claim decides and records one operation (T1). Granted and Denied are durable when it returns.
//
// Until a batch takes it, the caller may leave by ctx and nothing is left behind (ctx.Err()). Errors:
// ErrUnavailable and ErrQueueFull mean that nothing happened; ErrUnknown that the store did not say in
// time, in which case a claim that turns out granted is settled as not dispatched; ErrPermitUnknown and
// ErrNotFound that the permit or wallet has no row.
func (l *Ledger) Claim(ctx context.Context, c *Claim) (Claimed, error) {
	job, err := newClaimJob(c)
	if err != nil {
		return Claimed{}, err
	}
	job.record.instance = l.instance
	job.term, _ = l.tenure.now(l.now(), l.lease)
	lanes := l.shard(c.Wallet)
	if lanes.settles.full() {
		return Claimed{}, ErrQueueFull // what is claimed must have room for its outcome, which is never dropped
	}
	if err := lanes.claims.submit(ctx, job, len(c.Arguments)); err != nil {
		return Claimed{}, err
	}
	switch job.verdict {
	case granted:
		l.waiters.add(job.record.id)
		return Claimed{Granted: job.granted()}, nil
	case denied:
		op, err := l.signed(&job.record)
		return Claimed{Denied: op}, err
	case keyless:
		return Claimed{}, ErrNoOperationKeys
	case unknownPermit:
		return Claimed{}, ErrPermitUnknown
	case unknownWallet:
		return Claimed{}, ErrNotFound
	case undecided, existing:
	}
	op, err := l.Lookup(ctx, c.Wallet, c.Key)
	if err == nil && op == nil {
		err = ErrUnavailable // seen under the lock, gone outside it: a replica that lags
	}
	return Claimed{Existing: op}, err
}

func newClaimJob(c *Claim) (*claimJob, error) {
	id, err := newID()
	if err != nil {
		return nil, fmt.Errorf("make operation id: %w", err)
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("make operation key: %w", err)
	}
	counted := int64(0)
	if c.Fit.Value != nil && c.Permit.Grant.Limits.Value != nil {
		counted = c.Fit.Value.Amount
	}
	return &claimJob{
		claim: c, ownKey: base64.RawURLEncoding.EncodeToString(secret),
		record: record{
			id: id, wallet: c.Wallet, key: c.Key, keySource: c.KeySource, agent: c.Agent,
			permit: c.Permit.ID, permitSHA256: c.Permit.SHA256, tool: c.Tool, toolSHA256: c.ToolSHA256, reference: c.Ref,
			requestHash: c.RequestHash, arguments: c.Arguments, value: c.Fit.Value, counted: counted,
		},
	}, nil
}

func (j *claimJob) granted() *Granted {
	return &Granted{
		ID: prefixOperation + j.record.id.String(), OperationKey: j.operationKey, record: j.record, term: j.term,
	}
}

// runClaims commits one batch, whatever it takes: whole after a conflict, halved after a member's fault,
// read back after a COMMIT without an answer.
func (l *Ledger) runClaims(tickets []*ticket[*claimJob]) {
	held := 0
	for try := 0; ; try++ {
		began := l.now()
		err := l.claimBatch(tickets, held)
		if err == nil {
			l.onCommit("claim", len(tickets), l.now().Sub(began))
			l.answerClaims(tickets, nil)
			return
		}
		if errors.Is(err, errKeysHeld) && l.pause(keyPause) {
			held, try = held+1, try-1
			continue
		}
		switch kindOf(err) {
		case storeRetry, storeUnavailable:
			if try < 3 {
				continue
			}
			l.log.Warn("claims refused: the store is not available", "claims", len(tickets), "error", err)
			l.answerClaims(tickets, ErrUnavailable)
			return
		case storeUnknown:
			l.log.Warn("the answer to a commit was lost; reading back", "claims", len(tickets), "error", err)
			l.resolveClaims(tickets)
			return
		default:
			l.splitClaims(tickets, err)
			return
		}
	}
}

// splitClaims halves a batch that one member's data failed, until that member stands alone.
func (l *Ledger) splitClaims(tickets []*ticket[*claimJob], err error) {
	if len(tickets) == 1 {
		l.log.Error("a claim cannot be stored", "operation", tickets[0].job.record.id, "error", err)
		l.answerClaims(tickets, fmt.Errorf("store claim: %w", err))
		return
	}
	half := len(tickets) / 2
	l.runClaims(tickets[:half])
	l.runClaims(tickets[half:])
}

// answerClaims tells the waiters. A grant whose waiter has left will never be sent, and is settled so.
func (l *Ledger) answerClaims(tickets []*ticket[*claimJob], err error) {
	for _, t := range tickets {
		if t.answer(err) || err != nil || t.job.verdict != granted {
			continue
		}
		g := t.job.granted()
		l.background.Go(func() { l.giveUp(g) })
	}
}

// giveUp settles a grant that nobody will dispatch.
func (l *Ledger) giveUp(g *Granted) {
	s := &Settlement{Granted: g, Outcome: receipts.Failed, Reason: receipts.ReasonNotDispatched}
	s.Result = l.explain(Ending{Outcome: s.Outcome, Reason: s.Reason})
	if _, err := l.Settle(context.Background(), s); err != nil && !errors.Is(err, ErrSuperseded) {
		l.log.Error("a call that was never sent is not settled yet", "operation", g.ID, "error", err)
	}
}

// resolveClaims finds out which claims of a batch were committed. The old transaction held the wallets'
// locks, so once this one has them, the old one has ended and what it wrote is seen. Where a standby confirms
// commits, what is seen need not have reached it; this transaction writes too, so that its own commit waits
// for the standby.
func (l *Ledger) resolveClaims(tickets []*ticket[*claimJob]) {
	for {
		found, err := l.committedClaims(tickets)
		if err == nil {
			var lost, kept []*ticket[*claimJob]
			for _, t := range tickets {
				wrote := t.job.verdict == granted || t.job.verdict == denied
				if wrote && !found[t.job.record.id] {
					lost = append(lost, t)
					continue
				}
				kept = append(kept, t)
			}
			l.answerClaims(kept, nil)
			l.runClaims(awaited(lost))
			return
		}
		if !l.pause(200 * time.Millisecond) {
			return
		}
	}
}

// awaited drops the tickets whose waiters have left: nothing of theirs was committed, and nothing will be.
func awaited[T any](tickets []*ticket[T]) []*ticket[T] {
	var list []*ticket[T]
	for _, t := range tickets {
		if !t.forsaken() {
			list = append(list, t)
		}
	}
	return list
}

func (l *Ledger) committedClaims(tickets []*ticket[*claimJob]) (map[[16]byte]bool, error) {
	found := make(map[[16]byte]bool)
	ids, wallets := make([]pgtype.UUID, len(tickets)), make([]string, len(tickets))
	for i, t := range tickets {
		ids[i], wallets[i] = pgUUID(t.job.record.id), t.job.record.wallet
	}
	err := l.transact(func(b *batch) {
		b.exec("lock_wallets", wallets)
		b.query("claimed_ids", func(row pgx.CollectableRow) error {
			var id pgtype.UUID
			err := row.Scan(&id)
			found[id.Bytes] = true
			return err
		}, ids, wallets)
	}, func(_ context.Context, _ *pgxpool.Conn, b *batch) error {
		l.barrier(b)
		return nil
	})
	return found, err
}

// claimBatch is T1: lock, read, decide in order of arrival, write, commit.
// held is how often the last operation keys were found to be in others' hands.
func (l *Ledger) claimBatch(tickets []*ticket[*claimJob], held int) error {
	if len(tickets) == 0 {
		return nil
	}
	s := newClaimState(tickets, l.poolOf())
	return l.transact(s.lock, func(ctx context.Context, conn *pgxpool.Conn, b *batch) error {
		for _, t := range tickets {
			s.decide(t.job)
		}
		if again, err := s.pool.short(ctx, conn); err != nil {
			return err
		} else if again && held < keyTries {
			return &storeError{kind: storeUnavailable, err: errKeysHeld}
		}
		if err := l.denyAll(ctx, conn, s); err != nil {
			return err
		}
		s.write(b, l.instance)
		if len(s.denied) > 0 {
			writeRecords(b, s.denied, s.heads)
		}
		return nil
	})
}

// denyAll chains the receipts of refusals. Chain heads are locked only if there is one to write.
func (l *Ledger) denyAll(ctx context.Context, conn *pgxpool.Conn, s *claimState) error {
	if len(s.denied) == 0 {
		return nil
	}
	err := more(ctx, conn, func(b *batch) { b.query("lock_chains", s.heads.scan, walletsOf(s.denied)) })
	if err != nil {
		return err
	}
	for _, r := range s.denied {
		r.result = l.explain(r.ending())
	}
	return l.chainUp(s.denied, s.heads, s.nowMS)
}

func walletsOf(records []*record) []string {
	list := make([]string, len(records))
	for i, r := range records {
		list[i] = r.wallet
	}
	return list
}

func encodeCalls(calls map[string]int64) string {
	text, err := json.Marshal(calls)
	if err != nil {
		panic(fmt.Sprintf("ledger: encode call counts: %v", err)) // a map of integers always encodes
	}
	return string(text)
}

func decodeCalls(text string) (map[string]int64, error) {
	calls := make(map[string]int64)
	if err := json.Unmarshal([]byte(text), &calls); err != nil {
		return nil, fmt.Errorf("read call counts: %w", err)
	}
	return calls, nil
}

// state reads a usage row, and the wallet's, as what a permit is judged against.
func (u *usageRow) state(w *walletRow, tool string, nowMS int64) permits.State {
	return permits.State{
		NowMS: nowMS, Revoked: u.revoked, CreditsCommitted: u.credits, CallsTotal: u.callsTotal,
		ToolCalls: u.calls[tool], ValueCommitted: u.value,
		WalletAvailable: w.deposited - w.committed, WalletFrozen: w.frozen,
	}
}
