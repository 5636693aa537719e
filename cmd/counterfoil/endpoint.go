package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"os"
	"runtime"
	"strings"

	"counterfoil/cmd/counterfoil/config"
)

// endpoint is a name that one live process at most can hold. A gateway that holds the name of an
// earlier one knows that the earlier one is dead, and settles what it left at once; a gateway without
// a name lets it run out of its lease. The port alone would not do: a gateway that drains has given
// it up, and still has calls in flight.
type endpoint struct {
	name  string // "": none
	guard net.Listener
}

// holdEndpoint never fails: what cannot be held is a gateway without a name.
func holdEndpoint(ctx context.Context, cfg *config.Config, l net.Listener) *endpoint {
	if cfg.Database.Embedded() {
		return &endpoint{name: "embedded"} // the lock on the directory is the guard
	}
	if runtime.GOOS != "linux" || strings.HasSuffix(cfg.Listen, ":0") {
		return &endpoint{}
	}
	// A port is the same port only in the same network namespace of the same boot.
	boot, bootErr := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, nsErr := os.Readlink("/proc/self/ns/net")
	if bootErr != nil || nsErr != nil {
		return &endpoint{}
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{string(boot), namespace, l.Addr().String(), cfg.Database.Place()}, "\x00")))
	name := hex.EncodeToString(sum[:16])
	// An abstract socket belongs to its process and to its network namespace, and dies with either.
	guard, err := new(net.ListenConfig).Listen(ctx, "unix", "@counterfoil-"+name)
	if err != nil {
		return &endpoint{}
	}
	return &endpoint{name: name, guard: guard}
}

func (e *endpoint) release() {
	if e.guard != nil {
		_ = e.guard.Close()
	}
}
