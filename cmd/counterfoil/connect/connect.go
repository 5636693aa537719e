// Package connect writes what makes an MCP client use a gateway, ready to paste. It shows no secret but one that it is
// given to show: without one, every text names the environment variable that holds it.
package connect

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// KeyVariable is the environment variable from which clients and snippets take the agent's API key.
const KeyVariable = "COUNTERFOIL_KEY"

// Target is what a client is connected to, and as whom.
type Target struct {
	Server         string // URL of the gateway
	Wallet, Permit string // "": the agent's defaults
	KeyFile        string // where the key is kept; "": not said
	Key            string // the API key itself, to be shown; "": it is not
}

// Guide says how one client is connected.
type Guide struct {
	Client, Title  string
	Endpoint       string
	Wallet, Permit string
	Steps          []Step
	IdempotencyKey string   // where the key of a governed call comes from
	Notes          []string // what to know about this client
}

// Step is one thing to do: run Text, put it into File, or start from it.
type Step struct {
	Do       string
	File     string // "": it belongs into no file of a fixed name
	Language string // as Markdown names it
	Text     string // without a newline at its end
}

// Client is one that is known here.
type Client struct {
	Name, Title string
	guide       func(t target, g *Guide)
}

// Clients are those that are known here, programs for people first.
func Clients() []Client {
	return []Client{
		{"claude-code", "Claude Code", claudeCode},
		{"codex", "Codex", codex},
		{"vscode", "Visual Studio Code", vscode},
		{"inspector", "MCP Inspector", inspector},
		{"typescript", "TypeScript SDK", typescript},
		{"python", "Python SDK", python},
		{"go", "Go SDK", goSDK},
		{"curl", "curl", curl},
	}
}

// For writes the guide of a client. Everything that goes into a text was checked to need no quoting in any of them.
func For(name string, t Target) (*Guide, error) {
	checked, err := t.check()
	if err != nil {
		return nil, err
	}
	for _, c := range Clients() {
		if c.Name != name {
			continue
		}
		g := &Guide{Client: c.Name, Title: c.Title, Endpoint: checked.endpoint, Wallet: t.Wallet, Permit: t.Permit}
		c.guide(checked, g)
		if t.Key != "" {
			g.Notes = append(g.Notes, "The API key stands in these texts: whoever reads them can spend what its permits allow.")
		}
		if checked.clear {
			g.Notes = append(g.Notes, "This URL is not https: the key crosses the network in clear text. Use it on this machine or in a network that you trust.")
		}
		return g, nil
	}
	return nil, fmt.Errorf("there is no client %q; --list names those that are known", name)
}

// target is a Target that was checked.
type target struct {
	Target
	endpoint string
	clear    bool // the key would be seen on the network
}

var (
	harmlessURL  = regexp.MustCompile(`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`)
	harmlessID   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,255}$`)
	harmlessKey  = regexp.MustCompile(`^cf_[A-Za-z0-9_-]{1,200}$`)
	harmlessFile = regexp.MustCompile(`^[A-Za-z0-9._/][A-Za-z0-9._/ @+,:-]*$`)
)

func (t Target) check() (target, error) {
	out := target{Target: t}
	u, err := url.Parse(t.Server)
	if err != nil || !harmlessURL.MatchString(t.Server) || u.Hostname() == "" {
		return out, fmt.Errorf("the server %q is not an http or https URL without user, query or fragment", t.Server)
	}
	for flag, id := range map[string]string{"wallet": t.Wallet, "permit": t.Permit} {
		if id != "" && !harmlessID.MatchString(id) {
			return out, fmt.Errorf("%q cannot be the id of a %s", id, flag)
		}
	}
	if t.Key != "" && !harmlessKey.MatchString(t.Key) {
		return out, errors.New("the key is not an agent's API key: those begin with cf_")
	}
	if t.KeyFile != "" && !harmlessFile.MatchString(t.KeyFile) {
		return out, fmt.Errorf("the path %q would need quoting: use one without special characters", t.KeyFile)
	}
	out.endpoint = strings.TrimSuffix(t.Server, "/") + "/mcp"
	host := u.Hostname()
	out.clear = u.Scheme == "http" && host != "localhost" && host != "::1" && !strings.HasPrefix(host, "127.")
	return out, nil
}

// header is one static header of every request.
type header struct{ name, value string }

// headers are those of every request; credential stands for the key in the client's own way.
func (t target) headers(credential string) []header {
	if t.Key != "" {
		credential = t.Key
	}
	return append([]header{{"Authorization", "Bearer " + credential}}, t.context()...)
}

// context are the headers that say whose money is spent, and under what permit.
func (t target) context() []header {
	var out []header
	if t.Wallet != "" {
		out = append(out, header{"Counterfoil-Wallet", t.Wallet})
	}
	if t.Permit != "" {
		out = append(out, header{"Counterfoil-Permit", t.Permit})
	}
	return out
}

// lines writes each header in a format that takes name and value, and puts them together.
func lines(headers []header, format, between string) string {
	out := make([]string, len(headers))
	for i, h := range headers {
		out[i] = fmt.Sprintf(format, h.name, h.value)
	}
	return strings.Join(out, between)
}

// keyStep puts the key into the environment, unless it stands in the texts anyway.
func (t target) keyStep(where string) []Step {
	if t.Key != "" {
		return nil
	}
	text := "export " + KeyVariable + "=cf_…"
	if t.KeyFile != "" {
		text = "export " + KeyVariable + `="$(cat "` + t.KeyFile + `")"`
	}
	return []Step{{Do: "Put the agent's API key into the environment " + where, Language: "sh", Text: text}}
}
