package lab

import (
	"context"

	"attune/internal/device"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
)

// Pipeline has the steps build, check and measure for a caller that chooses each variant by the
// results of those before, such as a search. Its device is opened when a step first needs it.
type Pipeline struct {
	lab     *Lab
	builds  *builds
	refs    problem.References
	session *session

	simulations *simulations
}

// NewPipeline is a pipeline that builds for an architecture or, if that is empty, for the device.
// References above maxWork multiply-adds have a sample of the rows only. The shapes are those of the
// caller's request. The end of ctx ends the builds. The caller closes the pipeline.
func (l *Lab) NewPipeline(ctx context.Context, arch string, maxWork float64, shapes []spec.Shape) *Pipeline {
	return &Pipeline{
		lab: l, builds: l.startBuilds(ctx, arch), refs: l.references(maxWork, nil), session: l.newSession(),
		simulations: l.startSimulations(ctx, false, shapes),
	}
}

// Close ends the builds, the device and the references.
func (p *Pipeline) Close() error {
	p.builds.stop()
	p.simulations.stop()
	p.session.close()
	return p.refs.Close()
}

// Start builds a variant in the background.
func (p *Pipeline) Start(v spec.Variant) { p.builds.start(v) }

// Build waits for the build of a variant, and checks that its parameters are those of the problem. It
// does not keep the image: a search has hundreds.
func (p *Pipeline) Build(v spec.Variant) (problem.Build, error) {
	defer p.builds.forget(v)
	return p.builds.launchable(v)
}

// BuildOne builds one variant, as Pipeline.Build does. A patched kernel is built by its own lab and
// then goes through the pipeline of the kernel.
func (l *Lab) BuildOne(ctx context.Context, arch string, v spec.Variant) (problem.Build, error) {
	b := l.startBuilds(ctx, arch)
	defer b.stop()
	return b.launchable(v)
}

// Reference computes the reference of an instance, once.
func (p *Pipeline) Reference(ctx context.Context, i problem.Instance) (problem.Reference, error) {
	return p.refs.Get(ctx, i)
}

// Correctness is what the correctness gate found on some instances of a build.
type Correctness struct {
	Instance problem.Instance // the one that went wrong
	Failure  error            // the kernel's fault, timeout or crash, or why the device does not run it
	Wrong    string           // the first thing that is wrong with its outputs

	Counters map[problem.Instance]device.Counters // of the simulator
}

// pass reports whether nothing went wrong so far.
func (c *Correctness) pass() bool { return c.Failure == nil && c.Wrong == "" }

// Check runs a build on all instances of shapes and seeds until one goes wrong. An error is not the
// kernel's fault.
func (p *Pipeline) Check(ctx context.Context, b problem.Build, shapes []spec.Shape, seeds []uint64) (*Correctness, error) {
	found := &Correctness{Counters: map[problem.Instance]device.Counters{}}
	request := Request{Problem: p.lab.problem(), Shapes: shapes, Seeds: seeds}
	for _, i := range request.instances(b.Variant, shapes) {
		ref, err := p.lab.modelled(ctx, p.refs, i, b.Variant)
		if err != nil {
			return nil, err
		}
		further, err := second(ctx, p.refs, p.lab.problem(), i, shapes, seeds[0])
		if err != nil {
			return nil, err
		}
		if err := p.check(ctx, b, ref, further, found); err != nil {
			return nil, err
		}
		if !found.pass() {
			break
		}
	}
	return found, nil
}

// Simulate begins to run a build on the simulator, if one is beside the GPU.
func (p *Pipeline) Simulate(b problem.Build) { p.simulations.start(b) }

// Simulated waits for the simulation of a build. The error is a WrongError if the simulator finds
// it wrong, and an UncheckedError if the simulator finishes no shape.
func (p *Pipeline) Simulated(ctx context.Context, b problem.Build) (*run.Simulated, error) {
	found, err := p.simulations.result(ctx, b)
	if err == nil {
		err = wrongSimulated(b.Variant, found)
	}
	return found, err
}

// CheckInstance runs a build on the instance of one reference.
func (p *Pipeline) CheckInstance(ctx context.Context, b problem.Build, ref problem.Reference) (*Correctness, error) {
	found := &Correctness{Counters: map[problem.Instance]device.Counters{}}
	return found, p.check(ctx, b, ref, nil, found)
}

// check runs one instance, and its relaunch on a further one.
func (p *Pipeline) check(ctx context.Context, b problem.Build, ref, further problem.Reference, found *Correctness) error {
	found.Instance = ref.Instance()
	result, err := p.lab.check(ctx, p.session, b, ref, further)
	if err != nil && ctx.Err() == nil && device.Classify(err) != device.OtherFailure {
		found.Failure = err
		return nil
	}
	if err != nil {
		return err
	}
	if found.Failure = result.failure; found.Failure != nil {
		return nil
	}
	found.Wrong = result.firstWrong()
	if result.outcome.Counters != nil {
		found.Counters[found.Instance] = result.outcome.Counters
	}
	return nil
}

// Audit is the first reason in the PTX of a build against running it; empty if there is none.
func (p *Pipeline) Audit(b problem.Build) string {
	if _, reasons := p.lab.auditBuild(b); len(reasons) > 0 {
		return reasons[0]
	}
	return ""
}

// Time measures builds on the inputs of a reference, interleaved, and checks the timed launches.
func (p *Pipeline) Time(ctx context.Context, ref problem.Reference, plan device.Plan, builds ...problem.Build) ([]Timed, error) {
	return p.lab.time(ctx, p.session, ref, plan, builds...)
}

// Release closes the device. The next step opens a fresh one, in a process of its own on a GPU.
func (p *Pipeline) Release() { p.session.close() }
