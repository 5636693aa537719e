package ledger

import (
	"context"
	"fmt"
	"time"

	"counterfoil/receipts"
	"counterfoil/sql"
)

// Statement sums up a part of a wallet's chain, from one snapshot. Opening + Deposited - Charged = Closing.
// Opening holds the deposits made up to OpenedAt and the charges before FromSeq; Closing holds those up to
// ClosedAt and ToSeq. Head is the hash that the receipt after ToSeq carries as its prev.
type Statement struct {
	Wallet             string
	FromSeq, ToSeq     int64
	Count              int64
	Head               string
	Opening, Closing   int64
	Deposited, Charged int64
	Outcomes           map[receipts.Outcome]int64
	OpenedAt, ClosedAt time.Time
	AsOf               time.Time // when this was stated, by the database's clock
}

// Statement states a wallet's receipts from one number to another; to = 0 is up to now.
func (l *Ledger) Statement(ctx context.Context, wallet string, from, to int64) (*Statement, error) {
	if from < 1 || (to != 0 && to < from) {
		return nil, fmt.Errorf("%w: from_seq must be at least 1 and to_seq not below it", ErrReference)
	}
	var newest, nowMS, openedMS, closedMS, chargedBefore, depositedBefore int64
	var succeeded, denied, failed, uncertain, reconciled int64
	var head string
	s := &Statement{Wallet: wallet, FromSeq: from}
	err := l.pool.QueryRow(ctx, sql.Query("statement"), wallet, from, to, to == 0).Scan(&nowMS, &newest, &s.ToSeq, &openedMS, &closedMS,
		&chargedBefore, &s.Charged, &succeeded, &denied, &failed, &uncertain, &reconciled, &depositedBefore, &s.Deposited, &head)
	if err != nil {
		return nil, coldError("state wallet", err)
	}
	if to > newest || from > newest+1 {
		return nil, fmt.Errorf("%w: the wallet has %d receipts", ErrReference, newest)
	}
	if head != "" {
		s.Head = receipts.ChainHash(head)
	}
	s.Count = s.ToSeq - from + 1
	s.Opening = depositedBefore - chargedBefore
	s.Closing = s.Opening + s.Deposited - s.Charged
	s.AsOf = time.UnixMilli(nowMS).UTC()
	s.OpenedAt, s.ClosedAt = time.UnixMilli(openedMS).UTC(), time.UnixMilli(closedMS).UTC()
	s.Outcomes = map[receipts.Outcome]int64{
		receipts.Succeeded: succeeded, receipts.Denied: denied, receipts.Failed: failed,
		receipts.Uncertain: uncertain, receipts.Reconciled: reconciled,
	}
	return s, nil
}
