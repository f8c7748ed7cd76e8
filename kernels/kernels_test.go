package kernels

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/lab"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// The PTX in the program must be what the sources give today, byte for byte, with nothing missing and nothing left over.
func TestShippedImagesAreWhatTheSourcesGive(t *testing.T) {
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := toolchain.Installed(t.Context(), cacheDir)
	if err != nil {
		t.Skipf("the pinned compiler is needed: %v", err)
	}
	kernel, err := spec.Load(SDPA())
	if err != nil {
		t.Fatal(err)
	}
	builder := toolchain.NewBuilder(SDPA(), compiler, t.TempDir()) // an empty cache: compiled now
	shipped := toolchain.NewBuilder(SDPA(), nil, t.TempDir())
	targets := lab.ShippedTargets(kernel)
	for _, target := range targets {
		t.Run(target.String(), func(t *testing.T) {
			t.Parallel()
			got, _, err := shipped.Build(t.Context(), target)
			if err != nil {
				t.Fatalf("%v\nhave the sources changed? run `make ship`", err)
			}
			want, _, err := builder.Build(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Record, got.Record); diff != "" {
				t.Errorf("run `make ship`; the record differs (-built now +shipped):\n%s", diff)
			}
			if string(got.PTX) != string(want.PTX) || got.Log != want.Log {
				t.Error("run `make ship`; the PTX or its log is not what the sources give")
			}
		})
	}
	list, err := toolchain.ReadShipped(SDPA())
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Images) != len(targets) {
		t.Errorf("%d images are shipped, and the stages make %d; run `make ship`", len(list.Images), len(targets))
	}
}

// A bound of the table that is off by a factor takes nothing away from any answer, only from the speed.
func TestStage7IsChosenByShape(t *testing.T) {
	kernel, err := spec.Load(SDPA())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		shape                       string
		headDim, queries, keyGroups int // of the variant that takes it
	}{
		{"1x8x128x64", 64, 8, 1},
		{"2x8x128x64", 64, 16, 1},
		{"2x8x256x64", 64, 32, 1},
		{"1x8x512x64", 64, 32, 2},
		{"4x8x256x64", 64, 64, 1},
		{"2x8x512x64", 64, 64, 2},
		{"1x4x1024x64", 64, 64, 2}, // half of the multiprocessors, and faster than two steps on all
		{"1x8x512x64:kv=4096", 64, 64, 2},
		{"1x8x2048x64", 64, 128, 1},        // one round of either
		{"2x8x2048x64:causal", 64, 128, 1}, // one round of 256, which would end with its longest tile
		{"2x8x2048x64", 64, 256, 1},
		{"32x8x512x64", 64, 256, 1},
		{"32x32x512x64:causal", 64, 256, 1},
		{"1x32x16384x64", 64, 256, 1},
		{"2x8x128x128", 128, 16, 1},
		{"1x8x256x128", 128, 16, 1},
		{"1x8x512x128", 128, 64, 1},
		{"2x8x512x128:causal", 128, 64, 1},
		{"1x8x1024x128", 128, 64, 1},
		{"1x4x512x128:kv=2048", 128, 64, 2},
		{"1x8x2048x128", 128, 128, 1},
		{"2x8x2048x128:causal", 128, 128, 1}, // two rounds of either
		{"32x16x512x128", 128, 192, 1},       // 12 rounds of 192, and 16
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
			t.Errorf("%s is taken by %s; want tiles of %d queries of head dim %d, the keys shared out by %d", c.shape, v, c.queries, c.headDim, c.keyGroups)
		}
	}
}
