package attention

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/tensor"
)

// A shape has the same inputs with and without a mask, drawn once, and different references.
func TestInputsAreDrawnOnce(t *testing.T) {
	all := shapes(t, "1x2x40x64", "1x2x40x64:causal", "1x1x8x64")
	refs := New(nil).References(problem.Options{MaxWork: math.Inf(1)}).(*references)
	get := func(shape spec.Shape, seed uint64) *reference {
		t.Helper()
		p := New(nil).Plain(shape, seed)
		refs.KeepOnly(p)
		ref, err := refs.Get(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tensor.Draw(shape.(tensor.Shape), seed, tensor.Options{}), ref.(*reference).inputs); diff != "" {
			t.Errorf("%s: inputs (-want +got):\n%s", p, diff)
		}
		if len(refs.computed) != 1 || len(refs.drawn) != 1 {
			t.Errorf("%s: %d references and %d inputs are kept; want those of the last problem", p, len(refs.computed), len(refs.drawn))
		}
		return ref.(*reference)
	}
	plain, masked := get(all[0], 1), get(all[1], 1)
	if &plain.inputs.K.Codes[0] != &masked.inputs.K.Codes[0] {
		t.Error("the inputs were drawn again for the mask")
	}
	if cmp.Equal(plain.want.Out, masked.want.Out) || plain.inputs.Shape.Causal {
		t.Error("the masked problem has the reference or the shape of the other")
	}
	if get(all[1], 2); &plain.inputs.K.Codes[0] == &refs.computed[New(nil).Plain(all[1], 2)].inputs.K.Codes[0] {
		t.Error("another seed has the same inputs")
	}
	get(all[2], 2)
}
