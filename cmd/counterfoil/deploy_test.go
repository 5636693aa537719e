package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"counterfoil/cmd/counterfoil/config"
	"counterfoil/gateway"
)

// TestDeployedConfigurations keeps the examples working.
func TestDeployedConfigurations(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"counterfoil.yaml": {},
		"counterfoil.compose.yaml": {
			"COUNTERFOIL_LISTEN": "0.0.0.0:8080", "COUNTERFOIL_ISSUER": "http://127.0.0.1:8080", "COUNTERFOIL_KEYS_DIR": "/keys",
			"COUNTERFOIL_UPSTREAMS_PAYMENTS_URL": "http://paytool:9100/mcp",
			"COUNTERFOIL_DATABASE_URL":           "postgres://counterfoil:secret@database/counterfoil",
			"COUNTERFOIL_TOKENS_OPERATOR":        "operator-0123456789abcdef",
		},
	} {
		data, err := os.ReadFile(filepath.Join("../../deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "operator.token"), []byte("operator-0123456789abcdef"), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(path, env)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := checkUpstreams(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestComposeEnvironment says that compose.yaml sets what the test above sets.
func TestComposeEnvironment(t *testing.T) {
	t.Parallel()
	var compose struct {
		Gateway struct{ Environment map[string]string } `yaml:"x-gateway"`
	}
	readYAML(t, "../../deploy/compose.yaml", &compose)
	for _, name := range []string{"COUNTERFOIL_LISTEN", "COUNTERFOIL_ISSUER", "COUNTERFOIL_KEYS_DIR", "COUNTERFOIL_UPSTREAMS_PAYMENTS_URL"} {
		if compose.Gateway.Environment[name] == "" {
			t.Errorf("compose.yaml does not set %s", name)
		}
	}
	if len(compose.Gateway.Environment) != 4 {
		t.Errorf("compose.yaml sets what is not tested: %v", compose.Gateway.Environment)
	}
}

// TestAlertsNameRealMetrics: an alert on a metric that does not exist never fires.
func TestAlertsNameRealMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	gateway.NewMetrics(registry, "test")
	described := make(chan *prometheus.Desc, 100)
	registry.Describe(described)
	close(described)
	known := map[string]bool{}
	for d := range described {
		known[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	readYAML(t, "../../deploy/alerts.yaml", &alerts)
	seen := 0
	for _, rule := range alerts.Groups[0].Rules {
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s does not say how bad it is and what to do", rule.Alert)
		}
		for _, name := range regexp.MustCompile(`counterfoil_[a-z_]+`).FindAllString(rule.Expr, -1) {
			seen++
			base := name
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !known[name] && !known[base] {
				t.Errorf("%s: there is no metric %s", rule.Alert, name)
			}
		}
	}
	if seen < 10 || len(known) < 10 {
		t.Errorf("%d metrics in alerts, %d known: the test reads nothing", seen, len(known))
	}
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
