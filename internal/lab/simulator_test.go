package lab

import (
	"context"
	"slices"
	"testing"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
)

// newSimulated is the kernel that can be wrong in many ways, on the simulator.
func newSimulated(t *testing.T, o simdevice.Options) *setup {
	t.Helper()
	s := newBroken(t)
	s.Facts, s.NoClock = simdevice.Open(o).Facts(), true
	s.Open = func(context.Context) (device.Device, error) { return simdevice.Open(o), nil }
	return s
}

// What goes wrong with a kernel comes out with no GPU as well, mostly with the line of its source.
func TestRunsOnTheSimulator(t *testing.T) {
	check := func(variant string, o simdevice.Options, want string, reasons ...string) {
		t.Helper()
		s := newSimulated(t, o)
		r := s.request(variant)
		r.Shapes, r.Seeds = shapes(t, "1x1x4x64"), []uint64{0}
		got := s.one(r)
		expect(t, got, want)
		for _, reason := range reasons {
			says(t, slices.Concat(got.Reasons.Correctness, got.Reasons.Performance), reason)
		}
		answered := len(got.Correctness) > 0
		if got.Device != "sim" || answered != (got.Ran == "ptx") || got.Arch != "sm_90a" || len(got.Performance) != 0 || got.Headline != nil {
			t.Errorf("%s: the record is %+v", variant, got)
		}
	}
	all := simdevice.Options{Checks: true, Limit: time.Minute}
	check("good", all, "not-measured pass/pass/not-measured/not-measured", "this device measures no time")
	check("racy", all, wrongOne, "1x1x4x64 seed 0 and 4 more: race at broken.cu:", "with broken.cu:")
	check("outside", all, wrongOne, "out-of-bounds at broken.cu:")
	check("illegal", all, wrongOne, "out-of-bounds at broken.cu:")
	check("zeros", all, wrongOne, "max_err")
	check("scribble", all, wrongOne, "race at broken.cu:") // all threads of a block flip one bit of an input
	check("lazy", all, wrongOne, "unwritten: argument 3: 128 of 512 bytes never written")
	check("hang", all, wrongOne, "deadlock")
	check("hopper", all, "not-measured pass/not-measured/not-measured/not-measured", "multimem.red", "this device cannot run the kernel")
	check("endless", simdevice.Options{Checks: true, Limit: 50 * time.Millisecond}, wrongOne, "1x1x4x64 seed 0: no result within 50ms")
}
