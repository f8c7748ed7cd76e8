package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"attune/internal/coverage"
	"attune/internal/crash"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
)

// simulations run the code that a GPU runs on the simulator too, on the CPU's cores at the same time.
// On a GPU a wrong order of accesses rarely changes an output; the simulator checks the order itself.
// All commands whose gate lets a kernel pass on a GPU ask here.
type simulations struct {
	lab    *Lab // with the simulator as its device; nil if there is none beside the device
	gpu    *Lab
	quick  bool
	alone  bool         // of a single variant, for which shapes are sought that execute further lines
	shapes []spec.Shape // of the request

	ctx     context.Context
	cancel  context.CancelFunc
	group   crash.Group
	workers chan problem.References // of idle workers

	mu    sync.Mutex
	known map[simulationKey]*simulation
}

// simulationKey is what the result of a simulation depends on.
type simulationKey struct {
	code             Code
	variant          string // its limits
	selected, excuse bool
}

type simulation struct {
	cancel    context.CancelFunc
	done      chan struct{} // closed when result or err is set
	result    *run.Simulated
	lines     *coverage.Summary // of the source, that a correct build has executed
	err       error
	sanitized bool
}

// startSimulations starts no simulation yet. A quick one takes fewer shapes. The caller stops it.
func (l *Lab) startSimulations(ctx context.Context, quick bool, shapes []spec.Shape) *simulations {
	s := &simulations{gpu: l, quick: quick, shapes: shapes, known: map[simulationKey]*simulation{}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if l.Device.simulator == nil {
		return s
	}
	beside := *l
	beside.Device, beside.Problem, beside.Progress = *l.Device.simulator, l.problem(), nil
	s.lab = &beside
	// References are used by one worker at a time. Half of the cores stay for what the GPU waits for.
	n := max(1, runtime.GOMAXPROCS(0)/2)
	s.workers = make(chan problem.References, n)
	for range n {
		s.workers <- beside.references(everyRow, nil)
	}
	return s
}

// stop ends all simulations and waits for them.
func (s *simulations) stop() {
	s.cancel()
	s.group.Wait()
	for range cap(s.workers) {
		(<-s.workers).Close()
	}
}

// start simulates a build in the background, unless that was done before. It returns nil where the
// simulator is not beside the device.
func (s *simulations) start(b problem.Build) *simulation {
	if s.lab == nil {
		return nil
	}
	key := simulationKey{CodeOf(s.lab.problem(), b), b.Variant.String(), b.Selected, excused(b.Variant)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.known[key]; known != nil {
		return known
	}
	ctx, cancel := context.WithCancel(s.ctx)
	one := &simulation{cancel: cancel, done: make(chan struct{})}
	s.known[key] = one
	s.group.Go(func() {
		defer close(one.done)
		defer cancel()
		refs := <-s.workers
		defer func() { s.workers <- refs }()
		defer crash.Catch(&one.err, func() string { return "the simulation of " + b.Variant.String() })
		one.result, one.lines, one.err = s.simulate(ctx, refs, b)
	})
	return one
}

// startPart simulates the code of a part as soon as it is built. What fails the audit is not run.
func (s *simulations) startPart(b *builds, p part) {
	if s.lab == nil {
		return
	}
	s.group.Go(func() {
		built, err := b.launchable(p.variant)
		if err != nil {
			return // the gates report it
		}
		built.Selected = p.selection != nil
		if _, reasons := s.lab.auditBuild(built); len(reasons) == 0 && s.ctx.Err() == nil {
			s.start(built)
		}
	})
}

// found reports whether a simulation has ended and found the build wrong.
func (s *simulations) found(b problem.Build) bool {
	one := s.start(b)
	if one == nil {
		return false
	}
	select {
	case <-one.done:
		return one.err == nil && len(one.result.Wrong) > 0
	default:
		return false
	}
}

// afterTimeout is how long a simulation may take on after its kernel did not end on the GPU. It had
// the time of that launch before. A test shortens it.
var afterTimeout = 10 * time.Second

// resultAfterTimeout is the result of a build that did not end on the GPU. If the simulator does not
// end either, the run goes on without it.
func (s *simulations) resultAfterTimeout(ctx context.Context, b problem.Build) (*run.Simulated, error) {
	limited, cancel := context.WithTimeout(ctx, afterTimeout)
	defer cancel()
	if found, err := s.result(limited, b); err == nil || ctx.Err() != nil || limited.Err() == nil {
		return found, err
	}
	one := s.start(b)
	one.cancel()
	<-one.done // the next simulation may use the worker
	one.result, one.err = &run.Simulated{Findings: []finding.Finding{}, Unfinished: "the simulator did not end either"}, nil
	return one.result, nil
}

// result waits for the simulation of a build. A kernel that the simulator refuses runs under
// compute-sanitizer on the GPU, if the request asks for it. The result is nil where the simulator is
// not beside the device.
func (s *simulations) result(ctx context.Context, b problem.Build) (*run.Simulated, error) {
	one := s.start(b)
	if one == nil {
		return nil, nil
	}
	select {
	case <-one.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if one.err != nil {
		return nil, one.err
	}
	if one.result.Refused != "" && !one.sanitized {
		one.sanitized = true
		if err := s.sanitize(ctx, b, one.result); err != nil {
			return nil, err
		}
	}
	return one.result, nil
}

// lines are the source lines that a build has executed; nil before its result is known, for a wrong build,
// and where the simulator is not beside the device.
func (s *simulations) lines(b problem.Build) *coverage.Summary {
	one := s.start(b)
	if one == nil {
		return nil
	}
	select {
	case <-one.done:
		return one.lines
	default:
		return nil
	}
}

// gateSimulated is the correctness gate of what the simulator found. Without a single finished
// instance nothing was proven, unless the simulator cannot run the kernel at all.
func gateSimulated(s *run.Simulated) gate.Check {
	switch {
	case s == nil:
		return gate.Check{Status: gate.Pass}
	case len(s.Wrong) == 0 && s.Refused == "" && s.Instances == 0:
		return gate.Unmeasured("the simulator finished no shape: " + s.Unfinished + "; give sim_shapes in " + spec.File + " that it finishes")
	}
	return gate.Correctness(s.Wrong)
}

// wrongSimulated is the error of a command that needs a correct kernel, after the simulator checked
// it; nil if it is correct.
func wrongSimulated(v spec.Variant, s *run.Simulated) error {
	switch check := gateSimulated(s); check.Status {
	case gate.Fail:
		return &WrongError{v.String(), check.Reasons[0]}
	case gate.NotMeasured:
		return &UncheckedError{v.String(), check.Reasons[0]}
	}
	return nil
}

// simulate runs the plain instances of a build's shapes, the smallest first, with all checkers. Of a
// correct build it returns the lines too.
func (s *simulations) simulate(ctx context.Context, refs problem.References, b problem.Build) (*run.Simulated, *coverage.Summary, error) {
	began, covered := time.Now(), &coverage.Launches{}
	found, err := s.simulateShapes(ctx, refs, b, covered)
	if err != nil || found.Instances == 0 || len(found.Wrong) > 0 {
		return found, nil, err
	}
	lines := covered.Summary()
	if s.alone && !b.Selected {
		search := lineSearch{Lab: s.lab, refs: refs, build: b, shapes: s.shapesOf(b.Variant), seed: s.lab.Kernel.Run.SimSeeds[0]}
		search.extend(ctx, lines, covered, time.Since(began))
	}
	return found, lines, nil
}

// simulateShapes runs the instances, and adds what they have executed to covered.
func (s *simulations) simulateShapes(ctx context.Context, refs problem.References, b problem.Build, covered *coverage.Launches) (*run.Simulated, error) {
	l, found := s.lab, &run.Simulated{Findings: []finding.Finding{}}
	session := l.newSession()
	defer session.close()
	shapes := s.shapesOf(b.Variant)
	var reasons failureReasons
	for _, shape := range shapes {
		i := l.problem().Plain(shape, l.Kernel.Run.SimSeeds[0])
		row, err := s.simulateOne(ctx, refs, session, b, i, shapes, covered)
		var refused *device.Unsupported
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &refused) && !refused.Large: // a smaller shape may take less memory
			found.Refused, found.Why = cmp.Or(refused.What, refused.Why), refused.Why
			return found, nil
		case device.Classify(err) == device.KernelFault:
			found.Wrong = append(found.Wrong, fmt.Sprintf("on the simulator, %s: %v", l.instanceName(i), err))
			return found, nil
		case err != nil:
			found.Unfinished = cmp.Or(found.Unfinished, fmt.Sprintf("%s: %v", l.instanceName(i), err))
			if device.Classify(err) == device.KernelTimeout { // a larger shape would take longer
				reasons.conclude(found)
				return found, nil
			}
			continue
		}
		reasons.add(l.instanceName(i), row)
		found.Instances++
		found.Shapes = append(found.Shapes, shape.String())
		found.Schedules = max(found.Schedules, row.Schedules)
	}
	if len(reasons.list) == 0 {
		s.sample(ctx, refs, session, b, shapes, &reasons, found)
	}
	reasons.conclude(found)
	return found, nil
}

// Limits of a sample of the blocks of a large shape.
const (
	sampledBlocks = 24
	sampledBytes  = 160 << 20 // of buffers; drawing them takes most of the time
	sampledTime   = 3 * time.Second
)

// sample runs some blocks of the larger shapes of the request, which the simulator does not run whole. The
// last block of such a shape may be the only one that has an incomplete tile. What a sample cannot finish
// is left to the GPU.
func (s *simulations) sample(
	ctx context.Context, refs problem.References, session *session, b problem.Build, simulated []spec.Shape, reasons *failureReasons, found *run.Simulated,
) {
	launcher, ok := refs.(problem.Launcher)
	if !ok {
		return
	}
	limited, cancel := context.WithTimeout(ctx, sampledTime)
	defer cancel()
	for _, shape := range Runnable(s.lab.problem(), b.Variant, s.shapes) {
		if slices.Contains(simulated, shape) {
			continue
		}
		i := s.lab.problem().Plain(shape, s.lab.Kernel.Run.SimSeeds[0])
		outcome, err := session.sample(limited, launcher, b, i)
		if limited.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		findings := unallowed(b.Variant, outcome.Findings)
		s.lab.quote(b, findings)
		row := &run.Correctness{Findings: findings}
		for _, f := range findings {
			row.Wrong = append(row.Wrong, f.String())
		}
		reasons.add(s.lab.instanceName(i), row)
		found.Sampled = append(found.Sampled, shape.String())
	}
}

// sample runs some blocks of an instance.
func (s *session) sample(ctx context.Context, launcher problem.Launcher, b problem.Build, i problem.Instance) (*device.Outcome, error) {
	d, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	_, b.Code = loadable(b.Image, d.Facts())
	job, err := launcher.Launch(b, i, sampledBytes)
	if err != nil {
		return nil, err
	}
	job.Sample = sampledBlocks
	return s.run(ctx, job)
}

// conclude adds the findings and the reasons of all instances to what was simulated.
func (r *failureReasons) conclude(found *run.Simulated) {
	for _, one := range r.list {
		if one.finding != nil {
			found.Findings = append(found.Findings, *one.finding)
		}
	}
	for _, text := range r.texts() {
		found.Wrong = append(found.Wrong, "on the simulator, "+text)
	}
}

// simulateOne runs one instance, and relaunches of the smallest.
func (s *simulations) simulateOne(
	ctx context.Context, refs problem.References, session *session, b problem.Build, i problem.Instance, shapes []spec.Shape, covered *coverage.Launches,
) (*run.Correctness, error) {
	ref, err := refs.Get(ctx, i)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	second, err := second(ctx, refs, s.lab.problem(), i, shapes, i.Seed)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	c, err := s.lab.check(ctx, session, b, ref, second)
	if err == nil {
		err = c.failure
	}
	if err != nil {
		return nil, err
	}
	covered.Add(c.outcome.Covered)
	return &run.Correctness{Findings: c.outcome.Findings, Wrong: c.wrong, Schedules: c.outcome.Schedules}, nil
}

// shapesOf are the shapes on which a variant is simulated: those of the kernel's runs on the
// simulator, or else the smallest of the kernel and of the request.
func (s *simulations) shapesOf(v spec.Variant) []spec.Shape {
	p, k := s.lab.problem(), s.lab.Kernel
	names := k.Run.SimShapes
	if s.quick {
		names = k.Run.SimQuick
	}
	own, _ := k.Shapes(strings.Join(names, ",")) // the loader has checked them
	if fitter, ok := p.(problem.Fitter); ok {
		for i, shape := range own {
			own[i] = fitter.Fit(v, shape)
		}
	}
	if own = Runnable(p, v, own); len(own) > 0 {
		return own
	}
	all := slices.Clone(s.shapes)
	for _, g := range k.Groups {
		all = append(all, g.Shapes...)
	}
	all = Runnable(p, v, all)
	return all[:min(1, len(all))]
}

// Runnable are the shapes that a variant takes, the smallest first.
func Runnable(p problem.Problem, v spec.Variant, shapes []spec.Shape) []spec.Shape {
	all := slices.DeleteFunc(slices.Clone(shapes), func(s spec.Shape) bool { return p.CheckShapes(v, []spec.Shape{s}) != nil })
	slices.SortStableFunc(all, func(a, b spec.Shape) int { return cmp.Compare(p.Size(a), p.Size(b)) })
	return all
}

// sanitize runs a build that the simulator refuses under each tool of compute-sanitizer that the
// device has, on the smallest of its shapes.
func (s *simulations) sanitize(ctx context.Context, b problem.Build, found *run.Simulated) error {
	tools := s.gpu.Device.sanitizers
	if len(tools) == 0 {
		return nil
	}
	refs := s.gpu.references(everyRow, nil)
	defer refs.Close()
	ref, err := refs.Get(ctx, s.gpu.problem().Plain(s.shapesOf(b.Variant)[0], s.lab.Kernel.Run.SimSeeds[0]))
	if err != nil {
		return err
	}
	for _, open := range tools {
		tool, findings, err := s.gpu.runSanitized(ctx, open, b, ref)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			found.Why += "; " + err.Error()
			continue
		}
		found.Sanitized = append(found.Sanitized, tool)
		for _, f := range findings {
			found.Findings = append(found.Findings, f)
			found.Wrong = append(found.Wrong, "under compute-sanitizer, "+f.String())
		}
	}
	return nil
}

// runSanitized runs one instance under a tool of compute-sanitizer and returns what it found.
func (l *Lab) runSanitized(ctx context.Context, open Opener, b problem.Build, ref problem.Reference) (tool string, found []finding.Finding, err error) {
	session := &session{from: GPU(l.Device.facts, open)}
	defer session.close()
	c, err := l.check(ctx, session, b, ref, nil)
	if err != nil {
		return "", nil, err
	}
	s, ok := session.device.(sanitized)
	if !ok {
		return "", nil, errors.New("BUG: the device is not under compute-sanitizer")
	}
	found, err = s.Findings()
	if err != nil && c.failure != nil { // the sanitizer of a lost process may have no report
		err = c.failure
	}
	return s.Tool(), found, err
}
