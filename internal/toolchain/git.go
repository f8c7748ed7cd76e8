package toolchain

import (
	"context"
	"os/exec"
	"strings"
)

// Git says which state of a repository a build or a run was made from. All fields are empty outside of one.
type Git struct {
	SHA    string `json:"sha,omitempty"`
	Branch string `json:"branch,omitempty"`
	Dirty  bool   `json:"dirty"`
}

// ReadGit asks git about the work tree that dir lies in. No git and no repository are not errors: the answer is then empty.
func ReadGit(ctx context.Context, dir string) Git {
	out, err := exec.CommandContext(ctx, "git", "--no-optional-locks", "-C", dir,
		"status", "--porcelain=v2", "--branch", "--untracked-files=no").Output()
	if err != nil {
		return Git{}
	}
	return parseGitStatus(string(out))
}

// parseGitStatus reads `git status --porcelain=v2 --branch`: headers begin with "# ", every other line is a change.
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
