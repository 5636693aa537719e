package ledger

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrReference means that a request names a wallet, an agent or a permit that does not exist or does not
	// belong together.
	ErrReference = errors.New("the request names something that does not fit")
	// ErrRequestReused means that the idempotency key was used for another administrative request.
	ErrRequestReused = errors.New("the idempotency key was used for another request")

	// errTwin means that a request with the same idempotency key committed first: its answer is read instead.
	errTwin = errors.New("a request with this key was faster")
)

// administerAttempts bounds how often a serialisation failure or a faster twin is tried again.
const administerAttempts = 5

// Act is one administrative request: who asks, and how a repeat of it is known. An empty Key is never a repeat.
type Act struct {
	Actor  string
	Key    string
	SHA256 [32]byte // of the method, the path and the body
}

// Answer is what an administrative request is answered. Keep is what a repeat is answered, where that is
// less than Body: a secret is shown once.
type Answer struct {
	Status   int
	Body     []byte
	Keep     []byte
	Replayed bool
}

// Admin is the transaction of one administrative request. Each of its methods that changes something writes
// its audit event too, so that no caller can forget it; both commit or neither does.
type Admin struct {
	tx       pgx.Tx
	ledger   *Ledger
	actor    string
	nowMS    int64
	onCommit []func()
}

// Now is the database's clock when the transaction began.
func (a *Admin) Now() time.Time { return time.UnixMilli(a.nowMS).UTC() }

// Administer runs do in one transaction and commits its changes, their audit events and the stored answer
// together. A repeat of act's key gets the stored answer and do is not run. do may run again when the store
// asks for it, so it must have no effect but through the Admin.
func (l *Ledger) Administer(ctx context.Context, act Act, do func(context.Context, *Admin) (Answer, error)) (Answer, error) {
	var err error
	for range administerAttempts {
		stored, found, lookErr := l.storedAnswer(ctx, act)
		if lookErr != nil || found {
			return stored, lookErr
		}
		var answer Answer
		if answer, err = l.administerOnce(ctx, act, do); err == nil {
			return answer, nil
		}
		// The twin's own row (an id that is now taken) may be what refused this one: its answer is read
		// before any refusal is believed.
		if !errors.Is(err, errTwin) && !isRetryable(err) && (act.Key == "" || !errors.Is(err, ErrConflict)) {
			return Answer{}, err
		}
		if errors.Is(err, ErrConflict) {
			stored, found, lookErr := l.storedAnswer(ctx, act)
			if lookErr != nil || found {
				return stored, lookErr
			}
			return Answer{}, err
		}
	}
	return Answer{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func (l *Ledger) storedAnswer(ctx context.Context, act Act) (Answer, bool, error) {
	if act.Key == "" {
		return Answer{}, false, nil
	}
	var sum, body []byte
	var status int
	err := l.pool.QueryRow(ctx, sql.Query("request"), act.Actor, act.Key).Scan(&sum, &status, &body)
	if errors.Is(err, pgx.ErrNoRows) {
		return Answer{}, false, nil
	}
	if err != nil {
		return Answer{}, false, coldError("look up request", err)
	}
	if subtle.ConstantTimeCompare(sum, act.SHA256[:]) != 1 {
		return Answer{}, false, ErrRequestReused
	}
	// A repeat is acknowledged too, and the first commit may be the one that nobody knows of.
	if err := l.confirm(ctx, l.pool); err != nil {
		return Answer{}, false, fmt.Errorf("make sure of the first answer: %w: %w", ErrUnknown, err)
	}
	return Answer{Status: status, Body: body, Replayed: true}, true, nil
}

func (l *Ledger) administerOnce(ctx context.Context, act Act, do func(context.Context, *Admin) (Answer, error)) (Answer, error) {
	// The connection stays this request's until its warnings have been read.
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return Answer{}, coldError("connect", err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return Answer{}, coldError("begin", err)
	}
	defer func() { _ = l.within(tx.Rollback) }()
	a := &Admin{tx: tx, ledger: l, actor: act.Actor}
	if err := tx.QueryRow(ctx, sql.Query("clock")).Scan(&a.nowMS); err != nil {
		return Answer{}, coldError("ask the clock", err)
	}
	answer, err := do(ctx, a)
	if err != nil {
		return Answer{}, err
	}
	if err := a.keep(ctx, act, answer); err != nil {
		return Answer{}, err
	}
	// From here on the request's own context no longer counts: a cancelled COMMIT would be unknown. So is one
	// whose answer does not come.
	forgetWarning(conn.Conn())
	if err := l.within(tx.Commit); err != nil {
		return Answer{}, commitError(err)
	}
	if err := warningOf(conn.Conn()); err != nil {
		return Answer{}, commitError(err)
	}
	for _, f := range a.onCommit {
		f()
	}
	return answer, nil
}

func (a *Admin) keep(ctx context.Context, act Act, answer Answer) error {
	if act.Key == "" {
		return nil
	}
	body := answer.Keep
	if body == nil {
		body = answer.Body
	}
	if body == nil {
		body = []byte{}
	}
	var key string
	err := a.tx.QueryRow(ctx, sql.Query("insert_request"), act.Actor, act.Key, act.SHA256[:], answer.Status, body).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return errTwin
	}
	return coldError("store the answer", err)
}

// coldError gives a driver's error the ledger's meaning. Nothing of an uncommitted transaction stays, so
// whatever failed before the COMMIT is "nothing happened".
func coldError(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", what, err)
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch {
		case pgErr.Code == "23505": // unique_violation
			return fmt.Errorf("%s: %w", what, ErrConflict)
		case connectionEnded(pgErr), pgErr.Code[:2] == "53", pgErr.Code[:2] == "57": // cut off, no resources, shutting down
			return fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err)
}

// commitError tells a COMMIT that the server refused from one whose answer is lost.
func commitError(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && !connectionEnded(pgErr) {
		return coldError("commit", err)
	}
	return fmt.Errorf("commit: %w: %w", ErrUnknown, err)
}

func isRetryable(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}
