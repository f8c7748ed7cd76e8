package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"attune/examples"
	"attune/internal/run"
	"attune/internal/spec"
)

func (a *app) initCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "init EXAMPLE",
		Short: "write the folder of a new kernel, from an example that runs",
		Long: `Init copies an example into a new folder: kernel.toml, the CUDA source, a
reference in numpy and peers in PyTorch. It runs as it is.

  blank     y = a * x + y, with every part of kernel.toml explained
  gelu      an elementwise kernel: grid-stride loop, 128-bit loads, any length
  rmsnorm   a row per block: registers, warp shuffles, shared memory
  softmax   the same with two reductions
  reduce    a sum by a work queue that gives the same bits every time
  gemm      FP16 matrix product: wmma for sm_80, TMA and wgmma for sm_90a

The folder is EXAMPLE below the working directory unless --dir names another. A
folder that has files is refused.`,
		Example: `  attune init rmsnorm && attune run --kernel rmsnorm
  attune init blank --dir kernels/scale`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("init takes one example, such as `attune init rmsnorm`; there are %s", strings.Join(examples.Names(), ", "))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if dir == "" {
				dir = args[0]
			}
			return a.initialise(args[0], dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the `folder` to write (default: the name of the example)")
	return cmd
}

// initialise copies an example into a folder.
func (a *app) initialise(name, dir string) error {
	folder, ok := examples.Folder(name)
	if !ok {
		way := "there are " + strings.Join(examples.Names(), ", ")
		if nearest := spec.Nearest(name, examples.Names()); nearest != "" {
			way = fmt.Sprintf("did you mean %q?", nearest)
		}
		return usageError{fmt.Errorf("there is no example %q; %s", name, way)}
	}
	switch entries, err := os.ReadDir(dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return usageError{fmt.Errorf("%w; --dir names another folder", err)}
	case len(entries) > 0:
		return usageError{fmt.Errorf("the folder %s has files, such as %s; --dir names another", dir, entries[0].Name())}
	}
	if err := os.CopyFS(dir, folder); err != nil {
		return err
	}
	return a.printInitialised(dir, folder)
}

func (a *app) printInitialised(dir string, folder fs.FS) error {
	var files []string
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		files = append(files, entry.Name())
	}
	next := "attune run --kernel " + run.ShellWord(filepath.ToSlash(dir))
	if a.json {
		return a.printJSON(map[string]any{"schema_version": 1, "folder": dir, "files": files, "next": next})
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s\nnext: %s\n", dir, strings.Join(files, ", "), next)
	return err
}
