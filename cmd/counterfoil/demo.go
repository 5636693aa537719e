package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/config"
	"counterfoil/cmd/paytool/paytool"
	"counterfoil/internal/embeddedpg"
	"counterfoil/internal/jws"
)

const demoListen = "127.0.0.1:8080"

func (a *app) demoCommand() *cobra.Command {
	var dir, listen string
	var once bool
	c := &cobra.Command{
		Use: "demo", Short: "See it work: database, tool, gateway, calls and proof in one process", Args: cobra.NoArgs,
		Long: `Starts a database of its own, a payment tool and a gateway; makes a governed call, repeats it, is refused
one, and checks the receipts offline. Each step says whether it held. Then it keeps serving, for you to try.
It can be run again: data is kept, and each run has its own wallet.`,
		Example: `  counterfoil demo
  counterfoil demo --once                # only the proof: exit status 0 if every step held
  counterfoil demo --dir ./demo --listen 127.0.0.1:9000`,
		RunE: does(func(ctx context.Context, _ []string) error {
			return a.demo(ctx, dir, listen, once)
		}),
	}
	c.Flags().StringVar(&dir, "dir", "", "where data is kept (default: a directory the database's user can reach)")
	c.Flags().StringVar(&listen, "listen", "", "address to serve on (default "+demoListen+", or a free port if it is taken)")
	c.Flags().BoolVar(&once, "once", false, "exit after the proof")
	return c
}

// demo is what one run stands on; the steps add to it what they learn.
type demo struct {
	app      *app
	dir      string
	log      *slog.Logger
	listener net.Listener
	config   *config.Config
	db       *database
	keys     *jws.Keyring
	tool     *paytool.Handler
	toolHTTP *http.Server
	toolURL  string
	node     *node
	story    story
}

func (a *app) demo(ctx context.Context, dir, listen string, once bool) (err error) {
	d := &demo{app: a, log: logger(a.errOut, config.Log{Format: "text", Level: "warn"})}
	if d.dir, err = demoDir(dir); err != nil {
		return err
	}
	if d.listener, err = demoListener(ctx, listen); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(ctx)) }()
	if err := d.begin(ctx); err != nil {
		return err
	}
	// The gateway serves from here on, and drains before anything below it is closed.
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- d.node.serveUntil(serving, d.db, 10*time.Second) }()
	end := func() error { stop(); return <-served }
	if err := d.tell(serving); err != nil {
		return errors.Join(err, end())
	}
	if once {
		return end()
	}
	d.invite()
	err = <-served
	stop()
	return err
}

// demoDir makes the directory, so that the database's user can pass through it, whatever the umask.
func demoDir(dir string) (string, error) {
	if dir == "" {
		var err error
		if dir, err = embeddedpg.DefaultDir(); err != nil {
			return "", err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // what is secret in it has modes of its own
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// demoListener takes the wanted address; only the default one gives way to a free port.
func demoListener(ctx context.Context, listen string) (net.Listener, error) {
	var lc net.ListenConfig
	if listen != "" {
		return lc.Listen(ctx, "tcp", listen)
	}
	l, err := lc.Listen(ctx, "tcp", demoListen)
	if err != nil {
		return lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	return l, nil
}

// begin brings up everything that the story needs.
func (d *demo) begin(ctx context.Context) error {
	fmt.Fprintf(d.app.out, "Counterfoil demo. Data is kept in %s\n\n", d.dir)
	for _, s := range []step{
		{"a database of its own", d.startDatabase},
		{"signing keys", d.openKeys},
		{"a payment tool", d.startTool},
		{"the gateway", d.startGateway},
	} {
		if err := d.app.take(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) startDatabase(ctx context.Context) (string, error) {
	d.config = &config.Config{
		File:     "the demo's",
		Issuer:   "http://" + d.listener.Addr().String(),
		Listen:   d.listener.Addr().String(),
		Database: config.Database{EmbeddedDir: filepath.Join(d.dir, "database")},
		KeysDir:  filepath.Join(d.dir, "keys"),
		Limits:   config.Limits{Lease: 15 * time.Second, PermitLifetime: 31 * 24 * time.Hour},
	}
	var err error
	if d.db, err = openDatabase(ctx, d.config, d.log); err != nil {
		return "", err
	}
	if err := d.db.migrate(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("PostgreSQL %s, schema in place", d.db.server.Version()), nil
}

func (d *demo) openKeys(context.Context) (string, error) {
	keys, made, err := jws.CreateMissing(d.config.KeysDir, time.Now())
	if err != nil {
		return "", err
	}
	d.keys = keys
	active, err := keys.Active(jws.PurposeReceipt)
	if err != nil {
		return "", err
	}
	word := "found"
	if len(made) > 0 {
		word = "made"
	}
	return fmt.Sprintf("%s in %s; receipts are signed by %.12s…", word, d.config.KeysDir, active.KeyID()), nil
}

func (d *demo) startTool(ctx context.Context) (string, error) {
	var err error
	// The tool does not know a repeated key: that one payment is made is the gateway's doing alone.
	d.tool, err = paytool.New(paytool.Options{Journal: filepath.Join(d.dir, "paytool.jsonl"), Now: time.Now, Logger: d.log})
	if err != nil {
		return "", err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	d.toolURL = "http://" + l.Addr().String() + "/mcp"
	d.toolHTTP = &http.Server{Handler: d.tool, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = d.toolHTTP.Serve(l) }()
	return "an MCP server on " + d.toolURL + ", with a journal of what it did", nil
}

func (d *demo) startGateway(ctx context.Context) (string, error) {
	token, err := operatorToken(filepath.Join(d.dir, "operator.token"))
	if err != nil {
		return "", err
	}
	d.config.Tokens.Operator = config.Secret(token)
	d.config.Upstreams = []config.Upstream{{Name: "payments", URL: d.toolURL, Timeout: 30 * time.Second}}
	d.config.Tools = demoTools()
	d.node, err = openNode(ctx, d.config, d.db.url, d.keys, d.listener, d.log)
	if err != nil {
		return "", err
	}
	return "serves MCP on " + d.config.Issuer + "/mcp/messages", nil
}

func demoTools() []config.Tool {
	usd := &config.Value{Pointer: "/amount", Currency: "USD"}
	tool := func(name string, credits int64, scope string) config.Tool {
		return config.Tool{Name: name, Upstream: "payments", UpstreamTool: name, Credits: credits, Scopes: []string{scope}}
	}
	payout, mail := tool("payout", 5, "payments.write"), tool("send_email", 1, "mail.send")
	payout.Value, payout.Recipients = usd, []string{"/to"}
	mail.Recipients = []string{"/to"}
	return []config.Tool{payout, mail, tool("slow", 1, "payments.write"), tool("flaky", 1, "payments.write")}
}

// operatorToken is made once, so that the commands against a demo work from one run to the next.
func operatorToken(file string) (string, error) {
	text, err := config.ReadSecret(file)
	if err == nil {
		return text, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	text = randomHex(32)
	return text, os.WriteFile(file, []byte(text), 0o600)
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails: the process ends instead
	return hex.EncodeToString(b)
}

// close takes down what begin brought up: gateway, tool, database.
func (d *demo) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var faults []error
	if d.node != nil {
		faults = append(faults, d.node.close(ctx))
	} else {
		_ = d.listener.Close()
	}
	if d.toolHTTP != nil {
		faults = append(faults, d.toolHTTP.Close())
	}
	if d.tool != nil {
		faults = append(faults, d.tool.Close())
	}
	if d.db != nil {
		faults = append(faults, d.db.close())
	}
	return errors.Join(faults...)
}
