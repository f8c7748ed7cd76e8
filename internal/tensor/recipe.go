package tensor

import (
	"fmt"
	"strings"

	"attune/internal/fp8"
)

// Recipe is how the host prepares Q, K and V before it quantises them, to reduce the quantisation
// error. In exact arithmetic the steps do not change the result of attention. The zero value only
// quantises, with one descale factor per head.
type Recipe struct {
	// SmoothK subtracts from each channel of a head's K its mean over the keys. That shifts all
	// scores of a row by the same amount, which softmax ignores. It saves the range that eight bits
	// would spend on the common offset.
	SmoothK bool
	// Hadamard rotates Q and K by the same random orthonormal matrix.
	Hadamard bool
	// Scale is the granularity of the descale factors.
	Scale fp8.Scale
}

// steps are the names that make up a recipe, in the order in which String writes them.
var steps = []struct {
	name  string
	set   func(*Recipe)
	isSet func(Recipe) bool
}{
	{"per-tensor", func(r *Recipe) { r.Scale = fp8.PerTensor }, func(r Recipe) bool { return r.Scale == fp8.PerTensor }},
	{"smooth-k", func(r *Recipe) { r.SmoothK = true }, func(r Recipe) bool { return r.SmoothK }},
	{"hadamard", func(r *Recipe) { r.Hadamard = true }, func(r Recipe) bool { return r.Hadamard }},
}

// plainRecipe is the name of the zero Recipe.
const plainRecipe = "none"

// ParseRecipe parses "none", or steps joined by "+": per-tensor, smooth-k, hadamard.
func ParseRecipe(text string) (Recipe, error) {
	var r Recipe
	if text == plainRecipe {
		return r, nil
	}
next:
	for word := range strings.SplitSeq(text, "+") {
		for _, step := range steps {
			if word == step.name && !step.isSet(r) {
				step.set(&r)
				continue next
			}
		}
		const known = "there are none, or per-tensor, smooth-k and hadamard joined by +"
		return Recipe{}, fmt.Errorf("recipe %q: %q is not a step or is repeated; %s", text, word, known)
	}
	return r, nil
}

// String formats the recipe as ParseRecipe expects it.
func (r Recipe) String() string {
	var words []string
	for _, step := range steps {
		if step.isSet(r) {
			words = append(words, step.name)
		}
	}
	if words == nil {
		return plainRecipe
	}
	return strings.Join(words, "+")
}

// Apply returns inputs that are quantised by the recipe from the original values of in. The seed of
// the inputs also determines the rotation.
func (r Recipe) Apply(in *Inputs) *Inputs {
	shape := in.Shape
	var rotate *rotation
	if r.Hadamard {
		rotate = newRotation(shape.HeadDim, in.Seed)
	}
	transform := func(values []float32, heads int, smooth bool) Tensor {
		length := len(values) / heads
		transformed := make([]float32, len(values))
		parallel(heads, func(head int) {
			part := func(all []float32) []float32 { return all[head*length:][:length] }
			transformHead(part(transformed), part(values), shape.HeadDim, smooth, rotate)
		})
		return Quantize(transformed, heads, r.Scale)
	}
	out := *in
	out.Options.Scale = r.Scale
	out.Q = transform(in.Q.Original, shape.HeadCount(), false)
	out.K = transform(in.K.Original, shape.KVHeadCount(), r.SmoothK)
	out.V = Quantize(in.V.Original, shape.KVHeadCount(), r.Scale)
	return &out
}

// transformHead applies the steps to one head in float64 and rounds once, at the end.
func transformHead(into, head []float32, dims int, smooth bool, rotate *rotation) {
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

// channelMeans returns the mean of each dim over the rows of a head.
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
