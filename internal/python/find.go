package python

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Variable is the environment variable with the Python to use.
const Variable = "ATTUNE_PYTHON"

// UseAnother is the remedy for a Python that does not work.
const UseAnother = "name another Python with --python or " + Variable

// Error is the reason why Python gave no result, and the remedy.
type Error struct {
	Why string
	Do  string // may be empty
}

func (e *Error) Error() string {
	if e.Do == "" {
		return e.Why
	}
	return e.Why + "; " + e.Do
}

// Find returns the absolute path of the Python to use: the requested one, or else that of
// ATTUNE_PYTHON, or else python3 in PATH. The error is an *Error.
func Find(requested string) (string, error) {
	name, from := requested, "--python"
	if name == "" {
		name, from = os.Getenv(Variable), Variable
	}
	if name == "" {
		name, from = "python3", "PATH"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path) // the process runs in another folder
	}
	if err == nil {
		return path, nil
	}
	if from == "PATH" {
		return "", &Error{"there is no python3 in PATH", "install Python 3.9 or later, or name one with --python or " + Variable}
	}
	return "", &Error{fmt.Sprintf("there is no program %q, which %s names", name, from), UseAnother}
}
