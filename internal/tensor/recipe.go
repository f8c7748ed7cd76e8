package tensor

import (
	"fmt"
	"strings"

	"attune/internal/fp8"
)

// Recipe is what the host does to queries, keys and values before it quantises them, to lose less. Both steps leave
// attention as it was, in exact arithmetic; the zero value takes neither.
type Recipe struct {
	// SmoothK subtracts from each channel of a head's keys its mean over the keys. That moves all scores of a row by
	// the same amount, which softmax does not see, and takes away what the keys have in common and eight bits would be
	// spent on.
	SmoothK bool
	// Hadamard rotates queries and keys by the same random orthonormal matrix.
	Hadamard bool
	// Scale says which numbers share a descale factor.
	Scale fp8.Scale
}

// steps are the words of a recipe in the order in which they are written and taken.
var steps = []struct {
	name string
	on   func(*Recipe)
	is   func(Recipe) bool
}{
	{"per-tensor", func(r *Recipe) { r.Scale = fp8.PerTensor }, func(r Recipe) bool { return r.Scale == fp8.PerTensor }},
	{"smooth-k", func(r *Recipe) { r.SmoothK = true }, func(r Recipe) bool { return r.SmoothK }},
	{"hadamard", func(r *Recipe) { r.Hadamard = true }, func(r Recipe) bool { return r.Hadamard }},
}

// plainRecipe is the recipe that only quantises, with a factor a head.
const plainRecipe = "none"

// ParseRecipe reads "none", or steps joined by "+": per-tensor, smooth-k, hadamard.
func ParseRecipe(text string) (Recipe, error) {
	var r Recipe
	if text == plainRecipe {
		return r, nil
	}
next:
	for word := range strings.SplitSeq(text, "+") {
		for _, step := range steps {
			if word == step.name && !step.is(r) {
				step.on(&r)
				continue next
			}
		}
		const known = "there are none, or per-tensor, smooth-k and hadamard joined by +"
		return Recipe{}, fmt.Errorf("recipe %q: %q is no step, or comes twice; %s", text, word, known)
	}
	return r, nil
}

// String writes the recipe as ParseRecipe reads it.
func (r Recipe) String() string {
	var words []string
	for _, step := range steps {
		if step.is(r) {
			words = append(words, step.name)
		}
	}
	if words == nil {
		return plainRecipe
	}
	return strings.Join(words, "+")
}

// Apply quantises inputs anew, from the numbers before they were quantised and by the recipe. The seed of the inputs
// decides the rotation too.
func (r Recipe) Apply(in *Inputs) *Inputs {
	shape := in.Shape
	var rotate *rotation
	if r.Hadamard {
		rotate = newRotation(shape.HeadDim, in.Seed)
	}
	prepared := func(values []float32, heads int, smooth bool) Tensor {
		length := len(values) / heads
		prepared := make([]float32, len(values))
		parallel(heads, func(head int) {
			prepare(prepared[head*length:][:length], values[head*length:][:length], shape.HeadDim, smooth, rotate)
		})
		return Quantize(prepared, heads, r.Scale)
	}
	out := *in
	out.Options.Scale = r.Scale
	out.Q = prepared(in.Q.Original, shape.HeadCount(), false)
	out.K = prepared(in.K.Original, shape.KVHeadCount(), r.SmoothK)
	out.V = Quantize(in.V.Original, shape.KVHeadCount(), r.Scale)
	return &out
}

// prepare takes one head through the steps in float64 and rounds once, at the end.
func prepare(into, head []float32, dims int, smooth bool, rotate *rotation) {
	means := make([]float64, dims)
	if smooth {
		means = channelMeans(head, dims)
	}
	row := make([]float64, dims)
	for start := 0; start < len(head); start += dims {
		for dim, x := range head[start:][:dims] {
			row[dim] = float64(x) - means[dim]
		}
		if rotate != nil {
			rotate.apply(row)
		}
		for dim, x := range row {
			into[start+dim] = float32(x)
		}
	}
}

// channelMeans is the mean of each dim over the rows of a head.
func channelMeans(head []float32, dims int) []float64 {
	means := make([]float64, dims)
	for start := 0; start < len(head); start += dims {
		for dim, x := range head[start:][:dims] {
			means[dim] += float64(x)
		}
	}
	for dim := range means {
		means[dim] /= float64(len(head) / dims)
	}
	return means
}
