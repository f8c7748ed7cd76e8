package exec_test

import (
	"bytes"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/exec"
	"attune/internal/finding"
	"attune/internal/toolchain"
)

// build compiles a program of testdata for the simulator.
func build(t *testing.T, source string, flags ...string) (program, library string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the compiler")
	}
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Skip(err)
	}
	compiler, err := toolchain.Find(t.Context(), cacheDir)
	if err != nil {
		t.Skip(err)
	}
	if library, err = exec.Library(t.Context(), cacheDir); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".cu"))
	args := append(exec.CompileFlags(compiler, library, "sm_90a"), flags...)
	out, err := osexec.CommandContext(t.Context(), compiler.NVCC, append(args, "-o", program, filepath.Join("testdata", source))...).CombinedOutput()
	if err != nil {
		t.Fatalf("nvcc: %v\n%s", err, out)
	}
	return program, library
}

// start runs a program and returns its output.
func start(t *testing.T, o exec.Options, library string, command ...string) (*exec.Outcome, string, string) {
	t.Helper()
	var out, lines bytes.Buffer
	o.Library, o.Memory = library, 1<<30
	if o.Arch == "" {
		o.Arch = "sm_90a"
	}
	o.Folder, _ = filepath.Abs("testdata")
	o.Line = func(text string) { lines.WriteString(text + "\n") }
	o.Command = func(cmd *osexec.Cmd) { cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, &out, &out }
	outcome, err := exec.Run(t.Context(), o, command)
	if err != nil {
		t.Fatal(err)
	}
	return outcome, out.String(), lines.String()
}

// TestPrograms runs programs that check their own results.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for source, launches := range map[string]int{"memory.cu": 3, "graph.cu": 11, "launch.cu": 3} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			program, library := build(t, source)
			outcome, out, lines := start(t, exec.Options{Checks: true}, library, program)
			if outcome.Exit != 0 || len(outcome.Findings)+len(outcome.Refused)+len(outcome.Unsupported) > 0 || outcome.Launches != launches {
				t.Errorf("%+v\n%s%s", outcome, out, lines)
			}
		})
	}
}

// TestFaults checks how kernels fail, and that their output comes before what follows the
// synchronisation.
func TestFaults(t *testing.T) {
	t.Parallel()
	program, library := build(t, "fault.cu")
	for _, c := range []struct {
		what, output string
		exit         int
		kinds        []finding.Kind
	}{
		{"print", "launch: cudaSuccess\nthread 0 of 2\nthread 1 of 2\nsynchronize: cudaSuccess\n", 0, nil},
		{"assert", "launch: cudaSuccess\nsynchronize: cudaErrorAssert\n", 3, []finding.Kind{finding.AssertFailed}},
		{"trap", "launch: cudaSuccess\nsynchronize: cudaErrorLaunchFailure\n", 3, []finding.Kind{finding.Trapped}},
		{"race", "launch: cudaSuccess\nsynchronize: cudaSuccess\n", 0, []finding.Kind{finding.Race, finding.Uninitialized}},
		{"crash", "", 128 + 11, nil},
	} {
		outcome, out, lines := start(t, exec.Options{Checks: true}, library, program, c.what)
		var kinds []finding.Kind
		for _, f := range outcome.Findings {
			if kinds = append(kinds, f.Kind); f.Where.File != "fault.cu" || f.Where.Line == 0 {
				t.Errorf("%s: %s is at %s:%d", c.what, f.Kind, f.Where.File, f.Where.Line)
			}
		}
		if out != c.output || outcome.Exit != c.exit || !slices.Equal(kinds, c.kinds) || lines != "" {
			t.Errorf("%s: exit %d, findings %v, printed %q%s", c.what, outcome.Exit, kinds, out, lines)
		}
		if (outcome.Signal != "") != (c.what == "crash") {
			t.Errorf("%s: signal %q", c.what, outcome.Signal)
		}
	}
}

// TestOutside checks the planted defect, and what suppresses it.
func TestOutside(t *testing.T) {
	t.Parallel()
	program, library := build(t, "outside.cu")
	outcome, _, _ := start(t, exec.Options{Checks: true}, library, program)
	if len(outcome.Findings) != 3 || outcome.Findings[0].Kind != finding.OutOfBounds || outcome.Findings[0].Where.Line != 6 || outcome.Exit != 0 {
		t.Errorf("%+v", outcome)
	}
	known, err := exec.ReadSuppressions([]byte("# known\nadd outside.cu:6 out-of-* the last element is padding\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]exec.Options{
		"suppressed": {Checks: true, Suppress: known}, "skipped": {Checks: true, Skip: []string{"a*d"}}, "others only": {Checks: true, Only: []string{"sub"}},
	} {
		outcome, _, _ := start(t, o, library, program)
		if len(outcome.Findings) > 0 || outcome.Launches != 1 || len(outcome.Suppressed) > 0 != (name == "suppressed") {
			t.Errorf("%s: %+v", name, outcome)
		}
	}
}

// TestNoPTX checks the line about a program that has machine code alone.
func TestNoPTX(t *testing.T) {
	t.Parallel()
	program, library := build(t, "outside.cu")
	_, _, lines := start(t, exec.Options{Arch: "sm_80"}, library, program)
	if !strings.Contains(lines, "the program has PTX for sm_90 and later, and the simulated device is sm_80") || !strings.Contains(lines, "-gencode arch=compute_80,code=compute_80") {
		t.Errorf("%q", lines)
	}
}
