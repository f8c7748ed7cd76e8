package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"attune/internal/child"
	"attune/internal/python"
	"attune/internal/run"
)

// NumpyFix is how numpy is installed for references.
type NumpyFix struct {
	folder   string // that it makes; empty if it installs into the Python that ATTUNE_PYTHON names
	commands [][]string
}

// FixNumpy says how to install numpy. A Python that the user names gets it. Without one attune makes a
// Python of its own in its cache: many systems manage their packages and refuse those of pip.
func FixNumpy(cacheDir string) (NumpyFix, error) {
	base, err := python.Find("")
	if err != nil {
		return NumpyFix{}, err
	}
	install := []string{"-m", "pip", "install", "--disable-pip-version-check", "numpy"}
	if os.Getenv(python.Variable) != "" {
		return NumpyFix{commands: [][]string{append([]string{base}, install...)}}, nil
	}
	if cacheDir == "" {
		return NumpyFix{}, &python.Error{Why: "there is no cache folder for a Python with numpy", Do: "set ATTUNE_CACHE to a folder"}
	}
	return NumpyFix{python.Own(cacheDir), [][]string{
		{base, "-m", "venv", "--clear", "--system-site-packages", python.Own(cacheDir)},
		append([]string{python.Program(python.Own(cacheDir))}, install...),
	}}, nil
}

// String returns the commands as a shell takes them.
func (f NumpyFix) String() string {
	var lines []string
	for _, c := range f.commands {
		lines = append(lines, shellCommand(c))
	}
	return strings.Join(lines, " && ")
}

// shellCommand is a command that can be pasted, whatever its paths are.
func shellCommand(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = run.ShellWord(word)
	}
	return strings.Join(words, " ")
}

// Run runs the commands and writes their output to w. A folder that did not get numpy is removed, so
// that it is not taken for a Python that has it.
func (f NumpyFix) Run(ctx context.Context, w io.Writer) error {
	for _, c := range f.commands {
		fmt.Fprintln(w, shellCommand(c))
		command := exec.Command(c[0], c[1:]...)
		command.Stdout, command.Stderr = w, w
		_, err := child.Run(ctx, command, child.Limits{})
		if err == nil {
			continue
		}
		if f.folder != "" {
			os.RemoveAll(f.folder)
		}
		return &python.Error{
			Why: fmt.Sprintf("%s ended with %v", shellCommand(c), err),
			Do:  "install numpy by the package manager of the system (python3-numpy), or " + python.UseAnother,
		}
	}
	return nil
}
