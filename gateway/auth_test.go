package gateway_test

import (
	"net/http"
	"testing"

	"counterfoil/gateway"
)

func TestCredentialIsOneOrNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		apiKeys, authorization []string
		want                   string
	}{
		"none":               {nil, nil, ""},
		"api key":            {[]string{"cf_a"}, nil, "cf_a"},
		"bearer":             {nil, []string{"Bearer cf_a"}, "cf_a"},
		"scheme in any case": {nil, []string{"bEARER  cf_a"}, "cf_a"},
		"both, equal":        {[]string{"cf_a"}, []string{"Bearer cf_a"}, "cf_a"},
		"both, different":    {[]string{"cf_a"}, []string{"Bearer cf_b"}, ""},
		"api key twice":      {[]string{"cf_a", "cf_b"}, nil, ""},
		"api key repeated":   {[]string{"cf_a", "cf_a"}, nil, "cf_a"},
		"bearer twice":       {nil, []string{"Bearer cf_a", "Bearer cf_b"}, ""},
		"an empty one":       {[]string{""}, []string{"Bearer cf_a"}, ""},
		"empty":              {[]string{""}, nil, ""},
		"no scheme":          {nil, []string{"cf_a"}, ""},
		"basic":              {nil, []string{"Basic cf_a"}, ""},
		"basic beside a key": {[]string{"cf_a"}, []string{"Basic cf_a"}, ""},
	} {
		got, ok := gateway.Credential(http.Header{"X-Api-Key": c.apiKeys, "Authorization": c.authorization})
		if !ok {
			got = ""
		}
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, ok, c.want)
		}
	}
}
