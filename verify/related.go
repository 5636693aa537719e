package verify

import (
	"fmt"

	"counterfoil/receipts"
)

// related judges the other receipts of a bundle as strictly as the first, and the
// pair of an uncertain receipt and its reconciliation.
func (v *Verifier) related(d *Verdict, tokens []string, hints map[string]bool) {
	var other *receipts.Claims
	for i, token := range tokens {
		r, code, detail := v.read(token, hints)
		if code == OK {
			code, detail = belongs(d.Claims, r.claims)
		}
		if code != OK {
			d.add(CheckReconciliation, code.status(), code, fmt.Sprintf("related receipt %d: %s", i+1, detail))
			return
		}
		other = r.claims
	}
	switch {
	case other != nil && other.Outcome == receipts.Reconciled:
		d.SupersededBy = other.ID
		d.add(CheckReconciliation, Pass, Superseded, "by "+other.ID+": "+other.Reconciles.Resolution)
	case other == nil && d.Claims.Outcome == receipts.Reconciled:
		d.add(CheckReconciliation, NotSupplied, RelatedMissing, "")
	case other == nil:
		d.pass(CheckReconciliation, "none is here")
	default:
		d.pass(CheckReconciliation, "")
	}
}

// belongs says whether other may stand beside main in one bundle.
func belongs(main, other *receipts.Claims) (Code, string) {
	same := other.Issuer == main.Issuer && other.Wallet == main.Wallet && other.Agent == main.Agent &&
		other.Operation == main.Operation && other.PermitSHA256 == main.PermitSHA256 &&
		other.RequestHash == main.RequestHash
	if !same || other.ID == main.ID || other.Seq == main.Seq {
		return Related, other.ID
	}
	if says := misfit(main, other); says != "" {
		return Reconciles, says
	}
	return OK, ""
}

// misfit says why two receipts of one operation are not an uncertain receipt and
// its reconciliation, in one order or the other; "" where they are.
func misfit(a, b *receipts.Claims) string {
	if a.Outcome == receipts.Reconciled {
		a, b = b, a
	}
	switch {
	case a.Outcome != receipts.Uncertain || b.Outcome != receipts.Reconciled:
		return "an operation has one terminal receipt, and a reconciliation only where that is uncertain"
	case b.Reconciles.ID != a.ID:
		return "it resolves another receipt"
	case b.Reconciles.ChargedBefore != a.Charged || b.Authorized != a.Authorized:
		return "it starts from other credits"
	case b.Seq <= a.Seq:
		return "it is older than the receipt that it resolves"
	}
	return ""
}
