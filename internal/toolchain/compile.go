package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// CompilePTX compiles a source in a folder to PTX, with the same bytes on every machine. A source
// that the compiler rejects is a CompileError.
func CompilePTX(ctx context.Context, c *Compiler, folder fs.FS, source, arch string) ([]byte, error) {
	files, err := readSources(folder, source)
	if err != nil {
		return nil, err
	}
	dir, err := workFolder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ptx, _, err := compilePTX(ctx, c, Target{Variant: source, Source: source, Arch: arch}, files, dir)
	return ptx, err
}

// workFolder makes a folder for the compiler. It resolves symbolic links, because nvcc writes the
// real path into the PTX.
func workFolder() (string, error) {
	dir, err := os.MkdirTemp("", "attune-build-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the compiler: %w", err)
	}
	return filepath.EvalSymlinks(dir)
}

// compilePTX writes the sources to a folder and compiles them there. It returns the PTX and nvcc's
// output.
func compilePTX(ctx context.Context, c *Compiler, t Target, files sources, dir string) (ptx []byte, warnings string, err error) {
	if err := files.writeTo(dir); err != nil {
		return nil, "", fmt.Errorf("write the sources: %w", err)
	}
	const file = "image.ptx"
	options := append(flags(t.Arch), t.defines()...)
	if warnings, err = run(ctx, t, dir, c.NVCC, append(options, "-ptx", "-o", file, t.Source)...); err != nil {
		return nil, "", err
	}
	if ptx, err = os.ReadFile(filepath.Join(dir, file)); err != nil {
		return nil, "", err
	}
	return portablePTX(ptx, dir), warnings, nil
}

// run runs a compiler in dir and returns its output. If the compiler rejects the target, the error
// is a CompileError with that output.
func run(ctx context.Context, t Target, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	killGroupOnCancel(cmd)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	lines := strings.ReplaceAll(out.String(), dir+"/", "")
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && wasKilled(exit):
		return "", fmt.Errorf("%s was killed; probably the machine ran out of memory", program)
	case errors.As(err, &exit):
		if !exit.Exited() {
			lines += fmt.Sprintf("%s crashed: %v\n", filepath.Base(program), err)
		}
		return "", &CompileError{Target: t, Output: lines}
	case err != nil:
		return "", fmt.Errorf("run %s: %w", program, err)
	}
	return withoutTimes(lines), nil
}

// wasKilled reports whether the compiler or one of its programs was killed. The variant did not
// cause that.
func wasKilled(exit *exec.ExitError) bool {
	const killedChild = 128 + int(syscall.SIGKILL) // nvcc's exit code for a program that was killed
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && (status.Signaled() && status.Signal() == syscall.SIGKILL || status.ExitStatus() == killedChild)
}

// killGroupOnCancel makes the cancellation of a command kill every process that it has started:
// nvcc runs several programs.
func killGroupOnCancel(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
}

// withoutTimes removes the lines of a log that differ from run to run.
func withoutTimes(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "Compile time =") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
