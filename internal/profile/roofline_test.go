package profile

import (
	"math"
	"strings"
	"testing"

	"attune/internal/device"
)

func TestRoofline(t *testing.T) {
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 1e-3 {
			t.Errorf("%s is %g; want %g", name, got, want)
		}
	}
	const flops = 4 * 8 * 512 * 512 * 64
	v := recorded(t, "stage3b")
	r, err := NewRoofline(device.Facts{Name: "NVIDIA H200", Arch: "sm_90"}, flops, v)
	if err != nil {
		t.Fatal(err)
	}
	near("intensity", r.Point.Intensity, 660.8)
	near("rate", r.Point.PerSecond, 59.26e12)
	near("bandwidth", r.Memory.PerSecond, 4.22e12)
	near("FP16", r.Compute[0].PerSecond, 784e12)
	near("FP8", r.Compute[1].PerSecond, 1468e12)
	near("limit on the slope", r.Limit(100), 422e12)
	near("limit under the roof", r.Limit(660.8), 1468e12)
	if !strings.HasPrefix(r.Memory.Basis, "measured") || !strings.HasPrefix(r.Compute[1].Basis, "measured") {
		t.Errorf("the ceilings are %+v, %+v", r.Memory, r.Compute)
	}

	r, err = NewRoofline(device.Facts{Name: "NVIDIA L4", Arch: "sm_89", Multiprocessors: 58, ClockKHz: 2040000}, flops, v)
	if err != nil {
		t.Fatal(err)
	}
	near("bandwidth by the profile", r.Memory.PerSecond, 89.67e9/0.0187)
	near("FP16", r.Compute[0].PerSecond, 121.2e12)
	near("FP8", r.Compute[1].PerSecond, 242.3e12)
	if want := "computed: 58 multiprocessors x 2.04 GHz x 2048 FLOPs"; r.Compute[1].Basis != want || !strings.HasPrefix(r.Memory.Basis, "computed") {
		t.Errorf("the ceilings are %+v, %+v; want %q", r.Memory, r.Compute, want)
	}
	r, err = NewRoofline(device.Facts{Name: "NVIDIA A100", Arch: "sm_80", Multiprocessors: 108, ClockKHz: 1410000}, flops, v)
	if err != nil || len(r.Compute) != 1 {
		t.Errorf("an A100 has no FP8, got %+v, %v", r, err)
	}
}

func TestNoRoofline(t *testing.T) {
	h200 := device.Facts{Name: "NVIDIA H200", Arch: "sm_90"}
	for _, c := range []struct {
		facts device.Facts
		v     Values
		want  string
	}{
		{h200, nil, "which were not measured"},
		{h200, Values{Time: 5}, "which were not measured"},
		{h200, Values{DRAMBytes: 5}, "which were not measured"},
		{device.Facts{Name: "NVIDIA L4", Arch: "sm_89"}, Values{Time: 5, DRAMBytes: 5}, "needs the bandwidth of NVIDIA L4"},
		{device.Facts{Name: "NVIDIA L4", Arch: "sm_89"}, Values{Time: 5, DRAMBytes: 5, DRAMBusy: 1}, "needs the rate of the tensor cores of NVIDIA L4"},
		{
			device.Facts{Name: "another", Arch: "sm_75", Multiprocessors: 1, ClockKHz: 1},
			Values{Time: 5, DRAMBytes: 5, DRAMBusy: 1},
			"sm_75 is unknown",
		},
	} {
		if r, err := NewRoofline(c.facts, 1, c.v); r != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, %v; want %q", c.v, r, err, c.want)
		}
	}
}
