// Command counterfoil runs the gateway and speaks to a running one. Every command answers with an
// exit status that a script can rely on: 0 done, 1 it failed, 2 nothing was tried (usage, configuration).
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal is not waited for
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program without the process around it, so that tests can be the process.
func run(ctx context.Context, args, env []string, out, errOut io.Writer) int {
	a := newApp(env, out, errOut)
	root := a.root()
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	return a.exit(command, err)
}
