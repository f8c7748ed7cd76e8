package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"attune/internal/array"
	"attune/internal/cases"
	"attune/internal/device/isolate"
	"attune/internal/regular"
	"attune/internal/toolchain"
)

// directHelp describes --arg and --save.
const directHelp = `  --arg f32:in:x.npy           a buffer that the kernel reads
  --arg f32:in:normal:64x32    a drawn one: normal, uniform(a,b), zeros, ones,
                               iota, integers(a,b), offsets(a,b)
  --arg f32:in:[1,2.5,3]       one with these values
  --arg f32:inout:x.npy        a buffer that the kernel reads and writes
  --arg f32:out:1024           one that the kernel must fill
  --arg u32:scratch:64         one for its own use, zero before the first launch;
                               u32:scratch:64:zero before every launch
  --arg i32:1024               a scalar; y=f32:out:1024 has a name

Types: f64 f32 f16 bf16 e4m3 e5m2 i8 u8 i32 u32 i64 u64. A file is .npy, or
x.safetensors#tensor; f32 and f64 are rounded to the type. --save y.npy writes
the output, y:y.npy or 1:y.npy one of several, out.safetensors all. A run passes
if the checkers find nothing, outputs are written and inputs are unchanged. A
tensor map has no --arg: use a case, or a kernel.toml ("attune help kernels").
`

const directExamples = `  attune sim saxpy.cu --grid 4 --block 256 --arg i32:1000 --arg f32:2 \
    --arg f32:in:normal:1000 --arg f32:inout:y.npy --save z.npy
  attune sim k.cu --flag -I../include --grid 8 --block 64 --device cuda
`

// directOptions describe the launch of a kernel.
type directOptions struct {
	entry, arch, device  string
	grid, block, cluster string
	shared               int
	cooperative          bool
	compiler, args, save []string
	seed                 uint64
}

// directFlags are the names of the flags.
var directFlags = []string{
	"entry", "grid", "block", "cluster", "shared", "cooperative", "arch", "flag", "arg", "save", "seed", "device",
}

func (o *directOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.entry, "entry", "", "kernel: its entry function, if there are several")
	f.StringVar(&o.grid, "grid", "", "kernel: blocks, as 32 or 8,4,2")
	f.StringVar(&o.block, "block", "", "kernel: threads of a block")
	f.StringVar(&o.cluster, "cluster", "", "kernel: blocks of a cluster")
	f.IntVar(&o.shared, "shared", 0, "kernel: bytes of dynamic shared memory")
	f.BoolVar(&o.cooperative, "cooperative", false, "kernel: launch a cooperative grid")
	f.StringVar(&o.arch, "arch", "", "kernel: architecture (default sm_90a, or the PTX's)")
	f.StringArrayVar(&o.compiler, "flag", nil, "kernel: a flag of nvcc; repeat for more")
	f.StringArrayVar(&o.args, "arg", nil, "kernel: an argument, in order; repeat for more")
	f.StringArrayVar(&o.save, "save", nil, "kernel: write an output to [NAME|INDEX:]FILE")
	f.Uint64Var(&o.seed, "seed", 0, "kernel: seed of drawn buffers")
	f.StringVar(&o.device, "device", simDevice, "kernel: sim, cuda or cuda:N")
}

// isKernel reports whether a file is a kernel and not a case.
func isKernel(file string) bool {
	return slices.Contains([]string{".cu", ".ptx"}, filepath.Ext(file))
}

// checkFiles checks the files of the command line, and that flags of a kernel come with one.
func (o *directOptions) checkFiles(f *pflag.FlagSet, files []string) error {
	if len(files) == 0 {
		return errors.New("sim takes a kernel or one CASE.json or more, such as `attune sim race.json`")
	}
	if slices.ContainsFunc(files, isKernel) {
		if len(files) > 1 {
			return errors.New("sim takes one kernel at a time, without cases beside it")
		}
		for _, missing := range []struct{ name, value string }{{"grid", o.grid}, {"block", o.block}} {
			if missing.value == "" {
				return fmt.Errorf("--%s is missing; a launch needs it, such as --%s 32", missing.name, missing.name)
			}
		}
		return nil
	}
	for _, name := range directFlags {
		if f.Changed(name) {
			return fmt.Errorf("--%s is for a kernel (.cu or .ptx); a case has its own launch", name)
		}
	}
	return nil
}

// launch reads the launch from the flags. It has no PTX yet.
func (o *directOptions) launch(file string) (cases.Launch, error) {
	l := cases.Launch{Name: file, Arch: o.arch, Entry: o.entry, Shared: o.shared, Cooperative: o.cooperative}
	for _, part := range []struct {
		name, text string
		into       *[3]int
	}{{"grid", o.grid, &l.Grid}, {"block", o.block, &l.Block}, {"cluster", o.cluster, &l.Cluster}} {
		var err error
		if *part.into, err = parseExtents(part.text); err != nil {
			return l, fmt.Errorf("--%s %s: %w", part.name, part.text, err)
		}
	}
	if err := checkBlock(o.block, l.Block); err != nil {
		return l, err
	}
	if o.shared < 0 {
		return l, fmt.Errorf("--shared %d: want 0 or more bytes", o.shared)
	}
	for i, text := range o.args {
		arg, err := cases.ParseArgument(text, i, o.seed)
		if err != nil {
			return l, err
		}
		l.Args = append(l.Args, arg)
	}
	return l, nil
}

// checkBlock refuses a block that no chip can launch.
func checkBlock(text string, block [3]int) error {
	const most, deepest = 1024, 64 // threads, and the extent in z
	if threads := int64(block[0]) * int64(block[1]); block[0] > most || block[1] > most || block[2] > deepest || threads*int64(block[2]) > most {
		return fmt.Errorf("--block %s: a block has %d threads at most, and %d in z", text, most, deepest)
	}
	return nil
}

// parseExtents reads up to three extents with commas. An empty text has none.
func parseExtents(text string) ([3]int, error) {
	if text == "" {
		return [3]int{}, nil
	}
	extents := [3]int{1, 1, 1}
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == 'x' })
	if len(parts) < 1 || len(parts) > 3 {
		return extents, errors.New("want one to three integers with commas")
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > math.MaxInt32 {
			return extents, fmt.Errorf("%q is no extent; want integers from 1", part)
		}
		extents[i] = n
	}
	return extents, nil
}

// simDirect runs a kernel as the flags describe.
func (a *app) simDirect(ctx context.Context, o simOptions, direct directOptions, results *resultFiles, limit time.Duration, file string) error {
	launch, err := direct.launch(file)
	if err != nil {
		return usageError{err}
	}
	targets, err := parseSaves(direct.save, launch.Args)
	if err != nil {
		return usageError{err}
	}
	if launch.PTX, err = a.directPTX(ctx, direct, file); err != nil {
		return err
	}
	if err := launch.Resolve(); err != nil {
		return usageError{err}
	}
	o.limitHeap()
	document := simulated{SchemaVersion: 1}
	began := time.Now()
	c := cases.FromLaunch(launch)
	s := newSimulation(file)
	if filepath.Ext(file) == ".ptx" {
		s.ptx = file
	}
	if direct.device == simDevice {
		s.checked = o.checks == "on"
		s = a.simulateCase(ctx, s, o, limit, c, file, file)
	} else if document.Device, err = a.runOnGPU(ctx, s, direct.device, limit, c); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; the kernel was not finished")
	}
	document.Cases, document.WarpInstructions, document.Seconds = []*simulation{s}, s.warpInstructions, time.Since(began).Seconds()
	s.elapsed = time.Since(began)
	if !a.json {
		a.printCase(s, o.verbose)
		printOutputs(a.stdout, s.Outputs)
	}
	if err := saveOutputs(targets, s.Outputs); err != nil {
		return err
	}
	return a.finishSim(&document, results)
}

// maxPTX bounds a PTX file in bytes.
const maxPTX = 256 << 20

// directPTX reads or compiles the PTX of a kernel.
func (a *app) directPTX(ctx context.Context, o directOptions, file string) ([]byte, error) {
	if filepath.Ext(file) == ".ptx" {
		if len(o.compiler) > 0 {
			return nil, usageError{errors.New("--flag is for nvcc, and a .ptx file is compiled already")}
		}
		text, err := regular.Read(file, maxPTX)
		if err != nil {
			return nil, usageError{err}
		}
		return text, nil
	}
	if _, err := os.Stat(file); err != nil {
		return nil, usageError{err}
	}
	status := a.status()
	defer status.Clear()
	status.Set("%s: compiling", file)
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		return nil, err
	}
	compiler, err := toolchain.Find(ctx, cacheDir)
	if err != nil {
		return nil, err
	}
	arch := o.arch
	if arch == "" {
		arch = defaultArch
	}
	text, err := toolchain.CompilePTX(ctx, compiler, regular.Folder(filepath.Dir(file)), filepath.Dir(file), filepath.Base(file), arch, o.compiler...)
	if refused, ok := errors.AsType[*toolchain.CompileError](err); ok {
		return nil, errors.New(refused.Error()) // no gate has failed
	}
	return text, err
}

// defaultArch is the architecture that a .cu file is compiled for.
const defaultArch = "sm_90a"

// runOnGPU runs a case in a child process: two launches between guards. It returns the name of the
// GPU.
func (a *app) runOnGPU(ctx context.Context, s *simulation, name string, limit time.Duration, c *cases.Case) (string, error) {
	child, err := a.child(name, limit)
	if err != nil {
		return "", err
	}
	d, err := isolate.Start(ctx, child)
	if err != nil {
		return "", err
	}
	defer d.Close()
	job, err := c.Job(0)
	if err != nil {
		return "", err
	}
	s.checked = true
	result, err := d.Run(ctx, job)
	if err != nil {
		s.fail(fmt.Errorf("%s: %w", c.Name, err), c.Name)
		return d.Facts().Name, nil
	}
	s.Outcome, err = c.DeviceOutcome(result)
	return d.Facts().Name, err
}

// printOutputs writes a line for each output.
func printOutputs(w io.Writer, outputs []cases.Output) {
	for _, o := range outputs {
		name := "argument " + strconv.Itoa(o.Arg)
		if o.Name != "" {
			name = o.Name
		}
		extents := strings.ReplaceAll(strings.Trim(fmt.Sprint(o.Shape), "[]"), " ", "x")
		text := fmt.Sprintf("      %s: %s %s", name, o.Type, extents)
		if o.Min != nil {
			text += fmt.Sprintf(", %.6g to %.6g", *o.Min, *o.Max)
		}
		if o.NonFinite > 0 {
			text += fmt.Sprintf(", %d not finite", o.NonFinite)
		}
		more := ""
		if o.Array.Len() > len(o.First) {
			more = " ..."
		}
		fmt.Fprintf(w, "%s: %s%s\n", text, strings.Join(o.First, " "), more)
	}
}

// saveTarget is a file and the outputs that it gets.
type saveTarget struct {
	file string
	args []int
}

// parseSaves reads --save, which names outputs by their name or index.
func parseSaves(texts []string, args []cases.LaunchArg) ([]saveTarget, error) {
	var outputs []int
	for i, a := range args {
		if a.Role == cases.Out || a.Role == cases.InOut {
			outputs = append(outputs, i)
		}
	}
	var targets []saveTarget
	for _, text := range texts {
		target := saveTarget{text, outputs}
		if which, file, ok := strings.Cut(text, ":"); ok {
			i := slices.IndexFunc(outputs, func(i int) bool { return strconv.Itoa(i) == which || args[i].Array.Name == which })
			if i < 0 {
				return nil, fmt.Errorf("--save %s: no output has the name or index %q", text, which)
			}
			target = saveTarget{file, outputs[i : i+1]}
		}
		extension := filepath.Ext(target.file)
		switch {
		case extension != ".npy" && extension != ".safetensors":
			return nil, fmt.Errorf("--save %s: want a file .npy or .safetensors", text)
		case len(target.args) == 0:
			return nil, fmt.Errorf("--save %s: the kernel has no output; --arg TYPE:out:SHAPE declares one", text)
		case extension == ".npy" && len(target.args) > 1:
			return nil, fmt.Errorf("--save %s: there are %d outputs; name one, as in --save %d:%s", text, len(outputs), outputs[0], target.file)
		}
		targets = append(targets, target)
	}
	return targets, nil
}

// saveOutputs writes the files. A kernel that did not run to its end has no outputs.
func saveOutputs(targets []saveTarget, outputs []cases.Output) error {
	for _, t := range targets {
		var arrays []*array.Array
		for _, o := range outputs {
			if !slices.Contains(t.args, o.Arg) {
				continue
			}
			named := *o.Array
			if named.Name == "" {
				named.Name = "arg" + strconv.Itoa(o.Arg)
			}
			arrays = append(arrays, &named)
		}
		if len(arrays) == 0 {
			continue
		}
		if err := saveArrays(t.file, arrays); err != nil {
			return fmt.Errorf("save an output: %w", err)
		}
	}
	return nil
}

func saveArrays(name string, arrays []*array.Array) error {
	file, err := regular.Create(name)
	if err != nil {
		return err
	}
	if filepath.Ext(name) == ".npy" {
		err = array.WriteNPY(file, arrays[0])
	} else {
		err = array.WriteSafetensors(file, arrays)
	}
	return errors.Join(err, file.Close())
}
