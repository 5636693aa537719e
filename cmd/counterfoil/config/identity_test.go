package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"counterfoil/cmd/counterfoil/config"
)

func TestIdentitySection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		section string
		env     map[string]string
		want    config.Identity
		faults  []string
	}{
		{section: ``},
		{section: `{platforms: [acme, Hubu.dev], pool: true, diagnostics: true}`, want: config.Identity{Platforms: []string{"acme", "Hubu.dev"}, Pool: true, Diagnostics: true}},
		{section: `{platforms: []}`, env: map[string]string{"COUNTERFOIL_IDENTITY_PLATFORMS": "a, b", "COUNTERFOIL_IDENTITY_POOL": "true"}, want: config.Identity{Platforms: []string{"a", "b"}, Pool: true}},
		{section: `{platforms: [codex]}`, faults: []string{"line 20: identity.platforms: codex is built in"}},
		{section: `{platforms: [claude_code, header, context]}`, faults: []string{"claude_code is built in", "header is what a receipt", "context is what a receipt"}},
		{section: `{platforms: [a, a]}`, faults: []string{"a is here twice"}},
		{section: `{platforms: ["a b"]}`, faults: []string{`"a b" is not a platform's name`}},
		{section: `{platforms: "a"}`, faults: []string{"must be a list"}},
		{section: `{pool: yes}`, faults: []string{`identity.pool: "yes" is none of: true, false`}},
		{section: `{diagnostic: true}`, faults: []string{"identity.diagnostic: is not a setting; here there are: diagnostics, platforms, pool"}},
	} {
		text := whole
		if c.section != "" {
			text += "identity: " + c.section + "\n"
		}
		got, err := config.Load(place(t, text), c.env)
		if len(c.faults) == 0 {
			if err != nil {
				t.Errorf("%s: %v", c.section, err)
			} else if diff := cmp.Diff(c.want, got.Identity); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.section, diff)
			}
			continue
		}
		var faults config.Faults
		if !errors.As(err, &faults) || len(faults) != len(c.faults) {
			t.Errorf("%s: %v", c.section, err)
			continue
		}
		for _, want := range c.faults {
			if !strings.Contains(fmt.Sprint(faults), want) {
				t.Errorf("%s: not told: %s\n%v", c.section, want, faults)
			}
		}
	}
}
