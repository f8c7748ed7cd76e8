package attention

import (
	"context"
	"fmt"
	"math"

	"attune/internal/accuracy"
	"attune/internal/finding"
	"attune/internal/form"
	"attune/internal/mutate"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/tensormap"
)

// Problem is FP8 attention.
type Problem struct {
	kernel *spec.Kernel // its tolerance bounds the errors
}

var (
	_ problem.Problem = (*Problem)(nil)
	_ problem.Study   = (*Problem)(nil)
)

// New returns the problem of an attention kernel.
func New(k *spec.Kernel) *Problem { return &Problem{k} }

// Name returns spec.Attention.
func (p *Problem) Name() string { return spec.Attention }

// DType is the format of q, k and v.
func (p *Problem) DType(spec.Variant) string { return "e4m3" }

// CheckShapes refuses shapes that exceed a grid, and head dims that the variant is not built for.
func (p *Problem) CheckShapes(v spec.Variant, shapes []spec.Shape) error {
	dim, fixed := v.Value(form.HeadDimKnob)
	for _, s := range shapes {
		shape := s.(tensor.Shape)
		if err := form.CheckGrid(shape); err != nil {
			return err
		}
		if fixed && dim != shape.HeadDim {
			return fmt.Errorf("shape %s has head dim %d, and %s is built for %d", shape, shape.HeadDim, v, dim)
		}
	}
	return nil
}

// HeadDim is the head dim that a variant is built for; 0 if it is not fixed at build time.
func HeadDim(v spec.Variant) int {
	dim, _ := v.Value(form.HeadDimKnob)
	return dim
}

// Fit returns the shape with the head dim of a variant.
func (p *Problem) Fit(v spec.Variant, shape spec.Shape) spec.Shape {
	s := shape.(tensor.Shape)
	if dim := HeadDim(v); dim != 0 {
		s.HeadDim = dim
	}
	return s
}

// Common reports whether two variants are built for the same head dim.
func (p *Problem) Common(a, b spec.Variant) bool { return HeadDim(a) == HeadDim(b) }

// Budget is the stage's, with shared memory in proportion to the head dim: tiles grow with it.
func (p *Problem) Budget(v spec.Variant) spec.Budget {
	b := v.Stage().Budget
	if own := HeadDim(v.Stage().Variant()); own != 0 {
		b.SharedBytes = b.SharedBytes * HeadDim(v) / own
	}
	return b
}

// Instances are every shape and seed with normal inputs, and each shape with the first seed and
// harder inputs. Outliers and peaked scores come always. Rising scores, whose last key has the
// largest weight, come where a kernel must mask keys. Low scores come where the last tile of keys is
// partial: a key read beyond the end would have the largest weight.
func (p *Problem) Instances(shapes []spec.Shape, seeds []uint64) []problem.Instance {
	var all []problem.Instance
	for _, s := range shapes {
		for _, seed := range seeds {
			all = append(all, p.Plain(s, seed))
		}
		hard := []tensor.Distribution{tensor.Outliers, tensor.Peaked}
		const tile = 64 // keys; a kernel with larger tiles masks on these shapes as well
		shape := s.(tensor.Shape)
		if shape.Causal || shape.SeqK%tile != 0 {
			hard = append(hard, tensor.Rising)
		}
		if shape.SeqK%tile != 0 {
			hard = append(hard, tensor.Low)
		}
		for _, d := range hard {
			all = append(all, problem.Instance{Shape: s, Seed: seeds[0], Inputs: d.String()})
		}
	}
	return all
}

// Plain has normal inputs.
func (p *Problem) Plain(s spec.Shape, seed uint64) problem.Instance {
	return problem.Instance{Shape: s, Seed: seed, Inputs: tensor.Normal.String()}
}

// Studies are the instances that study the exponentials of a kernel that rounds P to E4M3: one shape
// and the first seed, with each of the distributions for it.
func (p *Problem) Studies(v spec.Variant, shapes []spec.Shape, seeds []uint64) []problem.Instance {
	if v.Exponentials() == "" {
		return nil
	}
	var all []problem.Instance
	if shape, ok := studyShape(shapes); ok {
		for _, d := range tensor.Studied {
			all = append(all, problem.Instance{Shape: shape, Seed: seeds[0], Inputs: d.String()})
		}
	}
	return all
}

// studyShape is the shape of a study. Of the shapes that are not smaller than a tile it is the one
// with the most rows, which decide how small a difference shows, unless that takes too long on the
// simulator. If all of them take too long, it is a shape of its own: the study is about the kernel,
// not about its shapes. Without a shape of at least a tile there is no study.
func studyShape(shapes []spec.Shape) (tensor.Shape, bool) {
	const (
		tile     = 64
		maxFLOPs = 6e7 // 1024 rows of 128 keys and a head dim of 64 are 3e7
	)
	var study tensor.Shape
	requested := false
	for _, s := range shapes {
		shape := s.(tensor.Shape)
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

// maxModelWork limits the multiply-adds of a model of exact exponentials. Above it the model has a
// sample of the rows: 4096 rows of 500 keys take some tenths of a second.
const maxModelWork = 3e8

// Model adds the model of exact exponentials to a reference, if the variant is compared with it.
func (p *Problem) Model(ctx context.Context, of problem.Reference, v spec.Variant) error {
	ref := of.(*reference)
	if ref.exact != nil || v.Exponentials() == "" {
		return nil
	}
	var err error
	if ref.want.Rows == nil {
		ref.exactRows = oracle.Sample(ref.inputs.Shape, ref.secret, maxModelWork)
	} else {
		ref.exactRows = ref.want.Rows.Subset(ref.inputs.Shape, maxModelWork)
	}
	ref.exact, err = accuracy.ExactExponentials(ctx, ref.inputs, ref.exactRows)
	return err
}

// Size is the FLOPs of a launch.
func (p *Problem) Size(s spec.Shape) float64 { return s.(tensor.Shape).FLOPs() }

// Work has the least memory traffic: inputs in a number format, and an output of two bytes an
// element.
func (p *Problem) Work(v spec.Variant, s spec.Shape, dtype string) (problem.Work, error) {
	shape, element := s.(tensor.Shape), 2.0
	if dtype == p.DType(v) {
		element = 1
	}
	rows, keys := float64(shape.Rows()), float64(shape.KVHeadCount())*float64(shape.SeqK)
	return problem.Work{FLOPs: shape.FLOPs(), Bytes: float64(shape.HeadDim) * (element*(rows+2*keys) + 2*rows)}, nil
}

// Parameters lists what Job passes, in the same order.
func (p *Problem) Parameters(b problem.Build) []problem.Parameter {
	contract := b.Image.Record.Launch
	var all []problem.Parameter
	add := func(one problem.Parameter, names ...string) {
		for _, one.Name = range names {
			all = append(all, one)
		}
	}
	pointer := problem.Parameter{Is: "pointer", Bytes: 8}
	output := problem.Parameter{Is: "pointer", Bytes: 8, Output: true}
	integer := func(low, high int64) problem.Parameter {
		return problem.Parameter{Is: "int", Bytes: 4, Range: &mutate.Range{Min: low, Max: high}}
	}
	add(pointer, "q", "k", "v")
	add(output, "o")
	if contract.LSE != "" {
		add(output, "lse")
	}
	add(pointer, "descale_q", "descale_k", "descale_v")
	add(integer(1, math.MaxInt32), "heads")
	add(integer(1, tensor.MaxExtent), "group", "queries", "keys")
	add(integer(0, 1), "causal")
	add(problem.Parameter{Is: "float", Bytes: 4, Float: true}, "softmax_scale")
	for _, m := range contract.TensorMaps {
		add(problem.Parameter{Is: "CUtensorMap", Bytes: tensormap.Bytes, Output: m.Argument == form.ArgumentO},
			"tensor map of "+[]string{"q", "k", "v", "o"}[m.Argument])
	}
	return all
}

// ParameterHelp says which parameters depend on the launch contract.
func (p *Problem) ParameterHelp() string {
	return "lse and tensor maps are passed as ATTUNE_OUTPUTS and ATTUNE_TENSOR_MAPS declare them"
}

// LaunchKey is the launch contract.
func (p *Problem) LaunchKey(b problem.Build) string { return fmt.Sprint(b.Image.Record.Launch) }

// SharedBytes is that of the launch contract.
func (p *Problem) SharedBytes(b problem.Build, _ []spec.Shape) (int, error) {
	return b.Image.Record.Launch.DynamicSharedBytes, nil
}

// Threads is that of the launch contract.
func (p *Problem) Threads(b problem.Build, _ []spec.Shape) (int, error) {
	return b.Image.Record.Launch.Threads, nil
}

// Allowed is nothing.
func (p *Problem) Allowed() []finding.Kind { return nil }
