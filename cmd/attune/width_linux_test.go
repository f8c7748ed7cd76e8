package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"attune/internal/rotate"
)

// onTerminal runs the program with both outputs on a terminal of this width, and returns what the
// terminal received.
func onTerminal(t *testing.T, width uint16, dir string, env []string, args ...string) string {
	t.Helper()
	shown, err := shownOnTerminal(t, width, dir, env, args...)
	if err != nil {
		t.Fatalf("attune %s: %v\n%s", strings.Join(args, " "), err, shown)
	}
	return shown
}

// shownOnTerminal is what a command shows on a terminal, and how it ended.
func shownOnTerminal(t *testing.T, width uint16, dir string, env []string, args ...string) (string, error) {
	t.Helper()
	user, program := terminalPair(t)
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: width}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("attune", args...) // TestMain puts it into PATH
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ATTUNE_CACHE="+filepath.Join(dir, "cache"), "ATTUNE_LEDGER=", "TERM=xterm", "COLUMNS=", "NO_COLOR=")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = program, program
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	program.Close()              // so that reading ends with the process
	shown, _ := io.ReadAll(user) // EIO when the other side is closed
	return string(shown), cmd.Wait()
}

var colourPattern = regexp.MustCompile("\x1b\\[[0-9]*m")

// screenLines are the lines that a terminal shows after the given output, without colours.
func screenLines(written string) []string {
	var lines []string
	for _, line := range strings.Split(colourPattern.ReplaceAllString(written, ""), "\n") {
		line = strings.TrimSuffix(line, "\r")
		for _, part := range strings.Split(line, "\r") { // the status line returns to the first column
			if cleared, ok := strings.CutPrefix(part, "\x1b[K"); ok {
				part = cleared
			}
			lines = append(lines, part)
		}
	}
	return lines
}

// wholeCommand is a line that is a command in backticks. It is never broken, so that it can be copied;
// the terminal wraps it.
var wholeCommand = regexp.MustCompile("^ *`[^`]+`[.,;]?$")

// Every command fits the terminal, whatever its width. The narrowest shows most faults and runs in every
// turn, and one of the others. A third of the records is shown.
func TestOutputFitsTheTerminal(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "results"), os.DirFS(filepath.Join(root, "results"))); err != nil {
		t.Fatal(err)
	}
	fresh := []string{"run", "stage2", "stage7", "--device", "sim", "--shapes", "1x1x32x64,1x2x33x64:kv=40:causal", "--seeds", "0"}
	recorded := func(args ...string) []string { return append(args, "--ledger", "results") }
	commands := [][]string{
		{"list"},
		{"doctor"},
		{"history"}, // of the fresh runs
		recorded("history"), recorded("history", "--all"), recorded("history", "--ladder"), recorded("list", "champions"),
		recorded("compare", "30323b", "92f753"), recorded("compare", "30323b", "92f753", "--shapes", "all"),
	}
	for _, folder := range []string{"runs", "benches"} {
		records, err := os.ReadDir(filepath.Join(root, "results", folder))
		if err != nil || len(records) == 0 {
			t.Fatalf("results/%s has %d records: %v", folder, len(records), err)
		}
		for i, r := range records {
			if due, err := rotate.Due(i, 3); err != nil {
				t.Fatal(err)
			} else if !due || testing.Short() && i%4 != 0 {
				continue // all of them take seconds
			}
			if folder == "benches" {
				commands = append(commands, recorded("show", r.Name()), recorded("show", r.Name(), "--by-shape"))
			} else if i%2 == 0 || strings.Contains(r.Name(), "-stage7-") { // they are alike
				commands = append(commands, recorded("show", r.Name()))
			}
		}
	}
	widths := []uint16{60, 80, 100, 160}
	if testing.Short() {
		widths = widths[:1]
	}
	for i, width := range widths {
		commands := commands
		if i == 0 { // TestRunFitsTheTerminal runs on every width
			commands = append([][]string{fresh}, commands...)
		}
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			if i > 0 {
				rotate.Skip(t, i, 3)
			}
			for _, args := range commands {
				for _, line := range screenLines(onTerminal(t, width, dir, nil, args...)) {
					if n := utf8.RuneCountInString(line); n > int(width) && !wholeCommand.MatchString(line) {
						t.Errorf("attune %s: a line of %d columns: %q", strings.Join(args, " "), n, line)
					}
				}
			}
		})
	}
}

// What the compiler prints is not wrapped: its marks point at columns.
func TestCompilerOutputIsVerbatim(t *testing.T) {
	const message = `k.cu(1): error: this line is wider than sixty columns, and the mark below it points at one of them
  extern "C" __attribute__((global)) vod k(const float* x, float* y, int n) {
                                     ^`
	dir := t.TempDir()
	a := &arena{t: t, dir: dir}
	a.program("cuda/bin/ptxas", "#!/bin/sh\n")
	a.program("cuda/bin/nvcc", "#!/bin/sh\ncase $1 in\n--version) echo 'Cuda compilation tools, release 13.0, V13.0.88' ;;\n*) cat <<'EOF'\n"+message+"\nEOF\nexit 1 ;;\nesac\n")
	a.kernel()
	for _, args := range [][]string{{"build", "--kernel", "kernel"}, {"sim", "kernel/k.cu", "--grid", "1", "--block", "1"}} {
		shown, err := shownOnTerminal(t, 60, dir, []string{"CUDA_HOME=" + filepath.Join(dir, "cuda")}, args...)
		if err == nil {
			t.Errorf("attune %s succeeds", args[0])
		}
		if text := strings.Join(screenLines(shown), "\n"); !strings.Contains(text, "\n"+message+"\n") {
			t.Errorf("attune %s:\n%s", args[0], text)
		}
	}
}

// COLUMNS overrides the terminal's width, and verdicts are coloured unless the user does not want it.
func TestColoursOnATerminal(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "results"), os.DirFS(filepath.Join(root, "results"))); err != nil {
		t.Fatal(err)
	}
	const green = "\x1b[32mmerge\x1b[0m"
	for _, test := range []struct {
		env  string
		args []string
		want bool
	}{
		{"", nil, true},
		{"NO_COLOR=1", nil, false},
		{"TERM=dumb", nil, false},
		{"", []string{"--color", "never"}, false},
		{"NO_COLOR=1", []string{"--color", "always"}, true},
	} {
		args := append([]string{"history", "--ledger", "results"}, test.args...)
		shown := onTerminal(t, 100, dir, []string{test.env}, args...)
		if got := strings.Contains(shown, green); got != test.want {
			t.Errorf("%s %s: coloured is %t", test.env, args, got)
		}
	}
	for _, line := range screenLines(onTerminal(t, 160, dir, []string{"COLUMNS=60"}, "history", "--ladder", "--ledger", "results")) {
		if utf8.RuneCountInString(line) > 60 {
			t.Errorf("wider than COLUMNS: %q", line)
		}
	}
	cmd := exec.Command("attune", "history", "--ledger", "results", "--color", "always")
	cmd.Dir = dir
	if out, err := cmd.Output(); err != nil || !bytes.Contains(out, []byte(green)) {
		t.Errorf("--color always without a terminal: %v\n%s", err, out)
	}
}
