package e2e_test

import (
	"encoding/json"
	"testing"
)

// TestBuiltInToolsOfStockClients: clients that check answers against output schemas accept those of the gateway's own
// tools, in both eras, without a key, and pay nothing for them.
func TestBuiltInToolsOfStockClients(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for _, which := range []string{"v1", "v2"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			x := s.newTenant(t, 100, anything())
			var saw struct {
				Tools []struct {
					Name         string
					OutputSchema map[string]any
					Annotations  struct{ ReadOnlyHint bool }
				}
				Paid, Operation, Resumed, Permit, None clientResult
			}
			printed := node(t, "builtin.mjs", []string{"URL_=" + s.url + "/mcp", "KEY=" + x.key, "PERMIT=" + x.permit, "TO=" + x.marker() + "vendor.example"}, which)
			if err := json.Unmarshal(printed, &saw); err != nil {
				t.Fatalf("%v: %s", err, printed)
			}
			for i, tool := range saw.Tools[len(saw.Tools)-3:] {
				if reads := i != 1; tool.Annotations.ReadOnlyHint != reads || (tool.OutputSchema != nil) != reads {
					t.Errorf("it knows %+v", tool)
				}
			}
			operation, permit := saw.Operation.StructuredContent, saw.Permit.StructuredContent
			if operation["outcome"] != "succeeded" || operation["receipt"] != saw.Paid.Meta.Receipt || operation["idempotency_key"] != which {
				t.Errorf("the operation: %v", operation)
			}
			if saw.Resumed.Meta.Receipt != saw.Paid.Meta.Receipt || saw.Resumed.StructuredContent["effect"] != saw.Paid.StructuredContent["effect"] {
				t.Errorf("resumed: %+v", saw.Resumed)
			}
			if remaining, _ := permit["remaining"].(map[string]any); permit["id"] != x.permit || remaining["credits"] != 1_000_000.0-payoutPrice {
				t.Errorf("the permit: %v", permit)
			}
			if !saw.None.IsError || saw.None.Meta.Reason != "not_found" {
				t.Errorf("an operation that does not exist: %+v", saw.None)
			}
			if st := x.state(t); st.Effects != 1 || st.Charges != 1 || st.Operations != 1 || st.Receipts != 1 {
				t.Errorf("after all: %+v", st)
			}
		})
	}
}
