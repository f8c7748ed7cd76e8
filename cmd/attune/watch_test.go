package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/toolchain"
	"attune/kernels"
)

// watching starts watch. screen waits for the next screen and looks for texts in it; end interrupts
// the program.
func watching(t *testing.T, cmd *exec.Cmd, stderr *bytes.Buffer) (screen func(want ...string), end func()) {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			lines <- in.Text()
		}
	}()
	screen = func(want ...string) {
		t.Helper()
		var text strings.Builder
		late := time.After(2 * time.Minute)
		for {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatalf("the program ended: %s", stderr)
				}
				text.WriteString(line + "\n")
				if !strings.HasSuffix(line, "Ctrl-C ends") { // the end of a screen
					continue
				}
			case <-late:
				t.Fatalf("no new result after %q", text.String())
			}
			break
		}
		for _, part := range want {
			if !strings.Contains(text.String(), part) {
				t.Errorf("the screen has no %q:\n%s", part, text.String())
			}
		}
	}
	end = func() {
		t.Helper()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		for range lines {
		}
		if code, died := exitOf(t, cmd.Wait()); code != exitInterrupted || stderr.Len() > 0 {
			t.Errorf("exit code %d, signal %v, standard error %q", code, died, stderr)
		}
	}
	return screen, end
}

// A change of the reference of a declared kernel shows a new result too.
func TestWatchDeclared(t *testing.T) {
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := toolchain.Installed(t.Context(), cacheDir); err != nil || testing.Short() || numpy() == "" {
		t.Skip("needs the pinned compiler and python3 with numpy")
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("../../internal/problem/declared/testdata/kernels/add")); err != nil {
		t.Fatal(err)
	}
	cmd, stderr := command(t, "watch", "add", "--device", "sim")
	cmd.Dir = folder
	cmd.Env = append(cmd.Env, "ATTUNE_CACHE="+cacheDir, "ATTUNE_PYTHON="+numpy())
	screen, end := watching(t, cmd, stderr)
	screen("add  ok       1/1", "correctness  pass")
	text := "def reference(axes, inputs):\n    raise ValueError('no luck')\n"
	if err := os.WriteFile(filepath.Join(folder, "reference.py"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	screen("add  -        0/1", "correctness  not measured  reference: reference.py: ValueError: no luck (line")
	end()
}

// Saving a file of the kernel's folder shows a new result. There is no compiler here: the shipped
// code is checked, and changed sources cannot be built.
func TestWatch(t *testing.T) {
	if _, err := toolchain.Find(t.Context(), t.TempDir()); err == nil {
		t.Skip("this machine has a compiler of its own")
	}
	folder := filepath.Join(t.TempDir(), "sdpa")
	if err := os.CopyFS(folder, kernels.SDPA()); err != nil {
		t.Fatal(err)
	}
	cmd, stderr := command(t, "watch", "stage2", "--kernel", folder, "--device", "sim", "--arch", "sm_89", "--shapes", "1x1x32x64")
	screen, end := watching(t, cmd, stderr)
	screen("stage2  ok       5/5", "resources    pass", "performance  not measured", "no compiler: ")

	source := filepath.Join(folder, "ladder", "sdpa.cu")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	save := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(source, 0o644); err != nil {
		t.Fatal(err)
	}
	save(source, string(text)+"// changed\n")
	screen("stage2  not checked", "no CUDA compiler")
	save(source, string(text))
	screen("stage2  ok       5/5")
	spec := filepath.Join(folder, "kernel.toml")
	if err := os.Chmod(spec, 0o644); err != nil {
		t.Fatal(err)
	}
	save(spec, "name = 3\n")
	screen("stage2  not checked", "kernel.toml:1: ")

	end()
	if _, err := os.Stat(filepath.Join(cmd.Dir, ".attune")); err == nil {
		t.Error("watch has recorded runs")
	}
}

func TestStamps(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.cu", "sub/b.cuh", ".a.cu.swp", "a.cu~", ".git/config"} {
		write(name, "x")
	}
	stamps, err := readStamps(dir)
	if err != nil || len(stamps) != 2 {
		t.Errorf("%v, %v; want a.cu and sub/b.cuh", stamps, err)
	}
	if _, err := readStamps(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a folder that does not exist")
	}
}
