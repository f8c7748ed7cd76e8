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

// The tests of the Python package that need no GPU pass, where PyTorch is installed.
func TestPythonPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("PyTorch takes seconds to start")
	}
	python := cmp.Or(os.Getenv("ATTUNE_PYTHON"), "python3")
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		t.Skip("no PyTorch")
	}
	command(t, "../python/tests", python, "-B", "-m", "unittest", "discover")
}
