package kernels_test

import (
	"testing"

	"attune/internal/spec"
)

const warpFolder = "attention/warp"

// Every stage is right on each class of its architectures, with all checkers: the same source compiles
// to other registers, and the simulator has the limits of each chip. sm_86 runs what sm_80 does, with the
// shared memory of sm_89.
func TestWarpIsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, warpFolder)
	all, options := kernel.Run.SimShapes, optionShapes(t, kernel)
	few := []string{"ragged", "mean", "causal", "short", "peaks", "split"}
	some := []string{"left", "packed_all", "paged", "paged_16", "softcap", "alibi_cap", "tree_paged", "decode_parts", "decode_paged", "draft"}
	for i, test := range []struct {
		variant, arch string
		shapes        []string
	}{
		{"warp_d64", "sm_89", all},
		{"warp_d64", "sm_120", few},
		{"warp_d64", "sm_80", few},
		{"warp_d64", "sm_90a", few},
		{"warp_d64_fp16", "sm_86", few},
		{"warp_d64_m64", "sm_89", all},
		{"warp_d64_m64_fp16", "sm_80", few},
		{"warp_d96", "sm_89", all},
		{"warp_d96", "sm_120", few},
		{"warp_d96_fp16", "sm_80", few},
		{"warp_d128", "sm_89", all},
		{"warp_d128", "sm_120", few},
		{"warp_d128", "sm_80", few},
		{"warp_d128", "sm_90a", few},
		{"warp_d128_fp16", "sm_86", few},
		{"warp_d128_m64", "sm_89", all},
		{"warp_d128_m64_fp16", "sm_80", few},
		{"warp_d256", "sm_89", all},
		{"warp_d256", "sm_120", few},
		{"warp_d256", "sm_80", few},
		{"warp_d256", "sm_90a", few},
		{"warp_d256_fp16", "sm_86", few},
		{"warp_d64_s2", "sm_86", few},
		{"warp_d64_s2_fp16", "sm_120", few},
		{"warp_d96_n32", "sm_89", few},
		{"warp_d96_n32_fp16", "sm_120", few},
		{"warp_d128_n32", "sm_89", all},
		{"warp_d128_n32", "sm_80", few},
		{"warp_d128_n32", "sm_90a", few},
		{"warp_d128_n32", "sm_120", few},
		{"warp_d128_n32_fp16", "sm_86", few},
		{"warp_d256_w8", "sm_89", all},
		{"warp_d256_w8", "sm_80", few},
		{"warp_d256_w8_fp16", "sm_120", few},
		{"warp_d64_options", "sm_89", options},
		{"warp_d64_options_fp16", "sm_120", some},
		{"warp_d128_options", "sm_80", options},
		{"warp_d128_options", "sm_90a", some},
		{"warp_d128_options_fp16", "sm_89", some},
		{"warp_d128_options_n32", "sm_89", options},
		{"warp_d128_options_n32_fp16", "sm_86", some},
		{"warp_d256_options", "sm_86", some},
		{"warp_d256_options_fp16", "sm_80", some},
		{"warp_d64_cache", "sm_89", options},
		{"warp_d64_cache_fp16", "sm_90a", some},
		{"warp_d128_cache", "sm_120", options},
		{"warp_d128_cache", "sm_80", some},
		{"warp_d128_cache_fp16", "sm_89", some},
		{"warp_d256_cache", "sm_90a", some},
		{"warp_d256_cache_fp16", "sm_86", some},
		{"warp_d64_cache_m32", "sm_89", options},
		{"warp_d64_cache_m64", "sm_90a", some},
		{"warp_d128_cache_m32", "sm_80", some},
		{"warp_d128_cache_m64", "sm_86", options},
		{"warp_d64_cache8", "sm_80", options},
		{"warp_d64_cache8_fp16", "sm_89", some},
		{"warp_d128_cache8", "sm_89", options},
		{"warp_d128_cache8", "sm_90a", some},
		{"warp_d128_cache8_fp16", "sm_86", some},
		{"warp_d256_cache8", "sm_120", some},
		{"warp_d256_cache8_fp16", "sm_89", some},
		{"warp_d64+TILE_N=96", "sm_89", few},
		{"warp_d256+TILE_N=32+KV_STAGES=2", "sm_89", few},
	} {
		t.Run(test.variant+"@"+test.arch, func(t *testing.T) {
			skipUnlessSampled(t, i, sampled)
			t.Parallel()
			checkDeclaredOn(t, kernel, builder, warpFolder, test.variant, test.arch, sampleOf(t, i, sampled, test.shapes))
		})
	}
}

// optionShapes returns the shapes that only stages with options compute.
func optionShapes(t *testing.T, kernel *spec.Kernel) []string {
	t.Helper()
	var names []string
	for _, name := range kernel.Run.Shapes {
		shapes, err := kernel.Shapes(name)
		if err != nil {
			t.Fatal(err)
		}
		if shapes[0].(spec.Axes).Value("options") == 1 {
			names = append(names, name)
		}
	}
	return names
}
