package e2e_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"counterfoil/internal/testdb"
)

// TestSoak: a short soak breaks everything at least once, and loses nothing. That its judge finds what is wrong, its own
// tests show (TestTheJudgeFindsWhatIsWrong).
func TestSoak(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(filepath.Join(programs, "counterfoil"), "bench", "--soak", "12s", "--seed", "3", "--json", "--dir", testdb.Dir(t))
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the soak: %v\n%s\n%s", err, log.String(), out)
	}
	var report struct {
		Soak struct {
			Seed       int64
			Calls      int64
			Effects    int64
			Replayed   int64 `json:"answers_compared_at_the_end"`
			Lost       int64 `json:"answers_lost"`
			Twice      int64 `json:"sent_twice"`
			Violations int64
			Outcomes   map[string]int64
			Faults     []struct{ Tried int }
		}
		Duplicates *int64 `json:"duplicate_effects"`
		Fsck       string
		Ratios     any
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	s := report.Soak
	if s.Lost != 0 || s.Twice != 0 || s.Violations != 0 || report.Duplicates == nil || *report.Duplicates != 0 || report.Fsck != "clean" {
		t.Errorf("the soak found something and ended well:\n%s", out)
	}
	tried := 0
	for _, f := range s.Faults {
		tried += f.Tried
	}
	if s.Seed != 3 || tried < 1 || s.Calls < 20 || s.Effects < 5 || s.Replayed < 10 || s.Outcomes["succeeded"] == 0 || report.Ratios != nil {
		t.Errorf("the soak has tried nothing:\n%s\n%s", log.String(), out)
	}
}
