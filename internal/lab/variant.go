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

	"attune/internal/device"
	"attune/internal/device/isolate"
	"attune/internal/gate"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// attempt is one variant on its way through the gates.
type attempt struct {
	lab        *Lab
	request    Request
	variant    spec.Variant
	record     *run.Run
	gates      gate.Gates
	image      *toolchain.Image
	device     device.Device
	references *references
	twin       *measurement // of the same code, already measured
	parent     code         // that it is timed in turns with
	same       bool         // as the parent's is its own code
	timed      bool
}

// runVariant takes one variant as far as it gets. The record is whole in every case; an error is the lab's own.
func (l *Lab) runVariant(ctx context.Context, r Request, v spec.Variant, b *builds, refs *references, measured measurements) (*run.Run, error) {
	a := &attempt{lab: l, request: r, variant: v, references: refs, record: l.newRecord(r, v)}
	later := gate.Unmeasured("an earlier gate failed")
	a.gates = gate.Gates{Resources: later, Correctness: later, Performance: later, Profile: later}
	defer func() {
		if a.device != nil {
			a.device.Close()
		}
	}()
	if err := a.gate(ctx, b, measured); err != nil {
		return nil, err
	}
	measured.keep(a)
	a.record.SetGates(a.gates)
	a.record.Verdict = a.gates.Verdict(a.timed)
	return a.record, nil
}

func (l *Lab) newRecord(r Request, v spec.Variant) *run.Run {
	record := l.emptyRecord(r)
	record.Variant, record.Stage, record.Hypothesis = v.String(), v.Stage().Name, v.Stage().Hypothesis
	if parent, ok := parentOf(r, v); ok {
		record.Parent, record.Change = parent.String(), v.Change(parent)
		record.RequiredSpeedup = v.RequiredSpeedup()
	}
	if r.partOf != nil { // which has made the promise; a part is measured as if against that parent
		record.PartOf, record.Asked.Against = r.partOf.Name, record.Parent
	}
	if r.Against != nil {
		record.Asked.Against = r.Against.String()
	}
	if record.Asked.Against != "" {
		record.RequiredSpeedup = 1
	}
	return record
}

// emptyRecord has what a record says of the request and of who does it.
func (l *Lab) emptyRecord(r Request) *run.Run {
	record := &run.Run{
		SchemaVersion: run.SchemaVersion,
		Time:          time.Now().UTC().Truncate(time.Millisecond),
		Kernel:        l.Kernel.Name,
		Reproduces:    r.Reproduces,
		Device:        "none",
		Correctness:   []run.Correctness{},
		Performance:   []run.Performance{},
		Asked: run.Asked{
			Seeds: r.Seeds, Samples: r.Samples, Arch: r.Arch, Problems: len(r.problems()), Simulation: l.Simulation,
		},
		Git:    l.Git,
		GitSHA: l.Git.SHA,
		Attune: l.Version,
	}
	for _, shape := range r.Shapes {
		record.Asked.Shapes = append(record.Asked.Shapes, shape.String())
	}
	return record
}

// gate goes from gate to gate until one fails.
func (a *attempt) gate(ctx context.Context, b *builds, measured measurements) error {
	if err := a.resources(b); err != nil || a.gates.Resources.Status == gate.Fail {
		return err
	}
	if a.lab.Open == nil {
		a.gates.Correctness = gate.Unmeasured(a.lab.NoDevice)
		a.gates.Performance = gate.Unmeasured(device.ErrNoDevice.Error())
		a.gates.Profile = a.gates.Performance
		return nil
	}
	if twin := measured[codeOf(a.image)]; twin != nil && twin.run.Variant != a.record.Variant {
		a.takeOver(twin)
	} else if err := a.open(ctx); err != nil {
		return err
	}
	if err := a.correctness(ctx); err != nil || a.gates.Correctness.Status != gate.Pass {
		return err
	}
	a.gates.Profile = gate.Unmeasured("no profile was taken")
	if a.lab.NoClock {
		a.gates.Performance = gate.Unmeasured(device.ErrNoClock.Error())
		return nil
	}
	if a.record.Asked.Sanitizer != "" {
		a.gates.Performance = gate.Unmeasured("compute-sanitizer slows kernels down too much")
		return nil
	}
	return a.performance(ctx, b)
}

func (a *attempt) open(ctx context.Context) error {
	a.tell("opening the device", 0, 0)
	var err error
	if a.device, err = a.lab.Open(ctx); err != nil {
		return err
	}
	facts := a.device.Facts()
	a.record.Facts, a.record.Device = &facts, facts.Kind
	return nil
}

// resources builds the variant and holds it against its budget. A variant that does not compile fails here.
func (a *attempt) resources(b *builds) error {
	a.tell("compiling", 0, 0)
	image, err := b.wait(a.variant)
	var refused *toolchain.CompileError
	switch {
	case errors.As(err, &refused):
		a.record.Arch = refused.Target.Arch
		a.record.Failure = refused.Error()
		a.record.Log = refused.Output
		a.gates.Resources = gate.Check{Status: gate.Fail, Reasons: []string{"it does not compile", strings.TrimRight(refused.Output, "\n")}}
		return nil
	case err != nil:
		return err
	}
	a.image = image
	a.record.Build, a.record.Log = &image.Record, image.Log
	a.record.Arch, a.record.CodeHash = image.Record.Arch, image.Record.CodeHash
	a.gates.Resources = gate.Resources(image.Record.Resources, budget(a.variant))
	return nil
}

// budget is the stage's, in which shared memory grows with the head dim: the tiles do.
func budget(v spec.Variant) spec.Budget {
	b := v.Stage().Budget
	if own := HeadDim(v.Stage().Variant()); own > 0 {
		b.SharedBytes = b.SharedBytes * HeadDim(v) / own
	}
	return b
}

// correctness holds every answer against the oracle, and asks whoever watched the device.
func (a *attempt) correctness(ctx context.Context) error {
	wrong, err := a.answers(ctx)
	var unsupported *device.Unsupported
	if errors.As(err, &unsupported) {
		a.gates.Correctness = gate.Unmeasured(unsupported.Why)
		a.gates.Performance = gate.Unmeasured("this device cannot run the kernel")
		a.gates.Profile = a.gates.Performance
		return nil
	}
	if err != nil {
		return err
	}
	if s, ok := a.device.(sanitized); ok {
		a.tell("waiting for compute-sanitizer", 0, 0)
		a.record.Asked.Sanitizer = s.Tool()
		findings, err := s.Findings()
		if err != nil && a.record.Failure == "" { // whoever watched a process that was lost may have nothing to say
			return err
		}
		for _, f := range findings {
			wrong = append(wrong, findingText(f))
		}
	}
	a.gates.Correctness = gate.Correctness(wrong)
	return nil
}

// sanitized is a device that something watches which has its say when the work is done.
type sanitized interface {
	Tool() string
	Findings() ([]device.Finding, error)
}

// answers runs every problem and gives what is wrong with the answers. A failure that takes the device is the last.
func (a *attempt) answers(ctx context.Context) ([]string, error) {
	var all complaints
	problems := a.request.problems()
	for i, p := range problems {
		a.tell("correctness "+p.String(), i, len(problems))
		row, err := a.answer(ctx, i, p)
		if broken := a.kernelFailure(err); broken != "" {
			return append(all.reasons(), fmt.Sprintf("%s: %s", p, broken)), nil
		}
		if err != nil {
			return nil, err
		}
		all.add(p, row)
		a.record.Correctness = append(a.record.Correctness, *row)
	}
	return all.reasons(), nil
}

// answer measures one problem, or takes the twin's answer to it, and judges it.
func (a *attempt) answer(ctx context.Context, i int, p problem) (*run.Correctness, error) {
	ref, err := a.references.get(ctx, p)
	if err != nil {
		return nil, err
	}
	var row *run.Correctness
	if a.twin != nil {
		taken := a.twin.run.Correctness[i]
		row = &taken
	} else if row, err = a.ask(ctx, p, ref); err != nil {
		return nil, err
	}
	off := found{row.Errors, row.LSE}
	row.Limits, row.Wrong = judge(ref, a.image.Record.Launch, off, row.Findings, a.variant.Stage().ErrorShare, a.lab.Kernel.Tolerance)
	row.Pass = len(row.Wrong) == 0
	return row, nil
}

// ask runs one problem and says how far its answer is off.
func (a *attempt) ask(ctx context.Context, p problem, ref *reference) (*run.Correctness, error) {
	outcome, err := a.device.Run(ctx, newJob(a.image, a.device.Facts(), ref.inputs))
	if err != nil {
		return nil, err
	}
	a.record.Loaded = &outcome.Loaded
	a.record.Ran = string(ranAs(a.image, a.device.Facts()))
	off, err := compare(ref, a.image.Record.Launch, outcome, a.lab.Kernel.Tolerance)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(slices.Concat(outcome.Outputs...))
	return &run.Correctness{
		Shape: p.shape.String(), Seed: p.seed, Inputs: p.inputs.String(), Errors: off.Errors, LSE: off.lse, InputCost: ref.answer.InputCost,
		Findings: outcome.Findings, OutputSHA256: hex.EncodeToString(sum[:]),
	}, nil
}

// found is how far an answer is off: O, and the logarithms of the sums where there are any.
type found struct {
	oracle.Errors
	lse *oracle.LSEErrors
}

// compare says how far an outcome is off.
func compare(ref *reference, launch toolchain.Launch, outcome *device.Outcome, tolerance spec.Tolerance) (found, error) {
	o, lse := outputs(launch, outcome, ref.answer.Rows, ref.inputs.Shape.HeadDim)
	errs, err := oracle.Compare(o, ref.answer, oracle.Tolerance{Abs: tolerance.Atol, Rel: tolerance.Rtol})
	if err != nil || lse == nil {
		return found{Errors: errs}, err
	}
	off, err := oracle.CompareLSE(lse, ref.answer)
	return found{errs, &off}, err
}

// judge says how far an answer may be off, and what is wrong with it.
func judge(ref *reference, launch toolchain.Launch, off found, findings []device.Finding, share float64,
	tolerance spec.Tolerance,
) (gate.Limits, []string) {
	limits := gate.LimitsFor(ref.answer, launch.Output, share, tolerance, ref.inputs.Options.Distribution == tensor.Normal)
	var wrong []string // what was found comes first: it tends to be why the numbers are off
	for _, f := range findings {
		wrong = append(wrong, findingText(f))
	}
	wrong = append(wrong, gate.Errors(off.Errors, limits)...)
	if off.lse != nil {
		limits.LSE = gate.LSEFor(ref.answer, launch.LSE)
		wrong = append(wrong, gate.LSEErrors(*off.lse, limits.LSE)...)
	}
	return limits, wrong
}

// check says how far a variant's outcome is off, and what is wrong with it.
func (l *Lab) check(ref *reference, v spec.Variant, image *toolchain.Image, outcome *device.Outcome) (found, []string, error) {
	off, err := compare(ref, image.Record.Launch, outcome, l.Kernel.Tolerance)
	if err != nil {
		return off, nil, err
	}
	_, wrong := judge(ref, image.Record.Launch, off, outcome.Findings, v.Stage().ErrorShare, l.Kernel.Tolerance)
	return off, wrong, nil
}

// kernelFailure records what a kernel did to its device, and is empty for errors that are not the kernel's.
func (a *attempt) kernelFailure(err error) string {
	var fault *device.Fault
	var timeout *device.Timeout
	var crash *isolate.Crash
	a.record.TimedOut = errors.As(err, &timeout)
	if a.record.TimedOut || errors.As(err, &fault) || errors.As(err, &crash) {
		a.record.Failure = err.Error()
	}
	return a.record.Failure
}

// performance times every shape, together with the parent where there is one.
func (a *attempt) performance(ctx context.Context, b *builds) error {
	parent, same, missing := a.parentImage(b)
	a.parent, a.same = codeOf(parent), same
	var judged []measure.Pair
	for i, shape := range a.request.Shapes {
		a.tell(fmt.Sprintf("timing %s", shape), i, len(a.request.Shapes))
		samples, err := a.time(ctx, shape, parent)
		if errors.Is(err, device.ErrNoClock) {
			a.gates.Performance = gate.Unmeasured(err.Error())
			return nil
		}
		if broken := a.kernelFailure(err); broken != "" {
			// A kernel that takes its device down is not right, whatever it answered before.
			a.gates.Correctness = gate.Correctness([]string{fmt.Sprintf("timing %s: %s", a.timedTogether(shape, parent), broken)})
			a.gates.Performance = gate.Unmeasured("an earlier gate failed")
			a.gates.Profile = a.gates.Performance
			return nil
		}
		if err != nil {
			return err
		}
		a.addTimes(shape, samples)
		if samples.Parent != nil && a.request.judges(shape) {
			judged = append(judged, pairOf(*samples))
		}
	}
	a.timed = missing == nil
	switch {
	case missing != nil:
		a.gates.Performance = gate.Unmeasured(missing.Error())
	case same:
		a.record.Speedup = &measure.Speedup{Ratio: 1, Low: 1, High: 1}
		a.gates.Performance = gate.Performance(*a.record.Speedup, a.record.RequiredSpeedup, a.record.Parent)
		a.gates.Performance.Reasons = append([]string{"same code as " + a.record.Parent}, a.gates.Performance.Reasons...)
	case parent == nil:
		a.gates.Performance = gate.Check{Status: gate.Pass, Reasons: []string{"it has no parent to be faster than"}}
	default:
		speedup := measure.CompareSpeed(judged)
		a.record.Speedup = &speedup
		a.gates.Performance = gate.Performance(speedup, a.record.RequiredSpeedup, a.record.Parent)
	}
	return nil
}

// parentImage is the image to be measured against: none where the variant has no parent, or where the parent is the same program.
func (a *attempt) parentImage(b *builds) (image *toolchain.Image, same bool, err error) {
	parent, ok := parentOf(a.request, a.variant)
	if !ok {
		return nil, false, nil
	}
	image, err = b.wait(parent)
	if err != nil {
		return nil, false, fmt.Errorf("the parent %s: %w", parent, err)
	}
	if codeOf(image) == codeOf(a.image) {
		return nil, true, nil
	}
	return image, false, nil
}

// judges says whether a shape counts for the gate: the judged ones do, or all where none of those was asked for.
func (r Request) judges(shape tensor.Shape) bool {
	asked := func(s tensor.Shape) bool { return slices.Contains(r.Shapes, s) }
	if !slices.ContainsFunc(r.Judged, asked) {
		return true
	}
	return slices.Contains(r.Judged, shape)
}

// timedTogether names what a timing was of: with two kernels on the device, either may have brought it down.
func (a *attempt) timedTogether(shape tensor.Shape, parent *toolchain.Image) string {
	if parent == nil {
		return shape.String()
	}
	return fmt.Sprintf("%s in turns with %s", shape, a.record.Parent)
}

// time takes the samples of one shape, or takes over the twin's.
func (a *attempt) time(ctx context.Context, shape tensor.Shape, parent *toolchain.Image) (*run.Samples, error) {
	if taken := a.takenTimes(shape, parent); taken != nil {
		return taken, nil
	}
	if a.device == nil { // so far the twin's answers have served
		if err := a.open(ctx); err != nil {
			return nil, err
		}
	}
	inputs := a.references.inputs(problem{shape: shape, seed: a.request.Seeds[0], inputs: tensor.Normal})
	jobs := []device.Job{newJob(a.image, a.device.Facts(), inputs)}
	if parent != nil {
		jobs = append(jobs, newJob(parent, a.device.Facts(), inputs))
	}
	series, err := a.device.Time(ctx, jobs, device.Plan{Samples: a.request.Samples, ColdL2: a.request.L2 == run.Cold})
	if err != nil {
		return nil, err
	}
	samples := &run.Samples{Shape: shape.String(), Variant: series[0]}
	if parent != nil {
		samples.Parent = &series[1]
	}
	return samples, nil
}

// pairOf is a shape's times and its parent's. With no times of the parent the two are one program.
func pairOf(s run.Samples) measure.Pair {
	variant, parent := s.Steady()
	if s.Parent == nil {
		parent = variant
	}
	return measure.Pair{Parent: parent, Variant: variant}
}

// addTimes writes the figures of one shape into the record.
func (a *attempt) addTimes(shape tensor.Shape, s *run.Samples) {
	const us = 1e6
	variant, parent := s.Steady()
	sum := measure.Summarize(variant)
	row := run.Performance{
		Shape: s.Shape, P50US: sum.P50 * us, P90US: sum.P90 * us, P99US: sum.P99 * us, StdUS: sum.Std * us, CV: sum.CV,
		TFLOPS: shape.FLOPs() / sum.P50 / 1e12, Samples: len(variant), Judged: a.request.judges(shape),
		Parts: run.PartsOf(s.Variant), Circumstances: s.Circumstances(),
	}
	if sum.Median != nil {
		low, high := sum.Median.Low*us, sum.Median.High*us
		row.P50LowUS, row.P50HighUS = &low, &high
	}
	if s.Parent != nil {
		speedup := measure.CompareSpeed([]measure.Pair{{Parent: parent, Variant: variant}})
		parentP50 := measure.Summarize(parent).P50 * us
		row.ParentP50US, row.ParentRatio, row.RatioLow, row.RatioHigh = &parentP50, &speedup.Ratio, &speedup.Low, &speedup.High
	}
	if a.same { // by identity: a clock could only blur it
		one, own := 1.0, row.P50US
		row.ParentP50US, row.ParentRatio, row.RatioLow, row.RatioHigh = &own, &one, &one, &one
	}
	a.record.Performance = append(a.record.Performance, row)
	a.record.Samples = append(a.record.Samples, *s)
	a.record.Asked.Timing, a.record.Asked.L2 = a.request.L2.Timing(), a.request.L2
	if row.Judged && a.record.Headline == nil {
		a.record.Headline = &run.Headline{Shape: row.Shape, P50US: row.P50US, ParentRatio: row.ParentRatio}
	}
}

func (a *attempt) tell(doing string, done, total int) {
	a.lab.tell(Event{Variant: a.variant.String(), Doing: doing, Done: done, Total: total})
}
