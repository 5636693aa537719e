package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// An auditor must be able to believe that the verifier opens no connection and
// needs no server.
func TestVerifierReachesNoNetworkOrDatabase(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "counterfoil/cmd/counterfoil-verify", "counterfoil/verify").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "counterfoil/verify") {
		t.Fatalf("go list does not list the verifier: %s", out)
	}
	for _, dep := range deps {
		for _, banned := range []string{
			"net/http", "database/sql", "github.com/jackc/pgx", "github.com/labstack/echo",
			"counterfoil/ledger", "counterfoil/gateway", "counterfoil/sql", "counterfoil/internal/embeddedpg",
		} {
			if dep == banned || strings.HasPrefix(dep, banned+"/") {
				t.Errorf("the verifier depends on %s", dep)
			}
		}
	}
}
