package attention

import (
	"context"
	"maps"

	"attune/internal/device"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/tensor"
)

// references caches inputs and references of a command.
type references struct {
	problem  *Problem
	computed map[problem.Instance]*reference
	drawn    map[problem.Instance]*tensor.Inputs // by the unmasked instance
	// maxWork limits the multiply-adds of a reference. Above it, only a sample of the rows is
	// computed. A command that only times kernels must not spend minutes on it; the gates compute
	// every row.
	maxWork float64
	// secret is the seed of sampled rows and of the inputs of relaunches. A kernel that knew the
	// rows could compute these alone.
	secret uint64
}

// reference is the inputs of an instance and the correct output.
type reference struct {
	problem  *Problem
	instance problem.Instance
	inputs   *tensor.Inputs
	want     *oracle.Reference
	secret   uint64
	// exact are the outputs of exact exponentials, on exactRows. They are nil unless the exponentials
	// of a kernel are compared with them.
	exact     [][]float64
	exactRows oracle.Rows
}

// References computes the references of one command.
func (p *Problem) References(o problem.Options) problem.References {
	return &references{
		problem: p, computed: map[problem.Instance]*reference{}, drawn: map[problem.Instance]*tensor.Inputs{},
		maxWork: o.MaxWork, secret: o.Secret,
	}
}

// Secret is the seed of sampled rows and of the inputs of relaunches.
func (r *references) Secret() uint64 { return r.secret }

// Facts is nil: the program is the reference.
func (r *references) Facts() map[string]string { return nil }

// Close does nothing.
func (r *references) Close() error { return nil }

// unmasked is the instance without a causal mask. It has the same inputs.
func unmasked(i problem.Instance) problem.Instance {
	shape := i.Shape.(tensor.Shape)
	shape.Causal = false
	i.Shape = shape
	return i
}

// KeepOnly drops everything but one instance.
func (r *references) KeepOnly(keep problem.Instance) {
	maps.DeleteFunc(r.computed, func(i problem.Instance, _ *reference) bool { return i != keep })
	maps.DeleteFunc(r.drawn, func(i problem.Instance, _ *tensor.Inputs) bool { return i != unmasked(keep) })
}

// inputs draws the inputs of an instance, once.
func (r *references) inputs(i problem.Instance) (*tensor.Inputs, error) {
	key := unmasked(i)
	if r.drawn[key] == nil {
		distribution, err := tensor.ParseDistribution(i.Inputs)
		if err != nil {
			return nil, err
		}
		r.drawn[key] = tensor.Draw(key.Shape.(tensor.Shape), key.Seed, tensor.Options{Distribution: distribution})
	}
	return r.drawn[key].WithMask(i.Shape.(tensor.Shape).Causal), nil
}

// Get computes the reference of an instance, once.
func (r *references) Get(ctx context.Context, i problem.Instance) (problem.Reference, error) {
	if known := r.computed[i]; known != nil {
		return known, nil
	}
	inputs, err := r.inputs(i)
	if err != nil {
		return nil, err
	}
	folded := inputs
	if i.Relaunch {
		inputs = inputs.WithScale(secretScale(i.Seed))
		folded = inputs.FoldScale()
	}
	want, err := oracle.Compute(ctx, folded, oracle.Sample(inputs.Shape, r.secret, r.maxWork))
	if err != nil {
		return nil, err
	}
	r.computed[i] = &reference{problem: r.problem, instance: i, inputs: inputs, want: want, secret: r.secret}
	return r.computed[i], nil
}

// secretScale is the softmax scale of a relaunch, in units of the usual one: 0.6 to 0.8, or 1.2 to
// 1.5. A kernel that ignores the scale is off by more than the limits on scores of that size.
func secretScale(seed uint64) float64 {
	const unit = 64.0 // an exact FP32
	first := 38 + seed>>1%13
	if seed&1 == 1 {
		first += 42
	}
	return float64(first) / unit
}

// Instance is what the reference is of.
func (r *reference) Instance() problem.Instance { return r.instance }

// Job is the launch of a build on the inputs.
func (r *reference) Job(b problem.Build, facts device.Facts) (device.Job, error) {
	return Job(b, facts, r.inputs), nil
}

// timedWork limits the multiply-adds of the reference of one timed launch. Its output was already
// compared with that of an untimed launch, so a small sample of rows is enough.
const timedWork = 5e8

// Timed is the reference of rotated inputs.
func (r *reference) Timed(ctx context.Context, b problem.Build, job device.Job, rotation device.Rotation) (problem.Reference, error) {
	inputs := rotatedInputs(job, b.Image.Record.Launch, r.inputs, rotation)
	want, err := oracle.ComputeLike(ctx, inputs, oracle.Sample(inputs.Shape, oracle.RandomSeed(), timedWork), r.want)
	if err != nil {
		return nil, err
	}
	return &reference{problem: r.problem, instance: r.instance, inputs: inputs, want: want, secret: r.secret}, nil
}

// Coverage is how many rows of an output the reference has.
func (r *reference) Coverage() oracle.Coverage { return r.want.Rows.Coverage(r.inputs.Shape) }

// InputCost is the error that the quantisation of the inputs causes.
func (r *reference) InputCost() *oracle.ErrorSize { return &r.want.InputError }

// Peer has the inputs.
func (r *reference) Peer() problem.PeerData { return problem.PeerData{Attention: r.inputs} }
