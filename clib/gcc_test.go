package clib

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// strict are the compiler's flags of the tests.
var (
	strict     = []string{"-std=c11", "-Wall", "-Wextra", "-Werror"}
	sanitizers = []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}
)

// needGCC skips the test without gcc.
func needGCC(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc; `make tools` installs it")
	}
}

// command runs a program in a folder.
func command(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// runC compiles a program with the sanitizers and returns what it prints for an input.
func runC(t testing.TB, source, input string, flags ...string) string {
	t.Helper()
	needGCC(t)
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "main.c"), source)
	flags = append(append(flags, sanitizers...), "-I"+sourceFolder(t), "-o", "main", "main.c", "-lm")
	command(t, dir, "gcc", flags...)
	cmd := exec.Command(filepath.Join(dir, "main"))
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return string(out)
}

func sourceFolder(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("src")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func writeText(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
