package ledger_test

import (
	"context"
	"testing"

	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"

	"github.com/jackc/pgx/v5"
)

// fsck is the oracle of every other test, so it is itself broken against: each damage must be found, and
// under the invariant that it breaks.
func TestFsckFindsEachDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]struct{ invariant, statement string }{
		"a balance":                       {"I6", "update wallets set committed = committed - 1"},
		"a deposit":                       {"I6", "update wallets set deposited = deposited + 1"},
		"a charge":                        {"I6", "update transfers set amount = 4 where kind = 'charge'"},
		"a transfer's account":            {"I6", "update transfers set credit_account = 'external2' where kind = 'charge'"},
		"a charge that is gone":           {"I6", "delete from transfers where kind = 'charge'"},
		"a permit's credits":              {"I7", "update permit_usage set credits_committed = credits_committed + 1"},
		"a permit's calls":                {"I7", "update permit_usage set calls_total = 0"},
		"a permit's calls of a tool":      {"I7", "update permit_usage set calls = '{\"payout\": 9}'"},
		"a permit's value":                {"I7", "update permit_usage set value_committed = 0"},
		"a permit's limit":                {"I9", "update permit_usage set credits_limit = credits_limit + 1"},
		"a permit's text":                 {"I9", "update permits set token = replace(token, 'e', 'f')"},
		"a receipt that is gone":          {"I6", "delete from receipts where seq = 2"},
		"the newest receipt":              {"I5", "delete from receipts where seq = 3"},
		"a receipt's outcome":             {"I9", "update receipts set outcome = 'failed', reason = 'not_dispatched' where seq = 1"},
		"a receipt's text":                {"I9", "update receipts set signing_input = (select r.signing_input from receipts r where r.seq = 2) where seq = 1"},
		"two receipts swapped":            {"I11", "update receipts set seq = case seq when 1 then 2 when 2 then 1 else seq end + 100; update receipts set seq = seq - 100"},
		"a signature":                     {"I9", "update signatures set signature = decode(repeat('00', 64), 'hex')"},
		"a chain head":                    {"I11", "update chains set head = repeat('0', 64)"},
		"a chain head's number":           {"I11", "update chains set seq = seq + 1"},
		"a response":                      {"I9", "update responses set result = '{}'"},
		"an argument":                     {"I9", "update operations set arguments = '{}'"},
		"an operation's price":            {"I9", "update operations set authorized = authorized + 1 where key = 'key-0'"},
		"a hold that is gone":             {"I6", "delete from holds"},
		"a hold of a finished operation":  {"I6", "insert into holds select wallet_id, id, permit_id, tool, authorized, 0, id from operations where key = 'key-0'"},
		"a hold of nothing":               {"I7", "insert into holds values ('wal_ops', '00000000-0000-7000-8000-000000000000', 'prm_q4', 'payout', 0, 0, '00000000-0000-7000-8000-000000000000')"},
		"a response that is gone":         {"I2", "delete from responses where receipt_id = (select receipt_id from reconciliations)"},
		"a pruned response":               {"", "insert into pruning select 1, receipt_id from reconciliations; delete from responses"},
		"a reversal":                      {"I6", "update transfers set amount = 4 where kind = 'reversal'"},
		"a reversal that is gone":         {"I6", "delete from transfers where kind = 'reversal'"},
		"a decision":                      {"I9", "update reconciliations set resolution = 'delivered'"},
		"a decision's evidence":           {"I9", "update reconciliations set evidence = 'none'"},
		"a decision that is gone":         {"I6", "delete from reconciliations"},
		"a decision about a certain one":  {"I5", "insert into reconciliations select wallet_id, id, id, 'delivered', 'e', '', 5, 'x', 1 from operations where key = 'key-0'"},
		"an uncertain one not queued":     {"I5", "delete from uncertain"},
		"a queued one that is certain":    {"I5", "insert into uncertain select wallet_id, operation_id, 'payout', 5, 1 from reconciliations"},
		"a queued amount":                 {"I5", "update uncertain set charged = 0"},
		"a reference of one that acted":   {"I1", "delete from operation_refs"},
		"a reference of one that did not": {"I1", "insert into operation_refs select wallet_id, tool, 'INV-2', id from operations where reference = 'INV-2'"},
		"a round that is gone":            {"I1", "delete from rounds"},
		"a round of one that runs":        {"I1", "insert into rounds select wallet_id, operation_id, 1, null, '{}', 1, 1 from holds where round = 0"},
		"a round's number":                {"I1", "update rounds set number = 2"},
		"a round that somebody has":       {"I1", "update holds set instance_id = operation_id where round = 1"},
		"a parked hold without its round": {"I1", "update holds set instance_id = '00000000-0000-0000-0000-000000000000' where round = 0"},
		"a round of nothing":              {"I5", "insert into rounds values ('wal_ops', '00000000-0000-7000-8000-000000000000', 1, null, '{}', 1, 1)"},
		"a pool's key of two operations": {"I1", "insert into operation_keys (key, uses, wallet_id, operation_id) select operation_key, 1, wallet_id, id from operations where key = 'key-0'; " +
			"update operations set operation_key = (select key from operation_keys) where key = 'key-1'"},
		"a pool's key of none":        {"I1", "insert into operation_keys (key, uses, wallet_id, operation_id) select 'sixteen-or-more-', 1, wallet_id, id from operations where key = 'key-0'"},
		"a pool's key, used and free": {"I1", "insert into operation_keys (key) select operation_key from operations where key = 'key-0'"},
		"a response of nothing":       {"I5", "insert into responses values ('wal_ops', '00000000-0000-7000-8000-000000000000', '{}')"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := damaged(t, damage.statement)
			report, err := ledger.Fsck(context.Background(), b.url, b.keys, nil)
			if err != nil {
				t.Fatal(err)
			}
			if report.FirstFault == nil {
				if damage.invariant != "" {
					t.Fatal("not found")
				}
				return
			}
			if report.FirstFault.Invariant != damage.invariant {
				t.Errorf("found as %v, want %s", report.FirstFault, damage.invariant)
			}
		})
	}
}

// damaged is a database with two successes, a denial, an open hold, an uncertain call with a reference, one that was
// reconciled, and one that waits for input, after a statement of the owner's.
func damaged(t *testing.T, statement string) *bundle {
	t.Helper()
	b := setup(t)
	b.wallet(t, "wal_ops", 1000)
	b.agent(t, "agt_a", "wal_ops")
	p := b.grant(t, "prm_q4", "wal_ops", "agt_a", permits.Limits{
		Credits: 500, Value: &permits.ValueLimit{Currency: "USD", Total: ptr(int64(50))},
	})
	ctx := context.Background()
	for i, amount := range []int64{10, 10, 1000, 10} {
		c, err := b.ledger.Claim(ctx, claim(t, p, "key-"+string(rune('0'+i)), amount))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case i == 2 && (c.Denied == nil || c.Denied.Reason != receipts.ReasonValueExceeded):
			t.Fatalf("a value of 1000 under a limit of 50: %+v", c)
		case i < 2:
			if _, err := b.ledger.Settle(ctx, succeeded(c.Granted)); err != nil {
				t.Fatal(err)
			}
		}
	}
	lose := func(key, ref string) string {
		c, err := b.ledger.Claim(ctx, claimRef(t, p, key, ref))
		if err != nil || c.Granted == nil {
			t.Fatalf("claim %s: %+v, %v", key, c, err)
		}
		s := succeeded(c.Granted)
		s.Outcome, s.Reason = receipts.Uncertain, receipts.ReasonNoResponse
		if _, err := b.ledger.Settle(ctx, s); err != nil {
			t.Fatal(err)
		}
		return c.Granted.ID
	}
	lose("key-4", "INV-1")
	if _, err := b.reconcile(ledger.Reconciliation{Operation: lose("key-5", "INV-2"), Resolution: receipts.NotDelivered, Evidence: "the bank's list"}); err != nil {
		t.Fatal(err)
	}
	ask(t, b.ledger, asked(granted(t, b.ledger, claim(t, p, "key-6", 10)), "s"))
	b.signed(t)
	b.fsck(t)
	b.exec(t, statement)
	return b
}

// exec runs statements as the database's owner.
func (b *bundle) exec(t *testing.T, statements string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.PgConn().Exec(ctx, statements).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// signed waits until every signature is stored.
func (b *bundle) signed(t *testing.T) {
	t.Helper()
	for range 10000 {
		if b.fsck(t).Unsigned == 0 {
			return
		}
	}
	t.Fatal("signatures are not stored")
}
