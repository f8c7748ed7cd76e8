package kernels_test

import (
	"context"
	"testing"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/lab"
	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/tensor"
	"attune/kernels"
)

// counter is the simulator, and keeps the counters of the last launch.
type counter struct {
	device.Device
	last device.Counters
}

func (c *counter) open(context.Context) (device.Device, error) {
	c.Device = simdevice.Open(simdevice.Options{})
	return c, nil
}

func (c *counter) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	outcome, err := c.Device.Run(ctx, job)
	if err == nil {
		c.last = outcome.Counters
	}
	return outcome, err
}

// The simulator's counters must equal those that Nsight Compute reported on an H200.
func TestCountersMatchH200(t *testing.T) {
	kernel, builder := pinnedBuilder(t, kernels.SDPA())
	for name, want := range map[string]profile.Values{
		"stage3b": {
			"global_sectors": 329216, "shared_wavefronts": 204800, "shared_load_wavefronts": 118784,
			"ptx_shared_loads": 32768, profile.LoadConflicts: 32768,
		},
		"stage3c": {"global_sectors": 592896, "shared_wavefronts": 40960, profile.LoadConflicts: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			variant, err := kernel.Variant(name)
			if err != nil {
				t.Fatal(err)
			}
			shape, err := tensor.ParseShape("1x8x512x64")
			if err != nil {
				t.Fatal(err)
			}
			var counts counter
			l := &lab.Lab{Kernel: kernel, Builder: builder, Device: lab.Simulator(simdevice.Open(simdevice.Options{}).Facts(), counts.open, run.Simulation{})}
			runner, err := l.NewVariantRunner(t.Context(), variant, "sm_90a")
			if err != nil {
				t.Fatal(err)
			}
			defer runner.Close()
			if _, err := runner.Output(t.Context(), tensor.Draw(shape, 0, tensor.Options{}), nil); err != nil {
				t.Fatal(err)
			}
			got := profile.ValuesOf(counts.last)
			for key, value := range want {
				if got[key] != value {
					t.Errorf("%s is %g on the simulator and %g on an H200", key, got[key], value)
				}
			}
		})
	}
}
