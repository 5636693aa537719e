package ledger

import (
	"context"
	"time"

	"counterfoil/permits"
	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Uncertain is an operation that waits for a reconciliation.
type Uncertain struct {
	Operation, Wallet, Agent, Permit, Tool string
	OperationKey                           string // by which the upstream knows the call; not for agents
	Reason                                 receipts.Reason
	Charged                                int64 // credits, kept until it is decided
	Value                                  *permits.Value
	Since                                  time.Time
	Late                                   bool // the tool's answer came after all, as evidence
	Probes                                 int
	NextProbe                              *time.Time // nil where none was asked yet
}

// AtRisk sums up what waits for a reconciliation. Values has one amount for each currency.
type AtRisk struct {
	Count, Credits int64
	Values         []permits.Value
	Oldest         time.Time // zero where nothing waits
}

// UncertainQueue lists what waits for a reconciliation after an operation, oldest first. nil wallets is every wallet.
func (l *Ledger) UncertainQueue(ctx context.Context, wallets []string, after string, limit int) ([]*Uncertain, error) {
	from, err := afterID(prefixOperation, after)
	if err != nil {
		return nil, err
	}
	rows, err := l.pool.Query(ctx, sql.Query("uncertain_queue"), pgUUID(from), wallets, limit)
	if err != nil {
		return nil, coldError("list uncertain operations", err)
	}
	list, err := pgx.CollectRows(rows, scanUncertain)
	return list, coldError("list uncertain operations", err)
}

func scanUncertain(row pgx.CollectableRow) (*Uncertain, error) {
	var id uuid.UUID
	var currency pgtype.Text
	var amount pgtype.Int8
	var sinceMS int64
	u := &Uncertain{}
	err := row.Scan(&id, &u.OperationKey, &u.Wallet, &u.Agent, &u.Permit, &u.Tool, &u.Reason, &u.Charged, &currency, &amount, &sinceMS, &u.Late,
		&u.Probes, &u.NextProbe)
	if err != nil {
		return nil, err
	}
	u.Operation, u.Since, u.Value = prefixOperation+id.String(), time.UnixMilli(sinceMS).UTC(), valueOf(currency, amount)
	return u, nil
}

// valueOf reads a value's two columns, which are null together.
func valueOf(currency pgtype.Text, amount pgtype.Int8) *permits.Value {
	if !currency.Valid {
		return nil
	}
	return &permits.Value{Currency: currency.String, Amount: amount.Int64}
}

// AtRisk sums up the queue of the wallets that may be seen; nil is every wallet.
func (l *Ledger) AtRisk(ctx context.Context, wallets []string) (AtRisk, error) {
	var total AtRisk
	rows, err := l.pool.Query(ctx, sql.Query("at_risk"), wallets)
	if err != nil {
		return total, coldError("sum up uncertain operations", err)
	}
	var currency string
	var count, credits, amount, sinceMS int64
	_, err = pgx.ForEachRow(rows, []any{&currency, &count, &credits, &amount, &sinceMS}, func() error {
		total.Count += count
		total.Credits += credits
		if currency != "" {
			total.Values = append(total.Values, permits.Value{Currency: currency, Amount: amount})
		}
		if since := time.UnixMilli(sinceMS).UTC(); total.Oldest.IsZero() || since.Before(total.Oldest) {
			total.Oldest = since
		}
		return nil
	})
	return total, coldError("sum up uncertain operations", err)
}

// ProbePlan says when a tool's probe is asked: first so long after the operation became uncertain, then at twice the
// distance each time up to the longest, and no more once it has been uncertain for GiveUp.
type ProbePlan struct {
	Tool                   string
	First, Longest, GiveUp time.Duration
}

// Probe is one question to ask.
type Probe struct {
	Operation    string
	OperationKey string // private: only for the upstream
	Tool         string
	Tries        int // this one included
}

// DueProbes picks the uncertain operations whose tool is to be asked now. The time of the next try is written
// before this returns, so that a crash costs one try and no two gateways ask at once.
func (l *Ledger) DueProbes(ctx context.Context, plans []ProbePlan, limit int) ([]Probe, error) {
	n := len(plans)
	tools, first, longest, last := make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, p := range plans {
		tools[i], first[i], longest[i], last[i] = p.Tool, p.First.Milliseconds(), p.Longest.Milliseconds(), p.GiveUp.Milliseconds()
	}
	rows, err := l.pool.Query(ctx, sql.Query("due_probes"), tools, first, longest, last, limit)
	if err != nil {
		return nil, coldError("pick probes", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Probe, error) {
		var id uuid.UUID
		var p Probe
		err := row.Scan(&id, &p.OperationKey, &p.Tool, &p.Tries)
		p.Operation = prefixOperation + id.String()
		return p, err
	})
	return list, coldError("pick probes", err)
}

func outcomes(records []*record, outcome receipts.Outcome) []*record {
	var list []*record
	for _, r := range records {
		if r.outcome == outcome {
			list = append(list, r)
		}
	}
	return list
}

func uncertainColumns(records []*record) []any {
	n := len(records)
	wallets, tools, ids := make([]string, n), make([]string, n), make([]pgtype.UUID, n)
	charged, since := make([]int64, n), make([]int64, n)
	for i, r := range records {
		wallets[i], ids[i], tools[i], charged[i], since[i] = r.wallet, pgUUID(r.id), r.tool, r.charged, r.endedMS
	}
	return []any{wallets, ids, tools, charged, since}
}
