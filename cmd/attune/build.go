package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/form"
	"attune/internal/lab"
	"attune/internal/problem"
	"attune/internal/regular"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

type buildOptions struct {
	arch, emit, folder string
}

func (a *app) buildCommand() *cobra.Command {
	var o buildOptions
	cmd := &cobra.Command{
		Use:   "build [VARIANT]",
		Short: "compile a variant and report its resources",
		Long: `Build compiles a variant to PTX and machine code and prints registers, shared
memory, spills and the hash of the machine code. Builds are cached.`,
		Example: `  attune build stage2 --arch sm_89 --emit ptx,cubin,log -o out
  attune build stage2+TILE_N=32 --json`,
		Args: a.oneVariant("VARIANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			variant, err := a.variantArgument(args)
			if err != nil {
				return err
			}
			return a.build(cmd.Context(), o, variant)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.arch, "arch", "", "architecture, such as sm_89 (default: the newest of the stage)")
	f.StringVar(&o.emit, "emit", "", "files to write, with commas: ptx, cubin, sass, log")
	f.StringVarP(&o.folder, "output", "o", ".", "`folder` for the files")
	return cmd
}

// built is the JSON document of `attune build`.
type built struct {
	SchemaVersion int `json:"schema_version"`
	toolchain.Record
	Registers   int               `json:"registers"`
	SharedBytes int               `json:"shared_bytes"`
	SpillBytes  int               `json:"spill_bytes"`
	Origin      toolchain.Origin  `json:"origin"`
	Git         toolchain.Git     `json:"git"`
	Files       map[string]string `json:"files,omitempty"`
}

func (a *app) build(ctx context.Context, o buildOptions, text string) error {
	kinds, err := parseEmit(o.emit)
	if err != nil {
		return usageError{err}
	}
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	v, err := kernel.Variant(text)
	if err != nil {
		return usageError{err}
	}
	if o.arch, err = lab.Arch(v.Stage(), o.arch, ""); err != nil {
		return err
	}
	images, compiler, err := a.builder(ctx, folder)
	if err != nil {
		return err
	}
	status := a.status()
	status.Set("building %s for %s", v, o.arch)
	image, origin, err := images.Build(ctx, form.Target(kernel, v, o.arch))
	status.Clear()
	if err != nil {
		return err
	}
	if err := setSharedBytes(kernel, v, folder, image); err != nil {
		return err
	}
	files, err := emit(ctx, image, compiler, kinds, o.folder)
	if err != nil {
		return err
	}
	need := image.Record.Resources
	document := built{
		SchemaVersion: 1, Record: image.Record, Registers: need.Registers, SharedBytes: need.SharedBytes(), SpillBytes: need.SpillBytes(),
		Origin: origin, Git: a.git(ctx), Files: files,
	}
	if len(kinds) > 0 {
		files["record"] = filepath.Join(o.folder, fmt.Sprintf("%s.%s.json", v, o.arch))
		if err := writeRecord(document, files["record"]); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(document)
	}
	return a.printBuild(document)
}

// setSharedBytes enters the dynamic shared memory of a declared kernel: the most that a shape of
// kernel.toml needs. The code does not say it.
func setSharedBytes(kernel *spec.Kernel, v spec.Variant, folder fs.FS, image *toolchain.Image) error {
	if kernel.Declared == nil {
		return nil
	}
	var shapes []spec.Shape
	for _, g := range kernel.Groups {
		shapes = append(shapes, g.Shapes...)
	}
	bytes, err := lab.NewProblem(kernel, folder, "").SharedBytes(problem.Build{Variant: v, Image: image}, shapes)
	if err != nil {
		return usageError{err}
	}
	image.Record.Resources.DynamicSharedBytes = bytes
	return nil
}

func (a *app) printBuild(b built) error {
	out, need := &strings.Builder{}, b.Record.Resources
	fmt.Fprintf(out, "%s for %s (%s, %s)\n", b.Variant, b.Arch, b.Compiler, b.Origin)
	fmt.Fprintf(out, "  registers     %d\n  shared bytes  %d static, %d dynamic\n  spill bytes   %d stores, %d loads\n", need.Registers,
		need.StaticSharedBytes, need.DynamicSharedBytes, need.SpillStoreBytes, need.SpillLoadBytes)
	fmt.Fprintf(out, "  stack bytes   %d\n  barriers      %d\n  code hash     %s\n", need.StackBytes, need.Barriers, b.CodeHash)
	for _, kind := range slices.Sorted(maps.Keys(b.Files)) {
		fmt.Fprintf(out, "  %-13s %s\n", kind, b.Files[kind])
	}
	_, err := io.WriteString(a.stdout, out.String())
	return err
}

var emitKinds = []string{"ptx", "cubin", "sass", "log"}

func parseEmit(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	kinds := strings.Split(text, ",")
	for _, kind := range kinds {
		if !slices.Contains(emitKinds, kind) {
			return nil, fmt.Errorf("--emit %q: there are %s", kind, strings.Join(emitKinds, ", "))
		}
	}
	return kinds, nil
}

// emit writes the requested parts of an image. File names have variant and architecture.
func emit(ctx context.Context, image *toolchain.Image, compiler *toolchain.Compiler, kinds []string, dir string) (map[string]string, error) {
	parts := map[string][]byte{"ptx": image.PTX, "log": []byte(image.Log), "cubin": image.Cubin}
	for _, kind := range kinds {
		if image.Cubin == nil && (kind == "cubin" || kind == "sass") {
			return nil, fmt.Errorf("--emit %s: %w on this machine, and shipped images have no machine code", kind, toolchain.ErrNoCompiler)
		}
		if kind == "sass" {
			text, err := toolchain.Disassemble(ctx, compiler, image.Cubin)
			if err != nil {
				return nil, err
			}
			parts[kind] = []byte(text)
		}
	}
	files := map[string]string{}
	for _, kind := range kinds {
		files[kind] = filepath.Join(dir, fmt.Sprintf("%s.%s.%s", image.Record.Variant, image.Record.Arch, kind))
		if err := writeFile(files[kind], parts[kind]); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// writeRecord writes the build record.
func writeRecord(document built, name string) error {
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(name, append(text, '\n'))
}

func writeFile(name string, data []byte) error {
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = regular.Write(name, data)
	}
	if err != nil {
		return fmt.Errorf("write the build: %w", err)
	}
	return nil
}
