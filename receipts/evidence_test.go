package receipts_test

import (
	"testing"

	"counterfoil/internal/canon"
	"counterfoil/receipts"
)

// The hashes are those of coreutils' sha256sum over the form beside them.
func TestEvidenceSHA256(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ evidence, reference, form, want string }{
		{
			"Bank statement of 2026-11-30, line 14: not booked.", "PAY-88213",
			`{"evidence":"Bank statement of 2026-11-30, line 14: not booked.","provider_reference":"PAY-88213"}`,
			"538a72f187d06b64ace39753a0b93eaf60c465678755c84906609169616a08e9",
		},
		{"", "", `{"evidence":"","provider_reference":""}`, "a439140ca8c77fe16fa95d702eac5c49a36c470eafd6df18908e0ebf4ac71f50"},
		{
			"said \"no\"\r\n\u0001 \u20ac \U0001f9fe", `a\b/c`,
			"{\"evidence\":\"said \\\"no\\\"\\r\\n\\u0001 \u20ac \U0001f9fe\",\"provider_reference\":\"a\\\\b/c\"}",
			"33a46d4938d1837b76f689a80451f60a771422006a794967b671f4fcfe4fc564",
		},
	} {
		if got := receipts.EvidenceSHA256(tc.evidence, tc.reference); got != tc.want {
			t.Errorf("EvidenceSHA256(%q, %q) = %s, want %s", tc.evidence, tc.reference, got, tc.want)
		}
		canonical, err := canon.Canonical([]byte(tc.form))
		if err != nil || string(canonical) != tc.form {
			t.Errorf("%s is not canonical (%v)", tc.form, err)
		}
		if got := canon.SHA256Hex([]byte(tc.form)); got != tc.want {
			t.Errorf("the form's hash is %s, want %s", got, tc.want)
		}
	}
}
