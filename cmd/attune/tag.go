package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"attune/internal/run"
	"attune/internal/toolchain"
)

// gitTag is an annotated tag that can be made: its name is free and the work tree is clean.
type gitTag struct {
	dir, name, title string
}

// newTag finds the tag for a champion in the repository of the kernel's folder.
func (a *app) newTag(ctx context.Context, r *run.Run) (*gitTag, error) {
	if a.kernelDir == "" {
		return nil, errors.New("the kernel came with the program and not from a git work tree; go there, or give --kernel DIR")
	}
	if _, err := exec.LookPath("git"); err != nil {
		return nil, errors.New("git is not installed, or not in PATH")
	}
	state := toolchain.ReadGit(ctx, a.kernelDir)
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("interrupted")
	case state.SHA == "":
		return nil, fmt.Errorf("%s lies in no git repository that has a commit", a.kernelDir)
	case state.Dirty:
		return nil, fmt.Errorf("the work tree of %s has uncommitted changes, and a tag would not hold them; commit or stash them", a.kernelDir)
	}
	t := &gitTag{dir: a.kernelDir, title: fmt.Sprintf("Champion of %s: %s", r.Facts.Arch, r.Variant)}
	if _, err := t.git(ctx, "var", "GIT_COMMITTER_IDENT"); err != nil {
		return nil, err // git says how to tell it who makes the tag
	}
	if unknown, err := t.git(ctx, "status", "--porcelain", "--", "."); err != nil {
		return nil, err
	} else if unknown != "" {
		return nil, fmt.Errorf("%s has files that git does not hold, and a tag would not hold them either; add and commit them", a.kernelDir)
	}
	plain := fmt.Sprintf("champion/%s/%s-%s", r.Facts.Arch, r.Variant, time.Now().UTC().Format("20060102"))
	t.name = plain
	for n := 2; ; n++ { // of several promotions of one day each has its own
		taken, err := t.git(ctx, "tag", "--list", t.name)
		if err != nil || taken == "" {
			return t, err
		}
		t.name = fmt.Sprintf("%s-%d", plain, n)
	}
}

// make makes the tag, with the figures in its message.
func (t *gitTag) make(ctx context.Context, figures string) error {
	_, err := t.git(ctx, "tag", "--annotate", "--message", t.title, "--message", figures, t.name)
	return err
}

// git runs git in the kernel's folder. What it has against it is in the error.
func (t *gitTag) git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", t.dir}, args...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return "", fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
