package sql_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"counterfoil/internal/testdb"
	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

// chainLength is how many receipts the long chain of these tests has: enough that reading it whole cannot be missed.
const chainLength = 20_000

// longChain fills a database with one wallet of many operations, each with receipt, signature and response, a tenth of
// them reconciled, beside fifty small ones; and lets the planner know. Operation n has the id of n.
func longChain(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	const id = `(lpad(to_hex(%s), 8, '0') || '-0000-7000-8000-000000000000')::uuid`
	n, decision := fmt.Sprintf(id, "n"), fmt.Sprintf(id, "100000 + n")
	for _, statement := range []string{
		`create temporary table calls as select n, case when n % 1000 = 7 then 'wal_' || n else 'wal_hot' end as wallet from generate_series(1, ` + fmt.Sprint(chainLength) + `) n`,
		`insert into operations (wallet_id, key, id, agent_id, permit_id, tool, tool_sha256, key_source, operation_key, request_hash, arguments, authorized, started_ms)
		 select wallet, 'key-' || n, ` + n + `, 'agt_1', 'prm_1', 'pay', decode(repeat('00', 32), 'hex'), 'context', 'k', decode(repeat('00', 32), 'hex'), '{}', 5, n from calls`,
		`insert into receipts (wallet_id, seq, id, operation_id, outcome, charged, calls_kept, value_kept, ended_ms, signing_input)
		 select wallet, n, ` + n + `, ` + n + `, 'succeeded', 5, 1, 0, n, repeat('s', 900) from calls`,
		`insert into receipts (wallet_id, seq, id, operation_id, outcome, charged, calls_kept, value_kept, ended_ms, signing_input)
		 select wallet, 100000 + n, ` + decision + `, ` + n + `, 'reconciled', 5, 1, 0, n, repeat('s', 900) from calls where n % 10 = 0`,
		`insert into reconciliations (wallet_id, operation_id, receipt_id, resolution, evidence, provider_reference, charged_before, actor, decided_ms)
		 select wallet, ` + n + `, ` + decision + `, 'delivered', 'e', '', 5, 'r', n from calls where n % 10 = 0`,
		`insert into signatures (receipt_id, wallet_id, signature) select id, wallet_id, decode(repeat('00', 64), 'hex') from receipts`,
		`insert into responses (wallet_id, receipt_id, result) select wallet_id, id, repeat('r', 300)::bytea from receipts`,
		`analyze`,
	} {
		if _, err := conn.Exec(context.Background(), statement); err != nil {
			t.Fatalf("%.60s: %v", statement, err)
		}
	}
}

// plan is a node of what EXPLAIN says.
type plan struct {
	Kind    string  `json:"Node Type"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Joined  float64 `json:"Rows Removed by Join Filter"`
	Hit     int     `json:"Shared Hit Blocks"`
	Read    int     `json:"Shared Read Blocks"`
	Plans   []plan
}

// touched is how many rows a plan has looked at.
func (p plan) touched() float64 {
	n := (p.Rows + p.Removed + p.Joined) * p.Loops
	for _, inner := range p.Plans {
		n += inner.touched()
	}
	return n
}

func (p plan) String() string {
	text := fmt.Sprintf("%s: %v rows %v times, %v removed\n", p.Kind, p.Rows, p.Loops, p.Removed+p.Joined)
	for _, inner := range p.Plans {
		text += "  " + strings.ReplaceAll(strings.TrimSuffix(inner.String(), "\n"), "\n", "\n  ") + "\n"
	}
	return text
}

// measure runs a prepared statement and gives its plan.
func measure(t *testing.T, conn *pgx.Conn, name, args string) plan {
	t.Helper()
	results, err := conn.PgConn().Exec(context.Background(), `explain (analyze, buffers, format json) execute "`+name+`" (`+args+`)`).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var explained []struct{ Plan plan }
	if err := json.Unmarshal(results[0].Rows[0][0], &explained); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return explained[0].Plan
}

// TestLookUpsDoNotGrowWithTheChain: what a replay or an operator asks for by a name costs the same, however much its wallet has
// done, under the plans that the gateway's sessions make after the tables were analysed. The planner once walked a
// wallet's whole chain for each look-up.
func TestLookUpsDoNotGrowWithTheChain(t *testing.T) {
	t.Parallel()
	url := testdb.New(t)
	longChain(t, connect(t, url))
	const keys, page = 60, 50
	wallets, names := strings.TrimSuffix(strings.Repeat("'wal_hot',", keys), ","), make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("'key-%d'", (i+1)*(chainLength/keys)) // some of them reconciled
	}
	missing := "'00ffffff-0000-7000-8000-000000000000'"
	const early, late = "'00000064-0000-7000-8000-000000000000'", "'00004e20-0000-7000-8000-000000000000'"
	for session, settings := range map[string][]string{
		// The lanes' own settings are those of hotPool in ledger/store.go; other sessions have the server's.
		"of a lane": {
			"enable_seqscan = off", "enable_hashjoin = off", "enable_mergejoin = off", "enable_bitmapscan = off", "plan_cache_mode = force_generic_plan", "jit = off",
		},
		"with a generic plan": {"plan_cache_mode = force_generic_plan"},
		"with a custom plan":  {"plan_cache_mode = force_custom_plan"},
	} {
		t.Run(session, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, url)
			for _, setting := range append(settings, "role = "+sql.Role) {
				if _, err := conn.Exec(context.Background(), "set "+setting); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range []struct {
				what, name, args string
				found, rows      float64
				blocks           int
			}{
				{"keys", "lookup", "array[" + wallets + "], array[" + strings.Join(names, ",") + "]", keys, keys * 20, keys * 40},
				{"an unused key", "lookup", "array['wal_hot'], array['unused']", 0, 20, 40},
				{"an early operation", "operation", early + ", " + "null", 1, 100, 100},
				{"a late operation", "operation", late + ", " + "array['wal_hot']", 1, 100, 100},
				{"somebody else's operation", "operation", early + ", " + "array['wal_7']", 0, 100, 100},
				{"no operation", "operation", missing + ", " + "null", 0, 100, 100},
				{"a page of operations", "list_operations", "'00003e80-0000-7000-8000-000000000000', null, null, null, null, " + fmt.Sprint(page), page, page * 40, page * 60},
				{"a page of receipts", "list_receipts", "'00003e80-0000-7000-8000-000000000000', null, 0, 9007199254740991, " + fmt.Sprint(page), page, page * 40, page * 60},
				{"a page of one wallet's receipts", "list_receipts", "'00003e80-0000-7000-8000-000000000000', array['wal_hot'], 0, 9007199254740991, " + fmt.Sprint(page), page, page * 40, page * 60},
			} {
				if _, err := conn.Prepare(context.Background(), c.name, sql.Query(c.name)); err != nil {
					t.Fatal(err)
				}
				p := measure(t, conn, c.name, c.args)
				if p.Rows*p.Loops != c.found {
					t.Errorf("%s: %v found, want %v", c.what, p.Rows, c.found)
				}
				if touched, blocks := p.touched(), p.Hit+p.Read; touched > c.rows || blocks > c.blocks {
					t.Errorf("%s: %s touches %v rows and %d blocks of a chain of %d; at most %v and %d:\n%s", c.what, c.name, touched, blocks, chainLength, c.rows, c.blocks, p)
				}
			}
		})
	}
}
