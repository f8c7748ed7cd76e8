package lab

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/tensor"
)

// A mask changes no input: a shape has the same ones with it and without it, drawn once, and its own answers.
func TestInputsAreDrawnOnce(t *testing.T) {
	all := shapes(t, "1x2x40x64", "1x2x40x64:causal", "1x1x8x64")
	refs := newReferences()
	get := func(shape tensor.Shape, seed uint64) *reference {
		t.Helper()
		p := problem{shape: shape, seed: seed}
		refs.forget(p)
		ref, err := refs.get(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tensor.Draw(shape, seed, tensor.Options{}), ref.inputs); diff != "" {
			t.Errorf("%s: inputs (-want +got):\n%s", p, diff)
		}
		if len(refs.kept) != 1 || len(refs.drawn) != 1 {
			t.Errorf("%s: %d answers and %d inputs are kept; want those of the last problem", p, len(refs.kept), len(refs.drawn))
		}
		return ref
	}
	whole, masked := get(all[0], 1), get(all[1], 1)
	if &whole.inputs.K.Codes[0] != &masked.inputs.K.Codes[0] {
		t.Error("a mask has had inputs drawn anew")
	}
	if cmp.Equal(whole.answer.Out, masked.answer.Out) || whole.inputs.Shape.Causal {
		t.Error("the masked problem has got the answers or the shape of the other")
	}
	if get(all[1], 2); &whole.inputs.K.Codes[0] == &refs.kept[problem{shape: all[1], seed: 2}].inputs.K.Codes[0] {
		t.Error("another seed has the same inputs")
	}
	get(all[2], 2)
}
