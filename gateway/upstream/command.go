package upstream

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checkCommand reports every fault of a process's configuration at once, and finds its program.
func (config Config) checkCommand() (path string, err error) {
	faults := []error{config.checkNumbers()}
	if config.URL != "" || len(config.Headers) > 0 || config.ForwardKeyHeader != "" {
		faults = append(faults, errors.New("a process has no url and no headers"))
	}
	environ := environ(config.Environ, config.Env)
	for _, text := range slices.Concat(config.Command, environ, []string{config.Dir}) {
		if strings.ContainsRune(text, 0) {
			faults = append(faults, errors.New("command, dir and environment cannot hold a NUL"))
		}
	}
	for name := range config.Env {
		if name == "" || strings.Contains(name, "=") {
			faults = append(faults, fmt.Errorf("%q is no name of a variable", name))
		}
	}
	if config.Dir != "" {
		if info, err := os.Stat(config.Dir); err != nil || !info.IsDir() {
			faults = append(faults, fmt.Errorf("there is no directory %s", config.Dir))
		}
	}
	path, err = findProgram(config.Command[0], environ)
	return path, errors.Join(append(faults, err)...)
}

// findProgram finds a program as a shell with this environment would, but never in the working directory.
func findProgram(name string, environ []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			return "", fmt.Errorf("the program %s needs an absolute path", name)
		}
		if !executable(name) {
			return "", fmt.Errorf("there is no program %s", name)
		}
		return name, nil
	}
	for _, variable := range environ {
		list, ok := strings.CutPrefix(variable, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			if path := filepath.Join(dir, name); name != "" && filepath.IsAbs(dir) && executable(path) {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("there is no program %q in PATH", name)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// environ is the environment of a process: what it is given stands above what it may know of ours.
func environ(base []string, given map[string]string) []string {
	out := make([]string, 0, len(base)+len(given))
	for _, variable := range base {
		name, _, _ := strings.Cut(variable, "=")
		if _, replaced := given[name]; !replaced {
			out = append(out, variable)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		out = append(out, name+"="+given[name])
	}
	return out
}

// envSecrets lists what a process may show of the environment it was given.
func envSecrets(given map[string]string) []string {
	var secrets []string
	for _, value := range given {
		if len(value) >= minSecret && !slices.Contains(secrets, value) {
			secrets = append(secrets, value)
		}
	}
	return secrets
}
