package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"counterfoil/internal/jws"
	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

// Issuer is a trusted outside issuer of permits and its public keys. CreatedAt is that of its oldest key.
type Issuer struct {
	Name      string // its "iss"
	Keys      []jws.Key
	CreatedAt time.Time
}

// KeySet is the issuer's keys as a set; each is checked again.
func (i Issuer) KeySet() (jws.KeySet, error) { return jws.NewKeySet(i.Keys...) }

// Issuer returns one issuer.
func (l *Ledger) Issuer(ctx context.Context, name string) (*Issuer, error) {
	return readIssuer(ctx, l.pool, name)
}

// Issuers lists issuers after a name, in the order of their names.
func (l *Ledger) Issuers(ctx context.Context, after string, limit int) ([]*Issuer, error) {
	rows, err := l.pool.Query(ctx, sql.Query("list_issuers"), after, limit)
	if err != nil {
		return nil, coldError("list issuers", err)
	}
	issuers, err := collectIssuers(rows)
	return issuers, coldError("list issuers", err)
}

// RegisterIssuer adds keys to an outside issuer, or changes the state of keys it has. A key that is not named
// stays as it is; a revoked key stays revoked; a key belongs to one issuer.
func (a *Admin) RegisterIssuer(ctx context.Context, name string, keys []jws.Key) (issuer *Issuer, created bool, err error) {
	_, err = readIssuer(ctx, a.tx, name)
	created = errors.Is(err, ErrNotFound)
	if err != nil && !created {
		return nil, false, err
	}
	kids := make(map[string]any, len(keys))
	for _, k := range keys {
		var kid string
		err := a.tx.QueryRow(ctx, sql.Query("upsert_issuer_key"), k.ID, name, []byte(k.Public), string(k.Status), k.NotBefore, k.Expires).Scan(&kid)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, false, fmt.Errorf("%w: key %s is another issuer's, or was revoked", ErrConflict, k.ID)
		}
		if err != nil {
			return nil, false, coldError("register issuer key", err)
		}
		kids[k.ID] = string(k.Status)
	}
	action := "issuer.updated"
	if created {
		action = "issuer.registered"
	}
	if err := a.event(ctx, action, name, map[string]any{"keys": kids}); err != nil {
		return nil, false, err
	}
	a.onCommit = append(a.onCommit, a.ledger.permits.reset)
	issuer, err = readIssuer(ctx, a.tx, name)
	return issuer, created, err
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}

func readIssuer(ctx context.Context, q querier, name string) (*Issuer, error) {
	rows, err := q.Query(ctx, sql.Query("issuer_keys"), name)
	if err != nil {
		return nil, coldError("read issuer", err)
	}
	issuers, err := collectIssuers(rows)
	if err != nil {
		return nil, coldError("read issuer", err)
	}
	if len(issuers) == 0 {
		return nil, ErrNotFound
	}
	return issuers[0], nil
}

func collectIssuers(rows pgx.Rows) ([]*Issuer, error) {
	defer rows.Close()
	var issuers []*Issuer
	for rows.Next() {
		var name, status string
		var createdAt time.Time
		k := jws.Key{Purpose: jws.PurposePermit}
		if err := rows.Scan(&name, &k.ID, (*[]byte)(&k.Public), &status, &k.NotBefore, &k.Expires, &createdAt); err != nil {
			return nil, err
		}
		k.Status = jws.Status(status)
		if n := len(issuers); n == 0 || issuers[n-1].Name != name {
			issuers = append(issuers, &Issuer{Name: name, CreatedAt: createdAt})
		}
		last := issuers[len(issuers)-1]
		last.Keys = append(last.Keys, k)
		if createdAt.Before(last.CreatedAt) {
			last.CreatedAt = createdAt
		}
	}
	return issuers, rows.Err()
}
