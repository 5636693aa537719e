package operator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/receipts"
	"counterfoil/verify"
)

// TestBundlesOfADecisionVerify: the first receipt says that it is superseded, and the decision what it resolves,
// alone and in an export.
func TestBundlesOfADecisionVerify(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "bun")
	id := b.lose(t, "bun", "k1")
	first := b.must(t, 200, "GET", "/v1/operations/"+id, "").text(t, "receipt_id")
	second := b.decide(t, 200, id, notDelivered).text(t, "receipt_id")
	b.call(t, "bun", "k2")
	var trust verify.Trust
	if err := trust.Add("jwks.json", b.must(t, 200, "GET", "/.well-known/jwks.json", "").raw); err != nil {
		t.Fatal(err)
	}
	export := strings.Split(strings.TrimSpace(string(b.must(t, 200, "GET", "/v1/receipts/export", "").raw)), "\n")
	if len(export) != 3 {
		t.Fatalf("%d bundles are exported", len(export))
	}
	bundleOf := func(receipt string) []byte {
		return b.must(t, 200, "GET", "/v1/receipts/"+receipt+"/bundle", "").raw
	}
	for what, entry := range map[string]struct {
		data    []byte
		related int
		code    verify.Code
		detail  string
	}{
		"the first":              {bundleOf(first), 1, verify.Superseded, second + ": not_delivered, 0 of 5"},
		"the decision":           {bundleOf(second), 1, verify.OK, ""},
		"the first, exported":    {[]byte(export[0]), 1, verify.Superseded, second + ": not_delivered, 0 of 5"},
		"the decision, exported": {[]byte(export[1]), 1, verify.OK, ""},
		"another call, exported": {[]byte(export[2]), 0, verify.OK, "none is here"},
	} {
		bundle, err := receipts.ParseBundle(entry.data)
		if err != nil {
			t.Fatal(err)
		}
		verdict := verify.New(verify.Options{Trust: &trust, Require: []string{"permit", "content"}}).Judge(verify.Entry{Data: entry.data})
		check := verdict.Checks[slices.IndexFunc(verdict.Checks, func(c verify.Check) bool { return c.Name == verify.CheckReconciliation })]
		if verdict.State != verify.Valid || check.Status != verify.Pass || check.Code != entry.code || !strings.Contains(check.Detail, entry.detail) {
			t.Errorf("%s: %s %+v", what, verdict.State, verdict.Checks)
		}
		if len(bundle.Related) != entry.related {
			t.Errorf("%s: %d related receipts", what, len(bundle.Related))
		}
	}
}

func TestStatementsOverADecision(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "sta")
	b.call(t, "sta", "k1")
	id := b.lose(t, "sta", "k2")
	b.call(t, "sta", "k3")
	statement := func(query string) answer {
		t.Helper()
		a := b.must(t, 200, "GET", "/v1/wallets/wal_sta/statement"+query, "")
		n := func(member string) int64 { return a.number(t, "statement", member) }
		if n("opening")+n("deposited")-n("charged_total") != n("closing") {
			t.Errorf("%s does not add up: %s", query, a.raw)
		}
		return a
	}
	check := func(query string, charged, closing, uncertain, reconciled int64) {
		t.Helper()
		a := statement(query)
		got := []int64{
			a.number(t, "statement", "charged_total"), a.number(t, "statement", "closing"),
			a.number(t, "statement", "outcomes", "delivery_uncertain"), a.number(t, "statement", "outcomes", "reconciled"),
		}
		if diff := cmp.Diff([]int64{charged, closing, uncertain, reconciled}, got); diff != "" {
			t.Errorf("statement %s: %s", query, diff)
		}
	}
	check("", 15, 85, 1, 0)
	b.decide(t, 200, id, strings.Replace(delivered, `{`, `{"credits_charged":2,`, 1)) // number 4: gives back 3
	b.call(t, "sta", "k4")
	check("", 17, 83, 1, 1)
	check("?to_seq=3", 15, 85, 1, 0)
	check("?from_seq=4&to_seq=4", -3, 88, 0, 1)
	check("?from_seq=4", 2, 83, 0, 1)
	check("?from_seq=5", 5, 83, 0, 0)
	if balance := b.must(t, 200, "GET", "/v1/wallets/wal_sta", "").number(t, "balance"); balance != 83 {
		t.Errorf("balance %d", balance)
	}
}
