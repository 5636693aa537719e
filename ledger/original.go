package ledger

import (
	"context"

	"counterfoil/sql"
)

// Original is the call that an operation was made for, as it was decided on and hashed.
type Original struct {
	Wallet, Key, KeySource string
	Agent, Permit, Tool    string
	Arguments              []byte // canonical
}

// Original returns the call of one operation of these wallets; without wallets there is none. ErrNotFound stands
// for an operation that does not exist and for somebody else's alike.
func (l *Ledger) Original(ctx context.Context, id string, wallets []string) (*Original, error) {
	uid, ok := parseID(prefixOperation, id)
	if !ok {
		return nil, ErrNotFound
	}
	var o Original
	row := l.pool.QueryRow(ctx, sql.Query("original_call"), pgUUID(uid), wallets)
	err := row.Scan(&o.Wallet, &o.Key, &o.KeySource, &o.Agent, &o.Permit, &o.Tool, &o.Arguments)
	if err != nil {
		return nil, coldError("read the call of an operation", err)
	}
	return &o, nil
}
