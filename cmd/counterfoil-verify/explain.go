package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"counterfoil/verify"
)

func explain(args []string, out, errOut io.Writer) int {
	if len(args) == 0 {
		for _, row := range verify.Explanations() {
			fmt.Fprintf(out, "%-20s %s\n", row.Code, row.Sentence)
		}
		return exitOK
	}
	row, ok := verify.Explain(verify.Code(strings.ToUpper(args[0])))
	if len(args) > 1 || !ok {
		return refuse(errOut, fmt.Errorf("explain takes one code of those that explain lists"))
	}
	fmt.Fprintf(out, "%s\n  %s\n  Next: %s\n", row.Code, row.Sentence, row.Next)
	return exitOK
}

func version(out io.Writer) int {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	fmt.Fprintf(out, "counterfoil-verify %s, %s\n", v, runtime.Version())
	return exitOK
}
