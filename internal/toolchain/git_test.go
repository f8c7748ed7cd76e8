package toolchain

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// plainGit skips a test without git, and hides the user's configuration of git.
func plainGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	for _, setting := range os.Environ() { // a git hook that runs the tests sets GIT_DIR
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "GIT_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("GIT_CEILING_DIRECTORIES", os.TempDir())
}

func TestReadGit(t *testing.T) {
	plainGit(t)
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		args = append([]string{"-C", dir, "-c", "user.name=A", "-c", "user.email=a@example.com"}, args...)
		out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	check := func(name, dir string, want Git) {
		t.Helper()
		if got := ReadGit(t.Context(), dir); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check("no repository", dir, Git{Unknown: "no git repository"})
	gone := filepath.Join(dir, "gone")
	check("no folder", gone, Git{Unknown: "cannot change to '" + gone + "': No such file or directory"})
	git("init", "--quiet", "--initial-branch", "trunk")
	check("no commit", dir, Git{Branch: "trunk"})
	write("kernel/k.cu", "1\n")
	git("add", ".")
	check("nothing committed yet", dir, Git{Branch: "trunk", Dirty: true})
	git("commit", "--quiet", "--message", "one")
	sha := git("rev-parse", "HEAD")
	check("clean", dir, Git{SHA: sha, Branch: "trunk"})
	check("clean, from a folder in it", filepath.Join(dir, "kernel"), Git{SHA: sha, Branch: "trunk"})
	write("scratch", "untracked\n")
	check("with an untracked file", dir, Git{SHA: sha, Branch: "trunk"})
	write("kernel/k.cu", "2\n")
	check("changed", dir, Git{SHA: sha, Branch: "trunk", Dirty: true})
	git("add", "kernel")
	check("changed and staged", dir, Git{SHA: sha, Branch: "trunk", Dirty: true})
	git("reset", "--quiet", "--hard")
	git("checkout", "--quiet", "--detach")
	check("detached", dir, Git{SHA: sha})
	git("checkout", "--quiet", "-b", "feature/with-slash")
	check("another branch", dir, Git{SHA: sha, Branch: "feature/with-slash"})

	t.Setenv("PATH", t.TempDir())
	check("no git", dir, Git{Unknown: "git is not installed"})
	if path := RepositoryPath(t.Context(), dir); path != "" {
		t.Errorf("without git the path is %q", path)
	}
}

// A git that hangs or fails leaves the state unknown.
func TestReadGitFails(t *testing.T) {
	limit := gitLimit
	t.Cleanup(func() { gitLimit = limit })
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("needs sleep")
	}
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for text, want := range map[string]string{
		sleep + " 600":                         "git did not answer within 200ms",
		sleep + " 600 &\nwait":                 "git did not answer within 200ms",
		"exit 3":                               "git failed: exit status 3",
		"echo 'fatal: bad config' >&2\nexit 1": "bad config",
	} {
		script(t, filepath.Join(bin, "git"), text)
		gitLimit = time.Minute // on a loaded machine a script may take a second to start
		if strings.Contains(text, "600") {
			gitLimit = 200 * time.Millisecond
		}
		start := time.Now()
		if got := ReadGit(t.Context(), "."); got != (Git{Unknown: want}) || time.Since(start) > time.Minute {
			t.Errorf("git is %q: %+v after %v, want %q", text, got, time.Since(start), want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := ReadGit(ctx, "."); got != (Git{Unknown: "context canceled"}) {
		t.Errorf("cancelled: %+v", got)
	}
}

// An unknown state is written as null, and records of older programs are read.
func TestGitJSON(t *testing.T) {
	for _, c := range []struct {
		git  Git
		text string
	}{
		{Git{SHA: "abc", Branch: "main"}, `{"sha":"abc","branch":"main","dirty":false}`},
		{Git{SHA: "abc", Dirty: true}, `{"sha":"abc","dirty":true}`},
		{Git{Branch: "main"}, `{"branch":"main","dirty":false}`},
		{Git{Unknown: "git is not installed"}, `{"unknown":"git is not installed","dirty":null}`},
		{Git{SHA: "abc", Unknown: "not recorded"}, `{"sha":"abc","unknown":"not recorded","dirty":null}`},
		{Git{}, `{"dirty":null}`},
	} {
		text, err := json.Marshal(c.git)
		if err != nil || string(text) != c.text {
			t.Errorf("%+v: %s, %v, want %s", c.git, text, err, c.text)
		}
		var read Git
		if err := json.Unmarshal(text, &read); err != nil || read != c.git {
			t.Errorf("%s is read as %+v, %v", text, read, err)
		}
	}
	var old Git
	if err := json.Unmarshal([]byte(`{"dirty": false}`), &old); err != nil || old.Known() {
		t.Errorf("an older record outside a repository: %+v, %v", old, err)
	}
}

func FuzzGitStatus(f *testing.F) {
	f.Add("# branch.oid 0123456789abcdef\n# branch.head main\n# branch.upstream origin/main\n# branch.ab +1 -2\n")
	f.Add("# branch.oid (initial)\n# branch.head (detached)\n")
	f.Add("# stash 3\n1 .M N... 100644 100644 100644 0123 0123 a b\n")
	f.Add("# branch.oid \n#\n\n")
	f.Fuzz(func(t *testing.T, status string) {
		got := parseGitStatus(status)
		for _, value := range []string{got.SHA, got.Branch} {
			if !strings.Contains(status, value) || strings.Contains(value, "\n") {
				t.Errorf("%q is read from %q", value, status)
			}
		}
		if got.SHA == "(initial)" || got.Branch == "(detached)" {
			t.Errorf("%+v: git's placeholders are read as names", got)
		}
		changes := 0
		for _, line := range strings.Split(status, "\n") {
			if line != "" && !strings.HasPrefix(line, "# ") {
				changes++
			}
		}
		if got.Dirty != (changes > 0) {
			t.Errorf("dirty %v with %d changes in %q", got.Dirty, changes, status)
		}
	})
}
