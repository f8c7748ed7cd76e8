package lab

import (
	"errors"
	"strings"
	"testing"

	"attune/internal/arch"
	"attune/internal/toolchain"
)

func TestPredict(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	c, _ := compiler(t)
	chip, err := arch.ChipNamed("L4")
	if err != nil {
		t.Fatal(err)
	}
	predicted := func(variant, shape string) *Prediction {
		t.Helper()
		p, err := s.Predict(t.Context(), c, s.variant(variant), shapes(t, shape)[0], chip)
		if err != nil {
			t.Fatal(err)
		}
		if p.Time.Microseconds <= 0 || p.TFLOPS <= 0 || p.Work.Instructions <= 0 {
			t.Errorf("%s on %s: %+v", variant, shape, p)
		}
		return p
	}
	refused := func(variant, shape, want string) {
		t.Helper()
		var refused RequestError
		_, err := s.Predict(t.Context(), c, s.variant(variant), shapes(t, shape)[0], chip)
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s on %s: %v, want %s", variant, shape, err, want)
		}
	}
	if _, err := s.Predict(t.Context(), nil, s.variant("stage3b"), shapes(t, "1x8x128x64")[0], chip); !errors.Is(err, toolchain.ErrNoCompiler) {
		t.Errorf("without a compiler: %v", err)
	}
	refused("stage7a", "1x8x128x64", "stage7a is for sm_90a, and L4 is sm_89")
	if c == nil {
		t.Skip(needsCompiler)
	}
	refused("stage3b", "1x8x128x128", "head dim 128")

	// Q·K and P·V of all rows and keys, in FP16. 8 further columns of V sum P.
	plain := predicted("stage3b", "1x8x128x64")
	if got, want := plain.Work.Products.F16F32*float64(plain.Work.Blocks), 2.*8*128*128*(64+72); got != want || plain.Work.Uneven {
		t.Errorf("%v FLOPs, want %v: %+v", got, want, plain.Work)
	}
	causal := predicted("stage3b", "1x2x256x64:causal")
	if got, all := causal.Work.Products.F16F32*float64(causal.Work.Blocks), 4.*2*256*256*64; got < 0.5*all || got > 0.75*all || !causal.Work.Uneven {
		t.Errorf("%v FLOPs of %v: %+v", got, all, causal.Work)
	}
	// Stage 6 multiplies E4M3. Blocks of stage 5 take tiles from a counter, so that all of them run.
	if got := predicted("stage6", "1x1x64x64").Work.Products; got.E4M3F32 == 0 {
		t.Errorf("stage6: %+v", got)
	}
	if got := predicted("stage5", "1x1x64x64").Work.Products; got.F16F32 == 0 {
		t.Errorf("stage5: %+v", got)
	}
}
