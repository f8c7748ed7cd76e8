package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/arch"
	"attune/internal/exec"
	"attune/internal/run"
	"attune/internal/toolchain"
)

// archVariable names the architecture that `attune nvcc` compiles for.
const archVariable = "ATTUNE_EXEC_ARCH"

func (a *app) nvccCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "nvcc [ARG...]",
		Short: "compile as nvcc does, for programs that attune exec runs",
		Long: `Nvcc runs NVIDIA's nvcc with the same arguments, for programs that "attune
exec" runs: it compiles PTX for the simulated device in the place of other
architectures, keeps line numbers, and links attune's runtime library.

"attune nvcc --print-path" prints the path of a program that does the same, for
build systems that take the compiler as a path. ` + archVariable + ` sets another
device than sm_90a.`,
		Example:            "  attune nvcc -O2 -o saxpy saxpy.cu\n  make NVCC=\"attune nvcc\"\n  cmake -B build -DCMAKE_CUDA_COMPILER=$(attune nvcc --print-path)",
		DisableFlagParsing: true,
		Hidden:             true, // the help of exec names it
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0, slices.Contains([]string{"-h", "--help"}, args[0]):
				return cmd.Help()
			case args[0] == "--print-path":
				return a.printCompilerPath(cmd.Context())
			}
			return a.nvcc(cmd.Context(), args)
		},
	}
}

// execTools are what programs for the simulator are built with.
type execTools struct {
	cacheDir string
	compiler *toolchain.Compiler
	library  string // folder of attune's libraries
}

func findExecTools(ctx context.Context) (t execTools, err error) {
	if t.cacheDir, err = toolchain.CacheDir(); err != nil {
		return t, err
	}
	if t.compiler, err = toolchain.Find(ctx, t.cacheDir); err != nil {
		return t, err
	}
	t.library, err = exec.Library(ctx, t.cacheDir)
	return t, err
}

// nvcc runs the compiler with changed arguments.
func (a *app) nvcc(ctx context.Context, args []string) error {
	tools, err := findExecTools(ctx)
	if err != nil {
		return err
	}
	compiler, library := tools.compiler, tools.library
	device := os.Getenv(archVariable)
	if device == "" {
		device = defaultArch
	}
	if number, _ := arch.Number(device); number < arch.FirstSimulated {
		return usageError{fmt.Errorf("%s=%s: the simulator has %s", archVariable, device, arch.SimulatedText)}
	}
	command := osexec.CommandContext(ctx, compiler.NVCC, append(exec.CompileFlags(compiler, library, device), withoutArch(args)...)...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	if slices.ContainsFunc(args, isVerbose) {
		// CMake reads from the verbose output where the toolkit is, and looks for its libraries there.
		command.Stderr = &replacer{to: os.Stderr, old: []byte("TOP=" + filepath.Dir(compiler.NVCC) + "/.."), new: []byte("TOP=" + toolkitFolder(tools.cacheDir))}
	}
	err = command.Run()
	if exit, ok := errors.AsType[*osexec.ExitError](err); ok {
		return gateError{exit.ExitCode()}
	}
	return err
}

// archFlags are the flags of nvcc that name architectures or the runtime library, each with a value.
var archFlags = []string{
	"-arch", "--gpu-architecture", "-code", "--gpu-code", "-gencode", "--generate-code", "-cudart", "--cudart",
}

// withoutArch removes the flags that exec.CompileFlags replaces.
func withoutArch(args []string) []string {
	var kept []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(args[i], "=")
		if !slices.Contains(archFlags, name) {
			kept = append(kept, args[i])
			continue
		}
		if !joined {
			i++ // its value
		}
	}
	return kept
}

// isVerbose reports whether a flag makes nvcc print its commands.
func isVerbose(flag string) bool {
	return slices.Contains([]string{"-v", "--verbose", "-dryrun", "--dryrun"}, flag)
}

// replacer replaces a text in what is written to it. The text must not be split between writes.
type replacer struct {
	to       io.Writer
	old, new []byte
}

func (r *replacer) Write(data []byte) (int, error) {
	_, err := r.to.Write(bytes.ReplaceAll(data, r.old, r.new))
	return len(data), err
}

// toolkitFolder is a folder that looks like a CUDA toolkit to build systems.
func toolkitFolder(cacheDir string) string { return filepath.Join(cacheDir, "exec", "toolkit") }

// printCompilerPath makes a folder like that of a CUDA toolkit, whose nvcc is `attune nvcc`, and prints
// the path of that nvcc.
func (a *app) printCompilerPath(ctx context.Context) error {
	tools, err := findExecTools(ctx)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	toolkit := toolkitFolder(tools.cacheDir)
	root := filepath.Dir(filepath.Dir(tools.compiler.NVCC))
	if err := os.MkdirAll(filepath.Join(toolkit, "bin"), 0o755); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"include": filepath.Join(root, "include"), "nvvm": filepath.Join(root, "nvvm"), "lib64": exec.LinkFolder(tools.compiler, tools.library),
	} {
		if err := relink(filepath.Join(toolkit, name), target); err != nil {
			return err
		}
	}
	path := filepath.Join(toolkit, "bin", "nvcc")
	script := fmt.Sprintf("#!/bin/sh\nexec %s nvcc \"$@\"\n", run.ShellWord(self))
	if err := os.WriteFile(path+".new", []byte(script), 0o755); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, path)
	return err
}

// relink makes a symbolic link, in the place of an older one.
func relink(link, target string) error {
	if old, err := os.Readlink(link); err == nil && old == target {
		return nil
	}
	if err := os.Remove(link + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, link+".new"); err != nil {
		return err
	}
	return os.Rename(link+".new", link)
}
