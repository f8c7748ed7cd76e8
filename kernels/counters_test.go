package kernels

import (
	"testing"

	simdevice "attune/internal/device/sim"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/profile"
	"attune/internal/tensor"
)

// The simulator's counters must equal those that Nsight Compute reported on an H200.
func TestCountersMatchH200(t *testing.T) {
	kernel, builder := pinnedBuilder(t, SDPA())
	for name, want := range map[string]profile.Values{
		"stage3b": {
			"global_sectors": 329216, "shared_wavefronts": 204800, "shared_load_wavefronts": 118784,
			"ptx_shared_loads": 32768, profile.LoadConflicts: 32768,
		},
		"stage3c": {"global_sectors": 592896, "shared_wavefronts": 40960, profile.LoadConflicts: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records, err := ledger.Open(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer records.Close()
			variant, err := kernel.Variant(name)
			if err != nil {
				t.Fatal(err)
			}
			shape, err := tensor.ParseShape("1x8x512x64")
			if err != nil {
				t.Fatal(err)
			}
			l := &lab.Lab{Kernel: kernel, Builder: builder, Ledger: records, Device: simulator(simdevice.Options{})}
			_, profiles, err := l.Profile(t.Context(), lab.ProfileRequest{
				Variant: variant, Shapes: []tensor.Shape{shape}, Arch: "sm_90a", Simulator: simdevice.Open(simdevice.Options{}),
			})
			if err != nil || len(profiles) != 1 {
				t.Fatalf("%d profiles, %v", len(profiles), err)
			}
			for key, value := range want {
				if got := profiles[0].Sim[key]; got != value {
					t.Errorf("%s is %g on the simulator and %g on an H200", key, got, value)
				}
			}
		})
	}
}
