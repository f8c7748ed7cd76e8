package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/autotune"
	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/oracle"
	"attune/internal/propose"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
	"attune/internal/tuner"
)

type tuneOptions struct {
	replayOptions
	selectionOptions
	requestOptions
	device    deviceOptions
	reference referenceOptions
	objective string
	fixed     string
	proposer  proposerOptions
	spread    spreadOptions
	inFlight  []int
	pace      float64
	given     []string // names of the flags on the command line
}

// defaultTuneBudget is the budget of a search on a device.
const defaultTuneBudget = 200

// Flags of searches on a device, and of searches of recorded results. The other flags are for both.
var (
	tuneDeviceFlags = []string{
		"shapes", "seeds", "objective", "device", "timeout", "fix", "arch", "processes", "python", "reference-timeout",
		"selection", "holdout", "install", "output", "proposer", "proposer-timeout",
	}
	tuneReplayFlags = []string{"space", "repeat", "pace", "journal", "export", "plot"}
)

func (a *app) tuneCommand() *cobra.Command {
	var o tuneOptions
	cmd := &cobra.Command{
		Use:   "tune [VARIANT]",
		Short: "search the knobs of a kernel for its fastest variant",
		Long: `Tune searches the knobs of a variant's stage, within the constraints of
kernel.toml. Each variant is built, checked against the reference on a small
shape, and timed interleaved with the best so far. At the end the best few and
VARIANT are checked on all shapes and seeds and timed together. Unless one is
faster beyond doubt, VARIANT stays the best.

Without a GPU the objective is a cost from the simulator's counters, no time.
--selection searches each shape from the selection's present form and proposes
a table with few forms. --selection warp times the forms that the libraries
launch on other GPUs than Hopper's, and writes a table that they read.
The search is recorded, and --resume continues it. With --proposer a program
takes part. --replay compares strategies on recorded results.`,
		Example: `  attune tune --kernel examples/softmax --budget 20m
  attune tune --selection stage7 --shapes mission,long,wide --budget 60m
  attune tune --selection warp --install
  attune tune --replay gemm.json.gz --strategy all`,
	}
	f := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.Visit(func(flag *pflag.Flag) { o.given = append(o.given, flag.Name) })
		if o.replay != "" {
			return a.tuneReplay(cmd.Context(), o, args)
		}
		return a.tuneDevice(cmd.Context(), o, args)
	}
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: the benchmark shapes)")
	f.StringVar(&o.seeds, "seeds", "", "input seeds, with commas (default: the spec's)")
	f.StringVar(&o.budget, "budget", "", "evaluations (200), a time (20m), or both (200,20m) (default: 200; replay: 1000)")
	f.StringVar(&o.strategy, "strategy", tune.DefaultStrategy, "evo, bayes, genetic, anneal, random, grid; replay: several, all")
	f.IntVar(&o.elites, "elites", tune.DefaultElites, "variants in finals, parents of evo")
	f.StringVar(&o.objective, "objective", "", "time, energy, cost (default: time; simulator: cost)")
	f.StringVar(&o.fixed, "fix", "", "`knobs` that keep their value, with commas")
	f.StringVar(&o.selection, "selection", "", "tune this selection's table, shape by shape")
	f.IntVar(&o.holdout, "holdout", defaultHoldout, "selection: every Nth shape is a test")
	f.BoolVar(&o.install, "install", false, "selection of warp: the libraries use its table here")
	f.StringVarP(&o.output, "output", "o", "", "--selection warp: `file` of the table")
	f.BoolVar(&o.resume, "resume", false, "continue the newest unfinished search")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the search")
	f.StringVar(&o.device.name, "device", autoDevice, "cuda, cuda:N, sim; auto: GPU, else sim")
	addTimeout(f, &o.device.limit, &o.device.launch)
	o.device.noSimFlag(f)
	f.IntVar(&o.processes, "processes", 3, "fresh processes of the finals")
	f.StringVar(&o.arch, "arch", "", "architecture (default: the device's, or newest)")
	o.reference.flags(f)
	o.proposer.flags(f)
	o.spread.flags(f)
	f.Float64Var(&o.pace, "pace", 1, "replay on workers, which sleep as long as recorded: so many times faster")
	f.IntSliceVar(&o.inFlight, "in-flight", nil, "candidates at a time (default: two a worker); replay: several")
	describeFleet(f, "in-flight", "pace")
	_ = f.MarkHidden("pace")
	f.StringVar(&o.replay, "replay", "", "`file` of recorded results: a Kernel Tuner cache or T4")
	f.StringVar(&o.space, "space", "", "replay: T1 `file` of the knobs and constraints (default: the recording's)")
	f.IntVar(&o.repeat, "repeat", 100, "replay: number of searches")
	f.StringVar(&o.journal, "journal", "", "replay: `file` that gets each evaluation of one search")
	f.StringVar(&o.plot, "plot", "", "replay: SVG `file` for the course of one search")
	f.StringVar(&o.export, "export", "", "replay: `file` for the evaluations: T4 or a cache")
	return cmd
}

// checkFlags refuses flags of the other kind of search.
func (o tuneOptions) checkFlags() error {
	for _, n := range o.inFlight {
		if n < 1 || n > 1024 {
			return fmt.Errorf("--in-flight %d: want 1 to 1024", n)
		}
	}
	if o.replay != "" {
		for _, name := range o.given {
			if slices.Contains(tuneDeviceFlags, name) {
				return fmt.Errorf("--%s is for a search on a device; --replay searches recorded results", name)
			}
		}
		return nil
	}
	for _, name := range o.given {
		if name == "holdout" && o.selection == "" {
			return errors.New("--holdout is for --selection NAME: it sets which shapes test the table")
		}
		if name == "install" && o.selection == "" {
			return errors.New("--install is for --selection NAME: it gives the table to the libraries")
		}
		if slices.Contains(tuneReplayFlags, name) {
			return fmt.Errorf("--%s is for recorded results (--replay FILE); a search on a device is recorded in the ledger", name)
		}
	}
	return nil
}

// parseBudget reads a number of evaluations, a time, or both.
func parseBudget(text string) (tuner.Budget, error) {
	b := tuner.Budget{}
	wrong := fmt.Errorf("--budget %s: want a number of evaluations above 0, such as 200, a time such as 20m, or both: 200,20m", text)
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		if n, err := strconv.Atoi(part); err == nil {
			if n < 1 || b.Evaluations != 0 {
				return b, wrong
			}
			b.Evaluations = n
			continue
		}
		d, err := time.ParseDuration(part)
		if err != nil || d <= 0 || b.Time != 0 {
			return b, wrong
		}
		b.Time = d
	}
	return b, nil
}

// tuneRequest makes a request of the options.
func (o tuneOptions) tuneRequest(kernel *spec.Kernel, name string, simulated bool) (tuner.Request, error) {
	r := tuner.Request{
		Strategy: o.strategy, Options: tune.Options{Seed: o.seed, Elites: o.elites}, Objective: o.objective, Resume: o.resume,
		Arch: o.arch, MaxWork: oracle.MaxWork, Processes: o.processes,
	}
	if o.budget == "" {
		o.budget = strconv.Itoa(defaultTuneBudget)
	}
	shapes, seeds := kernel.Run.Benchmark, kernel.Run.Seeds
	if simulated {
		shapes, seeds = kernel.Run.SimQuick, kernel.Run.SimSeeds
	}
	if o.shapes == "" {
		o.shapes = strings.Join(shapes, ",")
	}
	var errs [7]error
	r.Variant, errs[0] = kernel.Variant(name)
	if o.fixed != "" && errs[0] == nil {
		r.Fixed, errs[6] = fixedKnobs(o.fixed, r.Variant)
	}
	r.Shapes, errs[1] = kernel.Shapes(o.shapes)
	r.Seeds, errs[2] = parseSeeds(o.seeds, seeds)
	r.Budget, errs[3] = parseBudget(o.budget)
	if errs[4] = tune.CheckStrategy(o.strategy); o.strategy == "all" || strings.Contains(o.strategy, ",") {
		errs[4] = fmt.Errorf("--strategy %s: several strategies are for --replay only; a search on a device has one, such as %s",
			o.strategy, tune.DefaultStrategy)
	}
	if o.elites < 1 {
		errs[5] = fmt.Errorf("--elites %d: want at least 1", o.elites)
	}
	if o.processes < 1 {
		errs[5] = errors.Join(errs[5], fmt.Errorf("--processes %d: want at least 1", o.processes))
	}
	r.Options.Budget = r.Budget.Evaluations
	return r, errors.Join(errs[:]...)
}

// fixedKnobs reads the names of --fix.
func fixedKnobs(text string, v spec.Variant) ([]string, error) {
	var known, fixed []string
	for _, s := range v.Values() {
		known = append(known, s.Knob)
	}
	for _, name := range strings.Split(text, ",") {
		name = strings.TrimSpace(name)
		knob, _, assigned := strings.Cut(name, "=")
		near := spec.Nearest(name, known)
		switch {
		case assigned:
			return nil, fmt.Errorf("--fix %s: it takes names of knobs, which keep the value of VARIANT; `attune tune %s+%s --fix %s` searches with that value",
				name, v.Stage().Name, name, knob)
		case !slices.Contains(known, name) && near != "":
			return nil, fmt.Errorf("%s has no knob %q; did you mean %q?", v.Stage().Name, name, near)
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("%s has no knob %q; it has %s", v.Stage().Name, name, strings.Join(known, ", "))
		}
		fixed = append(fixed, name)
	}
	return fixed, nil
}

// tuneDevice searches on a GPU or the simulator.
func (a *app) tuneDevice(ctx context.Context, o tuneOptions, args []string) error {
	if err := errors.Join(o.checkFlags(), checkLimit(o.device.limit), o.reference.check(), o.proposer.check(), o.spread.check(), o.checkSpread()); err != nil {
		return usageError{err}
	}
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	if o.tunesLibraries(kernel) {
		return a.tuneLibraries(ctx, o, args)
	}
	if o.output != "" {
		return usageError{fmt.Errorf("--output is for --selection %s, the table of the libraries", autotune.Selection)}
	}
	name := ""
	if o.selection != "" {
		_, err = o.selectionRequest(kernel, o.device.name == simDevice, args)
	} else if name, err = tuneVariant(kernel, args); err == nil {
		_, err = o.tuneRequest(kernel, name, o.device.name == simDevice)
	}
	if err != nil { // before anything is started
		return usageError{err}
	}
	w, err := a.newRecordingWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.close()
	defer w.Freeze()() // the proposer reads the same sources
	if w.compiler == nil {
		return fmt.Errorf("tune builds variants: %w", a.noCompiler)
	}
	a.prepareReference(ctx, w, &o.reference)
	w.status.Set("looking for a device")
	o.device.sim, o.device.simulates = defaultSim, true
	a.kernels = &kernelOutput{w: io.Discard, json: &a.json} // hundreds of variants may print
	defer a.noteEdited(w)
	if o.spread.asked() {
		return a.tuneSpread(ctx, w, o, name)
	}
	if w.Device, err = a.findDevice(ctx, o.device); err != nil {
		return err
	}
	if o.selection != "" {
		request, err := o.selectionRequest(kernel, w.Device.Simulated(), nil)
		if err != nil {
			return usageError{err}
		}
		return a.tuneSelection(ctx, w, request, o.install)
	}
	return a.tuneFrom(ctx, w, o, name)
}

// checkSpread refuses searches that one machine does alone.
func (o tuneOptions) checkSpread() error {
	switch {
	case !o.spread.asked() && len(o.inFlight) > 0:
		return errors.New("--in-flight is for --workers, --fleet or --replay")
	case !o.spread.asked():
		return nil
	case len(o.inFlight) > 1:
		return errors.New("--in-flight takes one number; several are for --replay")
	case o.selection != "":
		return errors.New("--selection searches on one device; --fleet and --workers are for searches of one variant")
	case o.proposer.command != "":
		return errors.New("--proposer patches kernels, which only this machine builds; leave out --fleet and --workers")
	}
	return nil
}

// tuneSpread searches from a variant on several workers.
func (a *app) tuneSpread(ctx context.Context, w *workplace, o tuneOptions, name string) error {
	s, err := a.openSpread(ctx, o.spread, o.device, o.reference)
	if err != nil {
		return err
	}
	defer s.close()
	w.Device = s.device(a, o.device)
	request, err := o.tuneRequest(w.Kernel, name, w.Device.Simulated())
	if err != nil {
		return usageError{err}
	}
	searcher, err := s.searcher(ctx, a, o.flight(s.workers))
	if err != nil {
		return err
	}
	request.Elsewhere = searcher
	err = a.tuneVariants(ctx, w, request, nil)
	if text := searcher.Repeats.Summary(); text != "" {
		a.note(text)
	}
	return err
}

// tuneFrom searches from a variant.
func (a *app) tuneFrom(ctx context.Context, w *workplace, o tuneOptions, name string) error {
	request, err := o.tuneRequest(w.Kernel, name, w.Device.Simulated())
	if err != nil {
		return usageError{err}
	}
	proposer, err := o.proposer.start(a, w, request)
	if err != nil {
		return err
	}
	if proposer != nil {
		defer proposer.Close()
		request.Proposer = proposer
	}
	return a.tuneVariants(ctx, w, request, proposer)
}

// noteEdited names the sources that were edited during a search, which did not see it.
func (a *app) noteEdited(w *workplace) {
	if names := w.Builder.Edited(); len(names) > 0 {
		a.note(fmt.Sprintf("%s changed during the search; all figures are of the sources at its start", strings.Join(names, ", ")))
	}
}

// tuneVariant is the variant to tune: the argument, or the only stage of the kernel.
func tuneVariant(kernel *spec.Kernel, args []string) (string, error) {
	if len(args) == 1 {
		return args[0], nil
	}
	var names []string
	for _, s := range kernel.Stages {
		names = append(names, s.Name)
	}
	if len(args) == 0 && len(names) == 1 {
		return names[0], nil
	}
	return "", fmt.Errorf("tune takes one variant to start from, such as `attune tune %s`, and got %d; %s has %s; --replay searches recorded results",
		names[0], len(args), kernel.Name, strings.Join(names, ", "))
}

// tuneVariants carries out a search and prints it.
func (a *app) tuneVariants(ctx context.Context, w *workplace, r tuner.Request, proposer *propose.Tuner) error {
	p := &tunePrinter{app: a, work: w, request: r, proposer: proposer, started: time.Now()}
	r.Resumed = p.resumed
	w.Progress = p.progress
	defer ignoreClosedPipe()()
	result, err := tuner.Search(ctx, w.Lab, r, p.finished)
	w.status.Clear()
	if ctx.Err() != nil {
		return p.interrupted()
	}
	if err != nil {
		return err
	}
	study := &document.TuningStudy{Tuning: result, Kernel: w.Kernel, Complete: a.withKernel}
	a.step.Summarize(study.Document().Step("tune"))
	if a.json {
		return a.printLine(result)
	}
	if err := study.Result().Terminal(a.stdout, a.screen()); err != nil {
		return err
	}
	a.printLeftOut(w, r.Shapes)
	return nil
}

// interrupted is the error of a search that was interrupted.
func (p *tunePrinter) interrupted() error {
	if p.evaluations == 0 {
		return errors.New("interrupted before the first evaluation was finished")
	}
	return fmt.Errorf("interrupted after %s; the same command with --resume continues", counted(p.evaluations, "evaluation", "evaluations"))
}

// printLeftOut names the benchmark shapes that a search on the simulator does not take by default.
func (a *app) printLeftOut(w *workplace, searched []spec.Shape) {
	var names []string
	for _, name := range w.Kernel.Run.Benchmark {
		shapes, _ := w.Kernel.Shapes(name) // the loader has checked them
		if slices.ContainsFunc(shapes, func(s spec.Shape) bool { return !slices.Contains(searched, s) }) {
			names = append(names, name)
		}
	}
	if w.Device.Simulated() && len(names) > 0 {
		a.screen().Paragraph(a.stdout, "", fmt.Sprintf("not on the simulator: %s of the benchmark shapes; --shapes %s takes them",
			strings.Join(names, ", "), strings.Join(names, ",")), 2)
	}
}

// tunePrinter prints the evaluations of a search as they finish.
type tunePrinter struct {
	*app
	work        *workplace
	request     tuner.Request
	proposer    *propose.Tuner // nil if there is none
	started     time.Time
	evaluations int // that count against the budget
	earlier     int // of them in earlier sessions
	failures    int
	standard    *run.TuneEvaluation
	best        *run.TuneEvaluation
}

// resumed takes what earlier sessions have found.
func (p *tunePrinter) resumed(s tuner.State) {
	p.standard, p.best, p.evaluations, p.earlier = &s.Default, &s.Best, s.Evaluations, s.Evaluations
	if !p.json {
		fmt.Fprintf(p.stderr, "attune: resumed after %s; the best so far is %s, %.3fx the default\n",
			counted(s.Evaluations, "evaluation", "evaluations"), s.Best.Name(), *s.Default.Cost / *s.Best.Cost)
	}
	if s.LeftOut > 0 {
		p.note(fmt.Sprintf("%s left out of the finals, because --proposer does not name the program that patches the kernel",
			counted(s.LeftOut, "patched variant is", "patched variants are")))
	}
}

// finished takes one evaluation: a JSON line, or a line on standard error for each new best.
func (p *tunePrinter) finished(e run.TuneEvaluation) {
	p.take(e)
	if p.json {
		_ = p.printLine(e) // the writer keeps the error, and the search goes on
	}
}

// take counts an evaluation, and prints a line for a new best.
func (p *tunePrinter) take(e run.TuneEvaluation) {
	if e.SameAs == "" {
		p.evaluations++
	}
	if !e.OK() {
		p.failures++
	}
	if p.proposer != nil {
		if err := p.proposer.Done(e); err != nil {
			p.note(fmt.Sprintf("a result was not recorded for the proposer: %v", err))
		}
	}
	if p.standard == nil {
		p.standard = &e
	}
	if e.Best {
		p.best = &e
	}
	if e.Best && !p.json {
		fmt.Fprintf(p.stderr, "attune: %s\n", document.TuneBest(&e, p.standard))
	}
}

// progress shows the best so far, the numbers and the time left.
func (p *tunePrinter) progress(step lab.Progress) {
	text := fmt.Sprintf("%s evaluations, %d failed", p.count(), p.failures)
	if p.best != nil && p.standard != nil {
		text = fmt.Sprintf("best %.3fx the default, %s", *p.standard.Cost / *p.best.Cost, text)
	}
	p.work.status.Set("%s%s; %s: %s", text, p.left(), step.Subject, step.Step)
}

func (p *tunePrinter) count() string {
	if most := p.request.Budget.Evaluations; most > 0 {
		return fmt.Sprintf("%d of %d", p.evaluations, most)
	}
	return strconv.Itoa(p.evaluations)
}

// left is the time left until the first limit of the budget.
func (p *tunePrinter) left() string {
	spent := time.Since(p.started)
	var left []time.Duration
	if most, done := p.request.Budget.Evaluations, p.evaluations-p.earlier; most > 0 && done > 0 {
		left = append(left, spent*time.Duration(max(0, most-p.evaluations))/time.Duration(done))
	}
	if p.request.Budget.Time > 0 {
		left = append(left, max(0, p.request.Budget.Time-spent))
	}
	if len(left) == 0 {
		return ""
	}
	return fmt.Sprintf(", about %s left", slices.Min(left).Round(time.Second))
}
