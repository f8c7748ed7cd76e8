package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"attune/internal/coverage"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/measure"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Run takes each variant through the gates and records it. For a selection it records a run for
// each part, then one for the whole. Each record is passed to done after it was written to the
// ledger; a record that could not be written has no id. An error means that the lab itself failed
// or was interrupted. Failures of a variant are in its record.
func (l *Lab) Run(ctx context.Context, request Request, done func(*run.Run)) error {
	request.Problem = l.problem()
	p, err := request.plan(l.Device.facts.Arch)
	if err != nil {
		return err
	}
	r := &runner{
		Lab: l, plan: p, builds: l.startBuilds(ctx, p.Arch, p.variants(l.Device.Timed())...), refs: l.references(everyRow, nil),
		simulations: l.startSimulations(ctx, len(p.NormalOnly) > 0, p.Shapes), work: newWork(p, l.Device.Timed()),
	}
	r.simulations.alone = len(p.entries) == 1
	defer r.refs.Close()
	defer r.simulations.stop() // after the builds, which it waits for
	defer r.builds.stop()
	for _, e := range p.entries {
		for _, part := range e.parts {
			r.simulations.startPart(r.builds, part)
		}
	}
	known := measurements{}
	for i, e := range p.entries {
		r.work.begin(i)
		if e.selection != nil {
			err = r.runSelection(ctx, e, known, done)
		} else {
			_, err = r.runPart(ctx, e.parts[0], known, done)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runner carries out a plan.
type runner struct {
	*Lab
	plan        *plan
	builds      *builds
	refs        problem.References
	simulations *simulations
	work        *work
}

// runPart takes one variant through the gates on its shapes and records the run.
func (r *runner) runPart(ctx context.Context, part part, known measurements, done func(*run.Run)) (*run.Run, error) {
	a := r.newAttempt(part)
	defer a.session.close()
	err := a.runGates(ctx, known)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", part.variant, err)
	}
	known.add(a)
	record := a.finish()
	err = r.record(ctx, record, nil)
	done(record)
	return record, err
}

// attempt is one variant on its way through the gates.
type attempt struct {
	*runner
	part
	session     *session
	result      *run.Run // the record
	gates       gate.Gates
	build       problem.Build // without an image before it is built
	reused      *measurement  // of the same code, measured earlier
	against     Code          // code of the parent, with which the times were interleaved
	same        bool          // the parent has the same code as the variant
	timed       bool
	audited     bool   // the audit of the PTX lets it run
	parentWrong string // what was wrong with the timed launches of the parent
	timeout     string // the problem that exceeded the time limit, and the limit
	covered     coverage.Launches
}

const earlierGate = "an earlier gate failed"

func (r *runner) newAttempt(part part) *attempt {
	open := gate.Unmeasured(earlierGate)
	return &attempt{
		runner: r, part: part, session: r.newSession(), result: r.newRecord(r.plan, part),
		gates: gate.Gates{Resources: open, Correctness: open, Performance: open, Profile: open},
	}
}

// finish completes the record.
func (a *attempt) finish() *run.Run {
	a.result.Problem = a.recordProblem(a.refs)
	a.result.SetGates(a.gates)
	a.result.Verdict = a.gates.Verdict(a.timed)
	return a.result
}

func (l *Lab) newRecord(p *plan, part part) *run.Run {
	record := l.emptyRecord(p.Request, part.shapes)
	record.Requested.Problems = len(p.instances(part.variant, part.shapes))
	v := part.variant
	record.Variant, record.Stage, record.Hypothesis = v.String(), v.Stage().Name, v.Stage().Hypothesis
	if part.parent != nil {
		record.Parent, record.Change = part.parent.String(), v.Diff(*part.parent)
		record.RequiredSpeedup = v.RequiredSpeedup()
	}
	if part.selection != nil {
		// The required speedup is the selection's; a part must only not be slower than the parent.
		record.PartOf, record.Requested.Against, record.Reproduces = part.selection.Name, record.Parent, ""
	}
	if p.Against != nil {
		record.Requested.Against = p.Against.String()
	}
	if record.Requested.Against != "" {
		record.RequiredSpeedup = 1
	}
	return record
}

// emptyRecord describes the request and the program.
func (l *Lab) emptyRecord(r Request, shapes []spec.Shape) *run.Run {
	record := &run.Run{
		SchemaVersion: run.SchemaVersion,
		Time:          time.Now().UTC().Truncate(time.Millisecond),
		Kernel:        l.Kernel.Name,
		Reproduces:    r.Reproduces,
		Device:        "none",
		Correctness:   []run.Correctness{},
		Performance:   []run.Performance{},
		Requested: run.Requested{
			Seeds: r.Seeds, Samples: r.Samples, Processes: r.Processes, Arch: r.Arch,
			Quick: len(r.NormalOnly) > 0, Simulation: l.Device.settings(), NoSim: l.Device.withoutSimulator,
		},
		Git:    l.Git,
		GitSHA: l.Git.SHA,
		Attune: l.Version,
	}
	for _, shape := range shapes {
		record.Requested.Shapes = append(record.Requested.Shapes, shape.String())
	}
	return record
}

// runGates goes from gate to gate until one fails. What the simulator found comes last, because it
// works while the GPU does.
func (a *attempt) runGates(ctx context.Context, known measurements) error {
	if err := a.resources(); err != nil || a.gates.Resources.Status == gate.Fail {
		return err
	}
	if err := a.runDevice(ctx, known); err != nil || !a.audited {
		return err
	}
	return a.proveSimulated(ctx)
}

// runDevice takes the variant through the gates of the device.
func (a *attempt) runDevice(ctx context.Context, known measurements) error {
	if !a.Device.present() {
		if !a.audit() {
			return nil
		}
		a.gates.Correctness = gate.Unmeasured(a.Device.missing)
		a.gates.Performance = gate.Unmeasured(device.ErrNoDevice.Error())
		a.gates.Profile = a.gates.Performance
		return nil
	}
	if same := known[CodeOf(a.problem(), a.build)]; same != nil && same.serves(a) {
		a.reuse(same)
	} else if err := a.open(ctx); err != nil {
		return err
	}
	if err := a.correctness(ctx); err != nil || a.gates.Correctness.Status != gate.Pass {
		return err
	}
	a.gates.Profile = gate.Unmeasured("no profile was taken")
	if !a.Device.Timed() {
		a.gates.Performance = gate.Unmeasured(device.ErrNoClock.Error())
		return nil
	}
	if a.result.Requested.Sanitizer != "" {
		a.gates.Performance = gate.Unmeasured("compute-sanitizer slows kernels down too much")
		return nil
	}
	if a.simulations.found(a.build) {
		return nil // proveSimulated says what
	}
	return a.performance(ctx)
}

// proveSimulated adds what the simulator found to the correctness gate. The times of a kernel that
// fails it mean nothing.
func (a *attempt) proveSimulated(ctx context.Context) error {
	if a.Device.simulator == nil {
		return nil
	}
	a.session.close() // compute-sanitizer may need the GPU
	a.step("waiting for the simulator", 0, 0)
	result := a.simulations.result
	if a.result.TimedOut {
		result = a.simulations.resultAfterTimeout
	}
	var err error
	if a.result.Simulated, err = result(ctx, a.build); err != nil {
		return err
	}
	if a.gates.Correctness.Status == gate.Pass {
		a.result.Lines = a.simulations.lines(a.build)
	}
	check := gateSimulated(a.result.Simulated)
	if check.Status == gate.Pass || check.Status == gate.NotMeasured && a.gates.Correctness.Status != gate.Pass {
		return nil
	}
	if a.gates.Correctness.Status == gate.Fail {
		check.Reasons = append(a.gates.Correctness.Reasons, check.Reasons...)
	}
	a.gates.Correctness, a.gates.Performance = check, gate.Unmeasured(earlierGate)
	a.gates.Profile = a.gates.Performance
	a.result.Performance, a.result.Samples, a.result.Headline, a.result.Speedup = []run.Performance{}, nil, nil, nil
	a.timed = false
	return nil
}

// resources builds the variant and compares it with its budget. A variant that does not compile,
// or whose source breaks a rule of attune, fails this gate.
func (a *attempt) resources() error {
	a.step("building", 0, 0)
	build, err := a.builds.launchable(a.variant)
	var refused *toolchain.CompileError
	var broken *toolchain.SourceError
	switch {
	case errors.As(err, &refused):
		a.result.Arch = refused.Target.Arch
		a.result.Failure = refused.Error()
		a.result.Log = refused.Output
		a.gates.Resources = gate.Check{Status: gate.Fail, Reasons: compileReasons(refused)}
		return nil
	case errors.As(err, &broken):
		a.result.Arch, a.result.Failure = broken.Target.Arch, broken.Error()
		a.gates.Resources = gate.Check{Status: gate.Fail, Reasons: []string{broken.Problem}}
		return nil
	case err != nil:
		return err
	}
	err = a.setSharedBytes(&build)
	var threads int
	if err == nil {
		threads, err = a.problem().Threads(build, a.shapes)
	}
	if err != nil { // the other variants may have a launch
		a.result.Arch, a.result.Failure = build.Image.Record.Arch, err.Error()
		a.gates.Resources = gate.Check{Status: gate.Fail, Reasons: []string{err.Error()}}
		return nil
	}
	build.Selected = a.selection != nil
	a.build = build
	record := &build.Image.Record
	a.result.Build, a.result.Log = record, build.Image.Log
	a.result.Arch, a.result.CodeHash = record.Arch, record.CodeHash
	a.gates.Resources = gate.Resources(record.Resources, threads, a.problem().Budget(a.variant))
	return nil
}

// compileReasons are the first error of the compiler, its likely cause, and all that it printed.
func compileReasons(refused *toolchain.CompileError) []string {
	reasons := []string{run.NotCompiled + ": " + refused.Summary()}
	if advice := refused.Advice(); advice != "" {
		reasons = append(reasons, advice)
	}
	return append(reasons, strings.TrimRight(refused.Output, "\n"))
}

// setSharedBytes records the largest dynamic shared memory of the launches, in a copy of the image:
// other parts may launch the same image with less.
func (a *attempt) setSharedBytes(b *problem.Build) error {
	bytes, err := a.problem().SharedBytes(*b, a.shapes)
	if err != nil {
		return err
	}
	if bytes != b.Image.Record.Resources.DynamicSharedBytes {
		own := *b.Image
		own.Record.Resources.DynamicSharedBytes = bytes
		b.Image = &own
	}
	return nil
}

func (a *attempt) open(ctx context.Context) error {
	a.step("opening the device", 0, 0)
	d, err := a.session.ready(ctx)
	if err != nil {
		return err
	}
	facts := d.Facts()
	a.result.Facts, a.result.Device = &facts, facts.Kind
	return nil
}

// correctness audits the PTX, compares every output with its reference, and adds what a sanitizer
// found.
func (a *attempt) correctness(ctx context.Context) error {
	if !a.audit() {
		return nil
	}
	began := time.Now()
	wrong, err := a.checkAll(ctx)
	if a.referenceFailed(err) {
		a.gates.Correctness = gate.Unmeasured("reference: " + a.result.ReferenceError)
		a.gates.Performance = gate.Unmeasured("the reference failed")
		a.gates.Profile = a.gates.Performance
		return nil
	}
	if device.Classify(err) == device.KernelUnsupported {
		a.gates.Correctness = gate.Unmeasured(err.Error())
		a.gates.Performance = gate.Unmeasured("this device cannot run the kernel")
		a.gates.Profile = a.gates.Performance
		return nil
	}
	if err != nil {
		return err
	}
	if wrong, err = a.sanitize(wrong); err != nil {
		return err
	}
	if a.result.TimedOut && len(wrong) == 0 {
		a.gates.Correctness = gate.Unmeasured(a.timeout)
		a.gates.Performance = gate.Unmeasured("the correctness check exceeded its time limit")
		a.gates.Profile = a.gates.Performance
		return nil
	}
	if len(wrong) == 0 {
		a.coverLines(ctx, time.Since(began))
	}
	a.gates.Correctness = gate.Correctness(wrong)
	return nil
}

// referenceFailed records the failure of a reference, and reports whether the error is one. It is no
// result of the variant, so that the next one runs.
func (a *attempt) referenceFailed(err error) bool {
	var failure *problem.ReferenceError
	if !errors.As(err, &failure) {
		return false
	}
	a.result.ReferenceError = failure.Error()
	return true
}

// sanitize adds what a sanitizer found to what is wrong with the outputs.
func (a *attempt) sanitize(wrong []string) ([]string, error) {
	if s, ok := a.session.device.(sanitized); ok {
		a.step("waiting for compute-sanitizer", 0, 0)
		a.result.Requested.Sanitizer = s.Tool()
		findings, err := s.Findings()
		if err != nil && a.result.Failure == "" { // the sanitizer of a lost process may have no report
			return nil, err
		}
		for _, f := range findings {
			wrong = append(wrong, f.String())
		}
	}
	return wrong, nil
}

// sanitized is a device under compute-sanitizer, which reports after the last launch.
type sanitized interface {
	Tool() string
	Findings() ([]finding.Finding, error)
}

// checkAll runs every problem and lists what is wrong with the outputs. It ends at the first
// failure that loses the device. A timeout is no evidence against the kernel, which may be slow, or
// run on a slow simulator: it is recorded and is not part of the list.
func (a *attempt) checkAll(ctx context.Context) ([]string, error) {
	var reasons failureReasons
	all := a.plan.instances(a.variant, a.shapes)
	for i, p := range all {
		name := a.instanceName(p)
		a.step("correctness "+name, i, len(all))
		row, failure, err := a.checkOne(ctx, p)
		a.work.add(a.work.ofInstance(p.Shape))
		if err != nil {
			return nil, err
		}
		if failure != nil {
			a.recordFailure(failure)
			wrong, text := reasons.texts(), fmt.Sprintf("%s: %v", name, failure)
			if a.result.TimedOut && len(wrong) == 0 { // too slow is not wrong
				a.timeout = text
				return nil, nil
			}
			return append(wrong, text), nil
		}
		reasons.add(name, row)
		a.result.Correctness = append(a.result.Correctness, *row)
		if s := a.result.Requested.Simulation; s != nil {
			s.Schedules = max(s.Schedules, row.Schedules)
		}
	}
	return reasons.texts(), nil
}

// checkOne checks an instance, or applies the limits to the errors that the same code had.
func (a *attempt) checkOne(ctx context.Context, i problem.Instance) (row *run.Correctness, failure, err error) {
	ref, err := a.modelled(ctx, a.refs, i, a.variant)
	if err != nil {
		return nil, nil, err
	}
	second, err := second(ctx, a.refs, a.problem(), i, a.shapes, a.plan.Seeds[0])
	if err != nil {
		return nil, nil, err
	}
	if a.reused != nil {
		return a.reuseRow(i, ref, second), nil, nil
	}
	c, err := a.check(ctx, a.session, a.build, ref, second)
	if err != nil {
		return nil, nil, err
	}
	if c.failure != nil {
		return nil, c.failure, nil
	}
	a.covered.Add(c.outcome.Covered)
	a.result.Loaded = &c.outcome.Loaded
	a.result.Ran, _ = loadable(a.build.Image, a.session.device.Facts())
	return a.row(i, ref, c), nil, nil
}

// row is the record of a checked instance.
func (a *attempt) row(i problem.Instance, ref problem.Reference, c *checked) *run.Correctness {
	sum := sha256.Sum256(slices.Concat(c.outcome.Outputs...))
	return &run.Correctness{
		Shape: i.Shape.String(), ShapeName: a.shapeName(i.Shape), Seed: i.Seed, Inputs: i.Inputs,
		Errors: c.result.Errors, LSE: c.result.LSE, Exponentials: c.result.Exponentials, Outputs: c.result.Outputs,
		InputCost: ref.InputCost(), Limits: c.limits, Findings: c.outcome.Findings, Notes: c.outcome.Notes, Wrong: c.wrong,
		Pass: len(c.wrong) == 0, OutputSHA256: hex.EncodeToString(sum[:]), Relaunch: c.further,
		Schedules: c.outcome.Schedules,
	}
}

// modelled computes the reference of an instance, with the model of a variant if the problem has one.
func (l *Lab) modelled(ctx context.Context, refs problem.References, i problem.Instance, v spec.Variant) (problem.Reference, error) {
	ref, err := refs.Get(ctx, i)
	if err != nil {
		return nil, err
	}
	if study, ok := l.problem().(problem.Study); ok {
		err = study.Model(ctx, ref, v)
	}
	return ref, err
}

// recordFailure records a fault, a timeout or a crash.
func (a *attempt) recordFailure(err error) {
	a.result.Failure = err.Error()
	a.result.TimedOut = device.Classify(err) == device.KernelTimeout
}

// performance times every shape, interleaved with the parent if there is one.
func (a *attempt) performance(ctx context.Context) error {
	parent, missing := a.parentBuild()
	a.against = CodeOf(a.problem(), parent)
	all, complete, err := a.timeShapes(ctx, parent)
	if err != nil || !complete {
		return err
	}
	var pairs []measure.ProcessPair
	for i, shape := range a.shapes {
		if err := a.addTimes(shape, all[i]); err != nil {
			return err
		}
		if all[i].Parent != nil && slices.Contains(a.gated, shape) {
			pairs = append(pairs, all[i].Pair())
		}
	}
	a.timed = missing == nil
	if missing != nil {
		a.gates.Performance = gate.Unmeasured(missing.Error())
		return nil
	}
	a.gateSpeed(pairs)
	return nil
}

// timeShapes takes the samples of every shape, in several processes one after the other. It is not
// complete if a gate has failed or the device cannot measure time.
func (a *attempt) timeShapes(ctx context.Context, parent problem.Build) (all []*run.Samples, complete bool, err error) {
	all = make([]*run.Samples, len(a.shapes))
	reused := make([]bool, len(a.shapes))
	for i, shape := range a.shapes {
		all[i] = a.reusedTimes(shape, parent)
		reused[i] = all[i] != nil
	}
	processes := a.plan.processes()
	for process := range processes {
		a.session.close()
		samples := measure.Share(a.plan.Samples, process, processes)
		for i, shape := range a.shapes {
			if reused[i] {
				continue
			}
			step := "timing " + shape.String()
			if processes > 1 {
				step += fmt.Sprintf(", process %d of %d", process+1, processes)
			}
			a.step(step, process*len(a.shapes)+i, processes*len(a.shapes))
			more, err := a.time(ctx, shape, parent, samples, process == 0)
			a.work.add(a.work.ofTiming() / float64(processes))
			switch {
			case a.referenceFailed(err):
				a.gates.Performance = gate.Unmeasured("reference: " + a.result.ReferenceError)
				return nil, false, nil
			case errors.Is(err, device.ErrNoClock):
				a.gates.Performance = gate.Unmeasured(err.Error())
				return nil, false, nil
			case device.Classify(err).LosesDevice():
				a.failedTiming(shape, parent, err)
				return nil, false, nil
			case err != nil:
				return nil, false, err
			case a.gates.Correctness.Status != gate.Pass || a.parentWrong != "":
				return nil, false, nil
			}
			all[i] = all[i].And(more)
		}
	}
	return all, true, nil
}

// failedTiming records a failure that lost the device while a shape was timed. A kernel that faults
// is incorrect, even if all its outputs were right. A timeout leaves the performance unknown.
func (a *attempt) failedTiming(shape spec.Shape, parent problem.Build, err error) {
	a.recordFailure(err)
	what := shape.String()
	if parent.Image != nil { // either of the two kernels may have caused it
		what += " interleaved with " + a.result.Parent
	}
	text := fmt.Sprintf("timing %s: %v", what, err)
	if a.result.TimedOut {
		a.gates.Performance = gate.Unmeasured(text)
		return
	}
	a.gates.Correctness = gate.Correctness([]string{text})
	a.gates.Performance = gate.Unmeasured(earlierGate)
	a.gates.Profile = a.gates.Performance
}

// gateSpeed compares the speedup over the parent with the required one.
func (a *attempt) gateSpeed(pairs []measure.ProcessPair) {
	if a.parent == nil {
		a.gates.Performance = noParent
		return
	}
	speedup := measure.Speedup{Ratio: 1, Low: 1, High: 1} // of the same code
	if !a.same {
		speedup = measure.CompareProcesses(pairs)
	}
	a.result.Speedup = &speedup
	a.gates.Performance = gate.Performance(speedup, a.result.RequiredSpeedup, a.result.Parent)
	if a.same {
		a.gates.Performance.Reasons = slices.Insert(a.gates.Performance.Reasons, 0, "same code as "+a.result.Parent)
	}
}

// noParent is the performance gate of a variant without a parent.
var noParent = gate.Check{Status: gate.Pass, Reasons: []string{"it has no parent to be faster than"}}

// parentBuild is the build to interleave with. It has no image if there is no parent, or if the
// parent has the same code.
func (a *attempt) parentBuild() (problem.Build, error) {
	if a.parent == nil {
		return problem.Build{}, nil
	}
	parent, err := a.builds.launchable(*a.parent)
	if err != nil {
		return problem.Build{}, fmt.Errorf("the parent %s: %w", a.parent, err)
	}
	if err := a.checkAudit(parent); err != nil {
		return problem.Build{}, fmt.Errorf("the parent %w", err)
	}
	if a.same = CodeOf(a.problem(), parent) == CodeOf(a.problem(), a.build); a.same {
		return problem.Build{}, nil
	}
	return parent, nil
}

// time takes samples of one shape. Timed launches that are wrong make the variant incorrect; those
// of the parent leave its performance unknown. The first process also measures the energy of the
// benchmark shapes.
func (a *attempt) time(ctx context.Context, shape spec.Shape, parent problem.Build, count int, first bool) (*run.Samples, error) {
	if a.session.device == nil {
		if err := a.open(ctx); err != nil {
			return nil, err
		}
	}
	builds := []problem.Build{a.build}
	if parent.Image != nil {
		builds = append(builds, parent)
	}
	ref, err := a.refs.Get(ctx, a.problem().Plain(shape, a.plan.Seeds[0]))
	if err != nil {
		return nil, err
	}
	plan := device.Plan{Samples: count, ColdL2: a.plan.L2 == run.Cold, Fresh: true}
	plan.Energy = a.plan.Energy && first && slices.Contains(a.gated, shape)
	all, err := a.Lab.time(ctx, a.session, ref, plan, builds...)
	if err != nil {
		return nil, err
	}
	samples := &run.Samples{Shape: shape.String(), Variant: all[0].Series}
	if parent.Image != nil {
		samples.Parent = &all[1].Series
	}
	a.noteTimedWrong(shape, all)
	return samples, nil
}

// noteTimedWrong fails the correctness gate for a variant whose timed launches were wrong. If the
// parent's were wrong, there is nothing to compare the variant with.
func (a *attempt) noteTimedWrong(shape spec.Shape, all []Timed) {
	for i, t := range all {
		if len(t.Wrong) == 0 {
			continue
		}
		text := fmt.Sprintf("timing %s: %s", shape, t.Wrong[0])
		if i == 0 {
			a.gates.Correctness = gate.Correctness([]string{text})
			a.gates.Performance = gate.Unmeasured(earlierGate)
		} else {
			a.parentWrong = fmt.Sprintf("the parent %s: %s", a.result.Parent, text)
			a.gates.Performance = gate.Unmeasured(a.parentWrong)
		}
		a.gates.Profile = a.gates.Performance
		return
	}
}

// addTimes adds the times of one shape to the record.
func (a *attempt) addTimes(shape spec.Shape, s *run.Samples) error {
	work, err := a.problem().Work(a.variant, shape, a.problem().DType(a.variant))
	if err != nil {
		return err
	}
	row := run.NewPerformance(work.FLOPs, 0, *s)
	if a.problem().Name() != spec.Attention { // records of attention have neither GB/s nor shares
		row = run.NewPerformance(work.FLOPs, work.Bytes, *s)
		row.ShapeName = a.shapeName(shape)
		if ceilings := run.CeilingsOf(a.Device.facts.Name); ceilings != nil && work != (problem.Work{}) {
			row.Shares = ceilings.Shares(work.FLOPs, work.Bytes, row.P50US/1e6)
		}
	}
	row.Benchmark = slices.Contains(a.gated, shape)
	if a.same { // a measured ratio would differ from 1 by noise only
		one, own := 1.0, row.P50US
		row.ParentP50US, row.ParentRatio, row.RatioLow, row.RatioHigh = &own, &one, &one, &one
	}
	a.result.Performance = append(a.result.Performance, row)
	a.result.Samples = append(a.result.Samples, *s)
	a.result.Requested.Timing, a.result.Requested.L2 = a.plan.L2.Timing(), a.plan.L2
	if row.Benchmark && a.result.Headline == nil {
		a.result.Headline = row.Headline()
	}
	return nil
}

func (a *attempt) step(step string, done, total int) {
	p := Progress{Subject: a.variant.String(), Step: step, Done: done, Total: total}
	a.work.describe(&p)
	a.progress(p)
}
