package ledger

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"counterfoil/receipts"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// walletRow is a locked wallet with what this batch has done to it so far.
type walletRow struct {
	id                   string
	frozen               bool
	deposited, committed int64
	delta                int64
}

// usageRow is a locked permit usage row with what this batch has done to it so far.
type usageRow struct {
	wallet, permit             string
	credits, callsTotal, value int64
	calls                      map[string]int64
	revoked                    bool
	credited, called, valued   int64 // deltas
	touched                    bool
}

type pair struct{ a, b string }

type chainHeads map[string]*chainHead

func (h chainHeads) scan(row pgx.CollectableRow) error {
	var wallet string
	head := &chainHead{}
	err := row.Scan(&wallet, &head.seq, &head.head)
	h[wallet] = head
	return err
}

// counters is the locked money of a batch: the rows that hold what is committed of each limit.
type counters struct {
	wallets map[string]*walletRow
	usage   map[pair]*usageRow
}

func newCounters() counters {
	return counters{wallets: make(map[string]*walletRow), usage: make(map[pair]*usageRow)}
}

// lock queues the locks of these wallets and permits, in the one order.
func (c counters) lock(b *batch, wallets, permitWallets, permitIDs []string) {
	b.query("claim_lock", func(row pgx.CollectableRow) error {
		w, u := &walletRow{}, &usageRow{}
		var permit, calls pgtype.Text
		var credits, callsTotal, value pgtype.Int8
		var revoked pgtype.Bool
		err := row.Scan(&w.id, &w.frozen, &w.deposited, &w.committed, &permit, &credits, &callsTotal, &calls, &value, &revoked)
		if err != nil {
			return err
		}
		c.wallets[w.id] = w
		if !permit.Valid {
			return nil
		}
		u.wallet, u.permit, u.revoked = w.id, permit.String, revoked.Bool
		u.credits, u.callsTotal, u.value = credits.Int64, callsTotal.Int64, value.Int64
		u.calls, err = decodeCalls(calls.String)
		c.usage[pair{u.wallet, u.permit}] = u
		return err
	}, wallets, permitWallets, permitIDs)
}

// move commits (or with negative amounts, gives back) credits, calls and value.
func (c counters) move(r *record, credits, calls, value int64) {
	if w := c.wallets[r.wallet]; w != nil && credits != 0 {
		w.committed += credits
		w.delta += credits
	}
	u := c.usage[pair{r.wallet, r.permit}]
	if u == nil || (credits == 0 && calls == 0 && value == 0) {
		return
	}
	u.touched = true
	u.credits, u.credited = u.credits+credits, u.credited+credits
	u.callsTotal, u.called = u.callsTotal+calls, u.called+calls
	u.value, u.valued = u.value+value, u.valued+value
	u.calls[r.tool] += calls
}

// columns are one net row for each wallet and permit that moved, as the statements take them.
func (c counters) columns() []any {
	var ids []string
	var deltas []int64
	for _, w := range c.wallets {
		if w.delta != 0 {
			ids, deltas = append(ids, w.id), append(deltas, w.delta)
		}
	}
	var wallets, permitIDs, calls []string
	var credited, called, valued []int64
	for _, u := range c.usage {
		if !u.touched {
			continue
		}
		wallets, permitIDs, calls = append(wallets, u.wallet), append(permitIDs, u.permit), append(calls, encodeCalls(u.calls))
		credited, called, valued = append(credited, u.credited), append(called, u.called), append(valued, u.valued)
	}
	return []any{ids, deltas, wallets, permitIDs, credited, called, calls, valued}
}

// claimState is everything T1 decides on.
type claimState struct {
	counters
	wallets, permitWallets, permitIDs []string
	keyWallets, keys                  []string
	used                              map[pair]bool
	refs                              map[refKey]uuid.UUID // references in use, and by which operation
	nowMS                             int64
	heads                             chainHeads
	pool                              *keyring
	referring                         []*record // those with a reference
	granted                           []*claimJob
	denied                            []*record
	written                           []*claimJob
	taken                             []*record // those that take their reference
}

func newClaimState(tickets []*ticket[*claimJob], pool *keyring) *claimState {
	s := &claimState{counters: newCounters(), pool: pool, used: make(map[pair]bool), refs: make(map[refKey]uuid.UUID), heads: make(chainHeads)}
	wallets, usage := make(map[string]bool), make(map[pair]bool)
	for _, t := range tickets {
		r := &t.job.record
		wallets[r.wallet] = true
		usage[pair{r.wallet, r.permit}] = true
		s.keyWallets, s.keys = append(s.keyWallets, r.wallet), append(s.keys, r.key)
		if r.reference != "" {
			s.referring = append(s.referring, r)
		}
	}
	s.wallets = slices.Collect(maps.Keys(wallets))
	for p := range usage {
		s.permitWallets, s.permitIDs = append(s.permitWallets, p.a), append(s.permitIDs, p.b)
	}
	return s
}

// lock queues the locks, then the reads that must see what earlier holders of the locks committed.
func (s *claimState) lock(b *batch) {
	s.counters.lock(b, s.wallets, s.permitWallets, s.permitIDs)
	b.query("claim_read", func(row pgx.CollectableRow) error {
		var wallet, key pgtype.Text
		err := row.Scan(&s.nowMS, &wallet, &key)
		if wallet.Valid {
			s.used[pair{wallet.String, key.String}] = true
		}
		return err
	}, s.keyWallets, s.keys)
	if len(s.referring) > 0 {
		b.query("claim_refs", s.scanRef, refColumns(s.referring)[:3]...)
	}
	if s.pool != nil {
		s.pool.lock(b, len(s.keys))
	}
}

// decide judges one claim against the rows as the claims before it in the batch have left them.
func (s *claimState) decide(j *claimJob) {
	r, c := &j.record, j.claim
	w, u := s.counters.wallets[r.wallet], s.usage[pair{r.wallet, r.permit}]
	switch {
	case w == nil:
		j.verdict = unknownWallet
		return
	case s.used[pair{r.wallet, r.key}]:
		j.verdict = existing
		return
	case u == nil:
		j.verdict = unknownPermit
		return
	}
	r.startedMS, j.operationKey = s.nowMS, j.ownKey
	r.authorized, r.outcome, r.reason, r.detail = 0, "", "", nil
	r.duplicateOf = ""
	no := s.refusal(r, c.Permit.Decide(c.Fit, c.Price, u.state(w, r.tool, s.nowMS)))
	if no == nil && !s.pool.give(j) {
		j.verdict = keyless // as if it had not come
		return
	}
	s.used[pair{r.wallet, r.key}] = true
	s.written = append(s.written, j)
	if no != nil {
		j.verdict = denied
		r.outcome, r.reason, r.detail = receipts.Denied, no.Reason, no.Detail
		s.denied = append(s.denied, r)
		return
	}
	if r.reference != "" {
		s.refs[r.refKey()] = r.id
		s.taken = append(s.taken, r)
	}
	j.verdict = granted
	r.authorized = c.Price
	s.granted = append(s.granted, j)
	s.move(r, c.Price, 1, r.counted)
}

// write queues the claims, the holds of the granted ones, and the moved counters.
func (s *claimState) write(b *batch, instance uuid.UUID) {
	if len(s.written) == 0 {
		return
	}
	columns := operationColumns(s.written, s.nowMS)
	columns = append(columns, holdColumns(s.granted, instance)...)
	columns = append(columns, s.counters.columns()...)
	b.exec("claim_write", append(columns, referencesOf(s.written))...)
	s.pool.mark(b, s.granted)
	if len(s.taken) > 0 {
		b.exec("insert_refs", refColumns(s.taken)...)
	}
}

func operationColumns(jobs []*claimJob, nowMS int64) []any {
	n := len(jobs)
	wallets, keys, agents, permitIDs := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	tools, sources, secrets := make([]string, n), make([]string, n), make([]string, n)
	ids := make([]pgtype.UUID, n)
	toolHashes, requestHashes, arguments := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	authorized := make([]int64, n)
	currencies, amounts := make([]pgtype.Text, n), make([]pgtype.Int8, n)
	for i, j := range jobs {
		r := &j.record
		wallets[i], keys[i], ids[i], agents[i], permitIDs[i] = r.wallet, r.key, pgUUID(r.id), r.agent, r.permit
		tools[i], sources[i], secrets[i] = r.tool, r.keySource, j.operationKey
		toolHashes[i], requestHashes[i], arguments[i] = decodeHex(r.toolSHA256), r.requestHash[:], r.arguments
		authorized[i] = r.authorized
		if r.value != nil {
			currencies[i] = pgtype.Text{String: r.value.Currency, Valid: true}
			amounts[i] = pgtype.Int8{Int64: r.value.Amount, Valid: true}
		}
	}
	return []any{
		wallets, keys, ids, agents, permitIDs, tools, toolHashes, sources, secrets,
		requestHashes, arguments, authorized, currencies, amounts, nowMS,
	}
}

func holdColumns(jobs []*claimJob, instance uuid.UUID) []any {
	n := len(jobs)
	wallets, permitIDs, tools := make([]string, n), make([]string, n), make([]string, n)
	ids := make([]pgtype.UUID, n)
	credits, values := make([]int64, n), make([]int64, n)
	for i, j := range jobs {
		r := &j.record
		wallets[i], ids[i], permitIDs[i], tools[i] = r.wallet, pgUUID(r.id), r.permit, r.tool
		credits[i], values[i] = r.authorized, r.counted
	}
	return []any{wallets, ids, permitIDs, tools, credits, values, pgUUID(instance)}
}

// decodeHex reads a hash that this program wrote as hex.
func decodeHex(text string) []byte {
	data, err := hex.DecodeString(text)
	if err != nil {
		panic(fmt.Sprintf("ledger: a hash is not hex: %v", err))
	}
	return data
}
