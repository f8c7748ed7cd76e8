package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"attune/internal/terminal"
)

// CompilePTX compiles a source in a folder to PTX, with the same bytes on every machine. A source
// that the compiler rejects is a CompileError, one that attune rejects a SourceError; a compiler
// that does not work is a FaultError. The folders of -I among the flags are relative to the working
// directory. The PTX names their headers relative to dir, which is the folder on disk; it may be
// empty.
func CompilePTX(ctx context.Context, c *Compiler, folder fs.FS, dir, source, arch string, flags ...string) ([]byte, error) {
	t := Target{Variant: source, Source: source, Arch: arch, Flags: flags}
	own, err := splitFlags(flags, ".")
	if err != nil {
		return nil, err
	}
	files, err := readForeign(folder, source, own)
	if err != nil {
		return nil, forTarget(t, err)
	}
	work, err := workFolder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	ptx, _, err := compilePTX(ctx, c, t, files, own.renamed(dir), work)
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
func compilePTX(ctx context.Context, c *Compiler, t Target, files sources, own compilerFlags, dir string) (ptx []byte, warnings string, err error) {
	if err := files.writeTo(dir, own.tree != nil); err != nil {
		return nil, "", fmt.Errorf("write the sources: %w", err)
	}
	own = own.written(dir)
	const file = "image.ptx"
	options := t.options(own)
	if err := c.check(ctx, t); err != nil {
		return nil, "", err
	}
	warnings, err = c.run(ctx, t, dir, c.NVCC, append(options, "--keep", "-ptx", "-o", file, t.Source)...)
	refused, ok := errors.AsType[*CompileError](err)
	if err != nil && !ok {
		return nil, "", err
	}
	messages := ""
	if refused != nil {
		messages = refused.Output
	}
	// Before the compiler's messages are passed on: they may quote a file that was not to be read.
	if err := checkIncluded(c, t, dir, own.include, messages); err != nil {
		return nil, "", err
	}
	if refused != nil {
		refused.Output = own.withNames(refused.Output)
		return nil, "", err
	}
	if ptx, err = c.output(ctx, t, c.NVCC, filepath.Join(dir, file), completePTX); err != nil {
		return nil, "", err
	}
	return portablePTX(ptx, dir, own), own.withNames(kept(warnings)), nil
}

// run runs a program of the compiler in dir and returns its output. The error is a CompileError if
// the program rejects the target, and a FaultError if it does not work.
func (c *Compiler) run(ctx context.Context, t Target, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	out, err := supervised(ctx, cmd)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	lines := strings.ReplaceAll(terminal.Printable(out), dir+"/", "") // it quotes sources, which may have escapes
	switch {
	case errors.Is(err, errPrinted):
		return "", &SourceError{t, fmt.Sprintf("%v, which begin with:\n%s", err, kept(lines[:min(len(lines), 1<<10)]))}
	case errors.As(err, new(*limitError)):
		return "", &SourceError{t, err.Error()}
	case err != nil:
		return "", c.diagnose(ctx, t, program, err, kept(lines))
	}
	return withoutTimes(lines), nil
}

// output reads a file that a program of the compiler has written. A missing or incomplete file is a
// FaultError: the program has reported success.
func (c *Compiler) output(ctx context.Context, t Target, program, file string, complete func([]byte) bool) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err == nil && complete(data) {
		return data, nil
	}
	problem := "wrote an incomplete " + filepath.Base(file)
	if errors.Is(err, fs.ErrNotExist) {
		problem = "wrote no " + filepath.Base(file)
	} else if err != nil {
		return nil, err
	}
	return nil, c.broken(ctx, t, filepath.Base(program)+" reported success and "+problem)
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
