package document

import (
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/plot"
	"attune/internal/problem/attention"
	"attune/internal/profile"
)

// newProfile is a launch counted by Nsight Compute and by the simulator, with some differences.
func newProfile(t *testing.T, facts device.Facts) *profile.Profile {
	t.Helper()
	p := &profile.Profile{
		Shape: "1x8x512x64", FLOPs: 4 * 8 * 512 * 512 * 64,
		Ncu: profile.Values{
			profile.Time: 9060, profile.SMBusy: 22.12, profile.DRAMBusy: 1.87, profile.DRAMBytes: 812410, profile.IssueBusy: 31.73, profile.Waves: 0.48,
			profile.LoadConflicts: 32768, "copy_conflicts": 2, profile.Registers: 182, "shared_wavefronts": 204800, "stall_wait": 1.06, "cycles_per_instruction": 3.19,
			"global_load_sectors": 296448, "global_store_sectors": 32700, "shared_store_conflicts": 0,
		},
		Sim: profile.Values{
			profile.LoadConflicts: 32768, "copy_conflicts": 4, "shared_wavefronts": 204800, "global_load_sectors": 296448, "global_store_sectors": 32768, "shared_store_conflicts": 3, profile.TensorFLOPs: 570425344,
			"ptx_instructions": 1673728,
		},
		Unknown: []string{"dram__bytes.sum"},
	}
	p.Insights = profile.Explain(p.Values(), attention.New(nil).Hints())
	roofline, err := profile.NewRoofline(facts, p.FLOPs, p.Values())
	if err != nil {
		t.Fatal(err)
	}
	p.Roofline = roofline
	return p
}

var (
	h200 = device.Facts{Name: "NVIDIA H200", Arch: "sm_90"}
	l4   = device.Facts{Name: "NVIDIA L4", Arch: "sm_89", Multiprocessors: 58, ClockKHz: 2040000}
)

func TestProfile(t *testing.T) {
	both := newProfile(t, h200)
	goldenOf(t, "profile.txt", func(w io.Writer) error { return Profile("stage3b", both).Terminal(w, screen) })
	goldenOf(t, "profile.md", func(w io.Writer) error { return writeMarkdown(w, Profile("stage3b", both)) })
	onChip := newProfile(t, l4)
	onChip.Sim = nil
	goldenOf(t, "profile_ncu.txt", func(w io.Writer) error { return Profile("stage3b", onChip).Terminal(w, screen) })
	simulated := newProfile(t, h200)
	simulated.Ncu, simulated.Roofline, simulated.NoRoofline, simulated.Insights, simulated.Unknown = nil, nil, "no time was measured", nil, nil
	goldenOf(t, "profile_sim.md", func(w io.Writer) error { return writeMarkdown(w, Profile("stage3b", simulated)) })
}

func TestRooflinePlot(t *testing.T) {
	p := newProfile(t, h200)
	got := RooflinePlot("stage3b+A<B", p)
	want := &plot.Roofline{
		Title: "stage3b+A<B on " + p.Shape + ", NVIDIA H200", Memory: plot.Ceiling{Name: "DRAM", Basis: "measured: a copy, bytes read and written", PerSecond: 4.22e12},
		Compute: []plot.Ceiling{{Name: "FP16", Basis: "measured: a bfloat16 GEMM", PerSecond: 784e12}, {Name: "FP8", Basis: "measured: an E4M3 GEMM", PerSecond: 1468e12}},
		Points:  []plot.RooflinePoint{{Name: "stage3b+A<B", Intensity: p.Roofline.Point.Intensity, PerSecond: p.Roofline.Point.PerSecond}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the plot (-want +got):\n%s", diff)
	}
}
