package clib

import (
	"strings"
	"testing"

	"attune/internal/form"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

// A plan has each variant once, those of the outputs too, and all companions of the architecture.
func TestPlan(t *testing.T) {
	t.Parallel()
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	for _, outputs := range [][]int{{0}, {0, BF16}, {0, BF16, LSE, BF16 | LSE}} {
		p, err := NewPlan(kernel, kernels.SDPA(), kernel.Selection("stage7"), outputs)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		var images []*toolchain.Image
		for _, item := range p.Items {
			if name := item.Target.String(); seen[name] || item.Target.Arch != archOf(item) {
				t.Errorf("%s is built twice, or for another architecture than %s", name, archOf(item))
			}
			seen[item.Target.String()] = true
			images = append(images, &toolchain.Image{Record: toolchain.Record{Kernel: item.Target.Kernel, Variant: item.Target.Variant, Knobs: item.Target.Knobs}})
		}
		l := p.Library(images, "1")
		for i, choice := range l.Selection.Choices {
			for output, image := range l.Images[i] {
				want := ""
				if contains(outputs, output) {
					v, err := Variant(choice.Variant, output)
					if err != nil {
						t.Fatal(err)
					}
					want = v.String()
				}
				if got := variantName(image); got != want {
					t.Errorf("output %d of choice %d is %q, want %q", output, i, got, want)
				}
			}
		}
		var companions []string
		for _, c := range l.Companions {
			if c.Target.Arch == p.library.Arch {
				companions = append(companions, c.Image.Record.Variant)
			}
			if c.Threads == 0 || c.Cooperative != (c.Kernel == form.Quantize || c.Kernel == form.Quantize8) {
				t.Errorf("%+v", c)
			}
		}
		if got, want := strings.Join(companions, " "), "decode decode_r16 decode_r32 decode_r48 decode64 decode64_r16 decode64_r32 decode256 decode256_r16 decode256_r32 decode_m64 decode64_m64 decode_m128 decode64_m128 decode_fp16 decode_fp16_m128 decode64_fp16 decode64_fp16_m128 decode256_fp16 decode_bf16 decode_bf16_m128 decode64_bf16 decode64_bf16_m128 decode256_bf16 prefill prefill64 prefill256 native native256 native192 native_fp16 native256_fp16 native192_fp16 native64 native64_fp16 native192_n64 native192_n64_fp16 native64_d128 native64_d128_fp16 native_lse native_lse_fp16 pingpong_d128 pingpong_d128_exact pingpong_d256 pingpong_d128_fp16 pingpong_d128_exact_fp16 pingpong_d256_fp16 pingpong_d128_n64 pingpong_d128_n64_fp16 prefill16_d128 prefill16_d64 prefill16_d256 prefill16_d128_fp16 prefill16_d64_fp16 prefill16_d256_fp16 mixed cast quantize append"; got != want {
			t.Errorf("the companions are %s, want %s", got, want)
		}
	}
	_, err = NewPlan(kernel, kernels.SDPA(), loadSelection(t, "[[selection]]\nname = \"s\"\nhypothesis = \"h\"\n[[selection.choice]]\nvariant = \"stage2\"\nwhy = \"w\"\n"), []int{0, BF16})
	if err == nil || !strings.Contains(err.Error(), "stage2 writes FP16 without LSE only") {
		t.Errorf("the error is %v", err)
	}
}

// archOf is the architecture of an image: that of the selection, sm_89 where E4M3 is multiplied or V is
// quantised, and for other GPUs sm_80 else.
func archOf(item Item) string {
	switch t := item.Target; {
	case t.Knobs["USE_E4M3_PV"] != 0 || t.Knobs["USE_V"] != 0:
		return "sm_89"
	case t.Kernel == "warp" || t.Kernel == "warp8" || t.Kernel == "quantize8" || t.Variant == "ada" || item.Folder > len(kernels.Forms()):
		return "sm_80"
	}
	return "sm_90a"
}

func contains(outputs []int, output int) bool {
	for _, o := range outputs {
		if o == output {
			return true
		}
	}
	return false
}

func variantName(image *toolchain.Image) string {
	if image == nil {
		return ""
	}
	return image.Record.Variant
}
