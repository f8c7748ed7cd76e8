package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"attune/internal/toolchain"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "print the version of attune",
		Example: "  attune version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]any{
					"schema_version": 1, "version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(a.stdout, "attune %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// release is the version of attune.
const release = "0.1.0"

// branch is set by `make build`. The Go tool records the revision but not the branch.
var branch string

// builtFrom is the state of the repository that this program was built from, as the Go tool
// recorded it.
func builtFrom() toolchain.Git {
	g := toolchain.Git{Branch: branch}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return g
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			g.SHA = s.Value
		case "vcs.modified":
			g.Dirty = s.Value == "true"
		}
	}
	return g
}

// version is the release with the revision that it was built from.
func version() string {
	text := release
	g := builtFrom()
	if g.SHA != "" {
		text += "+" + g.SHA[:min(12, len(g.SHA))]
	}
	if g.Dirty {
		text += ".dirty"
	}
	return text
}
