package operator_test

import (
	"strings"
	"testing"
)

func TestDefinitionIsTheBytesOfItsHash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.world(t, "def")
	want := standIn("payout")
	a := b.must(t, 200, "GET", "/v1/tools/definitions/"+want, "")
	if sum(a.raw) != want {
		t.Errorf("%s is answered %s", want, a.raw)
	}
	for _, hash := range []string{strings.Repeat("0", 64), strings.ToUpper(want), want[1:], want + "0", "payout", "prm_def"} {
		b.refused(t, 404, "not_found", "GET", "/v1/tools/definitions/"+hash, "")
	}
	if a := b.send(t, request{method: "GET", path: "/v1/tools/definitions/" + want, token: key}); a.status != 403 {
		t.Errorf("an agent is answered %d %s", a.status, a.raw)
	}
	for _, tool := range b.must(t, 200, "GET", "/v1/tools", "").json["items"].([]any) {
		if tool := tool.(map[string]any); tool["in_force"] != true || tool["described"] != false || tool["sha256"] != nil {
			t.Errorf("a tool that its upstream has not described, and that nobody has pinned: %v", tool)
		}
	}
}
