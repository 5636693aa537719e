package gateway

import (
	"context"
	"slices"

	"counterfoil/ledger"
	"counterfoil/permits"
)

// ListRequest asks which tools an agent may call, in the context of which it would call them.
type ListRequest struct {
	Agent       *ledger.Agent
	Wallet      string
	WalletNamed bool
	Permit      string
	PermitNamed bool
	After       string // the name of a tool; what follows it is listed. "": from the beginning
}

// Listing is one page of definitions, by the tools' names.
type Listing struct {
	Definitions [][]byte // JSON, as the upstream wrote it but for the name
	Last        string   // the last tool's name, where more follow; else ""
}

// A page ends with the tool that reaches one of these. Most catalogues are one page: not every client asks for more.
const (
	pageTools = 250
	pageBytes = 2 << 20
)

// List shows the tools that a call of this context could be about: those in force that its permits allow. It asks no
// upstream.
func (g *Gateway) List(ctx context.Context, r ListRequest) (Listing, *Refusal) {
	leave, refusal := g.limiter.enter(r.Agent.ID, g.now())
	if refusal != nil {
		return Listing{}, refusal
	}
	defer leave()
	usable, refusal := g.usable(ctx, r)
	if refusal != nil {
		return Listing{}, refusal
	}
	var page Listing
	size, last := 0, ""
	for _, e := range g.catalogue.order {
		def := e.def.Load()
		if e.Name <= r.After || def.withheld != "" || !slices.ContainsFunc(usable, e.allowedBy) {
			continue
		}
		if len(page.Definitions) >= pageTools || size >= pageBytes {
			page.Last = last
			break
		}
		page.Definitions = append(page.Definitions, def.listed)
		size, last = size+len(def.listed), e.Name
	}
	return page, nil
}

// usable are the permits that a call of this context could be made under: the one that it names, else the agent's
// default, else any. One that is somebody else's, revoked, or not valid now allows nothing, as one that does
// not exist (I8).
func (g *Gateway) usable(ctx context.Context, r ListRequest) ([]*permits.Permit, *Refusal) {
	id := r.Permit
	if !r.PermitNamed {
		id = r.Agent.DefaultPermit
	}
	if r.PermitNamed && !permitName(id) {
		return nil, nil
	}
	list, err := g.ledger.PermitsInForce(ctx, r.Agent.ID, id, g.PermitTrust())
	if err != nil {
		return nil, g.refuse(err)
	}
	return slices.DeleteFunc(list, func(p *permits.Permit) bool {
		return p.Agent != r.Agent.ID || !r.Agent.MayUse(p.Wallet) || r.WalletNamed && p.Wallet != r.Wallet
	}), nil
}

// allowedBy is the part of a verdict that needs no arguments.
func (e *entry) allowedBy(p *permits.Permit) bool {
	return slices.Contains(p.Grant.Tools, e.Name) &&
		!slices.ContainsFunc(e.Scopes, func(s string) bool { return !slices.Contains(p.Scopes, s) })
}
