package exec

import (
	"context"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/toolchain"
)

// fakeCompiler is a compiler that makes an empty file for each output, and notes its arguments.
const fakeCompiler = `#!/bin/sh
echo "$@" >> "$ATTUNE_TEST_LOG"
test -z "$ATTUNE_TEST_FAIL" || case "$*" in *"$ATTUNE_TEST_FAIL"*) echo "no such thing"; exit 1;; esac
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then : > "$2"; fi
  shift
done
`

// useFakeCompiler has a fake compiler found in the place of the host's, and returns its log.
func useFakeCompiler(t *testing.T) (log string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "fake-cc")
	if err := os.WriteFile(path, []byte(fakeCompiler), 0o755); err != nil {
		t.Fatal(err)
	}
	log = filepath.Join(dir, "log")
	t.Setenv("CC", path)
	t.Setenv("ATTUNE_TEST_LOG", log)
	return log
}

// TestBuildLibrary checks which files the client consists of, and that it is built once.
func TestBuildLibrary(t *testing.T) {
	log, cache := useFakeCompiler(t), t.TempDir()
	dir, err := Library(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		libraryName, linkName, packageName, "libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13", "libcublas.so.12", "libcublasLt.so.13",
		"libnvrtc.so.13", "include/cudaProfiler.h", "link-13/libcudart.so", "link-11/libcuda.so", "link-12/libcublas_static.a",
	} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "libcublas.so.11")); err == nil {
		t.Error("there is a libcublas of version 11")
	}
	text, err := os.ReadFile(filepath.Join(dir, "link-13", "libcudart_static.a"))
	if want := "INPUT(" + filepath.Join(dir, "libcudart.so.13") + " " + filepath.Join(dir, libraryName) + ")\n"; err != nil || string(text) != want {
		t.Errorf("%v, %q, want %q", err, text, want)
	}
	commands := readLines(t, log)
	if want := 3 + 2 + 3 + 2*3; len(commands) != want { // objects, the driver, the runtime libraries, the others
		t.Errorf("%d commands, want %d:\n%s", len(commands), want, strings.Join(commands, "\n"))
	}
	if i := slices.IndexFunc(commands, func(c string) bool { return strings.Contains(c, "-soname,libcudart.so.12 ") }); i < 0 ||
		!strings.Contains(commands[i], "-DRUNTIME=12") || !strings.Contains(commands[i], "-Wl,-rpath,$ORIGIN") {
		t.Errorf("the runtime library is not built so:\n%s", strings.Join(commands, "\n"))
	}
	if again, err := Library(t.Context(), cache); again != dir || err != nil || len(readLines(t, log)) != len(commands) {
		t.Errorf("the second call: %s, %v", again, err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "exec", "build-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// TestBuildFails checks that a build that fails says why, and leaves nothing.
func TestBuildFails(t *testing.T) {
	useFakeCompiler(t)
	for _, part := range []string{"client/wire.c", "-soname,libcuda.so.1", "client/cublas/lt.c", "-soname,libcudart.so.12", "-soname,libnvrtc.so.13"} {
		t.Setenv("ATTUNE_TEST_FAIL", part)
		cache := t.TempDir()
		if _, err := Library(t.Context(), cache); err == nil || !strings.Contains(err.Error(), "fake-cc cannot build attune's ") || !strings.Contains(err.Error(), "no such thing") {
			t.Errorf("%s: %v", part, err)
		}
		if left, _ := filepath.Glob(filepath.Join(cache, "exec", "*")); len(left) > 0 {
			t.Errorf("%s: left behind: %v", part, left)
		}
	}
	t.Setenv("ATTUNE_TEST_FAIL", "")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Library(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("a build that is cancelled: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Library(t.Context(), file); err == nil {
		t.Error("a file is a cache")
	}
}

// TestNoHostCompiler checks the line about a machine without a compiler.
func TestNoHostCompiler(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	if _, err := Library(t.Context(), t.TempDir()); !errors.Is(err, ErrNoHostCompiler) || !strings.Contains(err.Error(), "there is no no-such-compiler in PATH") {
		t.Errorf("%v", err)
	}
	t.Setenv("CC", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := hostCompiler(); !errors.Is(err, ErrNoHostCompiler) || !strings.Contains(err.Error(), "cc, gcc, clang") {
		t.Errorf("%v", err)
	}
}

// TestCompileFlags checks the flags of nvcc, also where the device runtime is beside it.
func TestCompileFlags(t *testing.T) {
	toolkit := t.TempDir()
	lib := filepath.Join(toolkit, "lib")
	c := &toolchain.Compiler{NVCC: filepath.Join(toolkit, "bin", "nvcc"), Version: "12.4"}
	flags := CompileFlags(c, "/library", "sm_100a")
	if !slices.Contains(flags, "arch=compute_100a,code=compute_100a") || !slices.Contains(flags, "-L/library/link-12") || slices.Contains(flags, "-L"+lib) {
		t.Errorf("%q", flags)
	}
	if err := os.Mkdir(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lib, "libcudadevrt.a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if flags := CompileFlags(c, "/library", "sm_90a"); flags[len(flags)-1] != "-L"+lib {
		t.Errorf("%q", flags)
	}
}

// TestRefusedNeeds checks files that are no programs.
func TestRefusedNeeds(t *testing.T) {
	dir := t.TempDir()
	script, cut := filepath.Join(dir, "script"), filepath.Join(dir, "cut")
	header := make([]byte, 64) // a program without sections
	copy(header, elf.ELFMAG)
	header[elf.EI_CLASS], header[elf.EI_DATA], header[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	header[16], header[18], header[20], header[52] = byte(elf.ET_EXEC), byte(elf.EM_X86_64), byte(elf.EV_CURRENT), 64
	for path, text := range map[string][]byte{script: []byte("#!/bin/sh\n"), cut: header} {
		if err := os.WriteFile(path, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{script, cut, filepath.Join(dir, "none")} {
		if got := refusedNeeds(path); len(got) > 0 {
			t.Errorf("%s: %q", path, got)
		}
	}
}
