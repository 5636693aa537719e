package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"counterfoil/gateway"
	"counterfoil/ledger"
	"counterfoil/permits"
)

const modernList = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + version + `,` + caps + `}%s}}`

func modernly(pairs ...string) []string {
	return append([]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, pairs...)
}

// names are the tools of the catalogue that a list shows; the gateway's own, which all are shown, are left out.
func (h *house) names(a answer) []string {
	h.t.Helper()
	out := []string{}
	for _, tool := range h.listed(a) {
		if !strings.HasPrefix(tool.Name, "counterfoil_") {
			out = append(out, tool.Name)
		}
	}
	return out
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("in vain waited for %s", what)
		}
	}
}

func TestListShowsWhatACallCouldBeAbout(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	now := time.Now().Unix()
	h.permit("prm_scopeless", func(p *permits.Permit) {
		p.Grant.Tools, p.Scopes = []string{"slow", "pay", "fail"}, []string{"none"}
	})
	h.permit("prm_other", func(p *permits.Permit) { p.Agent, p.Grant.Tools = "agt_2", []string{"slow"} })
	h.permit("prm_over", func(p *permits.Permit) { p.IssuedAt, p.NotBefore, p.Expires = now-7200, now-7200, now-3600 })
	h.permit("prm_early", func(p *permits.Permit) { p.NotBefore = now + 3000 })
	h.permit("prm_ended", nil)
	h.permit("prm_elsewhere", func(p *permits.Permit) { p.Wallet, p.Grant.Tools = "wal_2", []string{"echo"} })
	h.permit("prm_foreign", func(p *permits.Permit) { p.Wallet = "wal_x" })
	h.permit("prm_used", func(p *permits.Permit) {
		p.Grant.Tools, p.Grant.Limits.CallsTotal = []string{"echo"}, new(int64)
	})
	h.admin(func(ctx context.Context, a *ledger.Admin) error {
		_, err := a.RevokePermit(ctx, "prm_ended", "")
		return err
	})
	all := []string{"echo", "fail", "fail_charged", "gone", "metered", "pay", "slow"}
	for name, c := range map[string]struct {
		pairs []string
		want  []string
	}{
		"the default permit":           {nil, all},
		"without a scope of one":       {[]string{"Counterfoil-Permit", "prm_scopeless"}, []string{"fail", "slow"}},
		"somebody else's":              {[]string{"Counterfoil-Permit", "prm_other"}, nil},
		"one that does not exist":      {[]string{"Counterfoil-Permit", "prm_none"}, nil},
		"one that cannot exist":        {[]string{"Counterfoil-Permit", ""}, nil},
		"revoked":                      {[]string{"Counterfoil-Permit", "prm_ended"}, nil},
		"over":                         {[]string{"Counterfoil-Permit", "prm_over"}, nil},
		"not yet valid":                {[]string{"Counterfoil-Permit", "prm_early"}, nil},
		"of another wallet":            {[]string{"Counterfoil-Permit", "prm_elsewhere"}, []string{"echo"}},
		"of another than that named":   {[]string{"Counterfoil-Permit", "prm_elsewhere", "Counterfoil-Wallet", "wal_1"}, nil},
		"of a wallet that is not ours": {[]string{"Counterfoil-Permit", "prm_foreign"}, nil},
		"used up":                      {[]string{"Counterfoil-Permit", "prm_used"}, []string{"echo"}},
		"no default: what any allows":  {[]string{"X-API-Key", keyTwo}, []string{"slow"}},
		"without any permit":           {[]string{"X-API-Key", keyOther}, nil},
	} {
		for _, a := range []answer{h.post(plainList, c.pairs...), h.post(fmt.Sprintf(modernList, ""), modernly(c.pairs...)...)} {
			if got := h.names(a); !slices.Equal(got, append([]string{}, c.want...)) || len(h.listed(a)) != len(got)+3 {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
	h.permit("prm_more", func(p *permits.Permit) { p.Agent, p.Grant.Tools = "agt_2", []string{"fail", "slow"} })
	if got := h.names(h.post(plainList, "X-API-Key", keyTwo)); !slices.Equal(got, []string{"fail", "slow"}) {
		t.Errorf("two permits together: %v", got)
	}
	h.permit("prm_late", func(p *permits.Permit) { p.Grant.Tools = []string{"echo"} })
	a := h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"mcpContext":{"permit_id":"prm_late"}}}`)
	if got := h.names(a); !slices.Equal(got, []string{"echo"}) {
		t.Errorf("named in the params: %v", got)
	}
}

func TestListInPages(t *testing.T) {
	t.Parallel()
	var entries, want []string
	var tools []gateway.Tool
	for i := range 520 {
		name := fmt.Sprintf("t%03d", (i*7)%520)
		entries = append(entries, defined(name, `,"description":"`+strings.Repeat("d", 100)+`"`))
		tools = append(tools, gateway.Tool{Name: name, Price: 1})
		want = append(want, name)
	}
	slices.Sort(want)
	h := newHouse(t, newPlainTool(t, true, entries...).of(tools...))
	narrow := append([]string{}, want[:300]...)
	h.permit("prm_all", func(p *permits.Permit) { p.Grant.Tools = narrow })
	h.defaultPermit("prm_all")
	ask := func(cursor string, pairs ...string) answer {
		more := ""
		if cursor != "" {
			more = `,"cursor":"` + cursor + `"`
		}
		return h.post(fmt.Sprintf(modernList, more), modernly(pairs...)...)
	}
	var got []string
	cursor := ""
	var cursors []string
	for range 5 {
		a := ask(cursor)
		var page struct{ NextCursor, CacheScope string }
		if err := json.Unmarshal(a.result, &page); err != nil || page.CacheScope != "private" || len(h.names(a)) > 250 {
			t.Fatalf("%v: %d tools, %+v", err, len(h.names(a)), page)
		}
		got = append(got, h.names(a)...)
		if cursor = page.NextCursor; cursor == "" {
			break
		}
		cursors = append(cursors, cursor)
	}
	if !slices.Equal(got, narrow) || len(cursors) != 1 {
		t.Fatalf("%d tools in %d pages", len(got), len(cursors)+1)
	}
	old := h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"` + cursors[0] + `"}}`)
	if names := h.names(old); !slices.Equal(names, narrow[250:]) || len(h.listed(old)) != len(names) {
		t.Errorf("the second page of a handshake client: %v", names)
	}
	// A page is what the caller may see when it asks, whatever the cursor was made under.
	h.permit("prm_few", func(p *permits.Permit) { p.Grant.Tools = []string{"t001", "t299"} })
	if names := h.names(ask(cursors[0], "Counterfoil-Permit", "prm_few")); !slices.Equal(names, []string{"t299"}) {
		t.Errorf("under another permit: %v", names)
	}
	for _, bad := range []string{"x", cursors[0][1:], cursors[0] + "A", strings.ToUpper(cursors[0]), "dDAwMQ", cursors[0] + "=="} {
		if a := ask(bad); a.status != 400 || a.code != -32602 {
			t.Errorf("cursor %q: %d %s", bad, a.status, a.body)
		}
	}
	if a := ask(cursors[0], "X-API-Key", keyTwo); a.status != 400 || a.code != -32602 {
		t.Errorf("another agent's cursor: %d %s", a.status, a.body)
	}
	for _, body := range []string{`"cursor":7`, `"cursor":null`, `"cursor":"x"`} {
		if a := h.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + body + `}}`); a.status != 200 || a.code != -32602 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}
