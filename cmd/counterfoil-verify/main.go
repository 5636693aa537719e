// Counterfoil-verify judges receipts offline: exit status 0 is given only where
// every receipt was checked with a key that the caller trusts, and nothing failed.
//
// It opens the files that it is given, and never a network connection.
package main

import (
	"io"
	"os"
)

// The exit statuses of the contract; verify.Summary decides between the others.
const (
	exitOK        = 0
	exitUsage     = 2
	exitUndecided = 3
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, in io.Reader, out, errOut io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "explain":
			return explain(args[1:], out, errOut)
		case "version", "--version":
			return version(out)
		}
	}
	return judge(args, in, out, errOut)
}
