package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway"
	"counterfoil/gateway/upstream"
	"counterfoil/internal/canon"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

const ours = `"counterfoil/operation_id":"op_1","counterfoil/outcome":"succeeded","counterfoil/credits_charged":5,` +
	`"counterfoil/receipt_id":"rcp_1","counterfoil/receipt":"a.b.c"`

func succeeded(result string) *ledger.Operation {
	return &ledger.Operation{
		ID: "op_1", State: ledger.StateFinished, Outcome: receipts.Succeeded, Charged: 5,
		Result: []byte(result), ReceiptID: "rcp_1", Receipt: "a.b.c",
	}
}

func TestAppendResultLeavesTheStoredBytesAlone(t *testing.T) {
	t.Parallel()
	modern := gateway.Dressing{Members: `"resultType":"complete"`, Meta: `"x/serverInfo":{}`}
	for _, c := range []struct{ name, raw, want, modern string }{
		{"no meta", `{"content":[],"n":1.0}`, `{"_meta":{OURS},"content":[],"n":1.0}`, `{"resultType":"complete","_meta":{OURS,"x/serverInfo":{}},"content":[],"n":1.0}`},
		{"empty result", `{}`, `{"_meta":{OURS}}`, `{"resultType":"complete","_meta":{OURS,"x/serverInfo":{}}}`},
		{"blanks", "{ \n}", "{\"_meta\":{OURS} \n}", "{\"resultType\":\"complete\",\"_meta\":{OURS,\"x/serverInfo\":{}} \n}"},
		{"meta of theirs", `{"content":[], "_meta": {"k":{"_meta":1}} }`, `{"content":[], "_meta": {"k":{"_meta":1},OURS} }`, `{"resultType":"complete","content":[], "_meta": {"k":{"_meta":1},OURS,"x/serverInfo":{}} }`},
		{"empty meta", `{"_meta":{ },"content":[]}`, `{"_meta":{ OURS},"content":[]}`, `{"resultType":"complete","_meta":{ OURS,"x/serverInfo":{}},"content":[]}`},
		{"escaped name", `{"\u005fmeta":{"a":1}}`, `{"\u005fmeta":{"a":1,OURS}}`, `{"resultType":"complete","\u005fmeta":{"a":1,OURS,"x/serverInfo":{}}}`},
		{"meta inside only", `{"content":[{"_meta":{}}]}`, `{"_meta":{OURS},"content":[{"_meta":{}}]}`, `{"resultType":"complete","_meta":{OURS,"x/serverInfo":{}},"content":[{"_meta":{}}]}`},
		{"meta no object", `{"_meta":null,"a":1}`, `{"_meta":{OURS},"a":1}`, `{"resultType":"complete","_meta":{OURS,"x/serverInfo":{}},"a":1}`},
		{"meta in a text", `{"content":[{"type":"text","text":"\"_meta\":{"}]}`, `{"_meta":{OURS},"content":[{"type":"text","text":"\"_meta\":{"}]}`, `{"resultType":"complete","_meta":{OURS,"x/serverInfo":{}},"content":[{"type":"text","text":"\"_meta\":{"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for dressing, want := range map[*gateway.Dressing]string{{}: c.want, &modern: c.modern} {
				got := gateway.AppendResult([]byte("<"), succeeded(c.raw), *dressing)
				if diff := cmp.Diff("<"+strings.ReplaceAll(want, "OURS", ours), string(got)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if err := canon.Check(got[1:]); err != nil {
					t.Errorf("%s: %v", got[1:], err)
				}
			}
		})
	}
}

func TestAppendResultTellsWhatHappened(t *testing.T) {
	t.Parallel()
	op := &ledger.Operation{
		ID: "op_1", State: ledger.StateFinished, Outcome: receipts.Denied, Reason: receipts.ReasonCallsExceeded, ReceiptID: "rcp_1", Receipt: "a.b.c",
		Result: gateway.Explain(ledger.Ending{Outcome: receipts.Denied, Reason: receipts.ReasonCallsExceeded, Detail: &permits.Detail{Limit: 50, Needed: 1}}),
	}
	var got struct {
		Meta    map[string]any `json:"_meta"`
		IsError bool           `json:"isError"`
		Content []struct{ Type, Text string }
	}
	if err := json.Unmarshal(gateway.AppendResult(nil, op, gateway.Dressing{}), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"counterfoil/operation_id": "op_1", "counterfoil/outcome": "denied", "counterfoil/reason": "permit_calls_exceeded",
		"counterfoil/retry": "never", "counterfoil/credits_charged": 0.0, "counterfoil/receipt_id": "rcp_1", "counterfoil/receipt": "a.b.c",
	}
	if diff := cmp.Diff(want, got.Meta); diff != "" {
		t.Errorf("_meta (-want +got):\n%s", diff)
	}
	if !got.IsError || len(got.Content) != 1 || got.Content[0].Type != "text" {
		t.Fatalf("got %+v, want one text block and isError", got)
	}
	for _, part := range []string{"number of calls is used up", "limit 50, needed 1, remaining 0", "not called", "No credits were charged", "Do not repeat"} {
		if !strings.Contains(got.Content[0].Text, part) {
			t.Errorf("text %q lacks %q", got.Content[0].Text, part)
		}
	}
}

func TestWithText(t *testing.T) {
	t.Parallel()
	const block = `{"type":"text","text":"more"}`
	for _, c := range []struct{ raw, want string }{
		{`{"content":[{"type":"text","text":"x"}],"isError":true}`, `{"content":[{"type":"text","text":"x"},` + block + `],"isError":true}`},
		{`{"isError":true,"content":[ ]}`, `{"isError":true,"content":[ ` + block + `]}`},
		{`{"isError":true}`, `{"content":[` + block + `],"isError":true}`},
		{`{"content":"no list","isError":true}`, `{"content":[` + block + `],"isError":true}`},
		{`{"structuredContent":{"content":[]},"isError":true}`, `{"content":[` + block + `],"structuredContent":{"content":[]},"isError":true}`},
	} {
		if diff := cmp.Diff(c.want, string(gateway.WithText([]byte(c.raw), "more"))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.raw, diff)
		}
	}
}

// A client that holds a success to its tool's output schema would refuse words without structured content.
func TestWordsOfOursAreErrorsToAClient(t *testing.T) {
	t.Parallel()
	for what, e := range map[string]ledger.Ending{
		"uncertain":     {Outcome: receipts.Uncertain, Reason: receipts.ReasonNoResponse, Charged: 5},
		"delivered":     {Outcome: receipts.Reconciled, Reason: receipts.ReasonNoResponse, Charged: 5, Resolution: receipts.Delivered},
		"not delivered": {Outcome: receipts.Reconciled, Reason: receipts.ReasonNoResponse, Resolution: receipts.NotDelivered},
	} {
		var result struct {
			IsError bool                    `json:"isError"`
			Content []struct{ Text string } `json:"content"`
		}
		if err := json.Unmarshal(gateway.Explain(e), &result); err != nil || !result.IsError || len(result.Content) != 1 {
			t.Errorf("%s: %s, %v", what, gateway.Explain(e), err)
		}
	}
}

func TestSettlementIsTheContractsMoney(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	failed := []byte(`{"content":[{"type":"text","text":"no"}],"isError":true}`)
	for _, c := range []struct {
		name               string
		charge             bool
		answer             upstream.Answer
		charged            int64
		keepCall, keepRest bool
	}{
		{"success", false, upstream.Answer{Outcome: "succeeded"}, 50, true, true},
		{"actual below", false, upstream.Answer{Outcome: "succeeded", Actual: n(7)}, 7, true, true},
		{"actual nothing", false, upstream.Answer{Outcome: "succeeded", Actual: n(0)}, 0, true, true},
		{"actual above", false, upstream.Answer{Outcome: "succeeded", Actual: n(51)}, 50, true, true},
		{"actual negative", false, upstream.Answer{Outcome: "succeeded", Actual: n(-1)}, 50, true, true},
		{"tool error", false, upstream.Answer{Outcome: "failed", Reason: "tool_error", Result: failed}, 0, true, false},
		{"tool error, charged", true, upstream.Answer{Outcome: "failed", Reason: "tool_error", Result: failed}, 50, true, true},
		{"unreachable", true, upstream.Answer{Outcome: "failed", Reason: "upstream_unreachable"}, 0, false, false},
		{"rejected", true, upstream.Answer{Outcome: "failed", Reason: "upstream_rejected"}, 0, false, false},
		{"input", false, upstream.Answer{Outcome: "failed", Reason: "input_abandoned"}, 0, false, false},
		{"not sent", false, upstream.Answer{Outcome: "failed", Reason: "not_dispatched"}, 0, false, false},
		{"no answer", false, upstream.Answer{Outcome: "delivery_uncertain", Reason: "no_response", Actual: n(1)}, 50, true, true},
	} {
		s := gateway.SettlementOf(gateway.Tool{Name: "t", Price: 50, ChargeOnToolError: c.charge}, c.answer)
		if s.Charged != c.charged || s.KeepCall != c.keepCall || s.KeepValue != c.keepRest {
			t.Errorf("%s: charged %d, keeps call %v, value %v", c.name, s.Charged, s.KeepCall, s.KeepValue)
		}
		if c.answer.Outcome == "succeeded" {
			continue
		}
		var result struct {
			IsError bool `json:"isError"`
			Content []struct{ Text string }
		}
		if err := json.Unmarshal(s.Result, &result); err != nil || !result.IsError {
			t.Errorf("%s: stored %s: %v", c.name, s.Result, err)
			continue
		}
		if last := result.Content[len(result.Content)-1].Text; !strings.HasPrefix(last, "Counterfoil: ") {
			t.Errorf("%s: the last text block is not ours: %q", c.name, last)
		}
	}
}
