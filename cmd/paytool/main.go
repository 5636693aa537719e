// Command paytool is an MCP server that pays nobody but counts what it did: the upstream of
// demonstrations and tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"counterfoil/cmd/paytool/paytool"
)

const usage = `paytool is an MCP server whose tools act on nothing but a journal that can be counted.

  payout     {to, amount, invoice_id?}     refund  {invoice_id, amount}
  send_email {to, bcc?, subject, body}     slow    {seconds}
  flaky      {mode: ok | drop | 500 | error}
  payout_status {operation_key}            says what became of a call; does nothing

Each call of another tool is one effect, however often the same Idempotency-Key comes, unless --dedupe is given.

Usage: paytool [--listen ADDRESS] [--journal FILE] [--dedupe]

Examples:
  paytool
  paytool --listen 127.0.0.1:0 --journal /tmp/effects.jsonl
  curl http://127.0.0.1:9100/journal

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program: 0 served until it was told to stop, 1 could not, 2 usage.
func run(ctx context.Context, args, _ []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("paytool", flag.ContinueOnError)
	flags.SetOutput(errOut)
	listen := flags.String("listen", "127.0.0.1:9100", "`address` to serve on; port 0 picks a free one")
	path := flags.String("journal", "paytool.jsonl", "`file` of the effects, one JSON object a line")
	dedupe := flags.Bool("dedupe", false, "answer a repeated operation key with its first effect")
	flags.Usage = func() {
		_, _ = io.WriteString(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if len(args) > 0 && (args[0] == "--help" || args[0] == "-h") {
		flags.SetOutput(out)
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		_, _ = fmt.Fprintf(errOut, "paytool: unexpected argument %q; see paytool --help\n", flags.Arg(0))
		return 2
	}
	options := paytool.Options{
		Journal: *path, Dedupe: *dedupe, Now: time.Now,
		Logger: slog.New(slog.NewTextHandler(errOut, nil)),
	}
	if err := serve(ctx, *listen, options, out); err != nil {
		_, _ = fmt.Fprintf(errOut, "paytool: %v\n", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, address string, options paytool.Options, out io.Writer) (err error) {
	handler, err := paytool.New(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, handler.Close()) }()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(options.Logger.Handler(), slog.LevelWarn)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	_, _ = fmt.Fprintf(out, "paytool: serving http://%s/mcp, effects at http://%[1]s/journal\n", listener.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if server.Shutdown(drain) != nil {
		return server.Close() // a slow call is still waiting; its effect is on disk
	}
	return nil
}
