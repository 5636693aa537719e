package receipts

import "counterfoil/internal/canon"

// EvidenceSHA256 is what a reconciliation's receipt carries as evidence_sha256: the
// hash of the RFC 8785 form of {"evidence":…,"provider_reference":…}. The evidence
// itself stays with the gateway; who is shown it can compare. Both texts must be
// valid UTF-8.
func EvidenceSHA256(evidence, providerReference string) string {
	form := appendString(nil, `{"evidence":`, evidence)
	form = appendString(form, `,"provider_reference":`, providerReference)
	return canon.SHA256Hex(append(form, '}'))
}
