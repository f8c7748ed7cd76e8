package main

import (
	"context"
	"errors"
	"fmt"
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
				return a.printCompilerPath()
			}
			return a.nvcc(cmd.Context(), args)
		},
	}
}

// nvcc runs the compiler with changed arguments.
func (a *app) nvcc(ctx context.Context, args []string) error {
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		return err
	}
	compiler, err := toolchain.Find(ctx, cacheDir)
	if err != nil {
		return err
	}
	library, err := exec.Library(ctx, cacheDir)
	if err != nil {
		return err
	}
	device := os.Getenv(archVariable)
	if device == "" {
		device = defaultArch
	}
	if number, _ := arch.Number(device); number < arch.FirstSimulated {
		return usageError{fmt.Errorf("%s=%s: the simulator has %s", archVariable, device, arch.SimulatedText)}
	}
	command := osexec.CommandContext(ctx, compiler.NVCC, append(exec.CompileFlags(compiler, library, device), withoutArch(args)...)...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
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

// printCompilerPath writes a program that runs `attune nvcc`, and prints its path.
func (a *app) printCompilerPath() error {
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := filepath.Join(cacheDir, "exec", "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, "nvcc")
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
