package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"counterfoil/gateway"
	"counterfoil/gateway/mcp"
	"counterfoil/internal/canon"
)

// Call is what a client sent for one call, without its values.
type Call struct {
	Revision string   `json:"revision"` // as the header says it; "none", or "another"
	ID       string   `json:"json_rpc_id"`
	Meta     []string `json:"meta"`
	// Where the client names these: "mcpContext", "_meta", "header"; empty: nowhere.
	Key    []string `json:"key_in"`
	Wallet []string `json:"wallet_in"`
	Permit []string `json:"permit_in"`
	Answer string   `json:"answer"` // the gateway's outcome or reason
}

const (
	maxRequest  = 64 << 20 // the most a gateway can be configured to read
	drainedIn   = 10 * time.Second
	headerLimit = 10 * time.Second
)

// Listen passes a client's requests on to the gateway until one tools/call has been answered, and reports on that. ready is told the
// address to which the client has to be pointed.
func Listen(ctx context.Context, o Options, l net.Listener, ready func(address string)) (*Report, error) {
	c, err := newClient(o.Server, "")
	if err != nil {
		return nil, err
	}
	r := &Report{Server: c.base}
	if c.describe(ctx, r); len(r.Platforms) == 0 {
		return r, nil
	}
	target, err := url.Parse(c.base)
	if err != nil {
		return nil, err
	}
	p := &passer{digest: mcp.NewDigest(), seen: make(chan struct{}), proxy: proxyTo(target)}
	srv := &http.Server{Handler: p, ReadHeaderTimeout: headerLimit}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	ready(l.Addr().String())
	select {
	case err := <-failed:
		return nil, fmt.Errorf("listen: %w", err)
	case <-ctx.Done():
		return nil, errors.Join(errors.New("no tools/call came before the end"), srv.Close())
	case <-p.seen:
	}
	drained, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainedIn)
	defer cancel()
	if srv.Shutdown(drained) != nil {
		_ = srv.Close() // a client that keeps a stream open has its answer by now
	}
	r.Call, r.Identity = p.call, p.verdict(r.Platforms)
	r.add("one call of the client", nil, "passed on, answered: "+p.call.Answer)
	return r, nil
}

// proxyTo passes requests on as they are. Bodies have no second copy, so that no request is ever sent twice.
func proxyTo(target *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		Transport:     &http.Transport{DisableCompression: true},
	}
}

// passer stands between a client and the gateway.
type passer struct {
	proxy  *httputil.ReverseProxy
	digest mcp.Digest
	seen   chan struct{} // closed after the first tools/call

	mu   sync.Mutex
	call *Call  // guarded by mu until seen is closed: of the first
	meta []byte // likewise
}

func (p *passer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "the request could not be read", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	call, meta := p.look(r.Header, body)
	if call == nil {
		p.proxy.ServeHTTP(w, r)
		return
	}
	copied := &copier{ResponseWriter: w}
	p.proxy.ServeHTTP(copied, r)
	call.Answer = copied.answer()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.call == nil {
		p.call, p.meta = call, meta
		close(p.seen)
	}
}

// look sees what a body is; nil for what is no tools/call in JSON as the gateway accepts it.
func (p *passer) look(h http.Header, body []byte) (*Call, []byte) {
	body = bytes.TrimLeft(body, " \t\r\n")
	if !gateway.IsObject(body) || canon.Check(body) != nil {
		return nil, nil
	}
	method, _ := canon.Lookup(body, "/method")
	if name, _ := gateway.String(method); name != "tools/call" {
		return nil, nil
	}
	id, _ := canon.Lookup(body, "/id")
	meta, _ := canon.Lookup(body, "/params/_meta")
	call := &Call{Revision: revision(h.Get("Mcp-Protocol-Version")), ID: mcp.ShapeOf(id, p.digest), Meta: mcp.Shape(meta, p.digest)}
	for _, from := range []struct {
		into           *[]string
		member, header string
	}{
		{&call.Key, "idempotency_key", "Idempotency-Key"}, {&call.Wallet, "wallet_id", "Counterfoil-Wallet"}, {&call.Permit, "permit_id", "Counterfoil-Permit"},
	} {
		*from.into = []string{}
		if _, there := canon.Lookup(body, "/params/mcpContext/"+from.member); there {
			*from.into = append(*from.into, "mcpContext")
		}
		if _, there := canon.Lookup(body, "/params/_meta/counterfoil~1context/"+from.member); there {
			*from.into = append(*from.into, "_meta")
		}
		if _, there := h[from.header]; there {
			*from.into = append(*from.into, "header")
		}
	}
	return call, meta
}

func revision(header string) string {
	switch {
	case header == "":
		return "none"
	case slices.Contains(gateway.ProtocolVersions(), header):
		return header
	}
	return "another"
}

// verdict is that of the explicit key, where there is one, else that of the harness.
func (p *passer) verdict(platforms []string) *Verdict {
	if len(p.call.Key) == 0 {
		return judge(p.meta, platforms)
	}
	v := &Verdict{Accepted: true, Source: "context", Says: "The client gives an idempotency key itself, in " + strings.Join(p.call.Key, ", ") + "; nothing else is looked at."}
	if slices.Equal(p.call.Key, []string{"header"}) {
		v.Source = "header"
		v.Says += " A header that is configured once is the same for every call: only the first of them would run."
	}
	return v
}

// copier keeps the beginning of an answer, to see what became of the call.
type copier struct {
	http.ResponseWriter
	kept bytes.Buffer
}

func (c *copier) Write(data []byte) (int, error) {
	if left := maxAnswer - c.kept.Len(); left > 0 {
		c.kept.Write(data[:min(len(data), left)])
	}
	return c.ResponseWriter.Write(data)
}

// Unwrap lets the proxy flush what it streams.
func (c *copier) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// answer is the outcome or the reason of a JSON-RPC answer, be it plain or the last event of a stream.
func (c *copier) answer() string {
	data := c.kept.Bytes()
	if _, last, streamed := bytes.Cut(data, []byte("data: ")); streamed && !gateway.IsObject(bytes.TrimSpace(data)) {
		if at := bytes.LastIndex(last, []byte("data: ")); at >= 0 {
			last = last[at+len("data: "):]
		}
		data = last
	}
	a := readAnswer(data)
	if a.Error != nil {
		return a.Error.Data.Reason
	}
	var result struct {
		Meta struct {
			Outcome string `json:"counterfoil/outcome"`
			Reason  string `json:"counterfoil/reason"`
		} `json:"_meta"`
	}
	if json.Unmarshal(a.Result, &result) != nil {
		return "not understood"
	}
	switch {
	case result.Meta.Reason != "":
		return strings.TrimSpace(result.Meta.Outcome + " " + result.Meta.Reason)
	case result.Meta.Outcome != "":
		return result.Meta.Outcome
	}
	return "read"
}
