package verify

import (
	"fmt"

	"counterfoil/internal/canon"
	"counterfoil/receipts"
)

// content compares arguments and result with their hashes, wherever they come
// from: what the caller gave beside the receipt goes before what is in the bundle.
func (v *Verifier) content(d *Verdict, c *receipts.Content) {
	if c == nil {
		c = &receipts.Content{}
	}
	d.arguments(c.Arguments, v.opts.Arguments)
	d.result(c.Result, v.opts.Result)
}

func (d *Verdict) arguments(bundled, given []byte) {
	switch {
	case bundled == nil && given == nil:
		d.add(CheckArguments, NotSupplied, ContentMissing, "")
	case bundled != nil && canon.SHA256Hex(bundled) != d.Claims.ArgumentsSHA256:
		d.add(CheckArguments, Fail, ContentReq, "the bundle's own")
	case given != nil && !d.hasArguments(given):
		d.add(CheckArguments, Fail, ContentReq, "")
	default:
		d.pass(CheckArguments, "")
	}
}

// hasArguments also takes arguments as a person would write them, since the hash
// is of their canonical form.
func (d *Verdict) hasArguments(given []byte) bool {
	if canonical, err := canon.Canonical(given); err == nil {
		given = canonical
	}
	return canon.SHA256Hex(given) == d.Claims.ArgumentsSHA256
}

func (d *Verdict) result(bundled, given []byte) {
	switch {
	case bundled == nil && given == nil && d.Claims.Result == nil:
		d.pass(CheckResult, "the receipt says that there was none")
	case bundled == nil && given == nil:
		d.add(CheckResult, NotSupplied, ContentMissing, "")
	case bundled != nil && !d.hasResult(bundled):
		d.add(CheckResult, Fail, ContentRes, "the bundle's own")
	case given != nil && !d.hasResult(given):
		d.add(CheckResult, Fail, ContentRes, "")
	default:
		d.pass(CheckResult, fmt.Sprintf("%d bytes", d.Claims.Result.Bytes))
	}
}

func (d *Verdict) hasResult(data []byte) bool {
	r := d.Claims.Result
	return r != nil && int64(len(data)) == r.Bytes && canon.SHA256Hex(data) == r.SHA256
}
