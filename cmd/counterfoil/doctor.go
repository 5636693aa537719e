package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/config"
	"counterfoil/cmd/counterfoil/doctor"
)

// patient is one who wants to know what is the matter.
type patient struct {
	a                       *app
	server, keyFile, listen string
	meta, metaFile          string
	asJSON                  bool
}

func (a *app) doctorCommand() *cobra.Command {
	p := &patient{a: a}
	c := &cobra.Command{
		Use: "doctor", Short: "Tell what a gateway answers an agent, and by what a client's calls are known", Args: cobra.NoArgs,
		Long: `Tell what a gateway answers an agent, and by what a client's calls are known.

Without --listen it asks the gateway what it serves and makes one read-only call as the agent, whose API key it
takes from COUNTERFOIL_KEY or --key-file. With --meta or --meta-file it also says what the gateway makes of that _meta.

With --listen it stands between a client and the gateway until one tools/call has passed: point the client at that
address instead of the gateway. It then shows the shape of what the client sent: names, types, lengths and
digests, never a value. The call itself is a real one.

Exit status: 0 all is well and the call has an identity, 1 something is not, 2 nothing was tried.`,
		Example: `  counterfoil doctor --server https://counterfoil.example --key-file agent.key
  counterfoil doctor --key-file agent.key --meta '{"callId":"call_1"}'
  counterfoil doctor --listen 127.0.0.1:8181`,
		RunE: does(func(ctx context.Context, _ []string) error { return p.examine(ctx) }),
	}
	server := a.env["COUNTERFOIL_SERVER"]
	if server == "" {
		server = defaultServer
	}
	flags := c.Flags()
	flags.StringVar(&p.server, "server", server, "URL of the gateway (COUNTERFOIL_SERVER)")
	flags.StringVar(&p.keyFile, "key-file", "", "file with an agent's API key, mode 0600 (else COUNTERFOIL_KEY)")
	flags.StringVar(&p.listen, "listen", "", "host:port to stand on, between a client and the gateway")
	flags.StringVar(&p.meta, "meta", "", "a _meta to be judged, as JSON")
	flags.StringVar(&p.metaFile, "meta-file", "", "file with a _meta to be judged")
	flags.BoolVar(&p.asJSON, "json", false, "print the report as JSON")
	c.MarkFlagsMutuallyExclusive("meta", "meta-file", "listen")
	c.MarkFlagsMutuallyExclusive("key-file", "listen")
	return c
}

func (p *patient) examine(ctx context.Context) error {
	report, err := p.report(ctx)
	if err != nil {
		return err
	}
	if err := p.print(report); err != nil {
		return err
	}
	if !report.Healthy() {
		return errors.New("not all is well")
	}
	return nil
}

func (p *patient) report(ctx context.Context) (*doctor.Report, error) {
	o := doctor.Options{Server: p.server}
	if p.listen != "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", p.listen)
		if err != nil {
			return nil, refused(err)
		}
		defer func() { _ = l.Close() }()
		return doctor.Listen(ctx, o, l, func(address string) {
			fmt.Fprintf(p.a.errOut, "listening: point the client at http://%s/mcp and let it call one tool\n", address)
		})
	}
	var err error
	if o.Key, err = p.key(); err != nil {
		return nil, refused(err)
	}
	if p.meta != "" {
		o.Meta = []byte(p.meta)
	}
	if p.metaFile != "" {
		if o.Meta, err = os.ReadFile(p.metaFile); err != nil {
			return nil, refused(err)
		}
	}
	report, err := doctor.Examine(ctx, o)
	if err != nil {
		return nil, refused(err)
	}
	return report, nil
}

func (p *patient) key() (string, error) {
	if p.keyFile != "" {
		text, err := config.ReadSecret(p.keyFile)
		return strings.TrimRight(text, "\r\n"), err
	}
	if key := p.a.env["COUNTERFOIL_KEY"]; key != "" {
		return key, nil
	}
	return "", errors.New("no API key: set COUNTERFOIL_KEY, or give --key-file FILE")
}

func (p *patient) print(r *doctor.Report) error {
	if p.asJSON {
		e := json.NewEncoder(p.a.out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	fmt.Fprintf(p.a.out, "%s\n", printable(r.Server))
	for _, c := range r.Checks {
		p.line(map[bool]string{true: "ok", false: "FAULT"}[c.OK], c.What+": "+c.Says)
	}
	if call := r.Call; call != nil {
		p.line("-", "revision in the header: "+call.Revision)
		p.line("-", "JSON-RPC id: "+call.ID)
		p.line("-", fmt.Sprintf("named by the client: key %s, wallet %s, permit %s", nowhere(call.Key), nowhere(call.Wallet), nowhere(call.Permit)))
		for _, member := range call.Meta {
			p.line("-", "_meta: "+member)
		}
	}
	if v := r.Identity; v != nil {
		what := "identity: " + v.Source + ". "
		if !v.Accepted {
			what = "identity: none (" + v.Reason + "). "
		}
		p.line(map[bool]string{true: "ok", false: "FAULT"}[v.Accepted], what+v.Says)
	}
	return nil
}

func (p *patient) line(mark, text string) { fmt.Fprintf(p.a.out, "%-6s%s\n", mark, printable(text)) }

func nowhere(places []string) string {
	if len(places) == 0 {
		return "nowhere"
	}
	return "in " + strings.Join(places, " and in ")
}
