package upstream_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the program of the processes it starts: as "tool ERA JOURNAL".
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == toolWord {
		os.Exit(runTool(os.Args[2], os.Args[3:]))
	}
	goleak.VerifyTestMain(m)
}
