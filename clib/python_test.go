package clib

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The module of the Python package that calls the library compiles against the header, without a
// warning. It includes the header, so the layout of the parameters is the same.
func TestPythonModuleCompiles(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	const where = "import sysconfig; print(sysconfig.get_path('include'))"
	include := strings.TrimSpace(command(t, ".", python, "-B", "-c", where))
	if _, err := os.Stat(filepath.Join(include, "Python.h")); err != nil {
		t.Skip("Python's headers are not installed")
	}
	needGCC(t)
	flags := append(slices.Clone(strict), "-fsyntax-only", "-Isrc", "-I"+include, "../python/src/call.c")
	command(t, ".", "gcc", flags...)
}

// withTorch is a Python that has PyTorch, or skips the test.
func withTorch(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("PyTorch takes seconds to start")
	}
	python := cmp.Or(os.Getenv("ATTUNE_PYTHON"), "python3")
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		t.Skip("no PyTorch")
	}
	return python
}

// The tests of the Python package that need no GPU pass, where PyTorch is installed. Those of Triton
// run on the simulator of the program.
func TestPythonPackage(t *testing.T) {
	torch := withTorch(t)
	program := filepath.Join(t.TempDir(), "attune")
	command(t, ".", "go", "build", "-buildvcs=false", "-o", program, "attune/cmd/attune")
	t.Setenv("ATTUNE_PROGRAM", program)
	t.Setenv("TRITON_CACHE_DIR", t.TempDir())
	if exec.Command(torch, "-c", "import triton").Run() != nil {
		t.Log("without Triton: its tests and those of examples/triton are skipped")
	}
	command(t, "../python/tests", torch, "-B", "-m", "unittest", "discover")
}

// preloaded is the path of a library of gcc.
func preloaded(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(command(t, ".", "gcc", "-print-file-name="+name))
}

// The hostile calls of the Python package go through the library and a double of the driver, without an
// access outside of an allocation and without undefined behaviour in the library, the module and the
// double.
func TestHostileCallsWithSanitizers(t *testing.T) {
	python := withTorch(t)
	c := shippedProbe(t)
	driver := t.TempDir()
	if err := compileDriver(driver, append(slices.Clone(sanitizers), "-Wl,-soname,libcuda.so.1")...); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-B", "hostile.py", "--direct")
	cmd.Dir = "../python/tests"
	cmd.Env = append(os.Environ(),
		"LD_PRELOAD="+preloaded(t, "libasan.so")+":"+preloaded(t, "libstdc++.so.6"), // whose exceptions ASan intercepts
		"ASAN_OPTIONS=detect_leaks=0", // Python and PyTorch keep memory until the end
		"CFLAGS=-g "+strings.Join(sanitizers, " "),
		"ATTUNE_SOURCES="+c.library,
		"HOSTILE_DRIVER="+filepath.Join(driver, "libcuda.so.1"))
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
	t.Log(lines[len(lines)-1])
}
