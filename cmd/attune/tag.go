package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"attune/internal/document"
	"attune/internal/run"
	"attune/internal/toolchain"
)

// gitTag is an annotated tag of a champion, in the repository of the kernel's folder.
type gitTag struct{ dir, name string }

// newTag checks that git can make the tag of a champion: the sources are committed and the name is
// free. It makes nothing.
func (a *app) newTag(ctx context.Context, r *run.Run) (*gitTag, error) {
	dir := a.kernelPath()
	if dir == "" {
		return nil, errors.New("the kernel came with the program; run in a git work tree, or give --kernel DIR")
	}
	t := &gitTag{dir: dir}
	switch state := toolchain.ReadGit(ctx, dir); {
	case state.Unknown != "":
		return nil, fmt.Errorf("the state of %s in git is unknown: %s", dir, state.Unknown)
	case state.SHA == "":
		return nil, fmt.Errorf("%s is in a git repository without a commit", dir)
	case state.Dirty:
		return nil, fmt.Errorf("the work tree of %s has uncommitted changes; commit or stash them", dir)
	}
	if _, err := t.git(ctx, "var", "GIT_COMMITTER_IDENT"); err != nil {
		return nil, err
	}
	untracked, err := t.git(ctx, "status", "--porcelain", "--", ".")
	if err != nil {
		return nil, err
	}
	if untracked != "" {
		return nil, fmt.Errorf("%s has untracked files; add and commit them", dir)
	}
	first := fmt.Sprintf("champion/%s/%s-%s", r.Facts.Arch, r.Variant, time.Now().UTC().Format("20060102"))
	t.name = first
	for n := 2; ; n++ {
		taken, err := t.git(ctx, "tag", "--list", t.name)
		if err != nil || taken == "" {
			return t, err
		}
		t.name = fmt.Sprintf("%s-%d", first, n)
	}
}

// make makes the tag, with the figures of the run in its message.
func (t *gitTag) make(ctx context.Context, r *run.Run) error {
	title := fmt.Sprintf("Champion of %s: %s", r.Facts.Arch, r.Variant)
	_, err := t.git(ctx, "tag", "--annotate", "--message", title, "--message", document.Figures(r), t.name)
	return err
}

// git runs git in the kernel's folder and returns its output. An error has what git printed.
func (t *gitTag) git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", t.dir}, args...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
