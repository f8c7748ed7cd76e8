package kernels

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/lab"
	"attune/internal/spec"
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
