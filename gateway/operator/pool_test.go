package operator_test

import (
	"strings"
	"testing"
)

// Keys are loaded once each, however often they are sent, and nothing shows one.
func TestOperationKeysAreLoadedOnceEach(t *testing.T) {
	t.Parallel()
	b := setup(t)
	counts := func(a answer) [4]int64 {
		t.Helper()
		return [4]int64{a.number(t, "loaded"), a.number(t, "known"), a.number(t, "free"), a.number(t, "used")}
	}
	first := b.must(t, 200, "POST", "/v1/operation-keys", `{"keys":["acme:operation:v1:0001","acme:operation:v1:0002"]}`, "Idempotency-Key", "load-1")
	if got := counts(first); got != [4]int64{2, 0, 2, 0} {
		t.Errorf("the first load: %v", got)
	}
	again := b.must(t, 200, "POST", "/v1/operation-keys", `{"keys":["acme:operation:v1:0001","acme:operation:v1:0002"]}`, "Idempotency-Key", "load-1")
	if again.header.Get("Idempotent-Replayed") != "true" || counts(again) != counts(first) {
		t.Errorf("the same request: %s", again.raw)
	}
	more := b.must(t, 200, "POST", "/v1/operation-keys", `{"keys":["acme:operation:v1:0003","acme:operation:v1:0001"]}`)
	if got := counts(more); got != [4]int64{1, 1, 3, 0} {
		t.Errorf("one of two is new: %v", got)
	}
	now := b.must(t, 200, "GET", "/v1/operation-keys", "")
	if now.number(t, "free") != 3 || now.number(t, "used") != 0 || now.json["in_use"] != false {
		t.Errorf("the pool: %s", now.raw)
	}
	for name, body := range map[string]string{
		"none": `{"keys":[]}`, "no member": `{}`, "twice": `{"keys":["acme:operation:v1:0009","acme:operation:v1:0009"]}`, "short": `{"keys":["fifteen-letters"]}`,
		"blank": `{"keys":["acme operation v1 0009"]}`, "control": `{"keys":["acme:operation:v1\n0009"]}`, "quote": `{"keys":["acme:operation:v1\"0009"]}`,
		"long": `{"keys":["` + strings.Repeat("k", 257) + `"]}`, "number": `{"keys":[1234567890123456]}`, "unknown member": `{"keys":["acme:operation:v1:0009"],"tool":"x"}`,
	} {
		if a := b.refused(t, 400, "invalid_request", "POST", "/v1/operation-keys", body); strings.Contains(string(a.raw), "0009") {
			t.Errorf("%s: the refusal shows a key: %s", name, a.raw)
		}
	}
	if audit := b.must(t, 200, "GET", "/v1/audit", ""); strings.Contains(string(audit.raw), "acme:operation") || !strings.Contains(string(audit.raw), "operation_keys.loaded") {
		t.Errorf("the audit: %s", audit.raw)
	}
}
