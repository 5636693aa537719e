package bench

import (
	"fmt"
	"strings"
)

// Classes of what a soak may find. The first two are what the program is for.
const (
	foundLost       = "answer lost"            // what was acknowledged is not what is recorded
	foundTwice      = "sent twice"             // two effects of one key
	foundDenied     = "acted, and denied it"   // the answer says that nothing was sent, and something was
	foundUncovered  = "acted without a record" // an effect that no operation may have had
	foundNotDone    = "claimed, and not done"  // succeeded, and the upstream has not acted
	foundOpen       = "left running"
	foundUnanswered = "never answered"
	foundMoney      = "credits do not add up"
	foundUnexpected = "unexpected answer"
	foundProcess    = "a gateway misbehaved"
)

// violation is one broken promise.
type violation struct {
	class    string
	incident int // the fault that it is put down to; 0: none had been
	what     string
}

// operation is one row of the ledger.
type operation struct {
	wallet, key, operationKey string
	outcome, reason           string // "" where it is still dispatching
	charged                   int64
	resolution                string // "": nobody has decided it
	final                     int64  // what it costs after the decision
}

// verdict is the outcome before a decision.
func (o *operation) verdict() string { return joinVerdict(o.outcome, o.reason) }

// latest is the outcome after a decision, if there is one, and what it costs.
func (o *operation) latest() (verdict string, charged int64) {
	if o.resolution == "" {
		return o.verdict(), o.charged
	}
	return joinVerdict(outcomeReconciled, o.resolution), o.final
}

// mayHaveActed tells the outcomes that allow an effect.
func (o *operation) mayHaveActed() bool {
	switch {
	case o.resolution != "":
		return o.resolution == delivered.resolution()
	case o.outcome == outcomeFailed:
		return o.reason == "tool_error"
	}
	return o.outcome == outcomeSucceeded || o.outcome == outcomeUncertain
}

// mustHaveActed tells those that promise one.
func (o *operation) mustHaveActed() bool {
	return o.outcome == outcomeSucceeded || o.resolution == delivered.resolution()
}

// agrees tells whether the record is what was answered: its latest outcome, or, where a decision has come since, the
// one before it.
func (o *operation) agrees(verdict string, r *record) bool {
	latest, charged := o.latest()
	if verdict == latest && r.charged == charged {
		return true
	}
	return r.dispute != undisputed && verdict == o.verdict() && r.charged == o.charged
}

// balance is what the operator API says of a wallet, in credits.
type balance struct {
	Balance int64 `json:"balance"`
	Held    int64 `json:"held"`
}

// evidence is all that is known when the load has ended: what was answered, what is recorded, and what the
// upstream has done.
type evidence struct {
	book       *book
	wallets    []string // of record.wallet
	effects    []effect
	operations []operation
	balances   map[string]balance
}

// judge compares the three. Nothing here asks the program under test.
func judge(e *evidence) []violation {
	j := &judgement{evidence: e, byKey: make(map[string]*operation, len(e.operations)), acted: make(map[string]int, len(e.effects))}
	for i := range e.operations {
		j.byKey[e.operations[i].operationKey] = &e.operations[i]
	}
	j.effects()
	seen := make([]bool, len(e.book.records))
	for i := range e.operations {
		j.operation(&e.operations[i], seen)
	}
	for n := range e.book.records {
		j.record(n, seen[n])
	}
	j.money()
	return j.found
}

type judgement struct {
	*evidence
	byKey map[string]*operation // by operation key
	acted map[string]int        // effects of an operation key
	found []violation
}

func (j *judgement) add(class string, n int, format string, args ...any) {
	incident := 0
	if n >= 0 && n < len(j.book.records) {
		incident = int(j.book.records[n].incident)
	}
	j.found = append(j.found, violation{class: class, incident: incident, what: fmt.Sprintf(format, args...)})
}

// effects checks the journal by itself, and each effect against its operation.
func (j *judgement) effects() {
	invoices := make(map[int]string, len(j.evidence.effects))
	for _, e := range j.evidence.effects {
		n, ours := callNumber(e.invoice)
		if !ours || n >= len(j.book.records) {
			j.add(foundUncovered, -1, "the upstream has acted on %q, which nobody asked for", e.invoice)
			continue
		}
		if j.acted[e.operationKey]++; j.acted[e.operationKey] > 1 {
			j.add(foundTwice, n, "the operation of %s was sent %d times", e.invoice, j.acted[e.operationKey])
		} else if other, again := invoices[n]; again {
			j.add(foundTwice, n, "%s was sent under two operations, %.8s… and %.8s…", e.invoice, other, e.operationKey)
		}
		invoices[n] = e.operationKey
		switch o := j.byKey[e.operationKey]; {
		case o == nil:
			j.add(foundUncovered, n, "the upstream has acted on %s, and no operation is recorded", e.invoice)
		case o.key != e.invoice:
			j.add(foundUncovered, n, "the upstream has acted on %s under the operation of %s", e.invoice, o.key)
		case o.outcome != "" && !o.mayHaveActed():
			latest, _ := o.latest()
			j.add(foundDenied, n, "the upstream has acted on %s, which is recorded as %s", e.invoice, latest)
		}
	}
}

// operation checks one row against what was answered.
func (j *judgement) operation(o *operation, seen []bool) {
	n, ours := callNumber(o.key)
	if !ours || n >= len(seen) {
		j.add(foundUncovered, -1, "an operation has the key %q, which nobody used", o.key)
		return
	}
	r := &j.book.records[n]
	if o.wallet != j.wallets[r.wallet] {
		j.add(foundUncovered, n, "%s is recorded in the wallet %s and was sent from %s", o.key, o.wallet, j.wallets[r.wallet])
		return
	}
	seen[n] = true
	switch answered := j.book.verdicts[r.verdict]; {
	case o.outcome == "":
		j.add(foundOpen, n, "%s is still dispatching", o.key)
	case strings.HasPrefix(answered, verdictRefused):
		j.add(foundDenied, n, "%s was %s, and is recorded as %s", o.key, answered, o.verdict())
	case o.resolution != "" && (o.outcome != outcomeUncertain || o.resolution != r.dispute.resolution()):
		j.add(foundUnexpected, n, "%s was %s, was decided %q, and is recorded as %s", o.key, o.verdict(), r.dispute.resolution(), o.resolution)
	case answered != "" && !o.agrees(answered, r):
		latest, charged := o.latest()
		j.add(foundLost, n, "%s was answered %s, %d credits, and is recorded as %s, %d credits", o.key, answered, r.charged, latest, charged)
	}
	if o.mustHaveActed() && j.acted[o.operationKey] == 0 {
		latest, _ := o.latest()
		j.add(foundNotDone, n, "%s is recorded as %s, and the upstream has not acted", o.key, latest)
	}
}

// record checks one key.
func (j *judgement) record(n int, recorded bool) {
	r := &j.book.records[n]
	answered := j.book.verdicts[r.verdict]
	switch {
	case answered == "":
		j.add(foundUnanswered, n, "%s%d got no answer", keyPrefix, n)
	case strings.HasPrefix(answered, verdictRefused):
	case !recorded:
		j.add(foundLost, n, "%s%d was answered %s, and is not recorded", keyPrefix, n, answered)
	}
	if what := callKinds()[r.kind].impossible(answered); what != "" {
		j.add(foundUnexpected, n, "%s%d was answered %s: %s", keyPrefix, n, answered, what)
	}
}

// impossible says why a call of this kind cannot have been answered so, or "".
func (k callKind) impossible(verdict string) string {
	outcome, _, _ := strings.Cut(verdict, "/")
	switch {
	case verdict == "":
	case k.refused && outcome != outcomeDenied && outcome != verdictRefused:
		return "no permit and no catalogue allows it"
	case k.silent && outcome == outcomeSucceeded:
		return "the upstream never says so"
	case !k.refused && outcome == verdictRefused && !nothingHappened(verdict):
		return "there is nothing to refuse"
	case outcome == outcomeDenied && !k.refused && !k.tight:
		return "its permit allows it"
	}
	return ""
}

// nothingHappened tells the refusals that a caller may take at their word and leave.
func nothingHappened(verdict string) bool {
	return verdict == verdictRefused+"/store_unavailable" || verdict == verdictRefused+"/rate_limited"
}

// money compares what was charged with what is left.
func (j *judgement) money() {
	charged := make(map[string]int64)
	for i := range j.operations {
		_, cost := j.operations[i].latest()
		charged[j.operations[i].wallet] += cost
	}
	for _, wallet := range j.wallets {
		b, known := j.balances[wallet]
		if !known {
			continue
		}
		if b.Held != 0 {
			j.add(foundMoney, -1, "%s still holds %d credits", wallet, b.Held)
		}
		if b.Balance != funds-charged[wallet] {
			j.add(foundMoney, -1, "%s has %d credits left of %d and was charged %d", wallet, b.Balance, funds, charged[wallet])
		}
	}
}
