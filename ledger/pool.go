package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The pool of operation keys. With Options.OperationKeyPool the private key of a new operation, by which its tool knows it, is
// one that an operator has loaded, taken in T1: each is given to one operation, for ever, and what was not
// granted takes none.

// ErrNoOperationKeys means that the pool of operation keys is empty: nothing happened, the same key is safe.
var ErrNoOperationKeys = fmt.Errorf("%w: no operation key is left in the pool", ErrUnavailable)

// errKeysHeld means that other transactions have locked the keys that are left, and need not use them.
var errKeysHeld = errors.New("others hold the last operation keys")

// How often, and after what time, a batch looks again for keys that others hold. A transaction takes milliseconds.
const (
	keyTries = 200
	keyPause = 5 * time.Millisecond
)

// OperationKeys counts the pool. Loaded and Known are of one request: new keys, and those that had been loaded before.
type OperationKeys struct {
	Loaded, Known int64
	Free, Used    int64
}

// LoadOperationKeys adds keys to the pool. A key that was ever loaded is passed over, so that a repeat changes nothing and a
// used key is never given again.
func (a *Admin) LoadOperationKeys(ctx context.Context, keys []string) (*OperationKeys, error) {
	tag, err := a.tx.Exec(ctx, sql.Query("load_operation_keys"), keys)
	if err != nil {
		return nil, coldError("load operation keys", err)
	}
	n := &OperationKeys{Loaded: tag.RowsAffected()}
	n.Known = int64(len(keys)) - n.Loaded
	if err := a.tx.QueryRow(ctx, sql.Query("count_operation_keys")).Scan(&n.Free, &n.Used); err != nil {
		return nil, coldError("count operation keys", err)
	}
	return n, a.event(ctx, "operation_keys.loaded", "operation_keys", map[string]any{"loaded": n.Loaded, "known": n.Known})
}

// OperationKeys counts the pool.
func (l *Ledger) OperationKeys(ctx context.Context) (*OperationKeys, error) {
	n := &OperationKeys{}
	err := l.pool.QueryRow(ctx, sql.Query("count_operation_keys")).Scan(&n.Free, &n.Used)
	return n, coldError("count operation keys", err)
}

// UsesOperationKeyPool reports whether new operations take their keys from the pool.
func (l *Ledger) UsesOperationKeyPool() bool { return l.pooled }

// keyring is what a batch has of the pool; nil: keys are made, not taken.
type keyring struct {
	free   []string
	picked int64
	wanted int // by how many more they were wanted than there are
}

// lock queues the picking of as many keys as the batch could need.
func (k *keyring) lock(b *batch, most int) {
	b.query("pick_operation_keys", func(row pgx.CollectableRow) error {
		var key string
		err := row.Scan(&key)
		k.free = append(k.free, key)
		k.picked++
		return err
	}, int64(most))
}

// give hands out a key: made, or from the pool; false where the pool has none.
func (k *keyring) give(j *claimJob) bool {
	if k == nil {
		return true
	}
	if len(k.free) == 0 {
		k.wanted++
		return false
	}
	j.operationKey, k.free = k.free[0], k.free[1:]
	return true
}

// short finds out whether keys are missing only because other transactions hold them locked.
func (k *keyring) short(ctx context.Context, conn *pgxpool.Conn) (held bool, err error) {
	if k == nil || k.wanted == 0 {
		return false, nil
	}
	err = more(ctx, conn, func(b *batch) {
		b.query("spare_operation_keys", func(row pgx.CollectableRow) error { return row.Scan(&held) }, k.picked)
	})
	return held, err
}

// mark queues that these operations have their keys.
func (k *keyring) mark(b *batch, granted []*claimJob) {
	if k == nil || len(granted) == 0 {
		return
	}
	keys, wallets, ids := make([]string, len(granted)), make([]string, len(granted)), make([]pgtype.UUID, len(granted))
	for i, j := range granted {
		keys[i], wallets[i], ids[i] = j.operationKey, j.record.wallet, pgUUID(j.record.id)
	}
	b.exec("use_operation_keys", keys, wallets, ids)
}

// poolOf is the pool as a batch sees it.
func (l *Ledger) poolOf() *keyring {
	if !l.pooled {
		return nil
	}
	return &keyring{}
}

// operationKeys checks that each key of the pool is one operation's, and that no other operation has it.
func (f *fsck) operationKeys(ctx context.Context) error {
	return f.each(ctx, "fsck_operation_keys", func(rows pgx.Rows) error {
		var wallet string
		var id pgUUIDText
		var has bool
		if err := rows.Scan(&wallet, &id, &has); err != nil {
			return fmt.Errorf("read operation key: %w", err)
		}
		what := "a key of the pool is marked as its own, and it has another"
		if has {
			what = "it has a key of the pool that is not marked as its own"
		}
		return &Finding{Invariant: "I1", Table: "operation_keys", Row: wallet + " " + prefixOperation + id.String(), What: what}
	})
}
