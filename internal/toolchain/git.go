package toolchain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"attune/internal/child"
)

// Git is the state of the repository of a build or a run. If it is unknown, Unknown has the reason,
// and in JSON "dirty" is null.
type Git struct {
	SHA     string `json:"sha,omitempty"`
	Branch  string `json:"branch,omitempty"`
	Dirty   bool   `json:"dirty"`
	Unknown string `json:"unknown,omitempty"`
}

// Known reports whether Dirty means anything. Records of older programs have no reason.
func (g Git) Known() bool { return g.Unknown == "" && (g.SHA != "" || g.Branch != "") }

// MarshalJSON writes an unknown Dirty as null.
func (g Git) MarshalJSON() ([]byte, error) {
	type plain Git // without this method
	document := struct {
		plain
		Dirty *bool `json:"dirty"`
	}{plain: plain(g)}
	if g.Known() {
		document.Dirty = &g.Dirty
	}
	return json.Marshal(document)
}

// gitLimit limits the time of one call of git, which may wait for a network file system or a lock.
var gitLimit = 5 * time.Second

// ReadGit reads the state of the work tree that contains dir. Without git or a repository, or if git
// exceeds its time limit, the state is unknown; that is not an error.
func ReadGit(ctx context.Context, dir string) Git {
	out, err := git(ctx, "--no-optional-locks", "-C", dir, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
	if err != nil {
		return Git{Unknown: err.Error()}
	}
	return parseGitStatus(out)
}

// RepositoryPath is the path of dir in its repository, with slashes. It is empty without git or a
// repository.
func RepositoryPath(ctx context.Context, dir string) string {
	out, err := git(ctx, "-C", dir, "rev-parse", "--show-prefix")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSpace(out), "/")
}

// git runs git under a time limit and returns its output. The error is one line.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := child.Output(ctx, gitLimit, "git", args...)
	limit, late := errors.AsType[*child.LimitError](err)
	exit, failed := errors.AsType[*child.ExitError](err)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case late:
		return "", fmt.Errorf("git %w", limit)
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("git is not installed")
	case failed && len(bytes.TrimSpace(exit.Stderr)) > 0:
		line, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n")
		if strings.Contains(line, "not a git repository") {
			line = "no git repository"
		}
		return "", errors.New(strings.TrimPrefix(line, "fatal: "))
	}
	return "", fmt.Errorf("git failed: %w", err)
}

// parseGitStatus parses `git status --porcelain=v2 --branch`: headers begin with "# ", every other
// line is a change.
func parseGitStatus(status string) Git {
	var g Git
	for line := range strings.Lines(status) {
		line = strings.TrimSuffix(line, "\n")
		header, isHeader := strings.CutPrefix(line, "# ")
		if !isHeader {
			g.Dirty = g.Dirty || line != ""
			continue
		}
		if sha, ok := strings.CutPrefix(header, "branch.oid "); ok && sha != "(initial)" {
			g.SHA = sha
		}
		if branch, ok := strings.CutPrefix(header, "branch.head "); ok && branch != "(detached)" {
			g.Branch = branch
		}
	}
	return g
}
