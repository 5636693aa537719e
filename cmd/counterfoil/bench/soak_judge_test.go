package bench

import (
	"fmt"
	"slices"
	"testing"
)

// kindOf finds the first kind of call that fits.
func kindOf(t *testing.T, fits func(callKind) bool) int {
	t.Helper()
	i := slices.IndexFunc(callKinds(), fits)
	if i < 0 {
		t.Fatal("no such kind of call")
	}
	return i
}

// sound is the evidence of a small run in which everything went well: call 0 succeeded, 1 is uncertain and has acted, 2 was
// denied, 3 was refused and is no operation, 4 failed at the tool, 5 was left at "nothing happened", 6 and 7 were uncertain
// and are decided, of 7 the decision was not seen yet.
func sound(t *testing.T) *evidence {
	t.Helper()
	payout := kindOf(t, func(k callKind) bool { return k.tool == toolPayout && !k.tight })
	drop := kindOf(t, func(k callKind) bool { return k.mode == modeDrop })
	wire := kindOf(t, func(k callKind) bool { return k.tool == toolWire })
	missing := kindOf(t, func(k callKind) bool { return k.tool == toolMissing })
	failed := kindOf(t, func(k callKind) bool { return k.mode == modeFailed })
	e := &evidence{
		book: newBook(), wallets: []string{"wal_a", "wal_b"},
		effects: []effect{{"key0", "soak-0"}, {"key1", "soak-1"}, {"key4", "soak-4"}, {"key6", "soak-6"}},
		operations: []operation{
			{"wal_a", "soak-0", "key0", "succeeded", "", 5, "", 0},
			{"wal_b", "soak-1", "key1", "delivery_uncertain", "no_response", 2, "", 0},
			{"wal_a", "soak-2", "key2", "denied", "permit_tool_not_allowed", 0, "", 0},
			{"wal_a", "soak-4", "key4", "failed", "tool_error", 2, "", 0},
			{"wal_b", "soak-6", "key6", "delivery_uncertain", "no_response", 5, "delivered", 1},
			{"wal_b", "soak-7", "key7", "delivery_uncertain", "gateway_interrupted", 5, "not_delivered", 0},
		},
		balances: map[string]balance{"wal_a": {Balance: funds - 7}, "wal_b": {Balance: funds - 3}},
	}
	for n, answered := range []struct {
		wallet, kind int
		reply        reply
	}{
		{0, payout, reply{outcome: "succeeded", charged: 5}},
		{1, drop, reply{outcome: "delivery_uncertain", reason: "no_response", charged: 2}},
		{0, wire, reply{outcome: "denied", reason: "permit_tool_not_allowed"}},
		{0, missing, reply{outcome: verdictRefused, reason: "tool_unknown"}},
		{0, failed, reply{outcome: "failed", reason: "tool_error", charged: 2}},
		{1, payout, reply{outcome: verdictRefused, reason: "store_unavailable"}},
		{1, payout, reply{outcome: outcomeReconciled, reason: "delivered", charged: 1}},
		{1, payout, reply{outcome: outcomeUncertain, reason: "gateway_interrupted", charged: 5}},
	} {
		if got := e.book.add(answered.wallet, answered.kind); got != n {
			t.Fatalf("call %d got number %d", n, got)
		}
		answered.reply.sum[0] = byte(n)
		if err := e.book.acknowledge(n, answered.reply, n+1); err != nil {
			t.Fatal(err)
		}
	}
	e.book.disputed(6, delivered)
	e.book.disputed(7, notDelivered)
	return e
}

// TestTheJudgeFindsWhatIsWrong doctors the evidence of a sound run in each way that the soak is there to find.
func TestTheJudgeFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	if found := judge(sound(t)); len(found) != 0 {
		t.Fatalf("a sound run: %v", found)
	}
	for name, test := range map[string]struct {
		doctor   func(*evidence)
		class    string
		incident int
	}{
		"an operation is sent twice":         {func(e *evidence) { e.effects = append(e.effects, effect{"key1", "soak-1"}) }, foundTwice, 2},
		"a key is sent under two operations": {func(e *evidence) { e.effects = append(e.effects, effect{"other", "soak-0"}) }, foundTwice, 1},
		"an effect has no operation":         {func(e *evidence) { e.effects[2].operationKey = "other" }, foundUncovered, 5},
		"an effect has another's operation":  {func(e *evidence) { e.effects[2].operationKey = "key1" }, foundTwice, 5},
		"an effect that nobody asked for":    {func(e *evidence) { e.effects = append(e.effects, effect{"key9", "soak-9"}) }, foundUncovered, 0},
		"a denied call has acted":            {func(e *evidence) { e.effects = append(e.effects, effect{"key2", "soak-2"}) }, foundDenied, 3},
		"a call that was not sent has acted": {func(e *evidence) { e.operations[0].outcome, e.operations[0].reason = "failed", "upstream_unreachable" }, foundDenied, 1},
		"a refused call has acted":           {func(e *evidence) { e.effects = append(e.effects, effect{"key3", "soak-3"}) }, foundUncovered, 4},
		"a refused call became an operation": {func(e *evidence) {
			e.operations = append(e.operations, operation{"wal_b", "soak-5", "key5", "succeeded", "", 5, "", 0})
		}, foundDenied, 6},
		"an acknowledged operation is gone":         {func(e *evidence) { e.operations = slices.Delete(e.operations, 3, 4) }, foundLost, 5},
		"an acknowledged outcome has changed":       {func(e *evidence) { e.operations[1].outcome, e.operations[1].reason = "failed", "tool_error" }, foundLost, 2},
		"an acknowledged charge has changed":        {func(e *evidence) { e.operations[1].charged = 1 }, foundLost, 2},
		"an acknowledged call is in a wrong purse":  {func(e *evidence) { e.operations[0].wallet = "wal_b" }, foundUncovered, 1},
		"a call succeeded without an effect":        {func(e *evidence) { e.effects = e.effects[1:] }, foundNotDone, 1},
		"an operation stays open":                   {func(e *evidence) { e.operations[1].outcome, e.operations[1].reason = "", "" }, foundOpen, 2},
		"an operation that nobody asked for":        {func(e *evidence) { e.operations[3].key = "soak-44" }, foundUncovered, 0},
		"a call never got its answer":               {func(e *evidence) { e.book.records[5].verdict = 0 }, foundUnanswered, 6},
		"credits are missing":                       {func(e *evidence) { e.balances["wal_a"] = balance{Balance: funds - 12} }, foundMoney, 0},
		"credits are held for ever":                 {func(e *evidence) { e.balances["wal_b"] = balance{Balance: funds - 3, Held: 5} }, foundMoney, 0},
		"a forbidden tool was called":               {func(e *evidence) { e.book.records[2].verdict = e.book.records[0].verdict }, foundUnexpected, 3},
		"a silent upstream is said to have paid":    {func(e *evidence) { e.book.records[1].verdict = e.book.records[0].verdict }, foundUnexpected, 2},
		"a permit is said to forbid what it grants": {func(e *evidence) { e.book.records[0].verdict = e.book.records[2].verdict }, foundUnexpected, 1},
		"a good call was refused":                   {func(e *evidence) { e.book.records[0].verdict = e.book.records[3].verdict }, foundUnexpected, 1},
	} {
		e := sound(t)
		test.doctor(e)
		found := judge(e)
		if !slices.ContainsFunc(found, func(v violation) bool { return v.class == test.class && v.incident == test.incident && v.what != "" }) {
			t.Errorf("%s: found %+v, want %q after incident %d", name, found, test.class, test.incident)
		}
	}
}

// TestAnAnswerStays: whatever comes after the first final answer must be the same bytes.
func TestAnAnswerStays(t *testing.T) {
	t.Parallel()
	b := newBook()
	n := b.add(0, 0)
	if b.repeatable(n) {
		t.Error("a call without an answer is repeatable")
	}
	read := func(charged int) reply {
		r, err := readReply(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{"_meta":{"counterfoil/outcome":"succeeded","counterfoil/credits_charged":%d}}}`, charged), true)
		if err != nil || !r.final || r.outcome != "succeeded" || r.charged != int64(charged) {
			t.Fatalf("read %+v, %v", r, err)
		}
		return r
	}
	for range 2 {
		if err := b.acknowledge(n, read(5), 1); err != nil {
			t.Error(err)
		}
	}
	if err := b.acknowledge(n, read(4), 1); err == nil {
		t.Error("another answer passes for the same")
	}
	if err := b.acknowledge(n, reply{outcome: outcomeReconciled, reason: "delivered", charged: 5}, 1); err == nil {
		t.Error("a decision about a certain outcome passes")
	}
	if !b.repeatable(n) || b.at(n).charged != 5 || b.tally()["succeeded"] != 1 {
		t.Errorf("the first answer does not stay: %+v, %v", b.at(n), b.tally())
	}
}

// TestADecisionReplacesAnAnswerOnce: only as it was written down, and for good.
func TestADecisionReplacesAnAnswerOnce(t *testing.T) {
	t.Parallel()
	b := newBook()
	n := b.add(0, 0)
	first := reply{sum: [16]byte{1}, outcome: outcomeUncertain, reason: "no_response", charged: 5}
	good := reply{sum: [16]byte{2}, outcome: outcomeReconciled, reason: "not_delivered"}
	for _, step := range []struct {
		what  string
		reply reply
		fails bool
	}{
		{"the first answer", first, false},
		{"a decision that nobody has made", good, true},
		{"the other decision", reply{sum: [16]byte{3}, outcome: outcomeReconciled, reason: "delivered"}, true},
		{"a dearer decision", reply{sum: [16]byte{3}, outcome: outcomeReconciled, reason: "not_delivered", charged: 6}, true},
		{"the decision", good, false},
		{"an answer that was read before it", first, false},
		{"the decision again", good, false},
		{"another receipt of it", reply{sum: [16]byte{4}, outcome: outcomeReconciled, reason: "not_delivered"}, true},
		{"the first answer, after all has ended", first, true},
		{"the decision, after all has ended", good, false},
	} {
		switch step.what {
		case "the other decision":
			b.disputed(n, notDelivered)
		case "the first answer, after all has ended":
			b.close()
		}
		if err := b.acknowledge(n, step.reply, 0); (err != nil) != step.fails {
			t.Errorf("%s: %v", step.what, err)
		}
	}
	if tally := b.tally(); tally["reconciled/not_delivered"] != 1 || tally["delivery_uncertain/no_response"] != 0 {
		t.Errorf("tally %v", tally)
	}
}

func TestRepliesAreUnderstood(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body, verdict string
		final, fails  bool
	}{
		"a denial":           {body: `{"result":{"_meta":{"counterfoil/outcome":"denied","counterfoil/reason":"permit_expired"}}}`, verdict: "denied/permit_expired", final: true},
		"running":            {body: `{"error":{"code":-31409,"data":{"reason":"idempotency_in_progress","retry":"same_key"}}}`, verdict: "refused/idempotency_in_progress"},
		"reused":             {body: `{"error":{"code":-31422,"data":{"reason":"idempotency_key_reused","retry":"never"}}}`, verdict: "refused/idempotency_key_reused", final: true},
		"a problem document": {body: `{"type":"about:blank","reason":"store_unavailable","retry":"same_key"}`, verdict: "refused/store_unavailable"},
		"a decision":         {body: `{"result":{"_meta":{"counterfoil/outcome":"reconciled","counterfoil/reason":"no_response","counterfoil/resolution":"delivered"}}}`, verdict: "reconciled/delivered", final: true},
		"half an answer":     {body: `{"result":{"_meta":{`, fails: true},
		"nothing governed":   {body: `{"result":{}}`, fails: true},
	} {
		r, err := readReply([]byte(test.body), false)
		if (err != nil) != test.fails || !test.fails && (r.verdict() != test.verdict || r.final != test.final) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// TestTheLoadIsWhole: the shares of the kinds add up, or the last kind takes what is not anybody's.
func TestTheLoadIsWhole(t *testing.T) {
	t.Parallel()
	total := 0
	for _, k := range callKinds() {
		total += k.share
	}
	if total != 100 {
		t.Errorf("the shares add up to %d", total)
	}
}
