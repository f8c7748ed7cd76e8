package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/python"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// defaultProcesses is the number of processes in which times are taken unless a flag says another:
// enough to estimate what differs between processes.
const defaultProcesses = 5

// requestOptions select what to run.
type requestOptions struct {
	shapes, seeds, against, arch string
	rounds, processes            int
	energy                       bool
	l2                           run.L2
}

// defaultReferenceLimit limits the time of one computation of a reference.
const defaultReferenceLimit = 2 * time.Minute

// referenceOptions say how the reference of a declared kernel is computed.
type referenceOptions struct {
	limit  time.Duration
	python string
}

// flags adds the flags of a command that checks outputs.
func (o *referenceOptions) flags(f *pflag.FlagSet) {
	o.limitFlag(f)
	f.StringVar(&o.python, "python", "", "Python of a reference (default: "+python.Variable+", else python3 in PATH)")
	describeIn(f, "kernels", "python")
}

func (o *referenceOptions) limitFlag(f *pflag.FlagSet) {
	f.DurationVar(&o.limit, "reference-timeout", defaultReferenceLimit, "limit of one computation of a declared reference")
	describeIn(f, "kernels", "reference-timeout")
}

func (o *referenceOptions) check() error {
	if o.limit <= 0 {
		return fmt.Errorf("--reference-timeout %s: want more than 0", o.limit)
	}
	return nil
}

// prepareReference makes a workplace compute references with the options. If the Python of one lacks
// numpy, it says so before any work, with the command that installs it.
func (a *app) prepareReference(ctx context.Context, w *workplace, o *referenceOptions) {
	w.ReferenceLimit, w.Python = o.limit, o.python
	if d := w.Kernel.Declared; d == nil || d.Reference.Kind != "python" {
		return
	}
	cacheDir, _ := toolchain.CacheDir() // without one there is no Python in it
	path, err := python.ForReferences(o.python, cacheDir)
	if err != nil {
		return // the reference reports it
	}
	w.Python = path
	if found, err := python.HasNumpy(ctx, path); found || err != nil {
		return // the reference reports a Python that does not work
	}
	do := "`attune doctor --fix` installs it"
	if o.python != "" {
		do = "`" + run.ShellWord(path) + " -m pip install numpy` installs it"
	}
	a.note(fmt.Sprintf("%s needs numpy, which %s does not have; %s", w.Kernel.Declared.Reference.Path, path, do))
}

// request makes a request of the options. Shapes and seeds that are not given are the spec's, for
// the simulator or for a GPU. All errors are reported together.
func (o requestOptions) request(kernel *spec.Kernel, args []string, simulated bool) (lab.Request, error) {
	r := lab.Request{Samples: o.rounds, Processes: o.processes, Energy: o.energy, L2: o.l2, Arch: o.arch}
	var errs [5]error
	r.Variants, r.Selections, errs[0] = named(kernel, args)
	if len(args) == 0 {
		r.Variants = stageVariants(kernel)
	}
	shapes, seeds := kernel.Run.Shapes, kernel.Run.Seeds
	if simulated {
		shapes, seeds = kernel.Run.SimShapes, kernel.Run.SimSeeds
	}
	if o.shapes == "" {
		o.shapes = strings.Join(shapes, ",")
	}
	r.Shapes, errs[1] = kernel.Shapes(o.shapes)
	r.Benchmark, errs[2] = kernel.Shapes(strings.Join(kernel.Run.Benchmark, ","))
	r.Seeds, errs[3] = parseSeeds(o.seeds, seeds)
	if o.against != "" {
		against, err := kernel.Variant(o.against)
		if err != nil {
			errs[4] = fmt.Errorf("--against: %w", err)
		}
		r.Against = &against
	}
	return r, errors.Join(errs[:]...)
}

// variantsOnly is the request of a command that does not take selections.
func (o requestOptions) variantsOnly(kernel *spec.Kernel, args []string, simulated bool) (lab.Request, error) {
	r, err := o.request(kernel, args, simulated)
	errs := []error{err}
	for _, s := range r.Selections {
		_, err := kernel.Variant(s.Name) // its error says how to name a variant of the selection
		errs = append(errs, err)
	}
	return r, errors.Join(errs...)
}

// named reads the variants and selections of a command line.
func named(kernel *spec.Kernel, args []string) (variants []spec.Variant, selections []*spec.Selection, err error) {
	var errs []error
	for _, text := range args {
		if s := kernel.Selection(text); s != nil {
			selections = append(selections, s)
			continue
		}
		v, err := kernel.Variant(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		variants = append(variants, v)
	}
	return variants, selections, errors.Join(errs...)
}

func stageVariants(kernel *spec.Kernel) []spec.Variant {
	var all []spec.Variant
	for _, stage := range kernel.Stages {
		all = append(all, stage.Variant())
	}
	return all
}

// runnable drops stages that the device cannot run, with a message. The user has named none of
// them.
func (a *app) runnable(variants []spec.Variant, deviceArch string) []spec.Variant {
	return slices.DeleteFunc(variants, func(v spec.Variant) bool {
		_, err := lab.Arch(v.Stage(), "", deviceArch)
		if err != nil {
			fmt.Fprintf(a.stderr, "attune: skipping %s: %v\n", v, err)
		}
		return err != nil
	})
}

// runnableSelections drops selections with a variant that the device cannot run, with a message.
func (a *app) runnableSelections(selections []*spec.Selection, deviceArch string) []*spec.Selection {
	var all []*spec.Selection
	for _, s := range selections {
		var refused error
		for _, v := range s.Variants() {
			if _, err := lab.Arch(v.Stage(), "", deviceArch); err != nil {
				refused = err
			}
		}
		if refused != nil {
			fmt.Fprintf(a.stderr, "attune: skipping %s: %v\n", s.Name, refused)
			continue
		}
		all = append(all, s)
	}
	return all
}

// quickSet completes the options with the shapes of a quick run and the first seed.
func (o requestOptions) quickSet(kernel *spec.Kernel, simulated bool) requestOptions {
	shapes, seeds := kernel.Run.Quick, kernel.Run.Seeds
	if simulated {
		shapes, seeds = kernel.Run.SimQuick, kernel.Run.SimSeeds
	}
	if o.shapes == "" {
		o.shapes = strings.Join(shapes, ",")
	}
	if o.seeds == "" {
		o.seeds = strconv.FormatUint(seeds[0], 10)
	}
	return o
}

// quickText says what a quick run took, and how to take everything.
func quickText(kernel *spec.Kernel, r lab.Request, simulated, named bool) string {
	all := kernel.Run.Shapes
	if simulated {
		all = kernel.Run.SimShapes
	}
	shapes, err := kernel.Shapes(strings.Join(all, ","))
	if err != nil {
		return "" // the loader has checked them
	}
	if kernel.Declared != nil && len(shapes) == len(r.Shapes) {
		return "" // a declared kernel has no harder inputs that a quick run leaves out
	}
	word, how := "shapes", fmt.Sprintf("--full takes all %d shapes", len(shapes))
	if len(r.Shapes) == 1 {
		word = "shape"
	}
	if named {
		how = fmt.Sprintf("without --quick all %d shapes run", len(shapes))
	}
	return fmt.Sprintf("quick set of %d %s, seed %d; %s", len(r.Shapes), word, r.Seeds[0], how)
}

// leftOutText names the shapes of a declared kernel that are too large for the simulator by default,
// and how to take them. It is empty if there are none.
func leftOutText(kernel *spec.Kernel, r lab.Request) string {
	var names []string
	for _, g := range kernel.Groups {
		if kernel.Declared != nil && slices.Contains(kernel.Run.Shapes, g.Name) && !slices.Contains(r.Shapes, g.Shapes[0]) {
			names = append(names, g.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	which, them := "which is large", "it"
	if len(names) > 1 {
		which, them = "which are large", "them"
	}
	return fmt.Sprintf("not on the simulator: %s, %s; --shapes %s takes %s", strings.Join(names, ", "), which, strings.Join(names, ","), them)
}

func parseSeeds(text string, otherwise []uint64) ([]uint64, error) {
	if text == "" {
		return otherwise, nil
	}
	var seeds []uint64
	for _, field := range strings.Split(text, ",") {
		seed, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("seed %q is not a non-negative integer", field)
		}
		seeds = append(seeds, seed)
	}
	return seeds, nil
}

// seedFlag is --seeds of a command that takes one seed.
func seedFlag(f *pflag.FlagSet, into *uint64) {
	f.Uint64Var(into, "seeds", 0, "seed of the inputs; one")
}

// sampleSeed is a flag whose default is a random seed.
type sampleSeed struct{ seed *uint64 }

func (s *sampleSeed) flag(f *pflag.FlagSet) {
	f.Var(s, "sample-seed", "`seed` of sampled rows (default: random)")
}

func (s *sampleSeed) Set(text string) error {
	seed, err := strconv.ParseUint(text, 10, 64)
	s.seed = &seed
	return err
}

func (s *sampleSeed) Type() string { return "seed" }

// String returns nothing for a seed that is not set, so that the help prints no default.
func (s *sampleSeed) String() string {
	if s.seed == nil {
		return ""
	}
	return strconv.FormatUint(*s.seed, 10)
}

// l2Flag is the flag of commands that time kernels.
func l2Flag(f *pflag.FlagSet, into *run.L2) {
	f.TextVar(into, "l2", run.Warm,
		"`state` of L2 before a timed launch: warm (with the inputs) or cold (flushed)")
}

// energyFlag is the flag of commands that measure the energy of a launch beside its time.
func energyFlag(f *pflag.FlagSet, into *bool) {
	f.BoolVar(into, "energy", true, "measure the energy of a launch too")
}

// launchesFlag is the flag of commands that compare times.
func launchesFlag(f *pflag.FlagSet, into *int) {
	f.IntVar(into, "launches", device.DefaultLaunches, fmt.Sprintf("limit of launches in a graph, 1 to %d", device.MaxLaunches))
}

func checkLaunches(n int) error {
	if n < 1 || n > device.MaxLaunches {
		return fmt.Errorf("--launches %d: want 1 to %d", n, device.MaxLaunches)
	}
	return nil
}
