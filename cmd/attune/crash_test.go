package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"attune/internal/cases"
	"attune/internal/crash"
)

// panics runs a command that panics, and returns its exit code and its standard error.
func panics(t *testing.T, flags ...string) (code int, text string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := newApp(&stdout, &stderr)
	root := a.rootCommand()
	root.AddCommand(&cobra.Command{Use: "panics", RunE: func(*cobra.Command, []string) error {
		var list []int
		return errors.New(string(rune(list[len(flags)])))
	}})
	code = a.execute(t.Context(), root, append([]string{"panics"}, flags...))
	if stdout.Len() > 0 {
		t.Errorf("standard output: %s", stdout.String())
	}
	return code, stderr.String()
}

// TestCrash checks that a panic of a command is one line on standard error, with a report that has
// the stack, and that the exit code is 1.
func TestCrash(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	code, text := panics(t)
	line := regexp.MustCompile(`^attune: internal error, a defect of attune, in the command: .*out of range.*; the report of it is (\S+)\n$`)
	found := line.FindStringSubmatch(text)
	if code != exitFailure || found == nil || filepath.Dir(found[1]) != folder {
		t.Fatalf("exit code %d, %q", code, text)
	}
	report, err := os.ReadFile(found[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"crash_test.go", "attune " + version(), `command: attune ["panics"]`, "goroutine "} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report has no %q:\n%s", want, report)
		}
	}
	if code, text := panics(t, "--json"); code != exitFailure || !strings.HasPrefix(text, `{"code":1,`) || strings.Count(text, "\n") != 1 {
		t.Errorf("with --json: exit code %d, %q", code, text)
	}
	t.Setenv("TMPDIR", filepath.Join(folder, "missing"))
	if code, text := panics(t); code != exitFailure || !strings.Contains(text, "; the report of it could not be written: ") || strings.Count(text, "\n") != 1 {
		t.Errorf("without a folder: exit code %d, %q", code, text)
	}
}

// TestCrashInSimulation checks that the report of a panic in the simulator includes the case.
func TestCrashInSimulation(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	file := filepath.Join(folder, "case.json")
	if err := os.WriteFile(file, []byte(`{"ptx": "k.ptx"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &simulation{Outcome: &cases.Outcome{}}
	s.fail(crash.New("a defect", "the simulation of k"), file)
	if !strings.Contains(s.Error, "the report of it is "+folder) {
		t.Fatal(s.Error)
	}
	reports, err := filepath.Glob(filepath.Join(folder, "attune-crash-*.txt"))
	if err != nil || len(reports) != 1 {
		t.Fatal(reports, err)
	}
	if text, err := os.ReadFile(reports[0]); err != nil || !strings.Contains(string(text), `{"ptx": "k.ptx"}`) {
		t.Errorf("%v\n%s", err, text)
	}
}
