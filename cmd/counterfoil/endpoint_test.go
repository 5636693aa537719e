package main

import (
	"net"
	"runtime"
	"testing"

	"counterfoil/cmd/counterfoil/config"
)

// TestEndpointHasOneHolder: a gateway that starts beside one that still drains has no name, and so does
// not take the other's calls for a dead process's.
func TestEndpointHasOneHolder(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return // nowhere else is there a name
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	cfg := &config.Config{Listen: l.Addr().String(), Database: config.Database{URL: "postgres://a/b"}}
	first := holdEndpoint(t.Context(), cfg, l)
	if second := holdEndpoint(t.Context(), cfg, l); first.name == "" || second.name != "" {
		t.Errorf("first %q, second %q", first.name, second.name)
	}
	first.release()
	again := holdEndpoint(t.Context(), cfg, l)
	if again.name != first.name {
		t.Errorf("the successor's name is %q, the predecessor's %q", again.name, first.name)
	}
	again.release()
	other := holdEndpoint(t.Context(), &config.Config{Listen: cfg.Listen, Database: config.Database{URL: "postgres://a/other"}}, l)
	if other.name == first.name {
		t.Error("a gateway of another database has the same name")
	}
	other.release()
}
