package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Say which version this is and what it was built with",
		Example: "  counterfoil version",
		Args:    cobra.NoArgs,
		RunE: does(func(context.Context, []string) error {
			_, err := fmt.Fprintf(a.out, "counterfoil %s (%s %s/%s)\n",
				version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		}),
	}
}

// version is what the build knows about itself; nobody has to remember to set it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
