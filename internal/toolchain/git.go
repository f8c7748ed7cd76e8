package toolchain

import (
	"context"
	"os/exec"
	"strings"
)

// Git is the state of the repository of a build or a run. All fields are empty outside a
// repository.
type Git struct {
	SHA    string `json:"sha,omitempty"`
	Branch string `json:"branch,omitempty"`
	Dirty  bool   `json:"dirty"`
}

// ReadGit reads the state of the work tree that contains dir. Without git or a repository the state
// is empty; that is not an error.
func ReadGit(ctx context.Context, dir string) Git {
	out, err := exec.CommandContext(ctx, "git", "--no-optional-locks", "-C", dir,
		"status", "--porcelain=v2", "--branch", "--untracked-files=no").Output()
	if err != nil {
		return Git{}
	}
	return parseGitStatus(string(out))
}

// RepositoryPath is the path of dir in its repository, with slashes. It is empty without git or a
// repository.
func RepositoryPath(ctx context.Context, dir string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", "--show-prefix").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSpace(string(out)), "/")
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
