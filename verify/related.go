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
	case len(tokens) > 1:
		d.add(CheckReconciliation, Fail, Reconciles, "an operation has one receipt, and one reconciliation at most")
	case other != nil && other.Outcome == receipts.Reconciled:
		d.SupersededBy = other
		d.add(CheckReconciliation, Pass, Superseded, "by "+decision(other))
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
	if field := otherCall(main, other); field != "" {
		return Related, other.ID + " has another " + field
	}
	if other.ID == main.ID || other.Seq == main.Seq {
		return Related, other.ID + " is the receipt itself"
	}
	if says := misfit(main, other); says != "" {
		return Reconciles, says
	}
	return OK, ""
}

// otherCall names a member in which two receipts are not of one call, or returns "".
// Not compared is what belongs to each receipt alone: the times of its record, its
// money, its result and its place in the chain.
func otherCall(a, b *receipts.Claims) string {
	for _, m := range []struct {
		name string
		same bool
	}{
		{"iss", a.Issuer == b.Issuer},
		{"sub", a.Wallet == b.Wallet},
		{"act", a.Agent == b.Agent},
		{"call.id", a.Operation == b.Operation},
		{"permit", a.PermitID == b.PermitID && a.PermitSHA256 == b.PermitSHA256},
		{"call.tool", a.Tool == b.Tool && a.ToolSHA256 == b.ToolSHA256},
		{"call.key_source", a.KeySource == b.KeySource},
		{"call.started_ms", a.StartedMS == b.StartedMS},
		{"req", a.ArgumentsSHA256 == b.ArgumentsSHA256 && a.RequestHash == b.RequestHash},
		{"value", a.Value == b.Value || a.Value != nil && b.Value != nil && *a.Value == *b.Value},
	} {
		if !m.same {
			return m.name
		}
	}
	return ""
}

// decision puts a reconciliation into words.
func decision(c *receipts.Claims) string {
	return fmt.Sprintf("%s: %s, %d of %d credits charged", c.ID, c.Reconciles.Resolution, c.Charged, c.Reconciles.ChargedBefore)
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
