package ledger

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"counterfoil/receipts"
	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Receipt is a signed receipt and what it says.
type Receipt struct {
	ID     string
	Token  string // compact JWS
	Claims *receipts.Claims
}

// Evidence is a receipt with what is needed to check it: its permit, and the bytes that it hashes. Result is
// nil where none is kept.
type Evidence struct {
	Receipt
	Permit            string // compact JWS
	Related           string // compact JWS of the operation's other receipt: of its reconciliation, or what that resolves; "" where there is none
	Arguments, Result []byte
}

// ReceiptFilter picks receipts. Wallets, where not nil, are those that may be seen. From and To bound the time at which the
// operation ended, To excluded; a zero time is no bound.
type ReceiptFilter struct {
	Wallets  []string
	From, To time.Time
}

func (f ReceiptFilter) bounds() (from, to int64) {
	to = math.MaxInt64
	if !f.From.IsZero() {
		from = f.From.UnixMilli()
	}
	if !f.To.IsZero() {
		to = f.To.UnixMilli()
	}
	return from, to
}

// Evidence returns one receipt with all that proves it. nil wallets is every wallet.
func (l *Ledger) Evidence(ctx context.Context, id string, wallets []string) (*Evidence, error) {
	uid, ok := parseID(prefixReceipt, id)
	if !ok {
		return nil, ErrNotFound
	}
	e, made, err := l.evidenceBy(ctx, l.pool, uid, wallets)
	if err != nil {
		return nil, err
	}
	return e, l.vouch(ctx, made)
}

// evidenceBy leaves it to the caller to vouch for what was made.
func (l *Ledger) evidenceBy(ctx context.Context, from reader, id uuid.UUID, wallets []string) (*Evidence, signatures, error) {
	var made signatures
	rows, err := from.Query(ctx, sql.Query("receipt"), pgUUID(id), wallets)
	if err != nil {
		return nil, nil, coldError("read receipt", err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, l.scanEvidence(&made))
	return e, made, coldError("read receipt", err)
}

// Receipts lists receipts after an id: those of one wallet in the order of its chain, else oldest first.
func (l *Ledger) Receipts(ctx context.Context, f ReceiptFilter, after string, limit int) ([]*Receipt, error) {
	start, err := afterID(prefixReceipt, after)
	if err != nil {
		return nil, err
	}
	from, to := f.bounds()
	var rows pgx.Rows
	if len(f.Wallets) == 1 {
		rows, err = l.pool.Query(ctx, sql.Query("list_wallet_receipts"), f.Wallets[0], pgUUID(start), from, to, limit)
	} else {
		rows, err = l.pool.Query(ctx, sql.Query("list_receipts"), pgUUID(start), f.Wallets, from, to, limit)
	}
	if err != nil {
		return nil, coldError("list receipts", err)
	}
	var made signatures
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Receipt, error) {
		var r receiptRow
		if err := row.Scan(&r.id, &r.wallet, &r.seq, &r.signingInput, &r.signature); err != nil {
			return nil, err
		}
		return l.receipt(&r, &made)
	})
	if err != nil {
		return nil, coldError("list receipts", err)
	}
	return list, l.vouch(ctx, made)
}

// exportPage is how many receipts one statement of an export reads, contents included: what an export holds
// in memory at once.
const exportPage = 16

// Export hands each receipt that the filter picks to yield, wallet by wallet, in the order of the chains. It
// holds no transaction, so a slow reader holds nothing up; receipts that are added meanwhile may be included.
func (l *Ledger) Export(ctx context.Context, f ReceiptFilter, yield func(*Evidence) error) error {
	from, to := f.bounds()
	wallet, seq := "", int64(0)
	for {
		rows, err := l.pool.Query(ctx, sql.Query("export_receipts"), wallet, seq, f.Wallets, from, to, exportPage)
		if err != nil {
			return coldError("export receipts", err)
		}
		var made signatures
		page, err := pgx.CollectRows(rows, l.scanEvidence(&made))
		if err != nil {
			return coldError("export receipts", err)
		}
		if err := l.vouch(ctx, made); err != nil {
			return err
		}
		for _, e := range page {
			if err := yield(e); err != nil {
				return err
			}
			wallet, seq = e.Claims.Wallet, e.Claims.Seq
		}
		if len(page) < exportPage {
			return nil
		}
	}
}

type receiptRow struct {
	id           uuid.UUID
	wallet       string
	seq          int64
	signingInput string
	signature    []byte
}

func (l *Ledger) scanEvidence(made *signatures) pgx.RowToFunc[*Evidence] {
	return func(row pgx.CollectableRow) (*Evidence, error) {
		var r receiptRow
		e := &Evidence{}
		var other pgtype.UUID
		var otherInput pgtype.Text
		var otherSignature []byte
		err := row.Scan(&r.id, &r.wallet, &r.seq, &r.signingInput, &r.signature, &e.Permit, &e.Arguments, &e.Result,
			&other, &otherInput, &otherSignature)
		if err != nil {
			return nil, err
		}
		receipt, err := l.receipt(&r, made)
		if err != nil {
			return nil, err
		}
		e.Receipt = *receipt
		if other.Valid {
			e.Related, err = l.token(other.Bytes, r.wallet, otherInput.String, otherSignature, made)
		}
		return e, err
	}
}

// errIndex means that a column beside a signed text says something else than the text.
var errIndex = errors.New("the signed text and its index disagree")

func (l *Ledger) receipt(r *receiptRow, made *signatures) (*Receipt, error) {
	claims, err := claimsOf(r.signingInput)
	if err != nil {
		return nil, err
	}
	id := prefixReceipt + r.id.String()
	if claims.ID != id || claims.Wallet != r.wallet || claims.Seq != r.seq {
		return nil, fmt.Errorf("receipt %s: %w", id, errIndex)
	}
	token, err := l.token(r.id, r.wallet, r.signingInput, r.signature, made)
	if err != nil {
		return nil, err
	}
	return &Receipt{ID: id, Token: token, Claims: claims}, nil
}

// claimsOf reads a stored signing input.
func claimsOf(signingInput string) (*receipts.Claims, error) {
	_, text, _ := strings.Cut(signingInput, ".")
	payload, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("stored receipt: %w", err)
	}
	return receipts.ParseClaims(payload)
}
