package clib

import (
	"strings"
	"testing"
	"testing/fstest"

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
			if name := item.Target.String(); seen[name] || item.Target.Arch != "sm_90a" {
				t.Errorf("%s is built twice, or for another architecture", name)
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
			companions = append(companions, c.Image.Record.Variant)
			if err := checkCompanion(c); err != nil || c.Threads == 0 || c.Cooperative != (c.Image.Record.Kernel == "quantize") {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if got, want := strings.Join(companions, " "), "decode decode64 decode256 decode_q16 decode64_q16 decode256_q16 prefill prefill64 prefill256 native native256 native_d128 native_fp16 native256_fp16 native_d128_fp16 native_lse native_lse_fp16 native_d128_lse native_d128_lse_fp16 mixed cast quantize append"; got != want {
			t.Errorf("the companions are %s, want %s", got, want)
		}
	}
	_, err = NewPlan(kernel, kernels.SDPA(), loadSelection(t, "[[selection]]\nname = \"s\"\nhypothesis = \"h\"\n[[selection.choice]]\nvariant = \"stage2\"\nwhy = \"w\"\n"), []int{0, BF16})
	if err == nil || !strings.Contains(err.Error(), "stage2 writes FP16 without LSE only") {
		t.Errorf("the error is %v", err)
	}
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

// The folders of companions are embedded. One that does not load, or whose launch cannot be
// evaluated, is an error.
func TestCompanionsOfBrokenFolders(t *testing.T) {
	t.Parallel()
	const kernel = `name = "k"
about = "a"
archs = ["sm_90a"]
[shapes]
one = { n = 4 }
[[arg]]
name = "y"
type = "f32"
shape = ["n"]
out = true
[launch]
grid = [1]
block = ["THREADS"]
shared = "4 // SHARE"
[reference]
python = "r.py"
[[knob]]
name = "THREADS"
values = [32]
default = 32
about = "a"
[[knob]]
name = "SHARE"
values = [0, 1]
default = 1
about = "a"
[run]
sim_shapes = ["one"]
`
	folder := func(text string) fstest.MapFS {
		return fstest.MapFS{"kernel.toml": {Data: []byte(text)}, "k.cu": {Data: []byte("")}, "r.py": {Data: []byte("")}}
	}
	items, err := companions(folder(kernel), "sm_90a")
	if err != nil || len(items) != 1 || items[0].companion.Threads != 32 || items[0].companion.SharedBytes != 4 {
		t.Errorf("%+v, %v", items, err)
	}
	if items, err := companions(folder(kernel), "sm_80"); err != nil || len(items) != 0 {
		t.Errorf("for sm_80: %+v, %v", items, err)
	}
	broken := strings.Replace(kernel, "default = 1", "default = 0", 1)
	if _, err := companions(folder(broken), "sm_90a"); err == nil || !strings.Contains(err.Error(), "floored division by zero") {
		t.Errorf("the error is %v", err)
	}
}

func TestCompanionsThatCannotBeLaunched(t *testing.T) {
	t.Parallel()
	for want, record := range map[string]toolchain.Record{
		`v: the library cannot launch the kernel "other"`:                         {Kernel: "other", Variant: "v"},
		"v: it has no knob CHUNKS, which the library needs for its launch":        {Kernel: "quantize", Variant: "v", Knobs: map[string]int{"THREADS": 32, "BLOCKS": 1}},
		"v: it has no knob BLOCKS_PER_SM, which the library needs for its launch": {Kernel: "decode", Variant: "v", Knobs: map[string]int{"HEAD_DIM": 64}},
	} {
		l := syntheticLibrary(t)
		l.Companions = []Companion{{Image: &toolchain.Image{Record: record}}}
		if _, err := Write(t.TempDir(), l); err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
