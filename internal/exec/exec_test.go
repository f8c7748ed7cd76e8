package exec_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"attune/internal/exec"
	"attune/internal/finding"
	"attune/internal/toolchain"
)

// programs has the programs of testdata that have been compiled, each once for all tests.
var programs struct {
	sync.Mutex
	folder string
	made   map[string]func() error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if programs.folder != "" {
		os.RemoveAll(programs.folder)
	}
	os.Exit(code)
}

// once returns the path of a program and what compiles it, unless another test has.
func once(program string, compile func(path string) error) (path string, made func() error, err error) {
	programs.Lock()
	defer programs.Unlock()
	if programs.folder == "" {
		if programs.folder, err = os.MkdirTemp("", "attune-exec-test-"); err != nil {
			return "", nil, err
		}
		programs.made = map[string]func() error{}
	}
	path = filepath.Join(programs.folder, program)
	if programs.made[program] == nil {
		programs.made[program] = sync.OnceValue(func() error { return compile(path) })
	}
	return path, programs.made[program], nil
}

// build compiles a program of testdata for the simulator.
func build(t *testing.T, source string) (program, library string) {
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
	program, compile, err := once(strings.TrimSuffix(source, ".cu"), func(path string) error {
		args := append(exec.CompileFlags(compiler, library, "sm_90a"), flagsOf[source]...)
		out, err := osexec.Command(compiler.NVCC, append(args, "-o", path, filepath.Join("testdata", source))...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("nvcc: %w\n%s", err, out)
		}
		return nil
	})
	if err := errors.Join(err, compile()); err != nil {
		t.Fatal(err)
	}
	return program, library
}

// flagsOf are the flags of nvcc that programs need.
var flagsOf = map[string][]string{
	"linked.cu": {"-rdc=true", filepath.Join("testdata", "linked_other.cu")}, "hosted.cu": {"-lcublas", "-lnvrtc", "-lcuda"},
	"cublas.cu": {"-lcublas", "-lcublasLt"}, "virtual.cu": {"-lcuda"},
}

// start runs a program and returns its output.
func start(t *testing.T, o exec.Options, library string, command ...string) (*exec.Outcome, string, string) {
	t.Helper()
	var out, lines bytes.Buffer
	o.Library, o.Memory = library, 1<<30
	if cacheDir, err := toolchain.CacheDir(); err == nil {
		if compiler, err := toolchain.Find(t.Context(), cacheDir); err == nil {
			o.Compiler = compiler.NVCC
		}
	}
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
	for source, launches := range map[string]int{
		"memory.cu": 3, "graph.cu": 17, "launch.cu": 4, "texture.cu": 3, "linked.cu": 2, "hosted.cu": 1, "streams.cu": 17, "cublas.cu": 0, "misuse.cu": 1,
		"virtual.cu": 1,
	} {
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
		{"host", "attune exec: the host accesses device memory at 0x200000000000; copy it by cudaMemcpy, or allocate it by cudaMallocManaged\n", 128 + 11, nil},
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
		if (outcome.Signal != "") != (c.exit > 128) {
			t.Errorf("%s: signal %q", c.what, outcome.Signal)
		}
	}
}

// TestOutput checks what printf of a kernel writes.
func TestOutput(t *testing.T) {
	t.Parallel()
	program, library := build(t, "streams.cu")
	_, out, _ := start(t, exec.Options{}, library, program)
	want := `[-7] [   42] [42   ] [00042] [+42] [4000000000] [ff] [0XFF] [10]
[-5] [1099511627776] [18446744073709551615] [8] [-3] [200]
[1.500000] [3.14] [ 1.235e+04] [1e-07] [1E+20] [-1.000000E+00]
[x] [text] [    text] [text    ] [te] [%] [0x1234]
no arguments
ok
`
	if out != want {
		t.Errorf("%s", out)
	}
}

// planted reads from the comments of a program which findings an argument gives: "ARGUMENT: KIND".
func planted(t *testing.T, source, argument string) (places []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", source))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		_, comment, _ := strings.Cut(line, "  // ")
		for _, part := range strings.Split(comment, "; ") {
			if kind, ok := strings.CutPrefix(part, argument+": "); ok {
				places = append(places, fmt.Sprintf("%s %s:%d", kind, source, i+1))
			}
		}
	}
	return places
}

// TestDefects checks where defects are found, and which errors the program gets at the calls that
// follow: the launch, the synchronisation, a copy, an allocation, and the last error.
func TestDefects(t *testing.T) {
	t.Parallel()
	program, library := build(t, "defects.cu")
	const fine = "cudaSuccess, cudaSuccess, cudaSuccess, cudaSuccess, cudaSuccess\n"
	after := func(e string) string { return "cudaSuccess" + strings.Repeat(", "+e, 4) + "\n" }
	for argument, c := range map[string]struct {
		output string
		lines  int
	}{
		"global-race": {fine, 0}, "global": {fine, 0}, "null": {fine, 0}, "misaligned": {fine, 0}, "shared": {fine, 0}, "dynamic": {fine, 0}, "symbol": {fine, 0},
		"uninitialized": {fine, 0}, "barrier": {fine, 0}, "assert": {after("cudaErrorAssert"), 0}, "trap": {after("cudaErrorLaunchFailure"), 0},
		"hang":  {after("cudaErrorLaunchTimeout"), 0},
		"freed": {"cudaSuccess, cudaSuccess, cudaErrorInvalidValue, cudaSuccess, cudaErrorInvalidValue\n", 0},
		"calls": {"cudaSuccess, cudaErrorInvalidConfiguration, cudaErrorInvalidConfiguration, cudaErrorInvalidValue, cudaErrorInvalidValue, " +
			"cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorInvalidDevice, cudaErrorInvalidResourceHandle, cudaSuccess, cudaSuccess, cudaSuccess, cudaSuccess\n", 2},
	} {
		outcome, out, lines := start(t, exec.Options{Checks: true}, library, program, argument)
		var places []string
		for _, f := range outcome.Findings {
			at := f.Where
			if f.Other != nil && f.Other.Line > at.Line { // of a race, the later line
				at = *f.Other
			}
			places = append(places, fmt.Sprintf("%s %s:%d", f.Kind, at.File, at.Line))
			if folder, _ := filepath.Abs("testdata"); strings.Contains(f.Detail, folder) {
				t.Errorf("%s: the detail has the whole path: %s", argument, f.Detail)
			}
		}
		if want := planted(t, "defects.cu", argument); !slices.Equal(places, want) {
			t.Errorf("%s: findings %q, want %q", argument, places, want)
		}
		exit := 0
		if strings.HasPrefix(c.output, "cudaSuccess, cudaError") && c.lines == 0 {
			exit = 3
		}
		if out != c.output || strings.Count(lines, "\n") != c.lines || outcome.Exit != exit {
			t.Errorf("%s: exit %d, printed %q%s", argument, outcome.Exit, out, lines)
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
	outcome, _, lines := start(t, exec.Options{Arch: "sm_80"}, library, program)
	if len(outcome.Refused) != 1 || !strings.Contains(lines, "the program has PTX for sm_90 and later, and the simulated device is sm_80") || !strings.Contains(lines, "-gencode arch=compute_80,code=compute_80") {
		t.Errorf("%q", lines)
	}
}

// TestPlanted runs the programs with an argument, which makes them do what is wrong.
func TestPlanted(t *testing.T) {
	t.Parallel()
	type place struct {
		kind   finding.Kind
		kernel string
		file   string
		line   int
	}
	for source, want := range map[string]struct {
		places []place
		lines  string
	}{
		"texture.cu": {[]place{{finding.OutOfBounds, "outside", "texture.cu", 48}, {finding.Undefined, "sample", "texture.cu", 24}, {finding.Undefined, "sample", "texture.cu", 25}}, ""},
		"linked.cu":  {[]place{{finding.OutOfBounds, "add", "linked.cuh", 17}, {finding.OutOfBounds, "add", "linked.cuh", 17}}, ""},
		"hosted.cu":  {[]place{{finding.OutOfBounds, "cublasSgemm", "", 0}, {finding.Uninitialized, "cublasSgemm", "", 0}}, "cublasSsyrk_v2 is not supported by attune exec\n"},
		"cublas.cu":  {[]place{{finding.Uninitialized, "cublasSgemm", "", 0}, {finding.OutOfBounds, "cublasGemmBatchedEx", "", 0}}, ""},
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			program, library := build(t, source)
			outcome, out, lines := start(t, exec.Options{Checks: true}, library, program, "defects")
			var places []place
			for _, f := range outcome.Findings {
				at, _ := f.Where.Own()
				places = append(places, place{f.Kind, f.Kernel, at.File, at.Line})
			}
			if !slices.Equal(places, want.places) || lines != want.lines {
				t.Errorf("%v, exit %d\n%s%s", places, outcome.Exit, out, lines)
			}
		})
	}
}

// TestRepeats checks that a timing loop runs its launch until it changes nothing, and that an argument
// or a copy that changes runs it again.
func TestRepeats(t *testing.T) {
	t.Parallel()
	program, library := build(t, "repeat.cu")
	for skip, want := range map[bool]int{false: 0, true: 94} {
		outcome, out, lines := start(t, exec.Options{Checks: true, SkipRepeats: skip}, library, program)
		if outcome.Exit != 0 || len(outcome.Kernels) != 2 || outcome.Launches != 120 {
			t.Fatalf("%+v\n%s%s", outcome, out, lines)
		}
		skipped := 0
		for _, k := range outcome.Kernels {
			skipped += k.Skipped
		}
		if skipped != want {
			t.Errorf("%d launches are skipped, want %d", skipped, want)
		}
	}
}

// TestRefusedLibraries checks that a program with a library that attune does not run is not started.
func TestRefusedLibraries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fft.c"), []byte("void cufftPlan(void) {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.c"), []byte("void cufftPlan(void);\nint main(void) { cufftPlan(); return 1; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-Wl,-soname,libcufft.so.12", "-o", "libcufft.so.12", "fft.c"}, {"-o", "program", "main.c", "./libcufft.so.12", "-Wl,-rpath,$ORIGIN"},
	} {
		cmd := osexec.CommandContext(t.Context(), "cc", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("cc: %v\n%s", err, out)
		}
	}
	outcome, _, lines := start(t, exec.Options{}, dir, filepath.Join(dir, "program"))
	if outcome.Exit != 0 || len(outcome.Unsupported) != 1 || !strings.Contains(lines, "needs libcufft.so.12: attune does not run cuFFT") {
		t.Errorf("%+v\n%s", outcome, lines)
	}
}
