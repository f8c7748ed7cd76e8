package kernels_test

import (
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/finding"
	"attune/internal/lab"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/rotate"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
	"attune/kernels"
)

// The embedded PTX must equal a fresh build of the sources, byte for byte, with no image missing or
// left over. Of the images of a variant the one for the newest architecture is built again; of the
// others the checksum of the sources is compared.
func TestShippedImagesMatchSources(t *testing.T) {
	all := kernels.All()
	index := 0 // of an image of all folders
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { index += checkShipped(t, all[name], index) })
	}
}

// checkShipped checks the images of a folder, of which the first has an index among those of all folders. It
// returns their number.
func checkShipped(t *testing.T, folder fs.FS, first int) int {
	t.Helper()
	// The build cache is safe here: a key has the sources, the flags and the compiler. On a clean
	// machine the images that other tests build too are compiled once.
	kernel, builder := pinnedBuilder(t, folder)
	shipped := toolchain.NewBuilder(folder, nil, t.TempDir())
	targets := lab.ShippedTargets(kernel)
	newest := newestArchs(targets)
	for i, target := range targets {
		t.Run(target.String(), func(t *testing.T) {
			t.Parallel()
			got, _, err := shipped.Build(t.Context(), target)
			if err != nil {
				t.Fatalf("%v\nif the sources have changed, run `make ship`", err)
			}
			if target.Arch != newest[target.Variant] {
				return
			}
			skipUnlessSampled(t, first+i, compiled)
			want, _, err := builder.Build(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Record, got.Record); diff != "" {
				t.Errorf("the record differs; run `make ship` (-fresh +shipped):\n%s", diff)
			}
			if string(got.PTX) != string(want.PTX) || got.Log != want.Log {
				t.Error("the PTX or its log differs from a fresh build; run `make ship`")
			}
		})
	}
	list, err := toolchain.ReadShipped(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Images) != len(targets) {
		t.Errorf("%d images are shipped for %d targets; run `make ship`", len(list.Images), len(targets))
	}
	return len(targets)
}

// The audit finds nothing in the shipped images of declared kernels but what their launches need. Of
// verified sources one image of `sampled` is read.
func TestShippedDeclaredImagesPassTheAudit(t *testing.T) {
	verified := isVerified(t)
	for name, folder := range kernels.All() {
		kernel, err := spec.Load(folder)
		if err != nil {
			t.Fatal(err)
		}
		if kernel.Declared == nil {
			continue
		}
		p := lab.NewProblem(kernel, folder, name)
		for i, target := range lab.ShippedTargets(kernel) {
			if due, err := rotate.Due(i, sampled); err != nil {
				t.Fatal(err)
			} else if verified && !due {
				continue
			}
			image, _, err := toolchain.NewBuilder(folder, nil, "").Build(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			v := variantOf(t, kernel, target.Variant)
			for _, f := range lab.Audit(p, problem.Build{Variant: v, Image: image}) {
				if !f.Is(append(v.Allowed(), p.Allowed()...)...) {
					t.Errorf("%s: %s; %s", target, f, f.Remedy())
				}
			}
		}
	}
}

// The audit finds nothing in a shipped image but what kernel.toml allows, and every knob with an
// allowance needs it.
func TestShippedImagesPassTheAudit(t *testing.T) {
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	shipped := toolchain.NewBuilder(kernels.SDPA(), nil, t.TempDir())
	needed := map[finding.Kind]bool{}
	for _, target := range lab.ShippedTargets(kernel) {
		image, _, err := shipped.Build(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		v, err := kernel.Variant(target.Variant)
		if err != nil {
			t.Fatal(err)
		}
		all := lab.Audit(attention.New(kernel), problem.Build{Variant: v, Image: image})
		for _, f := range all {
			needed[f.Kind] = true
			if !f.Is(v.Allowed()...) {
				t.Errorf("%s: %s; %s", target, f, f.Remedy())
			}
		}
	}
	for _, knob := range kernel.Knobs {
		for _, kind := range knob.Allow {
			if !needed[kind] {
				t.Errorf("%s allows %s, and no shipped image needs it", knob.Name, kind)
			}
		}
	}
}

// newestArchs is the newest architecture of each variant.
func newestArchs(targets []toolchain.Target) map[string]string {
	archs := map[string]string{}
	for _, target := range targets {
		archs[target.Variant] = max(archs[target.Variant], target.Arch)
	}
	return archs
}

// Recorded runs name variants by knobs that have been renamed or retired since.
func TestFormerVariantNamesParse(t *testing.T) {
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	for former, want := range map[string]string{
		"stage7a+TILE_M=8+TILE_N=128+KEY_GROUPS=1+POLYNOMIAL_EIGHTHS=0": "stage7a+TILE_M=8+TILE_N=128+KEY_GROUPS=1+EXP2_CUBIC_EIGHTHS=0",
		"stage7b+USE_OVERLAP=0+POLYNOMIAL_EIGHTHS=5":                    "stage7b+USE_OVERLAP=0+EXP2_LINEAR_EIGHTHS=5",
		"stage7a+USE_KEYS_AS_ROWS=1+BLOCKS_PER_SM=1":                    "stage7a",
		"stage7b+USE_KEYS_AS_ROWS=0":                                    "stage7b",
		"stage6+PROMOTE_KEYS=32":                                        "stage6",
	} {
		if got, err := kernel.Variant(former); err != nil || got.String() != want {
			t.Errorf("%s is %v, %v; want %s", former, got, err, want)
		}
	}
	for _, gone := range []string{"stage7a+USE_KEYS_AS_ROWS=0", "stage6+PROMOTE_KEYS=64", "stage2+BLOCKS_PER_SM=2"} {
		if got, err := kernel.Variant(gone); err == nil {
			t.Errorf("%s is %v; want an error, because no code has this value", gone, got)
		}
	}
}

// The correctness tests do not notice a wrong bound in the selection: it costs only speed.
func TestStage7SelectsByShape(t *testing.T) {
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		shape                       string
		headDim, queries, keyGroups int // of the selected variant
	}{
		{"1x8x128x64", 64, 8, 1},
		{"2x8x128x64", 64, 16, 1},
		{"2x8x256x64", 64, 32, 1},
		{"1x8x512x64", 64, 32, 2},
		{"4x8x256x64", 64, 64, 1},
		{"2x8x512x64", 64, 64, 2},
		{"1x4x1024x64", 64, 64, 2}, // uses half of the multiprocessors, and beats two steps on all
		{"1x8x512x64:kv=4096", 64, 64, 2},
		{"1x8x2048x64", 64, 128, 1},        // one wave with tiles of 128 or 256
		{"2x8x2048x64:causal", 64, 128, 1}, // one wave of 256 would end with its longest tile
		{"2x8x2048x64", 64, 256, 1},
		{"32x8x512x64", 64, 256, 1},
		{"32x32x512x64:causal", 64, 256, 1},
		{"1x32x16384x64", 64, 256, 1},
		{"2x8x128x128", 128, 16, 1},
		{"1x8x256x128", 128, 16, 1},
		{"1x8x512x128", 128, 64, 1},
		{"2x8x512x128:causal", 128, 64, 1},
		{"1x8x1024x128", 128, 64, 2},
		{"1x4x512x128:kv=2048", 128, 64, 2},
		{"1x8x2048x128", 128, 128, 1},
		{"2x8x2048x128:causal", 128, 128, 1}, // two waves with tiles of 128 or 192
		{"32x16x512x128", 128, 192, 1},
		{"17x8x64x64", 64, 64, 1}, // short keys: two small blocks on a multiprocessor
		{"22x16x552x64:causal", 64, 192, 1},
		{"4x16x4096x128", 128, 128, 1},        // few steps: two consumers with long ones
		{"4x16x4096x128:causal", 128, 192, 1}, // many steps with a mask: three consumers
		{"2x16x8192x128", 128, 128, 1},
		{"1x16x16384x128:causal", 128, 192, 1},
		{"1x1x1x256", 256, 64, 1},
		{"1x8x1024x256:causal", 256, 64, 1},
		{"1x8x2048x256", 256, 128, 1},
		{"1x8x16384x256", 256, 128, 1},
	} {
		shape, err := tensor.ParseShape(c.shape)
		if err != nil {
			t.Fatal(err)
		}
		choice, err := kernel.Selection("stage7").Choose(shape)
		if err != nil {
			t.Fatal(err)
		}
		v := choice.Variant
		if valueOf(v, "HEAD_DIM") != c.headDim || valueOf(v, "TILE_M") != c.queries || valueOf(v, "KEY_GROUPS") != c.keyGroups {
			t.Errorf("%s selects %s; want TILE_M=%d, HEAD_DIM=%d, KEY_GROUPS=%d",
				c.shape, v, c.queries, c.headDim, c.keyGroups)
		}
	}
}
