package operator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/gateway"
	"counterfoil/internal/apitest"
	"counterfoil/internal/jws"
	"counterfoil/receipts"
)

func TestRoutesEqualPaths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var routes []string
	for _, r := range b.g.Echo().Routes() {
		// The MCP endpoint answers every other method with 405.
		if r.Method != "POST" && strings.HasPrefix(r.Path, "/mcp") {
			continue
		}
		routes = append(routes, apitest.EchoRoute(r.Method, r.Path))
	}
	slices.Sort(routes)
	if diff := cmp.Diff(b.spec.Routes(), routes); diff != "" {
		t.Errorf("openapi.yaml (-) and the router (+) differ:\n%s", diff)
	}
}

func TestReasonsEqualTheTable(t *testing.T) {
	t.Parallel()
	spec := apitest.Load(t)
	var table, named []string
	for _, p := range gateway.Problems() {
		table = append(table, string(p.Reason))
	}
	for _, r := range receipts.Reasons() {
		named = append(named, string(r))
	}
	documented := spec.Enum("Reason")
	for _, list := range [][]string{table, named, documented} {
		slices.Sort(list)
	}
	if diff := cmp.Diff(documented, table); diff != "" {
		t.Errorf("openapi.yaml (-) and the reason table (+) differ:\n%s", diff)
	}
	if diff := cmp.Diff(documented, named); diff != "" {
		t.Errorf("openapi.yaml (-) and receipts.Reasons (+) differ:\n%s", diff)
	}
}

// TestEveryOperationFitsTheDocument walks through a gateway's life; each answer is checked on its way.
func TestEveryOperationFitsTheDocument(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.world(t, "life")
	op, lost := b.call(t, "life", "k1"), b.lose(t, "life", "k2")
	out := newOutsider(t, 7)
	out.register(t, b, jws.StatusActive, 201)
	b.must(t, 201, "POST", "/v1/permits/import", out.permit(t, "prm_out", "life"))
	b.must(t, 200, "PATCH", "/v1/agents/agt_life", `{"default_permit_id":"prm_life"}`)
	key := b.must(t, 201, "POST", "/v1/agents/agt_life/keys", "").text(t, "id")
	b.must(t, 204, "DELETE", "/v1/agents/agt_life/keys/"+key, "")
	for _, path := range []string{
		"/v1/agents", "/v1/agents/agt_life", "/v1/wallets", "/v1/wallets/wal_life", "/v1/wallets/wal_life/transfers",
		"/v1/wallets/wal_life/statement", "/v1/permits", "/v1/permits/prm_life", "/v1/issuers", "/v1/tools", "/v1/tools/definitions/" + standIn("payout"),
		"/v1/operations", "/v1/operations/" + op.ID, "/v1/receipts", "/v1/receipts/export", "/v1/receipts/" + op.ReceiptID,
		"/v1/receipts/" + op.ReceiptID + "/bundle", "/v1/audit", "/v1/reconciliations",
		"/healthz", "/readyz", "/metrics", "/.well-known/jwks.json", "/.well-known/counterfoil.json",
	} {
		b.must(t, 200, "GET", path, "")
	}
	b.must(t, 200, "POST", "/v1/wallets/wal_life/freeze", `{"note":"a check"}`)
	b.must(t, 200, "POST", "/v1/wallets/wal_life/unfreeze", "")
	b.must(t, 200, "POST", "/v1/permits/prm_life/revoke", "")
	b.must(t, 200, "POST", "/v1/operation-keys", `{"keys":["acme:operation:v1:0001"]}`)
	b.must(t, 200, "GET", "/v1/operation-keys", "")
	b.decide(t, 200, lost, notDelivered)
	b.must(t, 409, "POST", "/v1/operations/"+lost+"/release-reference", `{"why":"a check"}`)
	b.send(t, request{method: "GET", path: "/v1/approvals", token: approverToken})
	b.send(t, request{method: "POST", path: "/v1/approvals/apr_1/resolve", token: approverToken})
	for _, path := range []string{"/mcp", "/mcp/messages"} {
		b.send(t, request{method: "POST", path: path, body: `{}`})
	}
	if unseen := b.spec.Unseen(); len(unseen) > 0 {
		t.Errorf("no answer of these was checked: %v", unseen)
	}
}

// standIn is the hash of what a tool is while its upstream has never described it.
func standIn(tool string) string {
	return sum([]byte(`{"inputSchema":{"type":"object"},"name":"` + tool + `"}`))
}
