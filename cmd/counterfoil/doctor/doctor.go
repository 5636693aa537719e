// Package doctor tells what a gateway answers and by what a client's calls would be known, without spending anything
// and without showing a value: it makes one read-only call, or stands between a client and the gateway for one call.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"counterfoil/gateway"
	"counterfoil/gateway/mcp"
	"counterfoil/internal/canon"
)

// Options say which gateway is asked, and with what.
type Options struct {
	Server string // its URL
	Key    string // an agent's API key
	Meta   []byte // the `_meta` of the call, as a client would send it; nil: none
}

// Report is what was found. Its texts hold no value of what a client sent.
type Report struct {
	Server    string   `json:"server"`
	Version   string   `json:"version,omitempty"`
	Platforms []string `json:"identity_platforms,omitempty"` // whose calls are known by their own identity
	Checks    []Check  `json:"checks"`
	Permit    *Permit  `json:"default_permit,omitempty"`
	Call      *Call    `json:"call,omitempty"`
	Identity  *Verdict `json:"identity,omitempty"`
}

// Check is one thing that was tried.
type Check struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Says string `json:"says"`
}

// Permit is what the agent acts under where a call names no permit.
type Permit struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Wallet string `json:"wallet_id"`
}

// Verdict is what the gateway makes of a call's identity.
type Verdict struct {
	Accepted bool   `json:"accepted"`
	Source   string `json:"source,omitempty"` // the receipt's key_source would be this
	Reason   string `json:"reason,omitempty"`
	Says     string `json:"says"`
}

// Healthy reports whether nothing that was tried has failed.
func (r *Report) Healthy() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.OK }) && (r.Identity == nil || r.Identity.Accepted)
}

func (r *Report) add(what string, err error, says string) {
	if err != nil {
		says = err.Error()
	}
	r.Checks = append(r.Checks, Check{What: what, OK: err == nil, Says: says})
}

// Examine asks a gateway what it serves and makes one read-only call as the agent. An error means that nothing could be tried.
func Examine(ctx context.Context, o Options) (*Report, error) {
	if o.Meta != nil {
		if err := canon.Check(o.Meta); err != nil || !gateway.IsObject(o.Meta) {
			return nil, errors.New("--meta is not a JSON object as the gateway reads it strictly")
		}
	}
	c, err := newClient(o.Server, o.Key)
	if err != nil {
		return nil, err
	}
	r := &Report{Server: c.base}
	c.describe(ctx, r)
	if len(r.Platforms) == 0 {
		return r, nil // nobody there, or nobody who is known
	}
	r.add("credential", c.authenticate(ctx), "accepted")
	says, err := c.discover(ctx)
	r.add("revision 2026-07-28", err, says)
	says, err = c.initialize(ctx)
	r.add("handshake", err, says)
	says, err = c.readPermit(ctx, o.Meta, r)
	r.add("one read-only call", err, says)
	if o.Meta != nil {
		r.Identity = judge(o.Meta, r.Platforms)
	}
	return r, nil
}

// judge is what the gateway would say of a governed call with this `_meta` and no explicit key.
func judge(meta []byte, platforms []string) *Verdict {
	envelopes := slices.DeleteFunc(slices.Clone(platforms), func(p string) bool {
		return p == gateway.PlatformCodex || p == gateway.PlatformClaudeCode
	})
	id, refusal := mcp.Identify(meta, envelopes)
	if refusal != nil {
		return &Verdict{Reason: string(refusal.Reason), Says: refusal.Detail}
	}
	return &Verdict{Accepted: true, Source: id.Platform, Says: "Each call is known by its identity of the platform " + id.Platform +
		". Whether it stays the same on a redelivery, and is new on each new call, is the client's to promise."}
}

// describe reads what the gateway says of itself to anybody.
func (c *client) describe(ctx context.Context, r *Report) {
	var page struct {
		Version   string
		Platforms []string `json:"identity_platforms"`
	}
	err := c.get(ctx, "/.well-known/counterfoil.json", &page)
	if err == nil && len(page.Platforms) == 0 {
		err = errors.New("it is no gateway of a version that knows calls by their harness")
	}
	r.Version, r.Platforms = page.Version, page.Platforms
	r.add("gateway", err, "version "+page.Version+", knows calls of "+strings.Join(page.Platforms, ", "))
}

func (c *client) authenticate(ctx context.Context) error {
	status, _, err := c.post(ctx, handshakeHeaders(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	switch {
	case err != nil:
		return err
	case status == 401:
		return errors.New("the gateway does not know this API key: it is wrong, expired, or not an agent's")
	case status != 200:
		return fmt.Errorf("the gateway answered HTTP %d", status)
	}
	return nil
}

func (c *client) discover(ctx context.Context) (string, error) {
	meta := `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	var result struct{ SupportedVersions []string }
	err := c.call(ctx, map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}, "server/discover", `{"_meta":`+meta+`}`, &result)
	if err == nil && !slices.Contains(result.SupportedVersions, "2026-07-28") {
		err = errors.New("it is not among the versions that the gateway names")
	}
	return "served", err
}

func (c *client) initialize(ctx context.Context) (string, error) {
	var result struct{ ProtocolVersion string }
	err := c.call(ctx, handshakeHeaders(), "initialize",
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"counterfoil-doctor","version":"1"}}`, &result)
	return "served, " + result.ProtocolVersion, err
}

// readPermit makes the one call: what is left of the default permit. It spends nothing and is not recorded.
func (c *client) readPermit(ctx context.Context, meta []byte, r *Report) (string, error) {
	if meta == nil {
		meta = []byte("{}")
	}
	var result struct {
		StructuredContent *Permit
		Meta              struct {
			Reason string `json:"counterfoil/reason"`
		} `json:"_meta"`
	}
	err := c.call(ctx, handshakeHeaders(), "tools/call", `{"name":"counterfoil_permit_get","arguments":{},"_meta":`+string(meta)+`}`, &result)
	if err != nil {
		return "", err
	}
	if r.Permit = result.StructuredContent; r.Permit == nil || r.Permit.ID == "" {
		r.Permit = nil
		return "the agent has no default permit: each call has to name one (" + result.Meta.Reason + ")", nil
	}
	return fmt.Sprintf("the default permit is %s, %s, of the wallet %s", r.Permit.ID, r.Permit.Status, r.Permit.Wallet), nil
}
