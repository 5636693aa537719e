package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"

	"counterfoil/internal/canon"
	"counterfoil/internal/jws"
	"counterfoil/permits"
	"counterfoil/receipts"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// pgUUIDText scans a uuid and prints it as ids print it.
type pgUUIDText struct{ pgtype.UUID }

func (u pgUUIDText) String() string { return uuid.UUID(u.Bytes).String() }

// usage checks I7 and I9: a permit's counters are what its receipts and holds add up to, within its
// limits, and its limits are those of the signed text.
func (f *fsck) usage(ctx context.Context) error {
	return f.each(ctx, "fsck_usage", func(rows pgx.Rows) error {
		var wallet, permit, callsText string
		var creditsLimit, credits, calls, value, wantCredits, wantCalls, wantValue int64
		var callsLimit, valueLimit *int64
		var token *string
		var sum []byte
		err := rows.Scan(&wallet, &permit, &creditsLimit, &callsLimit, &valueLimit, &credits, &calls, &value, &callsText,
			&wantCredits, &wantCalls, &wantValue, &token, &sum)
		if err != nil {
			return fmt.Errorf("read usage: %w", err)
		}
		f.report.Permits++
		broken := func(invariant, format string, args ...any) error {
			return &Finding{Invariant: invariant, Table: "permit_usage", Row: wallet + " " + permit, What: fmt.Sprintf(format, args...)}
		}
		byTool, err := decodeCalls(callsText)
		if err != nil {
			return broken("I7", "its call counts cannot be read")
		}
		maps.DeleteFunc(byTool, func(_ string, n int64) bool { return n == 0 })
		want := f.calls[pair{wallet, permit}]
		maps.DeleteFunc(want, func(_ string, n int64) bool { return n == 0 })
		switch {
		case credits != wantCredits:
			return broken("I7", "%d credits committed, receipts and holds say %d", credits, wantCredits)
		case calls != wantCalls:
			return broken("I7", "%d calls counted, receipts and holds say %d", calls, wantCalls)
		case value != wantValue:
			return broken("I7", "value %d committed, receipts and holds say %d", value, wantValue)
		case !maps.Equal(byTool, want):
			return broken("I7", "calls by tool are %v, receipts and holds say %v", byTool, want)
		case token == nil:
			return broken("I9", "its permit's text is missing")
		}
		return checkPermitRow(*token, sum, permit, wallet, creditsLimit, callsLimit, valueLimit, broken)
	})
}

func checkPermitRow(token string, sum []byte, permit, wallet string, credits int64, calls, value *int64,
	broken func(invariant, format string, args ...any) error,
) error {
	if hash := sha256.Sum256([]byte(token)); !bytes.Equal(hash[:], sum) {
		return broken("I9", "the stored hash is not that of the permit's text")
	}
	p, err := claimsOfPermit(token)
	if err != nil {
		return broken("I9", "the permit's text cannot be read: %v", err)
	}
	limits := p.Grant.Limits
	var total *int64
	if limits.Value != nil {
		total = limits.Value.Total
	}
	same := func(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	if p.ID != permit || p.Wallet != wallet || limits.Credits != credits || !same(limits.CallsTotal, calls) || !same(total, value) {
		return broken("I9", "its columns are not what the permit's text says")
	}
	return nil
}

func claimsOfPermit(token string) (*permits.Permit, error) {
	_, rest, _ := bytes.Cut([]byte(token), []byte("."))
	middle, _, _ := bytes.Cut(rest, []byte("."))
	payload, err := base64.RawURLEncoding.DecodeString(string(middle))
	if err != nil {
		return nil, err
	}
	return permits.ParseClaims(payload)
}

// fsckRow is a receipt with everything that must agree with it.
type fsckRow struct {
	wallet              string
	seq                 int64
	id, operation       pgUUIDText
	outcome, reason     string
	charged             int64
	callsKept           int16
	valueKept, endedMS  int64
	input               string
	signature, result   []byte
	transfer            *int64
	known               bool
	agent, permit, tool *string
	toolHash, source    *string
	requestHash         *string
	arguments           []byte
	authorized, started *int64
	currency            *string
	amount              *int64
	decision            fsckDecision
	prunable            bool
	claims              *receipts.Claims
	broken              func(invariant, format string, args ...any) error
}

// receipts checks I5, I9 and I11: every chain is gap-free and linked, every signature holds, and every
// column, charge and response is what the signed text says.
func (f *fsck) receipts(ctx context.Context) error {
	ends := make(map[string]chainHead)
	err := f.each(ctx, "fsck_receipts", func(rows pgx.Rows) error {
		r := &fsckRow{}
		err := rows.Scan(&r.wallet, &r.seq, &r.id, &r.operation, &r.outcome, &r.reason, &r.charged, &r.callsKept, &r.valueKept,
			&r.endedMS, &r.input, &r.signature, &r.result, &r.transfer, &r.known, &r.agent, &r.permit, &r.tool, &r.toolHash,
			&r.source, &r.requestHash, &r.arguments, &r.authorized, &r.started, &r.currency, &r.amount,
			&r.decision.resolution, &r.decision.evidence, &r.decision.reference, &r.decision.before, &r.prunable)
		if err != nil {
			return fmt.Errorf("read receipt: %w", err)
		}
		r.broken = func(invariant, format string, args ...any) error {
			return &Finding{
				Invariant: invariant, Table: "receipts",
				Row: fmt.Sprintf("%s seq %d %s%s", r.wallet, r.seq, prefixReceipt, r.id), What: fmt.Sprintf(format, args...),
			}
		}
		last := ends[r.wallet]
		for _, check := range []func(*fsckRow) error{f.signature, checkOperation, checkDecision, checkMoney, checkContent} {
			if err := check(r); err != nil {
				return err
			}
		}
		if r.seq != last.seq+1 || r.claims.Seq != r.seq || r.claims.Prev != last.head {
			return r.broken("I11", "it does not follow receipt %d of its wallet", last.seq)
		}
		ends[r.wallet] = chainHead{seq: r.seq, head: receipts.ChainHash(r.input)}
		if f.report.Receipts++; f.report.Receipts%10000 == 0 {
			f.progress(f.report.Receipts)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for wallet, head := range f.heads {
		if ends[wallet] != head {
			return &Finding{Invariant: "I11", Table: "chains", Row: wallet, What: fmt.Sprintf("the head says receipt %d, the chain ends with %d", head.seq, ends[wallet].seq)}
		}
	}
	return nil
}

// signature reads the claims, and checks the signature where it is stored already.
func (f *fsck) signature(r *fsckRow) error {
	if r.signature == nil {
		f.report.Unsigned++
		return f.read(r)
	}
	claims, _, err := receipts.Parse(r.input+"."+base64.RawURLEncoding.EncodeToString(r.signature), f.keys)
	if errors.Is(err, jws.ErrKeyRevoked) {
		return f.read(r) // judged after the signature: the record is whole, whom to believe is the auditor's to say
	}
	if err != nil {
		return r.broken("I9", "it does not verify: %v", err)
	}
	r.claims = claims
	return nil
}

// read takes the claims out of a signing input.
func (f *fsck) read(r *fsckRow) error {
	_, rest, _ := bytes.Cut([]byte(r.input), []byte("."))
	payload, err := base64.RawURLEncoding.DecodeString(string(rest))
	if err != nil {
		return r.broken("I9", "its signing input cannot be read")
	}
	if r.claims, err = receipts.ParseClaims(payload); err != nil {
		return r.broken("I9", "its signing input cannot be read: %v", err)
	}
	return nil
}

func checkOperation(r *fsckRow) error {
	c := r.claims
	switch {
	case c.Wallet != r.wallet || c.ID != prefixReceipt+r.id.String() || c.Operation != prefixOperation+r.operation.String() ||
		string(c.Outcome) != r.outcome || string(c.Reason) != r.reason || c.Charged != r.charged || c.EndedMS != r.endedMS:
		return r.broken("I9", "its columns are not what its signed text says")
	case !r.known:
		return r.broken("I5", "its operation does not exist")
	case r.outcome != string(receipts.Reconciled) && r.id != r.operation:
		return r.broken("I5", "a terminal receipt must have its operation's id")
	case c.Agent != *r.agent || c.PermitID != *r.permit || c.Tool != *r.tool || c.ToolSHA256 != *r.toolHash ||
		c.KeySource != *r.source || c.RequestHash != *r.requestHash || c.StartedMS != *r.started || c.Authorized != *r.authorized:
		return r.broken("I9", "it is not about the operation that is stored")
	case (c.Value == nil) != (r.amount == nil) || (c.Value != nil && (c.Value.Amount != *r.amount || c.Value.Currency != *r.currency)):
		return r.broken("I9", "its value is not the operation's")
	}
	return nil
}

// fsckDecision is the row of a reconciliation, null where a receipt is none.
type fsckDecision struct {
	resolution, evidence, reference *string
	before                          *int64
}

// checkDecision says that a reconciliation's receipt and its row tell the same.
func checkDecision(r *fsckRow) error {
	d, said := r.decision, r.claims.Reconciles
	switch {
	case (said == nil) != (d.resolution == nil):
		return r.broken("I5", "it is a reconciliation without its decision, or the other way round")
	case said == nil:
		return nil
	case said.ID != prefixReceipt+r.operation.String() || said.Resolution != *d.resolution || said.ChargedBefore != *d.before ||
		said.EvidenceSHA256 != receipts.EvidenceSHA256(*d.evidence, *d.reference):
		return r.broken("I9", "its decision is not the one that is stored")
	}
	return nil
}

// checkMoney says what may stay taken after each outcome.
func checkMoney(r *fsckRow) error {
	moved, want := int64(0), r.charged
	if r.transfer != nil {
		moved = *r.transfer
	}
	if r.decision.before != nil {
		want = *r.decision.before - r.charged // a reversal
	}
	counted := int64(0)
	if r.amount != nil {
		counted = *r.amount
	}
	delivered := r.outcome == string(receipts.Succeeded) || r.outcome == string(receipts.Uncertain) ||
		r.reason == string(receipts.ReasonToolError)
	if r.decision.resolution != nil {
		delivered = *r.decision.resolution == receipts.Delivered
	}
	switch {
	case moved != want || (want > 0) != (r.claims.LedgerEntry != ""):
		return r.broken("I6", "it moves %d credits, its transfer %d", want, moved)
	case r.charged > *r.authorized:
		return r.broken("I6", "it charges %d credits, %d were authorized", r.charged, *r.authorized)
	case !delivered && (r.charged != 0 || r.callsKept != 0 || r.valueKept != 0):
		return r.broken("I6", "the call was not delivered, and something stays taken")
	case delivered && r.callsKept != 1, r.valueKept != 0 && r.valueKept != counted:
		return r.broken("I7", "it keeps %d calls and value %d", r.callsKept, r.valueKept)
	}
	return nil
}

func checkContent(r *fsckRow) error {
	c := r.claims
	if sum := sha256.Sum256(r.arguments); c.ArgumentsSHA256 != hex.EncodeToString(sum[:]) {
		return r.broken("I9", "it does not hash the stored arguments")
	}
	if canonical, err := canon.Canonical(r.arguments); err != nil || !bytes.Equal(canonical, r.arguments) {
		return r.broken("I10", "the stored arguments are not canonical")
	}
	if r.result == nil && !r.prunable {
		return r.broken("I2", "its stored answer is gone, and pruning has not come so far")
	}
	if r.result == nil || c.Result == nil {
		return nil // a pruned body; the receipt keeps its hash
	}
	if sum := sha256.Sum256(r.result); c.Result.SHA256 != hex.EncodeToString(sum[:]) || c.Result.Bytes != int64(len(r.result)) {
		return r.broken("I9", "it does not hash the stored result")
	}
	return nil
}
