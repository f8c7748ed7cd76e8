package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"attune/internal/device"
	"attune/internal/device/isolate"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/report"
	"attune/internal/spec"
	"attune/internal/terminal"
	"attune/internal/toolchain"
	"attune/kernels"
)

// kernel finds the kernel's folder: the one asked for, the one in the working directory, or the one in the program.
func (a *app) kernel() (*spec.Kernel, fs.FS, error) {
	const here = "kernels/sdpa"
	if _, err := os.Stat(filepath.Join(here, spec.File)); err == nil && a.kernelDir == "" {
		a.kernelDir = here
	}
	folder := kernels.SDPA()
	if a.kernelDir != "" {
		folder = os.DirFS(a.kernelDir)
	}
	kernel, err := spec.Load(folder)
	if err != nil && a.kernelDir != "" {
		err = fmt.Errorf("kernel %s: %w", a.kernelDir, err)
	}
	if err != nil {
		return nil, nil, usageError{err}
	}
	return kernel, folder, nil
}

// git is the state of the repository that the kernel comes from: its folder's, or the one that the program was built from.
func (a *app) git(ctx context.Context) toolchain.Git {
	if a.kernelDir != "" {
		return toolchain.ReadGit(ctx, a.kernelDir)
	}
	return builtFrom()
}

// builder makes images with the machine's compiler, or gives shipped ones where it has none.
func (a *app) builder(ctx context.Context, folder fs.FS) (*toolchain.Builder, *toolchain.Compiler, error) {
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		return nil, nil, err
	}
	compiler, err := toolchain.Find(ctx, cacheDir)
	if err != nil {
		compiler = nil // shipped images need none
		a.noCompiler = err
	}
	return toolchain.NewBuilder(folder, compiler, cacheDir), compiler, nil
}

// newLab is a lab that tells of its steps on the status line. One that records is given the rest by its verb.
func newLab(kernel *spec.Kernel, images *toolchain.Builder, status *terminal.Status) *lab.Lab {
	return &lab.Lab{
		Kernel: kernel, Builder: images, Watch: func(e lab.Event) { status.Set("%s", statusText(e)) },
		Render: report.Markdown, RenderBench: report.BenchMarkdown,
	}
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
	return ledger.Open(ctx, a.ledgerPath())
}

// serverVerb is the hidden verb by which the program serves a machine to itself.
const serverVerb = "device-server"

// defaultLimit is how long a device may take over one job.
const defaultLimit = 60 * time.Second

// child says how the program starts itself as a server of a device by its name (cuda, cuda:1).
func (a *app) child(name string, limit time.Duration) (isolate.Options, error) {
	index, err := deviceIndex(name)
	if err != nil {
		return isolate.Options{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return isolate.Options{}, fmt.Errorf("find the program to start it again: %w", err)
	}
	return isolate.Options{Command: []string{self, serverVerb, strconv.Itoa(index)}, Limit: limit, Stderr: a.stderr}, nil
}

// opener gives a function that opens a device by its name in a process of its own.
// With the name of a tool of compute-sanitizer the process runs under it.
func (a *app) opener(name string, limit time.Duration, sanitizer string) (func(context.Context) (device.Device, error), error) {
	o, err := a.child(name, limit)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (device.Device, error) {
		if sanitizer != "" {
			return isolate.StartSanitized(ctx, o, sanitizer)
		}
		return isolate.Start(ctx, o)
	}, nil
}

// deviceIndex reads cuda or cuda:N.
func deviceIndex(name string) (int, error) {
	kind, number, numbered := strings.Cut(name, ":")
	index := 0
	var err error
	if numbered {
		index, err = strconv.Atoi(number)
	}
	if kind != "cuda" || err != nil || index < 0 {
		return 0, usageError{fmt.Errorf("unknown device %q; there are auto, cuda, cuda:N and sim", name)}
	}
	return index, nil
}
