package clib

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/form"
	"attune/internal/rotate"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

// blocks returns the lines of the code blocks of a document in a language.
func blocks(t *testing.T, path, language string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	inside := false
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```"+language+"\n"
		case inside:
			all = append(all, strings.TrimSuffix(line, "\n"))
		}
	}
	return all
}

// builds runs commands in a folder. An example at the end of a line needs a GPU and is left out.
func builds(t *testing.T, dir string, lines []string, want int) {
	t.Helper()
	for _, line := range lines {
		if _, err := exec.LookPath("cmake"); err != nil && strings.HasPrefix(line, "cmake") {
			t.Log("no cmake: the build with it is not tested")
			continue
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, " && build/example"), " && ./example")
		command(t, dir, "sh", "-c", line)
	}
	if len(lines) != want {
		t.Errorf("there are %d commands, want %d: %q", len(lines), want, lines)
	}
}

// The commands of the README that is exported build the example.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	needGCC(t)
	if testing.Short() {
		t.Skip("it builds the whole library with optimisation")
	}
	rotate.Skip(t, 0, 2) // TestDocumentedCode builds it in the other turns
	dir := filepath.Join(t.TempDir(), "sdpa")
	if _, err := Write(dir, syntheticLibrary(t)); err != nil {
		t.Fatal(err)
	}
	builds(t, dir, blocks(t, filepath.Join(dir, "README.md"), "sh"), 2)
	if _, err := os.Stat(filepath.Join(dir, "example")); err != nil {
		t.Error(err)
	}
}

// The example has at most 40 lines. It reports each failure of the driver, and outputs that are not
// 1, which the double returns on request.
func TestExample(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	program, source := filepath.Join(t.TempDir(), "example"), filepath.Join(c.library, "example.c")
	if err := c.link(program, source, strict...); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if lines := bytes.Count(text, []byte("\n")); err != nil || lines > 40 {
		t.Errorf("the example has %d lines (%v); want at most 40", lines, err)
	}
	check := func(driver, variable string, wantCode int, want string) {
		t.Helper()
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+driver, variable)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != wantCode || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %q; want exit code %d and %q", variable, err, out, wantCode, want)
		}
	}
	check(c.driver, "DOUBLE_FP16=3c00", 0, "\n262144 of 262144 outputs are 1\n")
	check(c.driver, "DOUBLE_FP16=3bff", 1, "\n0 of 262144 outputs are 1\n")
	for _, name := range []string{"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemsetD8_v2", "cuMemsetD32_v2"} {
		check(c.driver, "DOUBLE_FAIL="+name, 1, "the driver failed\n")
	}
	check(c.driver, "DOUBLE_FAIL=cuLaunchKernelEx", 1, "as requested")
	check(c.driver, "DOUBLE_FAIL=cuMemcpyDtoH_v2", 1, "the copy failed\n")
}

// The commands and the C code of docs/library.md build, beside an export of its name.
func TestDocumentedCode(t *testing.T) {
	t.Parallel()
	needGCC(t)
	const document = "../docs/library.md"
	dir := t.TempDir()
	if _, err := Write(filepath.Join(dir, "sdpa"), syntheticLibrary(t)); err != nil {
		t.Fatal(err)
	}
	if due, err := rotate.Due(1, 2); err != nil {
		t.Fatal(err)
	} else if due && !testing.Short() { // they build the whole library with optimisation
		builds(t, dir, blocks(t, document, "sh"), 3)
	}
	writeText(t, filepath.Join(dir, "call.c"), strings.Join(blocks(t, document, "c"), "\n")+"\n")
	if err := gcc(dir, slices.Concat(strict, []string{"-Isdpa", "-c", "call.c"})...); err != nil {
		t.Error(err)
	}
}

// The header is also C++, and the sources have no warnings of the pedantic kind.
func TestPedantic(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	needGCC(t)
	dir := t.TempDir()
	for _, source := range handWritten {
		flags := slices.Concat(strict, []string{"-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-O2", "-c", "-o", filepath.Join(dir, "a.o"), source})
		if err := gcc("src", flags...); err != nil {
			t.Error(err)
		}
	}
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("no g++: the header is not tested as C++")
	}
	command(t, "src", "g++", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-x", "c++", "-fsyntax-only", "attune_sdpa.h")
}

// The library's declarations of the driver are those of NVIDIA's header.
func TestDeclarationsMatchCUDA(t *testing.T) {
	t.Parallel()
	needGCC(t)
	cache, err := toolchain.CacheDir()
	if err != nil {
		t.Skip(err)
	}
	nvcc, err := toolchain.Find(t.Context(), cache)
	if err != nil {
		t.Skipf("no CUDA compiler, whose headers have cuda.h: %v", err)
	}
	include := filepath.Join(filepath.Dir(filepath.Dir(nvcc.NVCC)), "include")
	if _, err := os.Stat(filepath.Join(include, "cuda.h")); err != nil {
		t.Skip(err)
	}
	if err := gcc("testdata", "-std=c11", "-Wall", "-Werror", "-I../src", "-isystem", include, "-fsyntax-only", "cudah.c"); err != nil {
		t.Error(err)
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	l := syntheticLibrary(t)
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 { // the second replaces the first
		files, err := Write(dir, l)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(all) != 1 {
			t.Errorf("beside the folder: %v, %v", all, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != len(files) {
			t.Errorf("%v, %v, %v", files, entries, err)
		}
		for i, f := range files {
			info, err := entries[i].Info()
			if err != nil || f.Name != entries[i].Name() || int64(f.Bytes) != info.Size() {
				t.Errorf("%v, %v, %v", f, info, err)
			}
		}
		l.Version = "2.0.0+other"
	}
	wrong := func(want string, dir string, change func(*Library)) {
		t.Helper()
		l := syntheticLibrary(t)
		change(&l)
		if _, err := Write(dir, l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	nothing := func(*Library) {}
	text := func(name, contents string) string {
		dir := t.TempDir()
		writeText(t, filepath.Join(dir, name), contents)
		return dir
	}
	folder := func(name string) string {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	wrong("example.c is in the way: no export wrote it", text("example.c", "mine"), nothing)
	wrong(formsFile+" is in the way", text(formsFile, "mine"), nothing)
	wrong(formsFile, folder(formsFile), nothing)
	wrong("example.c", folder("example.c"), nothing)
	wrong("file", filepath.Join(text("file", ""), "file", "sub"), nothing)
	wrong("s has 3 choices, and there are images of 2", dir, func(l *Library) { l.Images = l.Images[:2] })
	wrong("s has no image of stage7b", dir, func(l *Library) { l.Images[1][0] = nil })
	wrong(`the architecture "sm_x" has no compute capability`, dir, func(l *Library) { l.Arch = "sm_x" })
	wrong("form10: it has no knob HEAD_DIM", dir, func(l *Library) { l.Images[1][0].Record.Knobs = nil })
	wrong("form00: it has no launch contract", dir, func(l *Library) { l.Images[0][0].Record.Launch = toolchain.Launch{} })
	wrong(`form02: its outputs are "" and "fp32", which is not output 0`, dir, func(l *Library) { l.Images[0][0] = l.Images[0][2] })
	wrong("form00: it has 5 tensor maps, and the library passes at most 4", dir, func(l *Library) {
		l.Images[0][0].Record.Launch.TensorMaps = append(l.Images[0][0].Record.Launch.TensorMaps, toolchain.TensorMap{})
	})
	wrong("cannot become C", dir, func(l *Library) {
		l.Selection = loadSelection(t, strings.Replace(syntheticSelection, "keys == 1", "heads * queries * keys > 1", 1))
	})
	if os.Geteuid() != 0 {
		readOnly := t.TempDir()
		if err := os.Chmod(readOnly, 0o555); err != nil {
			t.Fatal(err)
		}
		wrong("permission denied", readOnly, nothing)
	}
}

// Machine code takes the place of PTX, and equal images are written once.
func TestCode(t *testing.T) {
	t.Parallel()
	l := syntheticLibrary(t)
	l.Images[0][0].Cubin = []byte("ELF")
	l.Images[1][0].Cubin = []byte("ELF")
	text, err := l.table()
	if err != nil {
		t.Fatal(err)
	}
	if kind, code := form.Dense(l.Images[0][0]).Code(); kind != "cubin" || string(code) != "ELF" {
		t.Errorf("%s %q", kind, code)
	}
	if n := strings.Count(string(text), "/* 3 bytes */\n0x0000000000464c45, };"); n != 1 {
		t.Errorf("the machine code is written %d times", n)
	}
	if !strings.Contains(string(text), ".image = image_0, .arch = 0, .is_exact = 0, .is_ptx = 0, .waits = 0,\n     .head_dim = 64, .threads = 256") {
		t.Error("the second form has other machine code than the first")
	}
}

// Every variant of a selection has a form for each output, with exact exponentials for LSE.
func TestOutputVariants(t *testing.T) {
	t.Parallel()
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range kernel.Selections {
		for _, choice := range s.Choices {
			for output := range Outputs {
				v, err := Variant(choice.Variant, output)
				if err != nil {
					t.Fatal(err)
				}
				bf16, _ := v.Value("USE_BF16_OUT")
				lse, _ := v.Value("USE_LSE")
				if bf16+2*lse != output || output == 0 && v.String() != choice.Variant.String() {
					t.Errorf("output %d of %s is %s", output, choice.Variant, v)
				}
				if lse == 1 && v.Exponentials() != spec.ExactExponentials {
					t.Errorf("%s has approximated exponentials", v)
				}
			}
		}
	}
	old, err := kernel.Variant("stage2")
	if err != nil {
		t.Fatal(err)
	}
	for _, output := range []int{BF16, LSE} {
		if _, err := Variant(old, output); err == nil || !strings.Contains(err.Error(), "stage2 writes FP16 without LSE only") {
			t.Errorf("the error is %v", err)
		}
	}
}
