package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"attune/internal/toolchain"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version of attune",
		Long: `Version prints the version, the commit that the program was built from, the date
of that commit, whether there were uncommitted changes, and the Go version.`,
		Example: "  attune version\n  attune version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			g, when := builtFrom()
			if a.json {
				var dirty *bool // null if unknown
				if g.Known() {
					dirty = &g.Dirty
				}
				return a.printJSON(map[string]any{
					"schema_version": 1, "version": version(), "commit": g.SHA, "date": when, "dirty": dirty,
					"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			return printVersion(a.stdout, g, when)
		},
	}
}

// printVersion writes the version. A program that was built outside a repository, or by `go run`,
// has no commit.
func printVersion(w io.Writer, g toolchain.Git, when string) error {
	from := "not recorded; `make build` records it"
	if g.SHA != "" {
		from = g.SHA + ", clean"
	}
	if g.SHA != "" && g.Dirty {
		from = g.SHA + ", dirty: built with uncommitted changes"
	}
	if when == "" {
		when = "not recorded"
	}
	_, err := fmt.Fprintf(w, "attune %s %s %s/%s\n  commit  %s\n  date    %s\n",
		versionOf(g), runtime.Version(), runtime.GOOS, runtime.GOARCH, from, when)
	return err
}

// release is the version of attune. `make release VERSION=...` sets another.
var release = "0.2.0"

// The state of the repository, set by `make build` and `make release`.
var branch, commit, date, dirty string

// builtFrom is the state of the repository that this program was built from and the date of its
// commit, as make or else the Go tool recorded it. The Go tool does not record the branch.
func builtFrom() (g toolchain.Git, when string) {
	if commit != "" {
		return toolchain.Git{Branch: branch, SHA: commit, Dirty: dirty == "true"}, date
	}
	g.Unknown = "the program was built without a record of its commit"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return g, date
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			g.SHA = s.Value
		case "vcs.modified":
			g.Dirty, g.Unknown = s.Value == "true", ""
		case "vcs.time":
			when = s.Value
		}
	}
	return g, when
}

// version is the release with the revision that it was built from.
func version() string {
	g, _ := builtFrom()
	return versionOf(g)
}

func versionOf(g toolchain.Git) string {
	text := release
	if g.SHA != "" {
		text += "+" + g.SHA[:min(12, len(g.SHA))]
	}
	if g.Dirty {
		text += ".dirty"
	}
	return text
}
