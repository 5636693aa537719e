package operator

import (
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"counterfoil/gateway"
)

type toolWire struct {
	Name             string         `json:"name"`
	Upstream         string         `json:"upstream"`
	UpstreamTool     string         `json:"upstream_tool"`
	Credits          creditsWire    `json:"credits"`
	Scopes           []string       `json:"scopes"`
	Value            *valueWire     `json:"value,omitempty"`
	Recipient        *recipientWire `json:"recipient,omitempty"`
	OperationRef     string         `json:"operation_ref,omitempty"`
	OnToolError      string         `json:"on_tool_error"`
	MaxResponseBytes int64          `json:"max_response_bytes"`
	Probe            *probeWire     `json:"probe,omitempty"`
	Described        bool           `json:"described"` // by its upstream
	SHA256           string         `json:"sha256,omitempty"`
	Pinned           string         `json:"definition_sha256,omitempty"`
	InForce          bool           `json:"in_force"` // listed, and called
	WhyNot           string         `json:"why_not,omitempty"`
}

type creditsWire struct {
	Max    int64  `json:"max"`
	Actual string `json:"actual,omitempty"`
}

type valueWire struct {
	Pointer  string `json:"pointer"`
	Currency string `json:"currency"`
}

type recipientWire struct {
	Pointers []string `json:"pointers"`
}

type probeWire struct {
	Tool     string `json:"tool"`
	Argument string `json:"argument"`
	Status   string `json:"status"`
	After    string `json:"after"`
	Longest  string `json:"longest"`
	GiveUp   string `json:"give_up"`
	ReadOnly bool   `json:"read_only"` // as its upstream says: else it is not asked
}

func toolOf(t gateway.CatalogueTool) toolWire {
	w := toolWire{
		Name: t.Name, Upstream: t.Upstream, UpstreamTool: t.UpstreamTool, Credits: creditsWire{Max: t.Price, Actual: t.ActualPointer},
		Scopes: t.Scopes, OperationRef: t.OperationRef, OnToolError: "refund", MaxResponseBytes: t.MaxResponseBytes, Described: t.Described,
		Pinned: t.DefinitionSHA256, InForce: t.Withheld == "", WhyNot: t.Withheld,
	}
	if t.ChargeOnToolError {
		w.OnToolError = "charge"
	}
	if t.Value != nil {
		w.Value = &valueWire{Pointer: t.Value.Pointer, Currency: t.Value.Currency}
	}
	if p := t.Probe; p != nil {
		w.Probe = &probeWire{
			Tool: p.Tool, Argument: p.Argument, Status: p.Status, ReadOnly: t.Probed,
			After: p.After.String(), Longest: p.Longest.String(), GiveUp: p.GiveUp.String(),
		}
	}
	if len(t.Recipients) > 0 {
		w.Recipient = &recipientWire{Pointers: t.Recipients}
	}
	if t.Described {
		w.SHA256 = t.SHA256
	}
	return w
}

func (a *api) listTools(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return a.problem(c, err)
	}
	p, err := pageOf(q)
	if err != nil {
		return a.problem(c, err)
	}
	tools := a.g.Tools()
	slices.SortFunc(tools, func(x, y gateway.CatalogueTool) int { return strings.Compare(x.Name, y.Name) })
	from := slices.IndexFunc(tools, func(t gateway.CatalogueTool) bool { return t.Name > p.after })
	if from < 0 {
		from = len(tools)
	}
	return a.ok(c, listOf(p, tools[from:], func(t gateway.CatalogueTool) string { return t.Name }, toolOf))
}
