package lab

import (
	"context"
	"fmt"
	"maps"
	"math"

	"attune/internal/accuracy"
	"attune/internal/oracle"
	"attune/internal/spec"
	"attune/internal/tensor"
)

// problem is one set of inputs.
type problem struct {
	shape  tensor.Shape
	seed   uint64
	inputs tensor.Distribution
}

func (p problem) String() string {
	text := fmt.Sprintf("%s seed %d", p.shape, p.seed)
	if p.inputs != tensor.Normal {
		text += " " + p.inputs.String()
	}
	return text
}

// unmasked is the problem without a causal mask. It has the same inputs.
func (p problem) unmasked() problem {
	p.shape.Causal = false
	return p
}

// problems are those of the correctness gate: every shape and seed with normal inputs, and each
// shape with the first seed and harder inputs. Outliers and peaked scores come always. Rising
// scores, whose last key has the largest weight, come where a kernel must mask keys. Low scores
// come where the last tile of keys is partial: a key read beyond the end would have the largest
// weight.
func problems(shapes []tensor.Shape, seeds []uint64) []problem {
	var all []problem
	for _, shape := range shapes {
		for _, seed := range seeds {
			all = append(all, problem{shape, seed, tensor.Normal})
		}
		all = append(all, problem{shape, seeds[0], tensor.Outliers}, problem{shape, seeds[0], tensor.Peaked})
		const tile = 64 // keys; a kernel with larger tiles masks on these shapes as well
		if shape.Causal || shape.SeqK%tile != 0 {
			all = append(all, problem{shape, seeds[0], tensor.Rising})
		}
		if shape.SeqK%tile != 0 {
			all = append(all, problem{shape, seeds[0], tensor.Low})
		}
	}
	return all
}

// studies are the problems that study the exponentials of a kernel: one shape and the first seed,
// with each of the distributions for it.
func studies(shapes []tensor.Shape, seeds []uint64) []problem {
	var all []problem
	if shape, ok := studyShape(shapes); ok {
		for _, d := range tensor.Studied {
			all = append(all, problem{shape, seeds[0], d})
		}
	}
	return all
}

// studyShape is the shape of a study. Of the shapes that are not smaller than a tile it is the one
// with the most rows, which decide how small a difference shows, unless that takes too long on the
// simulator. If all of them take too long, it is a shape of its own: the study is about the kernel,
// not about its shapes. Without a shape of at least a tile there is no study.
func studyShape(shapes []tensor.Shape) (tensor.Shape, bool) {
	const (
		tile     = 64
		maxFLOPs = 6e7 // 1024 rows of 128 keys and a head dim of 64 are 3e7
	)
	var study tensor.Shape
	requested := false
	for _, shape := range shapes {
		if shape.SeqQ < tile || shape.SeqK < tile {
			continue
		}
		if study == (tensor.Shape{}) {
			study = tensor.Shape{Batch: 1, Heads: 1, SeqQ: 512, SeqK: 512, HeadDim: shape.HeadDim}
		}
		if shape.FLOPs() <= maxFLOPs && (!requested || shape.Rows() > study.Rows()) {
			study, requested = shape, true
		}
	}
	return study, study != tensor.Shape{}
}

// references caches inputs and references of a command: every variant is compared with the same
// ones.
type references struct {
	computed map[problem]*reference
	drawn    map[problem]*tensor.Inputs // by the unmasked problem
	// maxWork limits the multiply-adds of a reference. Above it, only a sample of the rows is
	// computed. A command that only times kernels must not spend minutes on it; the gates compute
	// every row.
	maxWork float64
	// secret is the seed of sampled rows and of the inputs of relaunches. A kernel that knew the
	// rows could compute these alone.
	secret uint64
}

// reference is a problem's inputs and the correct output.
type reference struct {
	inputs *tensor.Inputs
	want   *oracle.Reference
	// exact are the outputs of exact exponentials, on exactRows. They are nil unless the exponentials
	// of a kernel are compared with them.
	exact     [][]float64
	exactRows oracle.Rows
}

// newReferences computes every row of every reference.
func newReferences() *references { return newSampledReferences(math.Inf(1), nil) }

// newSampledReferences computes a sample of the rows of references above maxWork multiply-adds. The
// seed of the sample is random unless it is given, to repeat an earlier one.
func newSampledReferences(maxWork float64, seed *uint64) *references {
	r := &references{computed: map[problem]*reference{}, drawn: map[problem]*tensor.Inputs{}, maxWork: maxWork, secret: oracle.RandomSeed()}
	if seed != nil {
		r.secret = *seed
	}
	return r
}

// keepOnly drops everything but one problem.
func (r *references) keepOnly(keep problem) {
	maps.DeleteFunc(r.computed, func(p problem, _ *reference) bool { return p != keep })
	maps.DeleteFunc(r.drawn, func(p problem, _ *tensor.Inputs) bool { return p != keep.unmasked() })
}

// inputs draws the inputs of a problem, once.
func (r *references) inputs(p problem) *tensor.Inputs {
	key := p.unmasked()
	if r.drawn[key] == nil {
		r.drawn[key] = tensor.Draw(key.shape, key.seed, tensor.Options{Distribution: key.inputs})
	}
	return r.drawn[key].WithMask(p.shape.Causal)
}

// get computes the reference of a problem, once.
func (r *references) get(ctx context.Context, p problem) (*reference, error) {
	if known := r.computed[p]; known != nil {
		return known, nil
	}
	inputs := r.inputs(p)
	want, err := oracle.Compute(ctx, inputs, oracle.Sample(p.shape, r.secret, r.maxWork))
	if err != nil {
		return nil, err
	}
	r.computed[p] = &reference{inputs: inputs, want: want}
	return r.computed[p], nil
}

// maxModelWork limits the multiply-adds of a model of exact exponentials. Above it the model has a
// sample of the rows: 4096 rows of 500 keys take some tenths of a second.
const maxModelWork = 3e8

// model adds the model of exact exponentials to a reference, once, if a variant is compared with it.
func (r *references) model(ctx context.Context, ref *reference, v spec.Variant) error {
	if ref.exact != nil || v.Exponentials() == "" {
		return nil
	}
	var err error
	ref.exactRows = oracle.Sample(ref.inputs.Shape, r.secret, maxModelWork)
	ref.exact, err = accuracy.ExactExponentials(ctx, ref.inputs, ref.exactRows)
	return err
}

// coverage is how many rows of an output the reference has.
func (r *reference) coverage() oracle.Coverage { return r.want.Rows.Coverage(r.inputs.Shape) }
