package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"attune/clib"
	"attune/internal/form"
	"attune/internal/regular"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

type exportOptions struct {
	folder string
	with   *string // nil if it is not given
}

func (a *app) exportCommand() *cobra.Command {
	var o exportOptions
	var with string
	cmd := &cobra.Command{
		Use:   "export SELECTION",
		Short: "write a selection as a C library",
		Long: `Export writes the C library attune_sdpa, which launches the variants of a
selection, kernels for few query rows, for options and for 16-bit tensors, and
the quantisers: header, sources, images, CMake and pkg-config files, and an
example. It builds with any C11 compiler, and needs only NVIDIA's driver to run.

The images are machine code if a CUDA compiler is installed, else the PTX that
attune ships, which the driver compiles at the first call. With a compiler each
variant of the selection is built for O in FP16 and BF16, with and without the
log-sum-exp of each row. --with builds fewer of them.

Files that export wrote before are replaced, other files never.`,
		Example: `  attune export stage7 -o sdpa
  attune export stage7-fast --with bf16 -o sdpa
  cmake -S sdpa -B build && cmake --build build && build/example`,
		Args: exactly("SELECTION", "stage7"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("with") {
				o.with = &with
			}
			return a.export(cmd.Context(), o, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.folder, "output", "o", "attune_sdpa", "`folder` for the library")
	f.StringVar(&with, "with", "", "outputs of stage7's forms beside FP16, with commas: bf16, lse")
	return cmd
}

// exported is the JSON document of `attune export`.
type exported struct {
	SchemaVersion int         `json:"schema_version"`
	Selection     string      `json:"selection"`
	Arch          string      `json:"arch"`
	Images        string      `json:"images"` // cubin or PTX
	Variants      []string    `json:"variants"`
	Folder        string      `json:"folder"`
	Files         []clib.File `json:"files"`
}

func (a *app) export(ctx context.Context, o exportOptions, name string) error {
	if o.folder == "" {
		return usageError{errors.New("-o needs the name of a folder")}
	}
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	selection, err := exportable(kernel, name)
	if err != nil {
		return usageError{err}
	}
	if err := regular.Writable(o.folder); err != nil { // before minutes of compilation
		return fmt.Errorf("the library cannot be written to %s: %w; name another folder with -o", o.folder, err)
	}
	const nothing = "nothing was written"
	outputs, err := a.outputs(ctx, o)
	if err != nil {
		return interruptedWith(ctx, err, nothing)
	}
	plan, err := clib.NewPlan(kernel, folder, selection, outputs)
	if err != nil {
		return usageError{err}
	}
	images, err := a.buildPlan(ctx, plan)
	if err != nil {
		return interruptedWith(ctx, err, nothing)
	}
	l := plan.Library(images, version())
	files, err := clib.Write(o.folder, l)
	if err != nil {
		return err
	}
	kind, _ := form.Dense(l.Images[0][0]).Code()
	document := exported{SchemaVersion: 1, Selection: name, Arch: l.Arch, Images: kind, Folder: o.folder, Files: files}
	for _, item := range plan.Items {
		document.Variants = append(document.Variants, item.Target.Variant)
	}
	if a.json {
		return a.printJSON(document)
	}
	return a.printExported(document)
}

// outputs are those of --with, or without it all that can be built: the shipped images write FP16
// without LSE.
func (a *app) outputs(ctx context.Context, o exportOptions) ([]int, error) {
	if o.with != nil {
		outputs, err := parseOutputs(*o.with)
		if err != nil {
			return nil, usageError{err}
		}
		return outputs, nil
	}
	_, compiler, err := a.builder(ctx, nil)
	if err != nil || compiler == nil {
		return []int{0}, err
	}
	return parseOutputs("bf16,lse")
}

// parseOutputs reads --with. The first output is always FP16 without LSE.
func parseOutputs(text string) ([]int, error) {
	bits := 0
	for item := range strings.SplitSeq(text, ",") {
		switch item {
		case "":
		case "bf16":
			bits |= clib.BF16
		case "lse":
			bits |= clib.LSE
		default:
			return nil, fmt.Errorf("--with %q: there are bf16, lse", item)
		}
	}
	var outputs []int
	for output := range clib.Outputs {
		if output&^bits == 0 {
			outputs = append(outputs, output)
		}
	}
	return outputs, nil
}

// exportable finds a selection of attention kernels.
func exportable(kernel *spec.Kernel, name string) (*spec.Selection, error) {
	if kernel.Declared != nil {
		if _, isForm := kernels.All()["attention/"+kernel.Name]; isForm {
			return nil, fmt.Errorf("the library of each selection of sdpa has the forms of %s; leave out --kernel: attune export stage7", kernel.Name)
		}
		return nil, fmt.Errorf("%s is not an attention kernel; the C library computes attention", kernel.Name)
	}
	if s := kernel.Selection(name); s != nil {
		return s, nil
	}
	var names []string
	for _, s := range kernel.Selections {
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no selection to export", kernel.Name)
	}
	what := "there is no selection %q; there are %s"
	if _, err := kernel.Variant(name); err == nil {
		what = "%q is a variant, and export takes a selection: %s"
	}
	return nil, fmt.Errorf(what, name, strings.Join(names, ", "))
}

// buildPlan builds the images of a library, several at a time.
func (a *app) buildPlan(ctx context.Context, plan *clib.Plan) ([]*toolchain.Image, error) {
	var builders []*toolchain.Builder
	for i, folder := range plan.Folders {
		builder, _, err := a.builder(ctx, folder)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			builder.Dir = "" // of the kernel on disk; the others are embedded
		}
		builders = append(builders, builder)
	}
	var names []string
	for _, item := range plan.Items {
		names = append(names, item.Target.Variant)
	}
	built := make([]*toolchain.Image, len(names))
	err := a.inParallel(ctx, names, func(ctx context.Context, i int) (err error) {
		built[i], _, err = builders[plan.Items[i].Folder].Build(ctx, plan.Items[i].Target)
		return err
	})
	return built, err
}

// inParallel builds all names with as many compilers as there are cores. The first error ends it.
func (a *app) inParallel(ctx context.Context, names []string, build func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	status := a.status()
	defer status.Clear()
	var mu sync.Mutex
	done := 0
	var running sync.WaitGroup
	slots := make(chan struct{}, runtime.NumCPU())
	for i, name := range names {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		status.Set("building %d of %d: %s", i+1, len(names), name)
		running.Go(func() {
			defer func() { <-slots }()
			if err := build(ctx, i); err != nil {
				cancel(err)
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			status.Set("built %d of %d", done, len(names))
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

func (a *app) printExported(d exported) error {
	out := &strings.Builder{}
	how := "machine code"
	if d.Images != form.Cubin {
		how = "PTX, which the driver compiles: no compiler is installed"
	}
	fmt.Fprintf(out, "%s for %s: %d variants as %s\n", d.Selection, d.Arch, len(d.Variants), how)
	total := 0
	for _, f := range d.Files {
		fmt.Fprintf(out, "  %-20s %9d bytes\n", f.Name, f.Bytes)
		total += f.Bytes
	}
	fmt.Fprintf(out, "%d files, %.1f MB, in %s\n", len(d.Files), float64(total)/1e6, d.Folder)
	_, err := io.WriteString(a.stdout, out.String())
	return err
}
