package config

import (
	"fmt"
	"strings"
)

// Fault is one thing that is wrong, and where.
type Fault struct {
	Line int    // in the file; 0: not there
	Path string // "tools[payout].credits", or the name of a variable
	What string // plain words, never a secret
}

func (f Fault) String() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", f.Line)
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	return b.String() + f.What
}

// Faults are all that is wrong with a configuration.
type Faults []Fault

// Headline counts them.
func (f Faults) Headline() string {
	if len(f) == 1 {
		return "the configuration has 1 fault:"
	}
	return fmt.Sprintf("the configuration has %d faults:", len(f))
}

func (f Faults) Error() string {
	lines := make([]string, 0, len(f)+1)
	lines = append(lines, f.Headline())
	for _, one := range f {
		lines = append(lines, one.String())
	}
	return strings.Join(lines, "\n")
}
