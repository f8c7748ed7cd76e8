package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"attune/internal/child"
	"attune/internal/document"
	"attune/internal/finding"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/problem/declared"
	"attune/internal/propose"
	"attune/internal/regular"
	"attune/internal/spec"
	"attune/internal/terminal"
	"attune/internal/toolchain"
	"attune/kernels"
)

// defaultKernelPath is the folder of the kernel of this repository.
const defaultKernelPath = "kernels"

// kernelPath is the folder of the kernel: the requested one, or else the working directory if it has
// a kernel.toml, or else the folder kernels below it. It is empty for the kernel in the program.
func (a *app) kernelPath() string {
	if a.kernelDir != "" {
		if filepath.Base(a.kernelDir) == spec.File { // of the file itself
			return filepath.Dir(a.kernelDir)
		}
		return a.kernelDir
	}
	for _, path := range []string{".", defaultKernelPath} {
		if _, err := os.Stat(filepath.Join(path, spec.File)); err == nil {
			return path
		}
	}
	return ""
}

// kernel loads the kernel's spec, and returns the folder with its sources.
func (a *app) kernel() (*spec.Kernel, fs.FS, error) {
	path, folder := a.kernelPath(), kernels.SDPA()
	if path != "" {
		folder = toolchain.Folder(path)
	}
	kernel, err := spec.Load(folder)
	if err != nil && path != "" && path != "." {
		err = fmt.Errorf("kernel %s: %w", path, err)
	}
	if err != nil {
		return nil, nil, usageError{err}
	}
	return kernel, folder, nil
}

// sources reads the kernel's sources for findings.
func (a *app) sources() finding.Sources {
	path := a.kernelPath()
	return func(file string) []byte {
		if path == "" {
			text, _ := fs.ReadFile(kernels.SDPA(), file) // without the source a finding has its place
			return text
		}
		return sourcesIn(path)(file)
	}
}

// longestSource limits a source whose lines are printed.
const longestSource = 16 << 20

// sourcesIn reads sources of a folder. A kernel names them, by #line or .file, so that they may be anything.
func sourcesIn(folder string) finding.Sources {
	within := toolchain.Folder(folder)
	return func(name string) []byte {
		file, err := within.Open(name)
		if err != nil {
			return nil // without the source a finding has its place
		}
		defer file.Close()
		text, _ := regular.ReadAll(file, name, longestSource)
		return text
	}
}

// git is the state of the repository with the kernel's folder, or of the one that the program was
// built from.
func (a *app) git(ctx context.Context) toolchain.Git {
	if path := a.kernelPath(); path != "" {
		return toolchain.ReadGit(ctx, path)
	}
	g, _ := builtFrom()
	return g
}

// builder builds images with the machine's compiler. Without one it has the shipped images, and the
// compiler is nil.
func (a *app) builder(ctx context.Context, folder fs.FS) (*toolchain.Builder, *toolchain.Compiler, error) {
	cacheDir, err := toolchain.CacheDir()
	if err != nil && !errors.Is(err, toolchain.ErrNoCacheDir) { // builds need no cache
		return nil, nil, err
	}
	compiler, err := toolchain.Find(ctx, cacheDir)
	if err != nil {
		compiler = nil
		a.noCompiler = err
	}
	images := toolchain.NewBuilder(folder, compiler, cacheDir)
	images.Note, images.Dir = a.note, a.kernelPath()
	return images, compiler, nil
}

// checkEnvironment is an error if a variable with a limit of a program has no such form. Without it a
// run would report the failure of every reference, of every build or of the proposer.
func checkEnvironment() error {
	errs := []error{toolchain.CheckLimits()}
	for _, variable := range []string{declared.MemoryVariable, propose.MemoryVariable} {
		_, err := child.EnvironmentMemory(variable, 0)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a *app) ledgerPath() string {
	if a.ledgerDir != "" {
		return a.ledgerDir
	}
	if dir := os.Getenv("ATTUNE_LEDGER"); dir != "" {
		return dir
	}
	return ".attune"
}

func (a *app) openLedger(ctx context.Context) (*ledger.Ledger, error) {
	kept, err := ledger.Open(ctx, a.ledgerPath())
	if err == nil {
		kept.Note = a.note
	}
	return kept, err
}

// openRecordingLedger opens a ledger and checks that it can take a record. A read-only folder or a
// full disk is thus found before minutes of measuring.
func (a *app) openRecordingLedger(ctx context.Context) (*ledger.Ledger, error) {
	kept, err := a.openLedger(ctx)
	if err != nil {
		return nil, err
	}
	if err := kept.Ready(); err != nil {
		kept.Close()
		return nil, err
	}
	return kept, nil
}

// readLedger opens a ledger to read it. A folder that is named and does not exist is a mistake.
func (a *app) readLedger(ctx context.Context) (*ledger.Ledger, error) {
	if _, err := os.Stat(a.ledgerPath()); a.ledgerDir != "" && errors.Is(err, fs.ErrNotExist) {
		return nil, lab.RequestError(fmt.Sprintf("there is no ledger %s; --ledger names a folder of records, such as results", a.ledgerPath()))
	}
	return a.openLedger(ctx)
}

// workplace is a lab with its progress on the status line.
type workplace struct {
	*lab.Lab
	status   *terminal.Status
	compiler *toolchain.Compiler // nil if there is none
	last     lab.Progress
}

// newWorkplace is a workplace without ledger and device. The caller closes it.
func (a *app) newWorkplace(ctx context.Context, kernel *spec.Kernel, folder fs.FS) (*workplace, error) {
	images, compiler, err := a.builder(ctx, folder)
	if err != nil {
		return nil, err
	}
	w := &workplace{status: a.status(), compiler: compiler}
	started, began := time.Now(), time.Duration(0)
	w.Lab = &lab.Lab{
		Kernel: kernel, Builder: images, ReferenceLimit: defaultReferenceLimit, Describe: document.Describe,
		Progress: func(p lab.Progress) {
			elapsed := time.Since(started)
			if p.Share != w.last.Share {
				began = elapsed
			}
			w.last = p
			w.status.Set("%s%s", progressText(p), timeLeft(p.Share, began, elapsed))
		},
	}
	return w, nil
}

// newRecordingWorkplace is a workplace with a ledger.
func (a *app) newRecordingWorkplace(ctx context.Context, kernel *spec.Kernel, folder fs.FS) (*workplace, error) {
	w, err := a.newWorkplace(ctx, kernel, folder)
	if err != nil {
		return nil, err
	}
	w.Git, w.Version = a.git(ctx), version()
	w.Ledger, err = a.openRecordingLedger(ctx)
	return w, err
}

// close clears the status line and closes the ledger.
func (w *workplace) close() {
	w.status.Clear()
	if w.Ledger != nil {
		w.Ledger.Close()
	}
}

func progressText(p lab.Progress) string {
	if p.Total > 0 {
		return fmt.Sprintf("%s: %s (%d of %d)", p.Subject, p.Step, p.Done+1, p.Total)
	}
	return fmt.Sprintf("%s: %s", p.Subject, p.Step)
}
