package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const maxFileBytes = 1 << 20

// Documented are the variables that are no value of the file: they belong to the commands that speak
// to a running gateway.
var documented = []string{"COUNTERFOIL_TOKEN", "COUNTERFOIL_SERVER", "COUNTERFOIL_CONFIG", "COUNTERFOIL_KEY"}

const prefix = "COUNTERFOIL"

// Load reads the file, lays the environment over it and opens the secrets it names. The error of a
// file that could be read is a Faults with everything that is wrong.
func Load(file string, env map[string]string) (*Config, error) { return load(file, env, true) }

// LoadStructure is Load without the secret files, for commands that need none: keys can be made
// before there are tokens.
func LoadStructure(file string, env map[string]string) (*Config, error) {
	return load(file, env, false)
}

func load(file string, env map[string]string, secrets bool) (*Config, error) {
	if file == "" {
		return nil, errors.New("which configuration? give --config FILE")
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	r := &reader{dir: filepath.Dir(path), env: map[string]string{}, asked: map[string]string{}}
	for _, name := range []string{"PATH", "HOME"} {
		if text, ok := env[name]; ok {
			r.told = append(r.told, name+"="+text)
		}
	}
	for name, text := range env {
		if strings.HasPrefix(name, prefix+"_") && !slices.Contains(documented, name) {
			r.env[name] = text
		}
	}
	cfg := r.config(data, secrets)
	if cfg != nil {
		r.unknownVariables()
	}
	if len(r.faults) > 0 {
		slices.SortStableFunc(r.faults, func(a, b Fault) int { return a.Line - b.Line })
		return nil, r.faults
	}
	cfg.File = path
	return cfg, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a directory", path)
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	return os.ReadFile(path)
}

// unknownVariables refuses what looks like an override and overrides nothing.
func (r *reader) unknownVariables() {
	var names []string
	for name := range r.env {
		if _, ok := r.asked[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		hint := "names no setting"
		if strings.HasPrefix(name, "COUNTERFOIL_PORT") || strings.HasPrefix(name, "COUNTERFOIL_SERVICE_") {
			hint += " (Kubernetes makes it from a service called counterfoil: set enableServiceLinks: false)"
		}
		r.fault(0, name, "%s", hint)
	}
}

// config reads the top of the file; the order is that of the contract's example.
func (r *reader) config(data []byte, secrets bool) *Config {
	top, ok := r.parse(data)
	if !ok {
		return nil
	}
	s := r.section(top, "", prefix)
	cfg := &Config{
		Issuer:         s.issuer(),
		Listen:         s.listen(),
		Database:       s.database(),
		KeysDir:        s.keys(),
		Tokens:         s.tokens(secrets),
		AllowedOrigins: s.origins(),
		Upstreams:      s.upstreams(secrets),
		Identity:       s.identity(),
		Limits:         s.limits(),
		Log:            s.log(),
	}
	cfg.Tools = s.tools(cfg.Upstreams)
	s.later("approvals", "approvals")
	s.done()
	return cfg
}
