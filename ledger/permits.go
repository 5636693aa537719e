package ledger

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

const (
	prefixPermit = "prm_"

	// A parsed permit is a pure function of its stored text and of the keys. The gateway's own keys do not
	// change under it; an outside issuer's may be revoked through another process.
	ownPermitTTL     = time.Minute
	outsidePermitTTL = time.Second
)

// PermitTrust says which permits of the gateway's own issue are accepted. Permits of other issuers are
// accepted under the keys that are registered for exactly their issuer.
type PermitTrust struct {
	Issuer      string // the gateway's issuer URL; every permit's audience
	Keys        jws.KeySet
	MaxLifetime time.Duration
}

// PermitByID returns a stored permit, parsed and verified anew. ErrNotFound: there is none.
// permits.ErrInvalid: its signature, issuer or content is not accepted (any more). Whether it is expired or
// revoked is a verdict of the call, not of this.
func (l *Ledger) PermitByID(ctx context.Context, id string, t PermitTrust) (*permits.Permit, error) {
	return l.permits.get(ctx, l.now(), id, func(ctx context.Context) (*permits.Permit, time.Duration, error) {
		row, err := readPermit(ctx, l.pool, id)
		if err != nil {
			return nil, 0, err
		}
		return l.trusted(ctx, id, row, t)
	})
}

// trusted parses a stored permit, and says for how long what it found is good.
func (l *Ledger) trusted(ctx context.Context, id string, row permitRow, t PermitTrust) (*permits.Permit, time.Duration, error) {
	permit, err := parsePermit(ctx, l.pool, row.token, t)
	if err != nil {
		return nil, 0, fmt.Errorf("permit %s: %w", id, err)
	}
	// Columns are an index of the signed text: one that says otherwise is a broken record.
	if permit.ID != id || permit.Wallet != row.wallet || permit.Agent != row.agent || permit.Issuer != row.issuer || permit.SHA256 != row.sha256 {
		return nil, 0, fmt.Errorf("permit %s: %w: the stored text and its index disagree", id, permits.ErrInvalid)
	}
	if permit.Issuer == t.Issuer {
		return permit, ownPermitTTL, nil
	}
	return permit, outsidePermitTTL, nil
}

type permitRow struct{ token, wallet, agent, issuer, sha256 string }

func readPermit(ctx context.Context, q querier, id string) (permitRow, error) {
	var r permitRow
	var sum []byte
	err := q.QueryRow(ctx, sql.Query("permit_token"), id).Scan(&r.token, &r.wallet, &r.agent, &r.issuer, &sum)
	r.sha256 = hex.EncodeToString(sum)
	return r, coldError("read permit", err)
}

// parsePermit verifies a permit under the keys of the issuer that it names, and of no other. The name is
// read before it is proven; the signature then proves it.
func parsePermit(ctx context.Context, q querier, token string, t PermitTrust) (*permits.Permit, error) {
	name, err := permits.Issuer(token)
	if err != nil {
		return nil, err
	}
	keys := t.Keys
	if name != t.Issuer {
		issuer, err := readIssuer(ctx, q, name)
		if errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("%w: its issuer is not registered", permits.ErrInvalid)
		}
		if err != nil {
			return nil, err
		}
		if keys, err = issuer.KeySet(); err != nil {
			return nil, fmt.Errorf("%w: %w", permits.ErrInvalid, err)
		}
	}
	return permits.Parse(token, keys, permits.Expect{Issuers: []string{name}, Audience: t.Issuer, MaxLifetime: t.MaxLifetime})
}

// PermitRecord is a stored permit and what became of it.
type PermitRecord struct {
	Permit    *permits.Permit // its claims; the signature was checked when it was stored
	Status    string          // active, revoked, expired, not_yet_valid, by the database's clock
	CreatedAt time.Time
	RevokedAt *time.Time
	Usage     Usage
}

// Usage is what calls under a permit have used. Held is reserved for calls that run; a call counts from its
// reservation on.
type Usage struct {
	CreditsSpent, CreditsHeld int64
	CallsTotal                int64
	Calls                     map[string]int64
	ValueSpent, ValueHeld     int64
}

// PermitFilter picks permits; an empty member picks all.
type PermitFilter struct{ Wallet, Agent string }

// Permit returns one permit with its usage.
func (l *Ledger) Permit(ctx context.Context, id string) (*PermitRecord, error) {
	return permitRecord(ctx, l.pool, id)
}

// Permits lists permits after an id, in the order of their ids.
func (l *Ledger) Permits(ctx context.Context, f PermitFilter, after string, limit int) ([]*PermitRecord, error) {
	rows, err := l.pool.Query(ctx, sql.Query("list_permits"), nil, after, nullable(f.Wallet), nullable(f.Agent), limit)
	if err != nil {
		return nil, coldError("list permits", err)
	}
	records, err := pgx.CollectRows(rows, scanPermit)
	return records, coldError("list permits", err)
}

func permitRecord(ctx context.Context, q querier, id string) (*PermitRecord, error) {
	rows, err := q.Query(ctx, sql.Query("list_permits"), id, "", nil, nil, 1)
	if err != nil {
		return nil, coldError("read permit", err)
	}
	record, err := pgx.CollectExactlyOneRow(rows, scanPermit)
	return record, coldError("read permit", err)
}

func scanPermit(row pgx.CollectableRow) (*PermitRecord, error) {
	var r PermitRecord
	var id, wallet, agent, issuer, token, calls string
	var credits, value int64
	u := &r.Usage
	err := row.Scan(&id, &wallet, &agent, &issuer, &token, &r.CreatedAt, &credits, &u.CallsTotal, &calls, &value,
		&r.RevokedAt, &u.CreditsHeld, &u.ValueHeld, &r.Status)
	if err != nil {
		return nil, err
	}
	u.CreditsSpent, u.ValueSpent = credits-u.CreditsHeld, value-u.ValueHeld
	if err := json.Unmarshal([]byte(calls), &u.Calls); err != nil {
		return nil, fmt.Errorf("permit %s: calls: %w", id, err)
	}
	if r.Permit, err = storedPermit(token); err != nil {
		return nil, fmt.Errorf("permit %s: %w", id, err)
	}
	return &r, nil
}

// storedPermit reads a text that was verified before it was stored. It shows a permit whose key has been
// revoked since; it admits nothing.
func storedPermit(token string) (*permits.Permit, error) {
	guarded, err := jws.Guard(token, permits.Type, permits.MaxTokenBytes)
	if err != nil {
		return nil, err
	}
	p, err := permits.ParseClaims(guarded.Payload)
	if err != nil {
		return nil, err
	}
	p.Token, p.SHA256 = token, hexSHA256([]byte(token))
	return p, nil
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// NewPermitID makes the id of a permit that was given none.
func NewPermitID() (string, error) {
	id, err := newID()
	return prefixPermit + id.String(), err
}

// IssuePermit stores a permit that this gateway has just signed.
func (a *Admin) IssuePermit(ctx context.Context, p *permits.Permit) (*PermitRecord, error) {
	return a.storePermit(ctx, p, "permit.issued")
}

// ImportPermit verifies and stores a permit of a registered outside issuer. The key must be in use: a
// retired key's older permits stay good, but it brings no new one. The same text again is the same permit.
func (a *Admin) ImportPermit(ctx context.Context, token string, t PermitTrust, check func(*permits.Permit) error) (*PermitRecord, error) {
	p, err := parsePermit(ctx, a.tx, token, t)
	if err != nil {
		return nil, err
	}
	if p.Issuer == t.Issuer {
		return nil, fmt.Errorf("%w: it is of this gateway's own issue", permits.ErrInvalid)
	}
	if err := a.checkIssuerKey(ctx, p, token); err != nil {
		return nil, err
	}
	if err := check(p); err != nil {
		return nil, err
	}
	stored, err := readPermit(ctx, a.tx, p.ID)
	if err == nil && stored.token == token {
		return permitRecord(ctx, a.tx, p.ID)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	return a.storePermit(ctx, p, "permit.imported")
}

func (a *Admin) checkIssuerKey(ctx context.Context, p *permits.Permit, token string) error {
	signed, err := jws.Guard(token, permits.Type, permits.MaxTokenBytes)
	if err != nil {
		return fmt.Errorf("%w: %w", permits.ErrInvalid, err)
	}
	issuer, err := readIssuer(ctx, a.tx, p.Issuer)
	if err != nil {
		return err
	}
	for _, k := range issuer.Keys {
		if k.ID != signed.Header.Kid {
			continue
		}
		if k.Status != jws.StatusActive || !k.InUse(p.IssuedAt) || !k.InUse(a.nowMS/1000) {
			return fmt.Errorf("%w: its key is not in use", permits.ErrInvalid)
		}
		return nil
	}
	return fmt.Errorf("%w: %w", permits.ErrInvalid, jws.ErrKeyUnknown)
}

func (a *Admin) storePermit(ctx context.Context, p *permits.Permit, action string) (*PermitRecord, error) {
	if err := a.checkWallets(ctx, []string{p.Wallet}); err != nil {
		return nil, err
	}
	if _, err := a.agent(ctx, p.Agent); errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("%w: there is no agent %s", ErrReference, p.Agent)
	} else if err != nil {
		return nil, err
	}
	sum, err := hex.DecodeString(p.SHA256)
	if err != nil {
		return nil, fmt.Errorf("hash of permit %s: %w", p.ID, err)
	}
	if _, err := a.tx.Exec(ctx, sql.Query("insert_permit"), p.ID, p.Wallet, p.Agent, p.Issuer, p.Token, sum, p.NotBefore, p.Expires); err != nil {
		return nil, coldError("store permit "+p.ID, err)
	}
	var value *int64
	if p.Grant.Limits.Value != nil {
		value = p.Grant.Limits.Value.Total
	}
	limits := p.Grant.Limits
	if _, err := a.tx.Exec(ctx, sql.Query("insert_permit_usage"), p.Wallet, p.ID, limits.Credits, limits.CallsTotal, value); err != nil {
		return nil, coldError("start usage of permit "+p.ID, err)
	}
	detail := map[string]any{"wallet_id": p.Wallet, "agent_id": p.Agent, "issuer": p.Issuer, "sha256": p.SHA256}
	if err := a.event(ctx, action, p.ID, detail); err != nil {
		return nil, err
	}
	return permitRecord(ctx, a.tx, p.ID)
}

// RevokePermit revokes a permit: no claim that is decided after this is admitted. Again changes nothing.
func (a *Admin) RevokePermit(ctx context.Context, id, note string) (*PermitRecord, error) {
	var ended bool
	if err := a.tx.QueryRow(ctx, sql.Query("revoke_permit"), id).Scan(&ended); err != nil {
		return nil, coldError("revoke permit", err)
	}
	if ended {
		if err := a.event(ctx, "permit.revoked", id, noted(note)); err != nil {
			return nil, err
		}
	}
	return permitRecord(ctx, a.tx, id)
}
