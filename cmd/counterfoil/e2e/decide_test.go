package e2e_test

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// command runs an operator's command with a token, and gives its exit status and what it printed.
func (s *system) command(t *testing.T, token string, args ...string) (status int, output string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "counterfoil"), args...)
	cmd.Env = append(os.Environ(), "COUNTERFOIL_TOKEN="+token, "COUNTERFOIL_SERVER="+s.url)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	return status, string(out)
}

// prints runs a command that must end with a status and print all these parts.
func (s *system) prints(t *testing.T, want int, token string, args []string, parts ...string) string {
	t.Helper()
	status, out := s.command(t, token, args...)
	if status != want {
		t.Errorf("%v: status %d, want %d: %s", args, status, want, out)
	}
	for _, part := range parts {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), part) {
			t.Errorf("%v: %q is not in:\n%s", args, part, out)
		}
	}
	return out
}

// TestOperatorsDecide follows the procedure of docs/operations.md on the real program: find, decide, look again. The
// keys are rotated on the way, so that the two receipts of a call are of two keys.
func TestOperatorsDecide(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	uncertain := []string{"operation", "uncertain"}
	s.prints(t, 0, reconcilerToken, uncertain, "Nothing waits for a decision.")
	x, y := s.newTenant(t, 100, anything()), s.newTenant(t, 100, anything())
	first, second := x.lose(t, x.payout("invoice-1"), false), y.lose(t, y.payout("invoice-1"), true)
	for _, token := range []string{operatorToken, reconcilerToken} {
		s.prints(t, 0, token, uncertain, "OPERATION TOOL AGE CREDITS VALUE (MINOR UNITS) REASON LATE ANSWER PROBES",
			first.meta.Operation+" payout", "5 1200 USD no_response no 0",
			"2 operations wait for a decision; at risk: 10 credits, 2400 USD; the oldest is ")
	}
	s.prints(t, 0, operatorToken, append(uncertain, "--wallet", y.wallet), second.meta.Operation, "1 operation waits for a decision; at risk: 5 credits, 1200 USD;")
	all := decodeObject(t, []byte(s.prints(t, 0, operatorToken, append(uncertain, "--json"))))
	if len(all.list(t, "items")) != 2 || all.number(t, "at_risk", "count") != 2 {
		t.Errorf("as JSON: %v", all)
	}
	s.prints(t, 0, operatorToken, []string{"operation", "get", first.meta.Operation}, "outcome delivery_uncertain", "value (minor units) 1200")
	if status, out := program(t, "counterfoil", "keys", "rotate", "--config", s.config, "--purpose", "receipt"); status != 0 {
		t.Fatalf("keys rotate: %d: %s", status, out)
	}
	s.restart(t)

	reconcile := func(id string, more ...string) []string {
		return append([]string{"operation", "reconcile", id, "--resolution"}, more...)
	}
	evidence := filepath.Join(s.dir, "evidence.txt")
	writeFile(t, evidence, "The bank's list of 3 May,\nline 14.\n")
	no := reconcile(first.meta.Operation, "not_delivered", "--evidence", "not on the list")
	s.prints(t, 1, operatorToken, no, "(forbidden, HTTP 403)")
	shown := s.prints(t, 0, reconcilerToken, no, "state reconciled", "resolution not_delivered", "charged (credits) 0", "charged before (credits) 5",
		"decided by reconciler", "evidence not on the list", "first receipt "+first.meta.ReceiptID)
	if again := s.prints(t, 0, reconcilerToken, no); again != shown {
		t.Errorf("again: %s", again)
	}
	receipt := regexp.MustCompile(`(?m)^receipt\s+(rcp_\S+)$`).FindStringSubmatch(shown)[1]
	s.prints(t, 1, reconcilerToken, reconcile(first.meta.Operation, "delivered", "--evidence", "x", "--provider-reference", "p"),
		"decided before, and otherwise: not_delivered, 0 of 5 credits charged, by reconciler at", receipt, "(conflict, HTTP 409)")
	yes := reconcile(second.meta.Operation, "delivered", "--evidence-file", evidence, "--provider-reference", "po_77", "--credits-charged")
	s.prints(t, 1, reconcilerToken, append(yes, "6"), "at most the 5 credits", "(invalid_request, HTTP 400)")
	s.prints(t, 0, reconcilerToken, append(yes, "2"), "resolution delivered", "charged (credits) 2", "provider's reference po_77")
	s.prints(t, 0, operatorToken, []string{"operation", "get", second.meta.Operation}, "decided by reconciler", "line 14.")
	s.prints(t, 0, operatorToken, []string{"operation", "list", "--state", "reconciled"}, first.meta.Operation, second.meta.Operation)
	s.prints(t, 0, operatorToken, []string{"wallet", "transfers", x.wallet}, "reversal")
	s.prints(t, 1, operatorToken, []string{"operation", "release-reference", first.meta.Operation, "--why", "w"}, "holds no reference", "(conflict, HTTP 409)")
	s.prints(t, 0, reconcilerToken, uncertain, "Nothing waits for a decision.")

	decision := s.operator(t, http.MethodGet, "/v1/operations/"+first.meta.Operation, nil, http.StatusOK)
	if reconciled, _ := decision["reconciliation"].(map[string]any); reconciled["evidence"] != "not on the list" {
		t.Errorf("stored: %v", decision)
	}
	s.bothKeys(t, first.meta.ReceiptID, receipt)
	a := x.do(t, x.payout("invoice-1"))
	s.verified(t, first, "permit,content")
	s.verified(t, a, "permit,content")
	if a.meta.Resolution != "not_delivered" || a.meta.ReceiptID != receipt {
		t.Errorf("the repeat says %s", a)
	}
}

// bothKeys wants the bundles of two receipts of one call to hold the keys of both, which differ.
func (s *system) bothKeys(t *testing.T, receipts ...string) {
	t.Helper()
	named := regexp.MustCompile(`"kid":"([^"]+)"`)
	for _, id := range receipts {
		bundle := decodeObject(t, s.download(t, "/v1/receipts/"+id+"/bundle", "application/vnd.counterfoil.bundle+json"))
		related, _ := bundle["related"].([]any)
		if len(related) != 1 {
			t.Fatalf("%s: related %v", id, related)
		}
		other, _ := related[0].(string)
		used := map[string]bool{}
		for _, token := range []string{bundle.text(t, "receipt"), other} {
			header := unbase64(t, strings.Split(token, ".")[0])
			used[string(named.FindSubmatch(header)[1])] = true
		}
		keys, _ := bundle["keys"].(map[string]any)
		for _, key := range object(keys).list(t, "keys") {
			delete(used, key.text(t, "kid"))
		}
		if len(used) != 0 || len(object(keys).list(t, "keys")) != 3 {
			t.Errorf("%s: keys %v are not in the bundle: %v", id, used, keys)
		}
	}
}
