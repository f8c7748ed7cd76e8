package python

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// own is the folder of attune's own Python in its cache, a virtual environment with numpy. It sees the
// packages of the Python that it was made from.
func own(cacheDir string) string { return filepath.Join(cacheDir, "python") }

func program(environment string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(environment, "Scripts", "python.exe")
	}
	return filepath.Join(environment, "bin", "python3")
}

// ForReferences returns the Python that references run in: as Find, with attune's own Python, if it was
// installed, in place of python3 in PATH. cacheDir may be empty.
func ForReferences(requested, cacheDir string) (string, error) {
	if requested == "" && os.Getenv(Variable) == "" && cacheDir != "" {
		path := program(own(cacheDir))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return Find(requested)
}

// HasNumpy reports whether a Python finds numpy. It does not import it, which takes longer.
func HasNumpy(ctx context.Context, path string) bool {
	return exec.CommandContext(ctx, path, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('numpy') is None)").Run() == nil
}

// NumpyFix is how numpy is installed for references.
type NumpyFix struct {
	folder   string // that it makes; empty if it installs into the Python that ATTUNE_PYTHON names
	commands [][]string
}

// FixNumpy says how to install numpy. A Python that the user names gets it. Without one attune makes a
// Python of its own in its cache: many systems manage their packages and refuse those of pip.
func FixNumpy(cacheDir string) (NumpyFix, error) {
	base, err := Find("")
	if err != nil {
		return NumpyFix{}, err
	}
	install := []string{"-m", "pip", "install", "--disable-pip-version-check", "numpy"}
	if os.Getenv(Variable) != "" {
		return NumpyFix{commands: [][]string{append([]string{base}, install...)}}, nil
	}
	if cacheDir == "" {
		return NumpyFix{}, &Error{"there is no cache folder for a Python with numpy", "set ATTUNE_CACHE to a folder"}
	}
	return NumpyFix{own(cacheDir), [][]string{
		{base, "-m", "venv", "--clear", "--system-site-packages", own(cacheDir)},
		append([]string{program(own(cacheDir))}, install...),
	}}, nil
}

// String returns the commands as a shell takes them.
func (f NumpyFix) String() string {
	var lines []string
	for _, c := range f.commands {
		lines = append(lines, strings.Join(c, " "))
	}
	return strings.Join(lines, " && ")
}

// Run runs the commands and writes their output to w. A folder that did not get numpy is removed, so
// that it is not taken for a Python that has it.
func (f NumpyFix) Run(ctx context.Context, w io.Writer) error {
	for _, c := range f.commands {
		fmt.Fprintln(w, strings.Join(c, " "))
		command := exec.CommandContext(ctx, c[0], c[1:]...)
		command.Stdout, command.Stderr = w, w
		err := command.Run()
		if err == nil {
			continue
		}
		if f.folder != "" {
			os.RemoveAll(f.folder)
		}
		return &Error{
			fmt.Sprintf("%s ended with %v", strings.Join(c, " "), err),
			"install numpy by the package manager of the system (python3-numpy), or " + UseAnother,
		}
	}
	return nil
}
