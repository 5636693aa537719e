package ledger

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// errNoSigner means that a receipt was chained under a key that this gateway does not hold.
var errNoSigner = errors.New("the key of an unsigned receipt is not in the key directory")

// signed signs a committed record in the caller's own goroutine, outside of every lock and lane. Ed25519
// is deterministic, so a crash before the signature is stored loses nothing.
func (l *Ledger) signed(r *record) (*Operation, error) {
	op := r.operation()
	var made signatures
	var err error
	op.Receipt, err = l.token(r.id, r.wallet, r.signingInput, nil, &made)
	l.keeper.add(made)
	return op, err
}

// token completes a receipt: with its stored signature, or with one made now. What was made may be kept, and
// the token shown, once the receipt is known to be acknowledged or durable.
func (l *Ledger) token(id uuid.UUID, wallet, signingInput string, signature []byte, made *signatures) (string, error) {
	if signature != nil {
		return signingInput + "." + base64.RawURLEncoding.EncodeToString(signature), nil
	}
	raw, text, err := l.sign(id, signingInput)
	if err != nil {
		return "", err
	}
	*made = append(*made, keptSignature{receipt: id, wallet: wallet, signature: raw})
	return text, nil
}

// vouch makes sure of receipts that were read without a signature, and keeps those made. A stored signature
// says that the receipt was acknowledged. One without may be visible on a primary whose standby has never seen it, because
// somebody ended the wait for that: shown now, it would be lost with the primary.
func (l *Ledger) vouch(ctx context.Context, made signatures) error {
	if len(made) == 0 {
		return nil
	}
	if err := l.confirm(ctx, l.pool); err != nil {
		return fmt.Errorf("make sure of an unsigned receipt: %w: %w", ErrUnavailable, err)
	}
	l.keeper.add(made)
	return nil
}

// sign makes a receipt's signature, and the whole token.
func (l *Ledger) sign(id uuid.UUID, signingInput string) (raw []byte, token string, err error) {
	signer, err := l.signerOf(signingInput)
	if err != nil {
		return nil, "", fmt.Errorf("sign receipt %s%s: %w", prefixReceipt, id, err)
	}
	text, err := signer.Sign(signingInput)
	if err != nil {
		return nil, "", fmt.Errorf("sign receipt %s%s: %w", prefixReceipt, id, err)
	}
	if raw, err = base64.RawURLEncoding.DecodeString(text); err != nil {
		return nil, "", fmt.Errorf("read own signature: %w", err)
	}
	return raw, signingInput + "." + text, nil
}

// sign signs a receipt that this transaction writes. The signature is kept only once that is committed.
func (a *Admin) sign(id uuid.UUID, wallet, signingInput string) (string, error) {
	raw, token, err := a.ledger.sign(id, signingInput)
	a.onCommit = append(a.onCommit, func() {
		a.ledger.keeper.add(signatures{{receipt: id, wallet: wallet, signature: raw}})
	})
	return token, err
}

// signerOf finds the key that a signing input was fixed under: its header names it.
func (l *Ledger) signerOf(signingInput string) (jws.Signer, error) {
	header, _, _ := strings.Cut(signingInput, ".")
	if header == l.header {
		return l.signer, nil
	}
	kid, err := keyIDOf(header)
	if err != nil {
		return jws.Signer{}, err
	}
	if l.signers != nil {
		if signer, ok := l.signers(kid); ok {
			return signer, nil
		}
	}
	return jws.Signer{}, fmt.Errorf("%w: %s", errNoSigner, kid)
}

// keyIDOf reads the kid of a stored receipt's header.
func keyIDOf(header string) (string, error) {
	data, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return "", fmt.Errorf("read receipt header: %w", err)
	}
	var fields struct {
		Alg string `json:"alg"`
		Typ string `json:"typ"`
		Kid string `json:"kid"`
	}
	if err := canon.Decode(data, &fields); err != nil {
		return "", fmt.Errorf("read receipt header: %w", err)
	}
	return fields.Kid, nil
}

type keptSignature struct {
	receipt   uuid.UUID
	wallet    string
	signature []byte
}

type signatures []keptSignature

// keeperLimit bounds the signatures that wait. One that is not kept is made again when it is needed.
const keeperLimit = 20000

// keeperTick is how long a signature waits for others before all are stored in one batch.
const keeperTick = 50 * time.Millisecond

// keeper collects signatures until the next batch stores them.
type keeper struct {
	mu      sync.Mutex
	waiting signatures
}

func (k *keeper) add(made signatures) {
	k.mu.Lock()
	defer k.mu.Unlock()
	room := keeperLimit - len(k.waiting)
	k.waiting = append(k.waiting, made[:min(len(made), room)]...)
}

func (k *keeper) take() signatures {
	k.mu.Lock()
	defer k.mu.Unlock()
	taken := k.waiting
	k.waiting = nil
	return taken
}

// keepSignatures stores what the callers have signed, until the ledger closes.
func (l *Ledger) keepSignatures() {
	for l.pause(keeperTick) {
		l.storeSignatures(l.keeper.take())
	}
	l.storeSignatures(l.keeper.take())
}

func (l *Ledger) storeSignatures(list signatures) {
	for len(list) > 0 {
		n := min(len(list), 1024)
		if err := l.insertSignatures(list[:n]); err != nil {
			l.log.Warn("signatures not stored; they are made again when needed", "signatures", n, "error", err)
			return
		}
		list = list[n:]
	}
}

func (l *Ledger) insertSignatures(list signatures) error {
	ids, wallets, signatures := make([]pgtype.UUID, len(list)), make([]string, len(list)), make([][]byte, len(list))
	for i, s := range list {
		ids[i], wallets[i], signatures[i] = pgUUID(s.receipt), s.wallet, s.signature
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.attempt)
	defer cancel()
	_, err := l.pool.Exec(ctx, sql.Query("insert_signatures"), ids, wallets, signatures)
	return err
}

// signLeftovers signs what a crash left unsigned since the oldest instance that did not stop cleanly began. A
// receipt whose key this gateway does not have stays for one that has it.
func (l *Ledger) signLeftovers(since time.Time) error {
	for after := floorID(since); ; {
		var list []leftover
		err := l.within(func(ctx context.Context) (err error) {
			list, err = l.leftovers(ctx, after)
			return err
		})
		if err != nil || len(list) == 0 {
			return err
		}
		var made signatures
		for _, u := range list {
			_, err := l.token(u.id.Bytes, u.wallet, u.input, nil, &made)
			if errors.Is(err, errNoSigner) {
				l.log.Error("a receipt stays unsigned", "receipt", prefixReceipt+uuid.UUID(u.id.Bytes).String(), "error", err)
			} else if err != nil {
				return err
			}
			after = u.id.Bytes
		}
		if err := l.vouch(context.Background(), made); err != nil {
			return err
		}
	}
}

// leftover is a receipt that a crash left unsigned.
type leftover struct {
	id            pgtype.UUID
	wallet, input string
}

func (l *Ledger) leftovers(ctx context.Context, after uuid.UUID) ([]leftover, error) {
	rows, err := l.pool.Query(ctx, sql.Query("unsigned_receipts"), pgUUID(after), 512)
	if err != nil {
		return nil, fmt.Errorf("find unsigned receipts: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (leftover, error) {
		var u leftover
		err := row.Scan(&u.id, &u.wallet, &u.input)
		return u, err
	})
	if err != nil {
		return nil, fmt.Errorf("read unsigned receipts: %w", err)
	}
	return list, nil
}

// floorID is the smallest UUIDv7 of a moment.
func floorID(at time.Time) uuid.UUID {
	var id uuid.UUID
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	id[6], id[8] = 0x70, 0x80
	return id
}
