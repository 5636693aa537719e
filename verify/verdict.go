package verify

import (
	"crypto/sha256"

	"counterfoil/permits"
	"counterfoil/receipts"
)

// Status is how one check ended.
type Status string

// The four ends of a check.
const (
	Pass        Status = "pass"
	Fail        Status = "fail"
	NotChecked  Status = "not_checked"
	NotSupplied Status = "not_supplied"
)

// The checks of one receipt, in order, and those of the set.
const (
	CheckForm           = "form"
	CheckSignature      = "signature"
	CheckClaims         = "claims"
	CheckIssuer         = "issuer"
	CheckPermit         = "permit"
	CheckArguments      = "arguments"
	CheckResult         = "result"
	CheckReconciliation = "reconciliation"
	CheckInclusion      = "inclusion"
	CheckWitness        = "witness"

	CheckChain           = "chain"
	CheckReconciliations = "reconciliations"
	CheckTotals          = "totals"
)

// Check is one check and how it ended. Detail adds to the code's sentence what is
// particular to this receipt.
type Check struct {
	Name   string
	Status Status
	Code   Code
	Detail string
}

// State sums up the checks of one receipt.
type State string

// A receipt is undecided where nothing is proven wrong and something needed could
// not be found out.
const (
	Valid     State = "valid"
	Invalid   State = "invalid"
	Undecided State = "undecided"
)

// KeyUse says which trusted key verified a receipt, and who trusts it.
type KeyUse struct {
	ID, Status string
	Source     string // the trust file
}

// Verdict is what was found out about one receipt. Claims are nil unless they are
// signed by a trusted key.
type Verdict struct {
	File  string
	Line  int // in JSONL, from 1; 0 for a file that is one receipt
	State State

	Claims *receipts.Claims
	Key    *KeyUse
	Permit *permits.Permit // where its check passed
	Checks []Check
	// SupersededBy is the reconciliation beside an uncertain receipt; nil = none.
	SupersededBy *receipts.Claims

	head [sha256.Size]byte // of the signing input, for the chain
}

// NotProven is what no verdict of this program says.
func NotProven() []string {
	return []string{
		"that the answer was right",
		"that the tool acted",
		"that the time is true",
		"that no other calls exist",
	}
}

func (v *Verdict) add(name string, status Status, code Code, detail string) {
	v.Checks = append(v.Checks, Check{Name: name, Status: status, Code: code, Detail: detail})
}

func (v *Verdict) pass(name, detail string) { v.add(name, Pass, OK, detail) }

// find returns the check of that name.
func (v *Verdict) find(name string) (Check, bool) {
	for _, c := range v.Checks {
		if c.Name == name {
			return c, true
		}
	}
	return Check{}, false
}

// conclude completes the list of checks and sums it up. A failed check outweighs
// an undecided one; a required check that did not pass is undecided.
func (v *Verdict) conclude(required []string) {
	for _, name := range checkNames() {
		if _, ok := v.find(name); !ok {
			v.add(name, NotChecked, NotReached, "")
		}
	}
	v.State = Valid
	for _, c := range v.Checks {
		if c.Status == Fail {
			v.State = Invalid
			return
		}
		if c.Status == NotChecked && c.Code.undecided() && c.Name != CheckPermit {
			v.State = Undecided
		}
	}
	for _, name := range required {
		if c, ok := v.find(name); ok && c.Status != Pass {
			v.State = Undecided
		}
	}
}

func checkNames() []string {
	return []string{
		CheckForm, CheckSignature, CheckClaims, CheckIssuer, CheckPermit, CheckArguments, CheckResult,
		CheckReconciliation, CheckInclusion, CheckWitness,
	}
}
