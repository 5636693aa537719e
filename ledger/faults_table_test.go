package ledger_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/sql"
)

// fault is one column of the table.
type fault struct {
	name     string
	fault    chaosproxy.Fault
	hold     time.Duration
	outwaits bool // it lasts longer than the caller waits
	brief    bool // it lasts longer than an attempt
}

// faults are what befalls each statement.
func faults() []fault {
	return []fault{
		{name: "not executed", fault: chaosproxy.NotExecuted},
		{name: "executed and answer lost", fault: chaosproxy.AnswerLost},
		{name: "reset", fault: chaosproxy.Reset},
		{name: "executed and reset", fault: chaosproxy.AnswerReset},
		{name: "delayed", fault: chaosproxy.Held, hold: 100 * time.Millisecond},
		{name: "stalled longer than the caller waits", fault: chaosproxy.Held, outwaits: true},
		{name: "executed and answer stalled longer than the caller waits", fault: chaosproxy.AnswerHeld, outwaits: true},
		{name: "stalled longer than an attempt", fault: chaosproxy.Held, brief: true},
		{name: "executed and answer stalled longer than an attempt", fault: chaosproxy.AnswerHeld, brief: true},
		{name: "executed when its attempt is over", fault: chaosproxy.Late, brief: true},
	}
}

func (f *fault) options(o *ledger.Options) {
	if f.outwaits {
		o.Patience = time.Second
	}
	if f.brief {
		o.Attempt = time.Second
	}
}

// lane is a group of rows: statements that one course of events executes.
type lane struct {
	name       string
	statements []string // by the names of their files; "tx …": as the driver words it
	run        func(*row) error
	answers    func(*row, error) error // what the caller must have been told; nil: what it asked for, or ErrUnknown
	alone      bool                    // each fault needs a database of its own, where its rows follow each other
	short      bool                    // its lease may run out at any time
	prunes     bool                    // response bodies go
	options    func(*ledger.Options)   // nil: as usual
}

// lanes is the table: a statement that is added to the ledger is one more word here.
func lanes() []lane {
	list := append(claimLanes(), settleLanes()...)
	list = append(append(list, roundLanes()...), recoveryLanes()...)
	return append(list, decisionLane())
}

// COUNTERFOIL_FAULTS=all tries every fault at every statement, else there is a choice.
//
// Design 4 and 5, I1 to I6: whatever befalls a statement, nothing happens twice, nothing that was acknowledged
// is lost, and nothing is dispatched that is not on record.
func TestFaults(t *testing.T) {
	t.Parallel()
	h := newHall(t)
	for _, l := range lanes() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			rows := h.rows(t, &l)
			for _, r := range rows {
				t.Run(r.name(), func(t *testing.T) {
					if err := <-r.verdict; err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// rows makes the rows of a lane, each with a wallet of its own, and starts them.
func (h *hall) rows(t *testing.T, l *lane) []*row {
	t.Helper()
	var rows []*row
	for i, statement := range l.statements {
		for j, f := range faults() {
			if h.whole || wanted(i+len(l.name), j) {
				rows = append(rows, &row{t: h.t, lane: l, statement: statement, fault: f, verdict: make(chan error, 1)})
			}
		}
	}
	if l.alone {
		h.startChains(t, rows)
		return rows
	}
	for i, p := range h.bundle.furnish(t, fmt.Sprintf("wal_%d", h.lanes.Add(1)), len(rows)) {
		rows[i].permit = p
		go h.run(rows[i])
	}
	return rows
}

// wanted picks the rows of a short run: each statement suffers the first two faults, and one or two others.
func wanted(statement, fault int) bool {
	return fault < 2 || fault%5 == statement%5
}

// furnish makes wallets and, for each, a permit of one agent's.
func (b *bundle) furnish(t *testing.T, prefix string, n int) []*permits.Permit {
	t.Helper()
	wallets, list := make([]string, n), make([]*permits.Permit, n)
	agent := "agt_" + prefix[len("wal_"):]
	for i := range n {
		wallets[i] = fmt.Sprintf("%s_%d", prefix, i)
		limits := permits.Limits{Credits: opening / 2, Value: &permits.ValueLimit{Currency: "USD", Total: ptr(int64(1000))}}
		list[i] = b.issue(t, "prm_"+wallets[i][len("wal_"):], wallets[i], agent, limits)
	}
	b.administer(t, func(ctx context.Context, a *ledger.Admin) error {
		for _, w := range wallets {
			if _, err := a.CreateWallet(ctx, w, w); err != nil {
				return err
			}
			if _, err := a.Deposit(ctx, w, "opening", opening); err != nil {
				return err
			}
		}
		if _, err := a.CreateAgent(ctx, ledger.Agent{ID: agent, Name: agent, Wallets: wallets}); err != nil {
			return err
		}
		for _, p := range list {
			if _, err := a.IssuePermit(ctx, p); err != nil {
				return err
			}
		}
		return nil
	})
	return list
}

// without are the statements that the table leaves out, and why.
func without() map[string]string {
	const (
		read   = "a read that changes nothing and whose failure is the caller's to see"
		change = "one transaction of an operator, committed whole or not at all: the lane of the decision stands for all"
		fsck   = "fsck reads one snapshot, beside the gateway"
		start  = "before the gateway serves: a fault here is a start that fails"
	)
	reasons := map[string]string{
		"rollback": "it undoes what was refused already; a connection whose rollback fails is thrown away",
	}
	for reason, names := range map[string][]string{
		read: {
			"agent", "agent_by_key", "at_risk", "count_operation_keys", "deposit", "export_receipts", "installation_id", "issuer_keys", "list_agent_keys",
			"list_agents", "list_audit", "list_issuers", "list_open_operations", "list_operations", "list_permits", "list_receipts",
			"list_transfers", "list_wallet_receipts", "list_wallets", "missing_wallets", "original_call", "operation", "permit_token", "receipt", "round_by_state", "round_permits", "spare_operation_keys", "statement",
			"permits_in_force", "tool_definition", "uncertain_queue", "wallet",
		},
		change: {
			"add_deposit", "delete_agent_wallets", "insert_agent", "insert_agent_key", "insert_agent_wallets", "insert_chain",
			"insert_deposit", "insert_deposit_transfer", "insert_permit", "insert_permit_usage", "insert_wallet", "load_operation_keys", "lock_agent",
			"release_ref", "revoke_agent_key", "revoke_permit", "set_frozen", "update_agent_permit", "upsert_issuer_key",
		},
		fsck: {
			"fsck_begin", "fsck_calls", "fsck_open", "fsck_operation_keys", "fsck_operations", "fsck_orphans", "fsck_receipts", "fsck_refs", "fsck_transfers",
			"fsck_rounds", "fsck_uncertain", "fsck_usage", "fsck_wallets",
		},
		start: {"durability", "installation", "insert_instance", "tools_described"},
		"tried again at the next look at the upstream: until then the old definition counts": {
			"keep_tool_definitions", "lock_tools_described", "put_tools_described",
		},
		"the last word of a process: without it, its lease runs out":                                            {"end_instance"},
		"one statement that writes the next try before anybody asks: a fault costs a question, never an effect": {"due_probes"},
	} {
		for _, name := range names {
			reasons[name] = reason
		}
	}
	return reasons
}

// A statement that the table does not know is a durable step that nobody has broken yet.
func TestEveryStatementHasAFaultOrAReason(t *testing.T) {
	t.Parallel()
	struck := make(map[string]bool)
	for _, l := range lanes() {
		for _, name := range l.statements {
			struck[name] = true
		}
	}
	reasons := without()
	for _, name := range sql.Names() {
		_, excused := reasons[name]
		if struck[name] == excused {
			t.Errorf("%s: in the table: %v, left out with a reason: %v; want one of them", name, struck[name], excused)
		}
	}
	for name := range reasons {
		if !slices.Contains(sql.Names(), name) {
			t.Errorf("%s is left out, and is no statement", name)
		}
	}
}
